"""The expected policy gradient, by enumeration of all groups of episodes, where episodes end early and agents leave.

The oracle is automatic differentiation of the expected return, a sum over all courses of a game in double precision. It
shares nothing with returns, baselines, grids and estimators but the game.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from random import Random

import pytest
import torch
from fakes import WeightlessCritic

from collm.agents.core import Completion
from collm.algorithms import algorithm_specs
from collm.algorithms.algorithm import PolicyBatch
from collm.algorithms.learning.crediting import assign_credit
from collm.algorithms.learning.critic_learner import CriticLearner
from collm.algorithms.learning.shaping import with_penalties, with_team_rewards
from collm.algorithms.rollout.episode import Episode, Turn

AGENTS = ("a_0", "a_1")
NUM_TURNS = 3


@cache
def number(*key) -> float:
    """A number that looks random, always the same for its key."""
    return Random(repr(key)).uniform(-1, 1)


@dataclass(frozen=True)
class Course:
    """One course of the game: joint actions, by turn, of those who were there."""

    turns: tuple[dict[str, int], ...]

    def own(self, agent, turn):
        """What the agent knows before a turn: its own actions."""
        return tuple(actions[agent] for actions in self.turns[:turn])

    def reward(self, agent, turn):
        return 3 * number("reward", agent, tuple(tuple(each.items()) for each in self.turns[: turn + 1]))

    def team_return(self):
        """The sum of what each agent was paid, divided by all agents."""
        paid = (self.reward(agent, turn) for turn, actions in enumerate(self.turns) for agent in actions)
        return sum(paid) / len(AGENTS)

    def own_return(self, agent):
        return sum(self.reward(agent, turn) for turn, actions in enumerate(self.turns) if agent in actions)


def courses(kind, turns=()):
    """All courses. "early end": two equal actions 1 end the game. "leaving": an agent that does 1 leaves.

    "truncation": the same, but the environment truncates an agent that leaves while the other plays on.
    """
    there = AGENTS
    if kind in ("leaving", "truncation"):
        there = tuple(agent for agent in AGENTS if not any(actions.get(agent) for actions in turns))
    is_over = len(turns) == NUM_TURNS or not there
    if kind == "early end":
        is_over = is_over or (bool(turns) and all(turns[-1].values()))
    if is_over:
        return [Course(turns)]
    joint = (dict(zip(there, actions, strict=True)) for actions in product((0, 1), repeat=len(there)))
    return [course for actions in joint for course in courses(kind, (*turns, actions))]


def episode(course, group, index, kind):
    """The course as the collector would record it."""
    tracks = {
        agent: tuple(
            Turn(("own", agent, course.own(agent, turn)), Completion(actions[agent]), course.reward(agent, turn), turn)
            for turn, actions in enumerate(course.turns)
            if agent in actions
        )
        for agent in AGENTS
    }
    states = tuple(("joint", repr(course.turns[:turn])) for turn in range(len(course.turns) + 1))
    is_truncated = {agent: kind == "truncation" and agent not in course.turns[-1] for agent in AGENTS}
    return Episode(
        index=index,
        seed=0,
        group=group,
        tracks=tracks,
        states=states,
        finals={agent: ("final", agent) for agent in AGENTS},
        is_terminated={agent: not is_truncated[agent] for agent in AGENTS},
        infos=({},) * len(course.turns),
        num_agents=len(AGENTS),
    )


class Arbitrary(WeightlessCritic):
    """Any value for any history: a baseline that does not know the action cannot bias."""

    def values(self, inputs):
        return torch.tensor([number("value", history) for each in inputs for history in each.histories])


class Policies:
    """One logit per agent and own history; in double precision."""

    def __init__(self, all_courses):
        keys = sorted({(a, c.own(a, t)) for c in all_courses for t, acts in enumerate(c.turns) for a in acts})
        self.number = {key: i for i, key in enumerate(keys)}
        self.logits = torch.tensor([number("logit", key) for key in keys], dtype=torch.float64, requires_grad=True)

    def logprobs(self, places):
        """Of (agent, own history, action) each."""
        rows = torch.tensor([self.number[agent, own] for agent, own, _ in places])
        signs = torch.tensor([1.0 if action else -1.0 for _, _, action in places], dtype=torch.float64)
        return torch.nn.functional.logsigmoid(self.logits[rows] * signs)

    def course_probabilities(self, all_courses):
        sums = [
            self.logprobs([(a, c.own(a, t), acts[a]) for t, acts in enumerate(c.turns) for a in acts]).sum()
            for c in all_courses
        ]
        return torch.stack(sums).exp()


def expected_gradient(algorithm, kind, group_size, reward, shaped=None):
    """Sum over all groups of their probability times the gradient that the algorithm makes of them.

    Args:
        shaped: changes the episodes' rewards, given the episodes, the policies and the algorithm.
    """
    all_courses = courses(kind)
    policies = Policies(all_courses)
    probabilities = policies.course_probabilities(all_courses).detach()
    groups = list(product(range(len(all_courses)), repeat=group_size))
    episodes = [
        episode(all_courses[number], group, group_size * group + place, kind)
        for group, numbers in enumerate(groups)
        for place, number in enumerate(numbers)
    ]
    weights = torch.stack([probabilities[list(numbers)].prod() for numbers in groups])
    weights = weights.repeat_interleave(group_size) / group_size
    paid = with_team_rewards(episodes, 1.0) if reward == "team" and algorithm.critic_reads != "joint" else episodes
    paid = paid if shaped is None else shaped(paid, policies, algorithm)
    names = {"own": AGENTS, "joint": ("joint",), "nothing": ()}[algorithm.critic_reads]
    critics = {name: CriticLearner(Arbitrary(), algorithm.config, torch.Generator()) for name in names}
    credits, _ = assign_credit(algorithm, paid, AGENTS, critics)
    places, advantages = [], []
    for agent in AGENTS:
        turns = [(each, turn) for each in episodes for turn in each.tracks[agent]]
        places += [(agent, turn.observation[2], turn.completion.action) for _, turn in turns]
        own_weights = weights[[each.index for each, _ in turns]]
        advantages.append(credits[agent].advantages.double() * own_weights)
    logprobs = policies.logprobs(places)
    batch = PolicyBatch(logprobs, logprobs.detach(), torch.arange(len(places)), torch.cat(advantages), 1, 1)
    algorithm.loss(batch).loss.backward()
    return -policies.logits.grad


def exact_gradient(kind, reward):
    """Of the expected team return; with reward "own", each agent's weights by its own expected return."""
    all_courses = courses(kind)
    policies = Policies(all_courses)
    probabilities = policies.course_probabilities(all_courses)
    if reward == "team":
        values = torch.tensor([course.team_return() for course in all_courses], dtype=torch.float64)
        return torch.autograd.grad((probabilities * values).sum(), policies.logits)[0]
    found = torch.zeros_like(policies.logits)
    for agent in AGENTS:
        values = torch.tensor([course.own_return(agent) for course in all_courses], dtype=torch.float64)
        (gradient,) = torch.autograd.grad((probabilities * values).sum(), policies.logits, retain_graph=True)
        is_own = torch.tensor([name == agent for name, _ in policies.number])
        found = torch.where(is_own, gradient, found)
    return found


