"""Who is credited with what: hand cases for own and joint critics, terminal and truncated ends, V and Q."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fakes import WeightlessCritic

from collm.agents.core import Completion
from collm.agents.numeric.critics import NumericCritic
from collm.agents.numeric.features import Features
from collm.algorithms import (
    IAC,
    MAAC,
    MAGRPO,
    MAREINFORCE,
    MARLOO,
    IACConfig,
    MAACConfig,
    MARLOOConfig,
    ReinforceConfig,
)
from collm.algorithms.functions.baselines import normalized
from collm.algorithms.learning.credit import assign_credit, critic_metrics
from collm.algorithms.learning.critic_learner import CriticLearner
from collm.algorithms.rollout.episode import Episode, Turn

AGENTS = ("a_0", "b_0")


class Table(WeightlessCritic):
    """Values a history by the number in it; Q adds a tenth of the actions' numbers."""

    def __init__(self):
        self.seen = []

    def values(self, inputs):
        found = []
        for item in inputs:
            self.seen.append(item)
            found += [float(np.sum(history)) for history in item.histories]
            found += [
                float(np.sum(history)) + sum(np.ravel(action)) / 10
                for history, action in zip(item.histories, item.actions, strict=False)
            ]
        return torch.tensor(found)


def episode(rewards, observations, *, is_terminated, final=9.0, group=0, states=(), index=0):
    """One of two agents; the second plays the first turn only and leaves."""
    turns = tuple(
        Turn(observation, Completion(t + 1), reward, t)
        for t, (observation, reward) in enumerate(zip(observations, rewards, strict=True))
    )
    tracks = {"a_0": turns, "b_0": (Turn(100.0, Completion(5), 10.0, 0),)}
    finals, ends = {"a_0": final, "b_0": 77.0}, {"a_0": is_terminated, "b_0": True}
    return Episode(index, 0, group, tracks, states, finals, ends, ({},) * len(rewards))


def learner(config):
    return CriticLearner(Table(), config, torch.Generator())


def credited(algorithm, episodes):
    names = {"own": AGENTS, "joint": ("joint",), "nothing": ()}[algorithm.critic_reads]
    return assign_credit(algorithm, episodes, AGENTS, {name: learner(algorithm.config) for name in names})


TD = {"estimator": "td", "critic_target": "td"}


def iac(**settings):
    return IAC(IACConfig(advantage_normalization="none", **TD, **settings))


def maac(**settings):
    return MAAC(MAACConfig(advantage_normalization="none", **TD, **settings))


def test_own_td_credit_by_hand_at_a_terminal_and_at_a_truncated_end():
    algorithm = iac(discount=0.5, credited_reward="own")
    cut = episode([1.0], [4.0], is_terminated=False, final=8.0)
    credits, _ = credited(algorithm, [episode([1.0, 2.0], [4.0, 6.0], is_terminated=True), cut])
    # r + 0.5 V' - V: 1 + 3 - 4, 2 + 0 - 6; then the truncated 1 + 0.5 * 8 - 4
    assert credits["a_0"].advantages.tolist() == [0.0, -4.0, 1.0]
    assert credits["a_0"].targets.tolist() == [4.0, 2.0, 5.0]
    assert credits["a_0"].values.tolist() == [4.0, 6.0, 4.0]
    # the other left after one turn with a reward of 10, and nothing follows for it
    assert credits["b_0"].advantages.tolist() == [-90.0, -90.0]


