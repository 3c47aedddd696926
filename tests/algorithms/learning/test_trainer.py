"""The training step: resumption, warm-up, budgets, learning rates, checkpoints."""

from contextlib import closing

import numpy as np
import pytest
import torch
from cases import case
from probes import AGENTS, TextProbe, word_policy
from small_trainers import number_trainer, text_trainer, through_a_file, timeless, weights

from collm.agents.core import Completion, Policy
from collm.algorithms import algorithm_specs
from collm.algorithms.rollout.requests import task_seeds
from collm.envs.core import Outcome

NAMES = [spec.name for spec in algorithm_specs()]
C3 = {"num_generations": 1, "num_decisions": None, "max_new_tokens": 1}
QUICK = ("iac", "magrpo", "mappo")  # one of each kind; the others differ from them in a formula


def run(trainer, count):
    return [timeless(trainer.step()[1]) for _ in range(count)]


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        *[
            pytest.param(
                text_trainer,
                {"name": name} | (C3 if name == "c3" else {}),
                marks=[pytest.mark.slow] * (name not in QUICK),
            )
            for name in NAMES
        ],
        (text_trainer, {"name": "iac", "use_separate_critic": False}),
        (text_trainer, {"name": "maac", "critic_type": "q", "learning_rate_schedule": "cosine"}),
        (text_trainer, {"name": "iac", "turns_per_update": 2}),
        (number_trainer, {"name": "ippo", "turns_per_update": 4}),
        (number_trainer, {"name": "mappo"}),
    ],
    ids=lambda value: getattr(value, "__name__", None) or "-".join(str(each) for each in value.values()),
)
def test_a_run_that_was_saved_and_loaded_is_the_run_that_never_stopped(make, changes):
    unbroken, first, second = (make(**changes) for _ in range(3))
    expected = run(unbroken, 4)
    run(first, 2)
    second.load_state_dict(through_a_file(first.state_dict()))
    np.testing.assert_equal(run(second, 2), expected[2:])
    assert all(torch.equal(a, b) for a, b in zip(weights(unbroken), weights(second), strict=True))


def test_seeds_of_tasks_are_a_function_of_run_and_update():
    assert task_seeds(0, 3, 4) == task_seeds(0, 3, 4)
    assert len({*task_seeds(0, 3, 4), *task_seeds(0, 4, 4), *task_seeds(1, 3, 4)}) == 12
    seeds = task_seeds(0, 0, 2000)
    assert len(set(seeds)) == 2000 and 0 <= min(seeds) < 2**26 and 2**31 - 2**26 < max(seeds) < 2**31


class Lengths(TextProbe):
    """Three turns; the reward is the number of characters, so that returns differ."""

    def __init__(self):
        super().__init__("delayed")

    def play(self, replies):
        return Outcome(float(sum(map(len, replies.values()))), dict.fromkeys(AGENTS, "next"))


def test_only_critics_learn_while_they_warm_up_within_the_budget():
    trainer = text_trainer("iac", Lengths, critic_warmup=2)
    policy = trainer.collector.policies[AGENTS[0]]
    before = [weight.detach().clone() for weight in policy.parameters()]
    metrics = run(trainer, 2)
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))
    assert "policy_loss" not in metrics[-1] and metrics[-1]["value_loss"] > 0
    run(trainer, 1)
    assert not all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))
    trainer = text_trainer("maac", Lengths, critic_warmup=1, max_environment_steps=25)
    assert "grad_norm" not in run(trainer, 1)[0]
    assert "grad_norm" in run(trainer, 1)[0]


class Plateau(TextProbe):
    """Three turns, each with a reward of 0.25 whatever the agents write."""

    def __init__(self):
        super().__init__("delayed")

    def play(self, replies):
        return Outcome(0.25, dict.fromkeys(AGENTS, "next"))


@case("advantage_limit")
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("maac", {"critic_warmup": 1}),
        ("iac", {"critic_warmup": 1, "advantage_normalization": "none", "turns_per_update": 3}),
        ("mappo", {"advantage_normalization": "turn"}),  # without a warm-up, the policies learn with a gradient of 0
        ("ippo", {"use_separate_critic": False, "value_loss_coef": 0.0, "credited_reward": "own"}),
    ],
)
def test_policies_stay_on_a_plateau_while_critics_learn_also_after_a_resumption(name, changes):
    settings = {"name": name, "world": Plateau, "max_environment_steps": 24 * 3} | changes
    trainer = text_trainer(**settings)
    policies = [weight.clone() for agent in AGENTS for weight in trainer.collector.policies[agent].parameters()]
    metrics = run(trainer, 2)
    resumed = text_trainer(**settings)
    resumed.load_state_dict(through_a_file(trainer.state_dict()))
    metrics += run(resumed, 1)
    assert [row["advantage_limit"] for row in metrics] == [0, 0, 0]
    learned = [weight for agent in AGENTS for weight in resumed.collector.policies[agent].parameters()]
    assert all(torch.equal(a, b) for a, b in zip(policies, learned, strict=True))
    assert [row.get("grad_norm", 0) for row in metrics] == [0, 0, 0]
    if changes.get("use_separate_critic", True):
        assert [("grad_norm" in row, row["value_loss"] > 0) for row in metrics] == 3 * [(name == "mappo", True)]