def made(name, **settings):
    (spec,) = [each for each in algorithm_specs() if each.name == name]
    return spec.make(spec.config(advantage_normalization="none", **settings))


UNBIASED = [
    *[("mareinforce", {"num_generations": 1}), ("marloo", {"num_generations": 2})],
    *[(name, {"estimator": "monte_carlo"}) for name in ("iac", "maac", "ippo", "mappo")],
    *[(name, {"estimator": "gae", "trace": 1.0}) for name in ("iac", "maac")],
    *[(name, {"estimator": "n_step", "num_steps": NUM_TURNS}) for name in ("iac", "maac")],
]


@pytest.mark.parametrize("kind", ["early end", "leaving", "truncation"])
@pytest.mark.parametrize(("name", "settings"), UNBIASED)
def test_the_expected_gradient_is_that_of_the_team_s_return(name, settings, kind):
    found = expected_gradient(made(name, **settings), kind, settings.get("num_generations", 1), "team")
    torch.testing.assert_close(found, exact_gradient(kind, "team"), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", ["early end", "leaving"])
@pytest.mark.parametrize(("name", "factor"), [("marloo", 1.0), ("magrpo", 1 - 1 / 2)])
def test_a_group_s_baseline_shrinks_the_gradient_of_every_turn_alike(name, factor, kind):
    found = expected_gradient(made(name, num_generations=2), kind, 2, "team")
    torch.testing.assert_close(found, factor * exact_gradient(kind, "team"), atol=2e-6, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "factor"), [("marloo", 1.0), ("magrpo", 1 - 1 / 3)])