def test_joint_credit_is_the_team_s_also_after_one_has_left_or_the_history_was_cut():
    algorithm = maac(discount=1.0)
    episodes = [episode([2.0, 3.0], [4.0, 6.0], is_terminated=True, states=(1.0, 5.0, 50.0))]
    credits, batches = credited(algorithm, episodes)
    # the team's rewards are (2 + 10) / 2 and (3 + 0) / 2: 6 + 5 - 1, 1.5 + 0 - 5
    assert credits["a_0"].advantages.tolist() == [10.0, -3.5]
    assert credits["b_0"].advantages.tolist() == [10.0]
    (batch,) = batches
    assert batch.targets.tolist() == [11.0, 1.5]
    assert len(batch.inputs) == 1  # one input per joint turn, not one per agent
    episodes = [episode([2.0], [4.0], is_terminated=False, states=(1.0, 50.0))]
    credits, batches = credited(algorithm, episodes)
    assert credits["a_0"].advantages.tolist() == [6.0 + 50.0 - 1.0]
    assert batches[0].inputs[0].histories == (1.0,)  # what comes last is valued, not learned from

    algorithm = maac(discount=0.5)
    episodes = [episode([2.0, 3.0], [4.0, 6.0], is_terminated=True, states=(1.0, 5.0, 50.0))]
    credits, _ = credited(algorithm, episodes)
    assert credits["a_0"].returns.tolist() == [(2.0 + 10.0) / 2 + 0.5 * 1.5, 1.5]
    assert credits["b_0"].returns.tolist() == [(2.0 + 10.0) / 2 + 0.5 * 1.5]


def test_joint_credit_with_own_rewards_has_a_value_per_agent_that_is_zero_after_the_agent_left():
    class Tables(Table):
        def values(self, inputs):
            values = super().values(inputs)
            return torch.stack([values, 10 * values], dim=1)

    algorithm = maac(discount=0.5, credited_reward="own")
    critic = CriticLearner(Tables(), algorithm.config, torch.Generator(), len(AGENTS))
    cut = episode([2.0, 3.0], [4.0, 6.0], is_terminated=False, states=(1.0, 5.0, 50.0))
    ended = episode([2.0], [4.0], is_terminated=True, states=(1.0, 5.0))
    credits, (batch,) = assign_credit(algorithm, [cut, ended], AGENTS, {"joint": critic})
    # r + 0.5 V' - V: 2 + 2.5 - 1, 3 + 25 - 5, and at the end 2 + 0 - 1
    assert credits["a_0"].advantages.tolist() == [3.5, 23.0, 1.0]
    # the other's values are 10 times as large; it left after a reward of 10, also where the episode went on
    assert credits["b_0"].advantages.tolist() == [0.0, 0.0]
    assert credits["b_0"].returns.tolist() == [10.0, 10.0]
    assert batch.targets.tolist() == [[4.5, 10.0], [28.0, 0.0], [2.0, 10.0]]
    assert batch.values.tolist() == [[1.0, 10.0], [5.0, 0.0], [1.0, 10.0]]
    assert critic_metrics([batch])["value_mean"] == pytest.approx(27 / 6)


@pytest.mark.parametrize(("is_terminated", "expected"), [(True, [1.0 + 0.5 * 2.0, 2.0]), (False, [4.0, 6.0])])
def test_a_return_to_go_goes_on_with_the_value_where_an_episode_was_cut(is_terminated, expected):
    algorithm = iac(discount=0.5, credited_reward="own")
    episodes = [episode([1.0, 2.0], [4.0, 6.0], is_terminated=is_terminated, final=8.0)]
    credits, _ = credited(algorithm, episodes)
    assert credits["a_0"].returns.tolist() == expected
    assert credits["b_0"].returns.tolist() == [10.0]


def test_raw_advantages_are_those_before_normalization():
    episodes = [episode([1.0, 2.0], [4.0, 6.0], is_terminated=True), episode([3.0], [5.0], is_terminated=True)]
    modes = ("none", "agent_turn")
    plains, others = (credited(IAC(IACConfig(advantage_normalization=mode, **TD)), episodes)[0] for mode in modes)
    for agent in AGENTS:
        plain, normalized = plains[agent], others[agent]
        assert normalized.raw_advantages.tolist() == plain.raw_advantages.tolist() == plain.advantages.tolist()
        assert normalized.advantages.tolist() != plain.advantages.tolist()