@pytest.mark.parametrize("budget", ["max_environment_steps", "max_sampled_tokens"])
def test_a_budget_that_ends_within_the_warm_up_is_refused_after_the_update_was_recorded(budget):
    """Eight episodes of three turns and two agents: 24 steps per update, and at least 48 tokens."""
    trainer = text_trainer("maac", critic_warmup=1, **{budget: 20})
    recorded = []
    with pytest.raises(ValueError, match=f"critic_warmup=1 .*{budget}=20"):
        trainer.step(lambda update, episodes, credits: recorded.append((update, len(episodes), set(credits))))
    assert recorded == [(1, 8, set(AGENTS))]
    assert (trainer.progress.update, trainer.progress.num_turns, trainer.progress.last_metrics) == (1, 24, {})


@pytest.mark.parametrize(
    ("settings_of_critic", "asked"),
    [({}, [0, 1, 2]), ({"critic_warmup": 0}, [0, 1, 2]), ({"use_separate_critic": False}, [])],
)
def test_an_algorithm_is_asked_once_per_update_if_a_separate_critic_warms_up(settings_of_critic, asked):
    trainer = text_trainer("iac", **{"critic_warmup": 2, **settings_of_critic})
    calls, told = [], trainer.algorithm.warms_up

    def noting(update, metrics):
        calls.append((update, metrics["explained_variance"]))
        return told(update, metrics)

    trainer.algorithm.warms_up = noting
    found = [metrics["explained_variance"] for metrics in run(trainer, 3)]
    np.testing.assert_equal(calls, [(update, found[update]) for update in asked])


def test_the_state_has_the_keys_of_checkpoints_that_are_already_written():
    trainer = text_trainer("iac")
    run(trainer, 1)
    state = trainer.state_dict()
    counters = {"update", "num_turns", "num_tokens", "seconds"}
    assert set(state) == counters | {"generator", "algorithm", "collector", "learners", "learner_of", "critics"}
    assert set(state["collector"]) == {"next_index", "unfinished"}
    assert set(state["learners"]) == set(state["critics"]) == set(AGENTS)
    assert state["learner_of"] == {agent: agent for agent in AGENTS}
    for agent in AGENTS:
        assert set(state["learners"][agent]) == {"policy", "optimizer"}
        assert set(state["critics"][agent]) == {"critic", "optimizer", "moments", "replay", "generator"}
    with closing(text_trainer("iac", max_staleness=1)) as ahead:
        run(ahead, 1)
        assert set(ahead.state_dict()) == {*state, "ahead"}
        assert set(ahead.state_dict()["ahead"]) == {"kept", "state"}


def test_agents_learn_at_their_own_rates_unless_they_share_weights():
    trainer = text_trainer("magrpo", agent_learning_rates={AGENTS[1]: 0.0})
    before = weights(trainer)
    run(trainer, 2)
    moved = [not torch.equal(a, b) for a, b in zip(before, weights(trainer), strict=True)]
    assert any(moved[: len(moved) // 2]) and not any(moved[len(moved) // 2 :])
    with pytest.raises(ValueError, match="agent_learning_rates names \\['nobody'\\]"):
        text_trainer("magrpo", agent_learning_rates={"nobody": 1.0})
    with pytest.raises(ValueError, match="shares its weights"):
        text_trainer("magrpo", policies=dict.fromkeys(AGENTS, word_policy()), agent_learning_rates={AGENTS[1]: 1.0})


def test_a_scripted_partner_plays_along_and_does_not_learn():
    class Parrot(Policy):
        def act(self, requests, *, greedy=False):
            return [Completion("red") for _ in requests]

    trainer = text_trainer("maac", policies={AGENTS[0]: word_policy(), AGENTS[1]: Parrot()})
    episodes, _ = trainer.step()
    assert set(trainer.credits) == {AGENTS[0]}
    assert all(len(episode.tracks) == 2 for episode in episodes)
    run(trainer, 1)
    with pytest.raises(ValueError, match="no policy of the collector can learn"):
        text_trainer("magrpo", policies=dict.fromkeys(AGENTS, Parrot()))


def test_a_head_s_values_are_clipped_around_what_it_said_in_the_units_that_it_said_it_in():
    trainer = text_trainer("iac", use_separate_critic=False, value_clip_range=0.2, critic_warmup=0)
    compared = []
    for learner in trainer.learners.values():

        def prepare(batch, learner=learner, inner=learner.prepare):
            with torch.no_grad():
                compared.append((batch.old_values, learner.policy.evaluate(batch.tracks).values))
            return inner(batch)

        learner.prepare = prepare
    run(trainer, 3)
    for said, says in compared:
        torch.testing.assert_close(said, says, atol=1e-5, rtol=1e-4)
    assert any(says.abs().max() > 1e-3 for _, says in compared)


def test_the_learning_rate_rises_through_the_warm_up_and_falls_by_its_schedule():
    trainer = text_trainer("magrpo", learning_rate_schedule="linear", warmup_updates=2, num_updates=6)
    rates = []
    for _ in range(6):
        trainer.step()
        rates.append(trainer.learners[AGENTS[0]].optimizer.adamw.param_groups[0]["lr"] / 1e-3)
    np.testing.assert_allclose(rates, [1 / 3, 2 / 3, 1, 0.75, 0.5, 0.25], atol=1e-6)


def test_what_is_learned_from_is_processed_and_what_is_logged_is_not():
    trainer = text_trainer("mareinforce", reward_shift=1.0, advantage_normalization="none", num_generations=1)
    trainer.rewards.processor = lambda reward: 10 * reward
    episodes, metrics = trainer.step()
    returns = [episode.team_return for episode in episodes]
    assert metrics["return"] == pytest.approx(np.mean(returns))
    # three turns of 10 * (0 + 1), and 10 times the reward at the end
    credited = trainer.credits[AGENTS[0]].advantages[::3].tolist()
    np.testing.assert_allclose(credited, [30 + 10 * each for each in returns], rtol=1e-5)