def test_a_group_of_three_shrinks_the_gradient_of_every_turn_alike(name, factor):
    found = expected_gradient(made(name, num_generations=3, rollout_buffer_size=3), "leaving", 3, "team")
    torch.testing.assert_close(found, factor * exact_gradient("leaving", "team"), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["mareinforce", "iac"])
def test_with_its_own_reward_an_agent_climbs_its_own_return(name):
    settings = {"num_generations": 1} if name == "mareinforce" else {"estimator": "monte_carlo"}
    found = expected_gradient(made(name, credited_reward="own", **settings), "leaving", 1, "own")
    torch.testing.assert_close(found, exact_gradient("leaving", "own"), atol=2e-6, rtol=1e-5)
    assert not torch.allclose(found, exact_gradient("leaving", "team"), atol=1e-2)


PRICE = 0.7


def reference_logprob(agent, own, action):
    """Log-probability under a reference policy that looks random."""
    chance = 1 / (1 + math.exp(-number("reference", agent, own)))
    return math.log(chance if action else 1 - chance)


def penalized(episodes, policies, algorithm):
    """The episodes with the log-probabilities that the policies sampled with, and the price of their divergence."""
    said, anchors = [], {agent: [] for agent in AGENTS}
    for each in episodes:
        tracks = {}
        for agent, track in each.tracks.items():
            places = [(agent, turn.observation[2], turn.completion.action) for turn in track]
            sampled = policies.logprobs(places).detach().numpy()[:, None]
            tracks[agent] = tuple(
                replace(turn, completion=replace(turn.completion, logprobs=own))
                for turn, own in zip(track, sampled, strict=True)
            )
            anchors[agent].append(torch.tensor([reference_logprob(*place) for place in places], dtype=torch.float64))
        said.append(replace(each, tracks=tracks))
    return with_penalties(said, anchors, algorithm.config, sums_over_team=algorithm.critic_reads == "joint")


def exact_gradient_with_price(kind, charged):
    """Of the expected team return minus the price times the divergences of the charged agents."""
    all_courses = courses(kind)
    policies = Policies(all_courses)
    probabilities = policies.course_probabilities(all_courses)
    values = []
    for course in all_courses:
        moves = [(a, course.own(a, t), acts[a]) for t, acts in enumerate(course.turns) for a in acts if a in charged]
        divergence = policies.logprobs(moves).sum() - sum(reference_logprob(*move) for move in moves)
        values.append(course.team_return() - PRICE * divergence)
    gradient = torch.autograd.grad((probabilities * torch.stack(values)).sum(), policies.logits)[0]
    return gradient, policies


@pytest.mark.parametrize("kind", ["early end", "leaving"])
def test_a_joint_critic_s_agents_climb_the_team_s_return_minus_the_price_of_all_divergences(kind):
    algorithm = made("maac", estimator="monte_carlo", reference_kl_coef=PRICE, reference_kl_in="reward")
    found = expected_gradient(algorithm, kind, 1, "team", penalized)
    torch.testing.assert_close(found, exact_gradient_with_price(kind, AGENTS)[0], atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", ["early end", "leaving"])
@pytest.mark.parametrize("name", ["iac", "mareinforce"])
def test_an_agent_alone_climbs_the_team_s_return_minus_the_price_of_its_own_divergence(name, kind):
    settings = {"num_generations": 1} if name == "mareinforce" else {"estimator": "monte_carlo"}
    algorithm = made(name, reference_kl_coef=PRICE, reference_kl_in="reward", **settings)
    found = expected_gradient(algorithm, kind, 1, "team", penalized)
    for agent in AGENTS:
        expected, policies = exact_gradient_with_price(kind, (agent,))
        is_own = torch.tensor([each == agent for each, _ in policies.number])
        torch.testing.assert_close(found[is_own], expected[is_own], atol=2e-6, rtol=1e-5)
