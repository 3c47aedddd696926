"""What an update hands on: seeds, shaped rewards, references, records, and what it says of what went wrong."""

from unittest.mock import Mock

import pytest
import torch
from cases import case
from faulty_worlds import Losing
from probes import AGENTS, TextProbe, word_policy
from small_trainers import text_trainer, weights

from collm.agents.core import Divergence
from collm.algorithms.learning.rewards import with_rule
from collm.algorithms.rollout.requests import task_seeds
from collm.envs.core import Outcome
from collm.envs.vectors.faults import EnvironmentFault


class Uneven(TextProbe):
    """One turn; pays one agent 1 and the other 5."""

    def __init__(self):
        super().__init__("observed")

    def play(self, replies):
        outcome = super().play(replies)
        return Outcome(dict(zip(AGENTS, (1.0, 5.0), strict=True)), outcome.feedback)


def trainer_of(name, world=lambda: TextProbe("observed"), **settings):
    chosen = {"rollout_buffer_size": 4, **({} if name != "magrpo" else {"num_generations": 2})}
    return text_trainer(name, world, num_envs=3, max_new_tokens=1, **(chosen | settings))


def are_equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_seeds_of_groups_and_of_cut_rollouts_are_those_of_their_update():
    trainer = trainer_of("magrpo", seed=3)
    for update in (0, 1):
        episodes, _ = trainer.step()
        assert [each.seed for each in episodes] == [seed for seed in task_seeds(3, update, 2) for _ in range(2)]
        assert [each.group for each in episodes] == [0, 0, 1, 1]
    trainer = trainer_of("iac", turns_per_update=4, seed=3)
    episodes, _ = trainer.step()
    assert len(episodes) == 3 * 4
    drawn = task_seeds(3, 0, 3 * 5)
    assert {each.seed for each in episodes} <= set(drawn)
    trainer.step()
    assert trainer.progress.num_turns == 2 * 3 * 4


@pytest.mark.parametrize("reward", ["own", "team"])
def test_a_crossed_completion_is_credited_with_its_own_or_the_team_s_reward(reward):
    trainer = trainer_of("magrpo", Uneven, joint_mode="cross", credited_reward=reward, rollout_buffer_size=6)
    trainer.step()
    assert trainer.progress.num_turns == 3 * 2**2
    for agent, own in zip(AGENTS, (1.0, 5.0), strict=True):
        assert trainer.credits[agent].returns.tolist() == [own if reward == "own" else 3.0] * 6


@pytest.mark.parametrize("where", ["reward", "loss"])
def test_a_price_on_divergence_is_in_the_reward_or_in_the_loss(where):
    settings = {"reference_kl_coef": 2.0, "reference_kl_in": where}
    trainer = trainer_of("magrpo", Uneven, **settings)
    for weight in trainer.collector.policies[AGENTS[0]].parameters():
        weight.data.mul_(1.5)
    _, metrics = trainer.step()
    found = trainer.credits[AGENTS[0]].returns
    assert metrics["reference_kl"] > 1e-4
    assert torch.equal(found, torch.full_like(found, 3.0)) == (where == "loss")
    still = trainer.credits[AGENTS[1]].returns
    torch.testing.assert_close(still, torch.full_like(still, 3.0), atol=1e-3, rtol=0)


def test_a_rewarder_replaces_the_rewards_and_not_the_logged_return():
    trainer = trainer_of("magrpo", Uneven)
    trainer.rewards.rewarder = lambda episodes: with_rule(episodes, lambda reward: 7.0)
    _, metrics = trainer.step()
    assert metrics["return"] == 3.0
    assert trainer.credits[AGENTS[0]].returns.tolist() == [7.0] * 4


def test_keys_and_values_take_no_memory_while_weights_learn():
    trainer = trainer_of("maac")
    decoders = [policy.language_model.generator for policy in trainer.collector.policies.values()]
    held = []
    trainer.rewards.rewarder = lambda episodes: held.append([decoder.kv_bytes for decoder in decoders]) or episodes
    collect, used = trainer.collector.collect, []
    trainer.collector.collect = lambda plans: (collect(plans), used.extend(each.kv_bytes for each in decoders))[0]
    trainer.step()
    assert min(used) > 0 and held == [[0, 0]]
    assert [decoder.kv_bytes for decoder in decoders] == [0, 0]


def test_tokens_a_second_are_those_sampled_by_the_seconds_of_collecting(monkeypatch):
    trainer = trainer_of("magrpo")
    collect, now = trainer.collector.collect, [100.0]

    def slow(plans):
        now[0] += 4.0
        return collect(plans)

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr(trainer.collector, "collect", slow)
    for update in (1, 2):
        _, metrics = trainer.step()
        assert metrics["tokens_per_second"] * 4.0 == metrics["sampled_tokens"] / update
        assert metrics["seconds/update"] == 4.0 and metrics["seconds/learning"] == 0.0
        assert metrics["seconds/total"] == 4.0 * update


