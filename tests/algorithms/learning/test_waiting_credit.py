"""Agents that wait: the expected gradient of an update is exact, with discounts over the turns that an agent waits."""

from collections import defaultdict
from dataclasses import replace
from itertools import product

import enumeration
import pytest
import torch
from enumeration import AGENTS, Course, Game, expected_gradient, make_algorithm, relative_error
from fakes import WeightlessCritic
from torch.nn.functional import logsigmoid

from collm.agents.core import Completion
from collm.algorithms import IAC, IACConfig
from collm.algorithms.functions.advantages import gae, monte_carlo_returns, n_step_advantages
from collm.algorithms.learning.credit import assign_credit
from collm.algorithms.learning.critic_learner import CriticLearner
from collm.algorithms.learning.preferences import _divide_among_agents
from collm.algorithms.learning.rewards import with_own_rewards, with_rule, with_team_rewards
from collm.algorithms.rollout.episode import Episode, Turn

UNBIASED = [
    *[("mareinforce", {"num_generations": 1}), ("marloo", {"num_generations": 2})],
    *[(name, {"estimator": "monte_carlo"}) for name in ("iac", "maac")],
    *[(name, {"estimator": "gae", "trace": 1.0}) for name in ("iac", "maac", "ippo", "mappo")],
    ("iac", {"estimator": "n_step", "num_steps": 3}),
    ("iac", {"trace": 1.0, "use_separate_critic": False}),
]
WITH_EXACT_CRITIC = [
    *[
        (name, {"estimator": "gae", "trace": trace})
        for name in ("iac", "maac", "ippo", "mappo")
        for trace in (0.0, 0.7)
    ],
    *[(name, {"estimator": "n_step", "num_steps": 2}) for name in ("iac", "maac")],
]
HAS_TEAM_REWARDS_ONLY = ("maac", "mappo")


class Talk(Course):
    """A course in which all agents read all words, and earn in every turn."""

    def own(self, agent, turn):
        return tuple(tuple(words.items()) for words in self.turns[:turn])

    def own_return(self, agent):
        return self.to_go(agent, 0, 1.0)

    def to_go(self, agent, turn, discount):
        return sum(discount ** (t - turn) * self.reward(agent, t) for t in range(turn, len(self.turns)))


class TurnBased(Game):
    """a_0 acts, then a_1, which decides by its word whether it acts together with a_0 in the last turn."""

    def __init__(self):
        super().__init__("turn-based", num_turns=3)

    def _courses(self, turns):
        if len(turns) == self.num_turns:
            return [Talk(turns)]
        movers = AGENTS[: 1 + turns[1]["a_1"][0]] if len(turns) == 2 else (AGENTS[len(turns)],)
        joint = [dict(zip(movers, words, strict=True)) for words in product(self.words, repeat=len(movers))]
        return [course for words in joint for course in self._courses((*turns, words))]

    def episode(self, course, group, index):
        waiting = {
            agent: {t: course.reward(agent, t) for t, words in enumerate(course.turns) if agent not in words}
            for agent in AGENTS
        }
        return replace(super().episode(course, group, index), waiting=waiting)


def true_gradient(game, reward, discount):
    """Sum over decisions of the gradient of the log-probability times the discounted rewards that follow."""
    logits = game.logits.clone().requires_grad_()
    place = {row: i for i, row in enumerate(game.rows)}
    total = torch.zeros((), dtype=torch.float64)
    for course, probability in zip(game.courses, game.probabilities(game.logits), strict=True):
        for turn, words in enumerate(course.turns):
            for agent, word in words.items():
                paid = AGENTS if reward == "team" else (agent,)
                earned = sum(course.to_go(each, turn, discount) for each in paid) / len(paid)
                sign = 2.0 * word[0] - 1
                total = total + probability * earned * logsigmoid(
                    logits[place[agent, course.own(agent, turn), ()]] * sign
                )
    return torch.autograd.grad(total, logits)[0]


class Exact(WeightlessCritic):
    """Expected discounted sum of the rewards after a history."""

    def __init__(self, game, reward, discount):
        sums, weights = defaultdict(float), defaultdict(float)
        for course, probability in zip(game.courses, game.probabilities(game.logits).tolist(), strict=True):
            for turn in range(len(course.turns) + 1):
                own = {agent: course.to_go(agent, turn, discount) for agent in AGENTS}
                team = sum(own.values()) / len(AGENTS)
                histories = {("own", agent, course.own(agent, turn)): agent for agent in AGENTS}
                for history, agent in {**histories, ("joint", repr(course.turns[:turn])): None}.items():
                    sums[history] += probability * (team if reward == "team" or agent is None else own[agent])
                    weights[history] += probability
        self.known = {history: sums[history] / weights[history] for history in sums}

    def values(self, inputs):
        return torch.tensor([self.known[history] for each in inputs for history in each.histories])


def cases(chosen):
    return [
        (name, settings, reward)
        for name, settings in chosen
        for reward in ("team", "own")
        if reward == "team" or name not in HAS_TEAM_REWARDS_ONLY
    ]