def test_agents_may_share_a_critic_and_a_joint_q_reads_all_actions():
    algorithm = iac()
    shared = learner(algorithm.config)
    episodes = [episode([1.0, 2.0], [4.0, 6.0], is_terminated=True)]
    _, batches = assign_credit(algorithm, episodes, AGENTS, dict.fromkeys(AGENTS, shared))
    (batch,) = batches
    assert batch.critic is shared
    assert [item.histories for item in batch.inputs] == [(4.0, 6.0), (100.0,)]
    assert batch.values.tolist() == [4.0, 6.0, 100.0]

    algorithm = maac(critic_type="q")
    critic = learner(algorithm.config)
    table = critic.critic
    table.values = lambda inputs: table.seen.extend(inputs) or torch.zeros(4)
    episodes = [episode([2.0, 3.0], [4.0, 6.0], is_terminated=True, states=(1.0, 5.0, 50.0))]
    assign_credit(algorithm, episodes, AGENTS, {"joint": critic})
    assert table.seen[0].actions == ((1, 5), (2, None))


def test_q_credit_is_the_action_s_value_above_the_history_s():
    algorithm = iac(critic_type="q", discount=0.5)
    lengths = {"is_terminated": True}, {"is_terminated": False, "final": 8.0}
    episodes = [episode([3.0], [5.0], **lengths[0]), episode([1.0, 2.0], [4.0, 6.0], **lengths[1])]
    credits, batches = credited(algorithm, episodes)
    torch.testing.assert_close(credits["a_0"].advantages, torch.tensor([0.1, 0.1, 0.2]))
    # V(h) and Q(h, a) learn the same: 3, then 1 + 0.5 * 6, and bootstrapped from the last history 2 + 0.5 * 8
    assert batches[0].targets.tolist() == [3.0, 3.0, 4.0, 6.0, 4.0, 6.0]


def test_the_scale_of_raw_returns_keeps_their_signs():
    algorithm = MAREINFORCE(ReinforceConfig(num_generations=1))
    episodes = [episode([float(r)], [0.0], is_terminated=True, index=r) for r in (1, 2, 3)]
    credits, _ = assign_credit(algorithm, episodes, ("a_0",), {})
    assert (credits["a_0"].advantages > 0).all()


@pytest.mark.parametrize(("algorithm_class", "advantage"), [(MAGRPO, 10.0 - 10.0 / 2), (MARLOO, 10.0)])
def test_an_agent_that_moved_in_one_rollout_of_its_group_is_credited_all_the_same(algorithm_class, advantage):
    """In the other rollout of the task it never came to move, and earned 0."""
    config = MARLOOConfig(num_generations=2) if algorithm_class is MARLOO else ReinforceConfig(num_generations=2)
    algorithm = algorithm_class(replace(config, advantage_normalization="none"))
    alone = episode([3.0], [0.0], is_terminated=True, group=1)
    alone = replace(alone, tracks={"a_0": alone.tracks["a_0"]}, is_terminated={"a_0": True})
    credits, _ = assign_credit(algorithm, [episode([1.0], [0.0], is_terminated=True, group=1), alone], AGENTS, {})
    assert credits["b_0"].advantages.tolist() == [advantage]
    assert len(credits["a_0"].advantages) == 2


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("agent", [[-1.0, 1.0], [-1.0, 1.0]]),
        ("batch", [[-1.177, -0.784], [0.784, 1.177]]),
        ("none", [[1.0, 3.0], [11.0, 13.0]]),
    ],
)
def test_advantages_are_normalized_over_what_the_settings_say(mode, expected):
    algorithm = IAC(IACConfig(advantage_normalization=mode, estimator="monte_carlo"))
    episodes = []
    for i, (first, second) in enumerate([(1.0, 11.0), (3.0, 13.0)]):
        tracks = {agent: (Turn(0.0, Completion(0), r, 0),) for agent, r in zip(AGENTS, (first, second), strict=True)}
        episodes.append(Episode(i, 0, 0, tracks, (), dict.fromkeys(AGENTS), dict.fromkeys(AGENTS, True), ({},)))
    credits, _ = credited(algorithm, episodes)
    found = [credits[agent].advantages.tolist() for agent in AGENTS]
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize(("mode", "num_groups"), [("turn", 2), ("agent_turn", 3)])
def test_turns_are_normalized_apart(mode, num_groups):
    algorithm = IAC(IACConfig(advantage_normalization=mode, estimator="monte_carlo"))
    episodes = [episode([float(i), 10.0 * i], [0.0, 0.0], is_terminated=True, index=i) for i in range(4)]
    credits, _ = credited(algorithm, episodes)
    own, other = credits["a_0"].advantages, credits["b_0"].advantages
    first_turns = torch.cat([own[::2], other]) if num_groups == 2 else own[::2]
    assert abs(float(own[1::2].mean())) < 1e-5 and abs(float(first_turns.mean())) < 1e-5