def test_a_record_is_made_once_per_update_before_a_weight_changes_also_if_credit_fails():
    trainer = trainer_of("iac")
    made = []
    for update in (1, 2):
        before = weights(trainer)
        episodes, _ = trainer.step(lambda *kept: made.append((*kept, weights(trainer))))
        number, recorded, credits, then = made.pop()
        assert made == [] and number == update and recorded == episodes
        assert set(credits) == set(AGENTS) and credits is trainer.credits
        assert are_equal(then, before) and not are_equal(weights(trainer), before)

    trainer.rewards.processor = lambda reward: float("nan")
    made = []
    with pytest.raises(Divergence):
        trainer.step(lambda *kept: made.append(kept))
    ((number, episodes, credits),) = made
    assert number == 3 and len(episodes) == 4 and credits == {}
    assert trainer.progress.update == 2


def test_what_the_environment_does_wrong_tells_the_update():
    trainer = trainer_of("iac")
    trainer.step()
    trainer.step()
    for copy in trainer.collector.vector.envs:
        copy.play = Mock(side_effect=KeyError("no word"))
    with pytest.raises(EnvironmentFault) as caught:
        trainer.step()
    assert caught.value.update == 3
    with pytest.raises(EnvironmentFault) as caught, trainer.progress.errors_annotated(trainer.learners):
        raise EnvironmentFault("between updates")
    assert caught.value.update == 2


def test_a_divergence_tells_the_largest_rate_of_its_agents_and_the_last_metrics():
    trainer = trainer_of("magrpo", agent_learning_rates={AGENTS[1]: 3e-3})
    _, metrics = trainer.step()
    told = {}
    for agents in ((AGENTS[0],), AGENTS, ("joint",), ()):
        fault = Divergence("too far")
        fault.agents = tuple(agents)
        with pytest.raises(Divergence), trainer.progress.errors_annotated(trainer.learners):
            raise fault
        assert fault.update == 1 and fault.metrics == metrics
        told[fault.agents] = fault.learning_rate
    assert told == {(AGENTS[0],): 1e-3, AGENTS: 3e-3, ("joint",): None, (): None}
    known = Divergence("too far")
    known.agents, known.learning_rate = AGENTS, 0.5
    with pytest.raises(Divergence), trainer.progress.errors_annotated(trainer.learners):
        raise known
    assert known.learning_rate == 0.5  # of the optimizer that found it


@pytest.mark.parametrize(("name", "served"), [("maac", ("joint",)), ("iac", (AGENTS[1],))])
def test_a_critic_that_diverges_is_named_by_whom_it_serves(name, served):
    trainer = trainer_of(name)
    trainer.critics[served[0]].prepare = lambda inputs, targets: Mock(side_effect=Divergence("no loss"))
    with pytest.raises(Divergence) as caught:
        trainer.step()
    assert caught.value.agents == served and caught.value.rewards is not None


def test_policies_forget_what_they_computed_while_critics_warm_up():
    trainer = trainer_of("iac", critic_warmup=2)
    forgotten = []
    for agent, policy in trainer.collector.policies.items():
        policy.forget = lambda agent=agent: forgotten.append(agent)
    for expected in (1, 2, 2):
        trainer.step()
        assert forgotten.count(AGENTS[0]) == forgotten.count(AGENTS[1]) >= min(expected, 2)
        if expected == 1:
            assert len(forgotten) == 2


@case("skipped_episodes")
def test_episodes_that_were_given_up_are_counted():
    trainer = trainer_of("iac", vector=Losing(task_seeds(0, 0, 4)[1:2], lambda: TextProbe("delayed")))
    episodes, metrics = trainer.step()
    assert metrics["skipped_episodes"] == 1.0 and len(episodes) == 3
    _, metrics = trainer.step()
    assert "skipped_episodes" not in metrics


def test_one_policy_of_two_agents_is_saved_once_and_observes_both():
    policy = word_policy(0)
    seen = []
    policy.observe = lambda completions: seen.append(len(completions))
    trainer = trainer_of("iac", lambda: TextProbe("delayed"), policies=dict.fromkeys(AGENTS, policy))
    trainer.step()
    assert seen == [2 * 3 * 4]
    state = trainer.state_dict()
    assert list(state["learners"]) == list(state["critics"]) == [AGENTS[0]]
    assert state["learner_of"] == dict.fromkeys(AGENTS, AGENTS[0])
    assert trainer_of("iac").state_dict()["learner_of"] == {agent: agent for agent in AGENTS}
    assert list(trainer_of("maac").state_dict()["critics"]) == ["joint"]