def error(name, settings, reward, discount):
    settings = {"rollout_buffer_size": 2, "discount": discount, "credited_reward": reward} | settings
    algorithm, game = make_algorithm(name, **settings), TurnBased()
    found = expected_gradient(algorithm, game, 2, has_value_head=algorithm.has_actor_heads)
    return relative_error(game.num_turns * found, true_gradient(game, reward, discount))


@pytest.mark.parametrize("discount", [1.0, 0.6])
@pytest.mark.parametrize(("name", "settings", "reward"), cases(UNBIASED))
def test_the_expected_gradient_is_exact_with_any_critic(name, settings, reward, discount):
    assert error(name, settings, reward, discount) <= 1e-6


@pytest.mark.parametrize("discount", [1.0, 0.6])
@pytest.mark.parametrize(("name", "settings", "reward"), cases(WITH_EXACT_CRITIC))
def test_the_expected_gradient_is_exact_at_any_trace_with_an_exact_critic(
    name, settings, reward, discount, monkeypatch
):
    monkeypatch.setattr(enumeration, "Arbitrary", lambda: Exact(TurnBased(), reward, discount))
    assert error(name, settings, reward, discount) <= 1e-6


def played(ends=("a_0", "a_1")):
    """a_0 acts in turns 1 and 3 of five and earns 1, 2, 4, 8, 16; a_1 acts in turn 0 and then waits."""
    acts = {"a_0": [1, 3], "a_1": [0]}
    earned = {"a_0": [1.0, 2.0, 4.0, 8.0, 16.0], "a_1": [0.0] * 5}
    tracks = {agent: tuple(Turn(t, Completion(0), earned[agent][t], t) for t in times) for agent, times in acts.items()}
    waiting = {
        agent: {t: reward for t, reward in enumerate(earned[agent]) if t not in times} for agent, times in acts.items()
    }
    is_terminated = {agent: agent in ends for agent in tracks}
    finals = dict.fromkeys(tracks, "final")
    return Episode(0, 0, 0, tracks, tuple(range(6)), finals, is_terminated, ({},) * 5, num_agents=2, waiting=waiting)


def rewards_of(episode):
    return {agent: [turn.reward for turn in track] for agent, track in episode.tracks.items()}


def test_a_turn_is_credited_with_the_rewards_until_the_agent_s_next_turn():
    assert rewards_of(*with_own_rewards([played()], 0.5)) == {"a_0": [4.0, 16.0], "a_1": [0.0]}
    assert rewards_of(*with_team_rewards([played()], 0.5))["a_0"] == [2.0, 8.0]
    assert with_rule([played()], lambda reward: 2 * reward)[0].team_return == 2 * played().team_return == 31.0


class Constant(WeightlessCritic):
    def __init__(self, value):
        self.value = value

    def values(self, inputs):
        return torch.full((sum(len(each.histories) for each in inputs),), self.value)


def targets_of(episode, values, reward):
    """Monte Carlo targets with discount 1/2 and critics that give every history the same value."""
    config = IACConfig(discount=0.5, credited_reward=reward, advantage_normalization="none")
    critics = {agent: CriticLearner(Constant(value), config, torch.Generator()) for agent, value in values.items()}
    (paid,) = (with_team_rewards if reward == "team" else with_own_rewards)([episode], 0.5)
    credits, _ = assign_credit(IAC(config), [paid], list(episode.tracks), critics)
    return {agent: credit.targets.tolist() for agent, credit in credits.items()}


def test_the_value_after_a_cut_counts_from_the_cut():
    """The last turn of a_0 is two joint turns before the cut, that of a_1 five."""
    found = targets_of(played(ends=()), {"a_0": 64.0, "a_1": 64.0}, "own")
    assert found == {"a_0": [4.0 + 0.25 * (16.0 + 0.25 * 64.0), 16.0 + 0.25 * 64.0], "a_1": [0.5**5 * 64.0]}
    found = targets_of(played(ends=("a_0",)), {"a_0": 1000.0, "a_1": 64.0}, "team")
    assert found["a_0"] == [2.0 + 0.25 * (8.0 + 0.25 * 64.0), 8.0 + 0.25 * 64.0]


def test_a_reward_model_s_reward_counts_in_turns_in_which_agents_wait():
    divided = _divide_among_agents(played(), [1.0, 0.0, 3.0, 0.0, 5.0])
    assert divided.team_rewards == [1.0, 0.0, 3.0, 0.0, 5.0]
    assert divided.waiting["a_1"] == {1: 0.0, 2: 3.0, 3: 0.0, 4: 5.0}


def test_equal_discounts_per_turn_are_a_discount():
    generator = torch.Generator().manual_seed(0)
    rewards, values = torch.randn(3, 5, generator=generator), torch.randn(3, 6, generator=generator)
    is_real = torch.arange(5) < torch.tensor([5, 3, 1])[:, None]
    values = values * (torch.arange(6) <= is_real.sum(dim=1, keepdim=True))
    each = torch.full((3, 5), 0.9)
    for compute in (
        lambda discount: gae(rewards, values, is_real, discount, 0.8),
        lambda discount: n_step_advantages(rewards, values, is_real, discount, 3),
        lambda discount: monte_carlo_returns(rewards, is_real, discount),
    ):
        torch.testing.assert_close(compute(each), compute(0.9))
    with pytest.raises(ValueError, match="discount"):
        gae(rewards, values, is_real, each[:1], 0.8)