def played(rewards, observations, *, is_terminated=True):
    """Episodes in which both agents act in every turn. The last observation is that after the last turn."""
    episodes = []
    for index, (row, seen) in enumerate(zip(rewards, observations, strict=True)):
        turns = tuple(
            Turn(value, Completion(t), reward, t) for t, (reward, value) in enumerate(zip(row, seen, strict=False))
        )
        ends, finals = dict.fromkeys(AGENTS, is_terminated), dict.fromkeys(AGENTS, seen[-1])
        episodes.append(
            Episode(index, 0, index, dict.fromkeys(AGENTS, turns), tuple(seen), finals, ends, ({},) * len(row))
        )
    return episodes


NOISE = np.random.default_rng(0).normal(0.5, 0.003, (8, 4)).tolist()
EQUAL = [[0.25, 0.25, 0.5]] * 8


@pytest.mark.parametrize("is_terminated", [True, False])
@pytest.mark.parametrize("estimator", ["td", "n_step", "gae", "monte_carlo"])
@pytest.mark.parametrize("mode", ["batch", "agent", "turn", "agent_turn"])
@pytest.mark.parametrize("kind", [(IAC, IACConfig), (MAAC, MAACConfig)])
def test_equal_returns_give_no_advantage_whatever_the_critic_says(kind, mode, estimator, is_terminated):
    config = kind[1](advantage_normalization=mode, estimator=estimator, num_steps=2)
    algorithm = kind[0](config)
    credits, _ = credited(algorithm, played(EQUAL, NOISE, is_terminated=is_terminated))
    assert algorithm.advantage_limit == 0 and algorithm.warms_up(config.critic_warmup or 5, {})
    assert not any(credit.advantages.any() for credit in credits.values())
    assert all(credit.raw_advantages.any() for credit in credits.values())


@pytest.mark.parametrize("mode", ["none", "batch", "agent", "turn", "agent_turn"])
def test_advantages_keep_every_bit_if_returns_differ_more_than_the_critic_errs(mode):
    algorithm = IAC(IACConfig(advantage_normalization=mode))
    rewards = np.random.default_rng(1).normal(0, 1, (8, 3)).tolist()
    credits, _ = credited(algorithm, played(rewards, NOISE))
    assert algorithm.advantage_limit == 1 and not algorithm.warms_up(5, {})
    raw = torch.stack([credits[agent].raw_advantages for agent in AGENTS])
    group = torch.arange(3).repeat(2, 8) + 3 * torch.arange(2)[:, None]
    group = {"turn": group % 3, "agent": group // 3, "agent_turn": group}.get(mode, 0 * group)
    expected = raw if mode == "none" else normalized(raw, torch.ones_like(raw, dtype=torch.bool), group)
    assert torch.equal(torch.stack([credits[agent].advantages for agent in AGENTS]), expected)


def test_returns_that_differed_justify_advantages_while_the_critic_replays_them():
    algorithm = IAC(IACConfig(critic_replay=3))
    credits, _ = credited(algorithm, played([*EQUAL[1:], [0.25, 0.25, 1.5]], NOISE))
    assert (credits["a_0"].advantages[-3:] > 1).all()
    limits = [algorithm.advantage_limit]
    for _ in range(4):
        resumed = IAC(IACConfig(critic_replay=3))
        resumed.load_state_dict(algorithm.state_dict())
        algorithm = resumed
        credited(algorithm, played(EQUAL, NOISE))
        limits.append(algorithm.advantage_limit)
    assert limits == [1, 1, 1, 0, 0]


def test_the_returns_of_one_episode_cannot_be_compared():
    algorithm = IAC(IACConfig(rollout_buffer_size=1))
    credits, _ = assign_credit(
        algorithm, played(EQUAL[:1], NOISE[:1]), AGENTS, dict.fromkeys(AGENTS, learner(IACConfig()))
    )
    assert algorithm.advantage_limit == 1 and credits["a_0"].advantages.any()


@pytest.mark.parametrize("estimator", ["td", "n_step", "gae", "monte_carlo"])
def test_an_agent_that_was_truncated_alone_is_bootstrapped_by_a_joint_critic_as_by_its_own(estimator):
    """A reward of 1 per turn; `b_0` is truncated after turn 2 of 4. Its value is 100, and that of `a_0` is 10."""

    class Tables(Table):
        def values(self, inputs):
            return torch.tensor([[10.0, 100.0]]).repeat(sum(len(item.histories) for item in inputs), 1)

    (whole,) = played([[1.0] * 4], [[10.0] * 5])
    tracks = {"a_0": whole.tracks["a_0"], "b_0": tuple(replace(t, observation=100.0) for t in whole.tracks["b_0"][:2])}
    ends = {"a_0": True, "b_0": False}
    leaver = replace(whole, tracks=tracks, is_terminated=ends, finals={"a_0": 10.0, "b_0": 100.0})
    settings = {"credited_reward": "own", "advantage_normalization": "none", "estimator": estimator}
    own, _ = credited(IAC(IACConfig(**settings)), [leaver])
    algorithm = MAAC(MAACConfig(**settings))
    critic = CriticLearner(Tables(), algorithm.config, torch.Generator(), len(AGENTS))
    joint, (batch,) = assign_credit(algorithm, [leaver], AGENTS, {"joint": critic})
    for agent in AGENTS:
        for name in ("advantages", "targets", "returns"):
            torch.testing.assert_close(getattr(joint[agent], name), getattr(own[agent], name))
    assert joint["b_0"].targets.tolist() == [102.0, 101.0]
    assert batch.targets[:, 1].tolist() == [102.0, 101.0, 100.0, 0.0]  # turn 3: the critic's own value


def numeric_episode(index):
    rng = np.random.default_rng(index)
    seen = {agent: rng.normal(number, 1, (3, 2)) for number, agent in enumerate(AGENTS)}
    tracks = {agent: tuple(Turn(seen[agent][t], Completion(0), 1.0, t) for t in range(3)) for agent in AGENTS}
    return Episode(index, 0, 0, tracks, (), dict.fromkeys(AGENTS), dict.fromkeys(AGENTS, True), ({},) * 3)


@pytest.mark.parametrize("is_shared", [True, False])
def test_values_do_not_depend_on_the_tokens_of_a_pass_though_observations_are_normalized(is_shared):
    """By hand: every view is normalized with the moments of all views that the critic serves in the update."""
    episodes = [numeric_episode(index) for index in range(4)]
    turns = {agent: [turn for each in episodes for turn in each.tracks[agent]] for agent in AGENTS}
    views = {agent: np.stack([turn.observation for turn in turns[agent]]) for agent in AGENTS}
    found = {}
    for max_batch_tokens in (3, 7, 10_000):
        algorithm = iac(max_batch_tokens=max_batch_tokens)
        made = [NumericCritic(Features(num_numbers=2), normalizes_observations=True) for _ in AGENTS]
        learners = [CriticLearner(each, algorithm.config, torch.Generator()) for each in made]
        critics = dict(zip(AGENTS, learners[:1] * 2 if is_shared else learners, strict=True))
        credits, _ = assign_credit(algorithm, episodes, AGENTS, critics)
        found[max_batch_tokens] = torch.stack([credits[agent].values for agent in AGENTS])
        for agent in AGENTS:
            seen = np.concatenate(list(views.values())) if is_shared else views[agent]
            scaled = torch.from_numpy((views[agent] - seen.mean(0)) / seen.std(0)).float()
            torch.testing.assert_close(credits[agent].values, critics[agent].critic.value(scaled)[:, 0].detach())
    assert torch.allclose(found[3], found[10_000], atol=1e-6) and torch.allclose(found[7], found[10_000], atol=1e-6)
