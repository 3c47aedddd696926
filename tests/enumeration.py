"""Exact expected gradients by enumeration of all possible episodes ("courses") of a small game, for comparisons.

`expected_gradient` uses the trainer. `exact_gradient` shares with it only the game and the table of logits.
"""

from collections import defaultdict
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from math import log, prod
from random import Random
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch
from fakes import WeightlessCritic
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, sigmoid

from collm.agents.core import Completion, Evaluation, HeadCritic, TrainablePolicy
from collm.algorithms import algorithm_spec
from collm.algorithms.config import ActorCriticConfig
from collm.algorithms.learning.critic_learner import CriticLearner
from collm.algorithms.learning.trainer import Trainer
from collm.algorithms.rollout.episode import Episode, Turn
from collm.algorithms.rollout.side_by_side import SideBySide

AGENTS = ("a_0", "a_1")
BITS = ((0,), (1,))  # words
UNEVEN = ((0,), (1, 0), (1, 1))


@cache
def number(*key) -> float:
    """Return a pseudo-random number in -1..1 that depends on the key alone."""
    return Random(repr(key)).uniform(-1, 1)


@dataclass(frozen=True)
class Course:
    """One possible episode of a game: for each turn, the words of the agents that act."""

    turns: tuple[dict[str, tuple[int, ...]], ...]
    seed: int = 0  # of the rewards

    def own(self, agent, turn):
        """Return the agent's own words before a turn, which are its observation."""
        return tuple(words[agent] for words in self.turns[:turn] if agent in words)

    def decisions(self, agent):
        """Return (row of the table, token) of every token of the agent."""
        return [
            ((agent, self.own(agent, turn), words[agent][:place]), token)
            for turn, words in enumerate(self.turns)
            if agent in words
            for place, token in enumerate(words[agent])
        ]

    def reward(self, agent, turn):
        return 3 * number("reward", self.seed, agent, tuple(tuple(each.items()) for each in self.turns[: turn + 1]))

    def own_return(self, agent, start=0):
        """Return the sum of the agent's rewards from turn `start` on."""
        return sum(self.reward(agent, turn) for turn in range(start, len(self.turns)) if self.is_paid(agent, turn))

    def is_paid(self, agent, turn):
        return agent in self.turns[turn]

    def team_return(self, start=0):
        """Return the sum of all rewards from turn `start` on, divided by the number of all agents."""
        return sum(self.own_return(agent, start) for agent in AGENTS) / len(AGENTS)


@dataclass(frozen=True)
class Game:
    """Game of two agents that choose words, whose tokens are bits.

    Kind "early end": an episode ends if both agents choose `words[-1]`. "leaving": an agent leaves after `words[-1]`.
    """

    kind: str = "full"  # or "early end" or "leaving"
    num_turns: int = 2
    words: tuple[tuple[int, ...], ...] = BITS
    seed: int = 0  # of the rewards

    @cached_property
    def courses(self):
        return self._courses(())

    @cached_property
    def rows(self):
        """Rows of the table of logits: agent, its earlier words, and the earlier tokens of this word."""
        found = {row: None for course in self.courses for agent in AGENTS for row, _ in course.decisions(agent)}
        return sorted(found)

    @cached_property
    def logits(self):
        return torch.tensor([number("logit", row) for row in self.rows], dtype=torch.float64)

    def probabilities(self, logits):
        place = {row: i for i, row in enumerate(self.rows)}
        found = []
        for course in self.courses:
            decisions = [each for agent in AGENTS for each in course.decisions(agent)]
            signs = torch.tensor([2.0 * token - 1 for _, token in decisions], dtype=torch.float64)
            found.append(logsigmoid(logits[[place[row] for row, _ in decisions]] * signs).sum().exp())
        return torch.stack(found)

    def episode(self, course, group, index):
        """Return a course as an `Episode`, as the collector records it."""
        tracks = {
            agent: tuple(
                Turn(self._observation(course, agent, turn), self._completion(course, agent, turn), reward, turn)
                for turn, words in enumerate(course.turns)
                if agent in words
                for reward in [course.reward(agent, turn)]
            )
            for agent in AGENTS
        }
        states = tuple(("joint", repr(course.turns[:turn])) for turn in range(len(course.turns) + 1))
        finals, ends = dict.fromkeys(AGENTS), dict.fromkeys(AGENTS, True)
        infos = ({},) * len(course.turns)
        return Episode(index, 0, group, tracks, states, finals, ends, infos, num_agents=len(AGENTS))

    def _observation(self, course, agent, turn):
        return ("own", agent, course.own(agent, turn))

    def _completion(self, course, agent, turn):
        word = course.turns[turn][agent]
        rows = [(agent, course.own(agent, turn), word[:place]) for place in range(len(word))]
        logits = self.logits[[self.rows.index(row) for row in rows]]
        logprobs = logsigmoid(logits * (2.0 * torch.tensor(word) - 1)).numpy().astype(np.float32)
        return Completion(word, logprobs, tokens=tuple(zip(rows, word, strict=True)))

    def _movers(self, turns):
        return AGENTS

    def _course(self, turns):
        return Course(turns, self.seed)

    def _courses(self, turns):
        last = self.words[-1]
        there = self._movers(turns)
        if self.kind == "leaving":
            there = tuple(agent for agent in AGENTS if all(words.get(agent) != last for words in turns))
        is_over = len(turns) == self.num_turns or not there
        if self.kind == "early end":
            is_over = is_over or (bool(turns) and set(turns[-1].values()) == {last})
        if is_over:
            return [self._course(turns)]
        joint = (dict(zip(there, words, strict=True)) for words in product(self.words, repeat=len(there)))
        return [course for words in joint for course in self._courses((*turns, words))]


class WaitingCourse(Course):
    def is_paid(self, agent, turn):
        return True


class Waiting(Game):
    """Game of 3 turns. The agents alternate, but if the first word is `words[-1]`, both act in the second turn.

    Agents are also paid while they wait.
    """

    def _course(self, turns):
        return WaitingCourse(turns, self.seed)

    def _movers(self, turns):
        if len(turns) == 1 and turns[0][AGENTS[0]] == self.words[-1]:
            return AGENTS
        return (AGENTS[len(turns) % 2],)

    def episode(self, course, group, index):
        waiting = {
            agent: {turn: course.reward(agent, turn) for turn, words in enumerate(course.turns) if agent not in words}
            for agent in AGENTS
        }
        return replace(super().episode(course, group, index), waiting=waiting)


class PenniesCourse(Course):
    def reward(self, agent, turn):
        is_equal = len(set(self.turns[turn].values())) == 1
        return 1.0 if is_equal == (agent == AGENTS[0]) else -1.0


class Pennies(Game):
    """Matching pennies: the first agent wins 1 from the second if both choose the same word, and loses 1 otherwise."""

    def _course(self, turns):
        return PenniesCourse(turns)


class Table(TrainablePolicy):
    """Policy with the logit of token 1 for each row, which sums its gradients. The value head is also a table."""

    def __init__(self, game, agents, *, reads_turns_alone=False, has_value_head=False):
        self.rows = [row for row in game.rows if row[0] in agents]
        self.place = {row: i for i, row in enumerate(self.rows)}
        chosen = [i for i, row in enumerate(game.rows) if row[0] in agents]
        self.logits = nn.Parameter(game.logits[chosen].clone())
        self.head = nn.Parameter(torch.tensor([number("head", row) for row in self.rows], dtype=torch.float64))
        self.received = torch.zeros_like(self.logits.detach())
        self.logits.register_hook(self._receive)
        self.reads_turns_alone = reads_turns_alone
        self.value_head = nn.Identity() if has_value_head else None
        self.longest = max(len(word) for word in game.words)

    @property
    def max_tokens_per_turn(self):
        return self.longest

    def evaluate(self, tracks):
        turns = [turn for track in tracks for turn in track]
        decisions = [each for turn in turns for each in turn.tokens]
        logits = self.logits[[self.place[row] for row, _ in decisions]]
        signs = torch.tensor([2.0 * token - 1 for _, token in decisions], dtype=torch.float64)
        entropies = -sigmoid(logits) * logsigmoid(logits) - sigmoid(-logits) * logsigmoid(-logits)
        lengths = torch.tensor([len(turn.tokens) for turn in turns])
        turn_of_token = torch.arange(len(turns)).repeat_interleave(lengths)
        values = None
        if self.value_head is not None:
            values = self.head[[self.place[turn.tokens[0][0]] for turn in turns]]
        return Evaluation(logsigmoid(logits * signs), entropies, turn_of_token, values)

    def reply_logprobs(self, requests):
        found = []
        for completion, word in requests:
            agent, own, _ = completion.tokens[0][0]
            rows = [self.place[agent, own, word[:place]] for place in range(len(word))]
            signs = torch.tensor([2.0 * token - 1 for token in word], dtype=torch.float64)
            found.append(float(logsigmoid(self.logits.detach()[rows] * signs).sum()))
        return np.array(found)

    def _receive(self, gradient):
        self.received += gradient

    def num_tokens(self, track):
        return sum(len(turn.tokens) for turn in track)

    def parameters(self):
        return [self.logits] if self.value_head is None else [self.logits, self.head]

    def reference(self, device=None):
        coins = copy(self)
        coins.logits = torch.zeros_like(self.logits.detach())
        return coins

    def act(self, requests, *, greedy=False):
        raise NotImplementedError

    save = state_dict = load_state_dict = act


class TableHead(HeadCritic):
    """Critic that is the value head of a `Table`."""

    def values(self, inputs):
        place = self.policy.place
        return self.policy.head.detach()[[place[agent, own, ()] for each in inputs for _, agent, own in each.histories]]

    def num_tokens(self, item):
        return len(item.histories)


class Arbitrary(WeightlessCritic):
    """Critic with arbitrary values per history: a baseline that does not depend on the action causes no bias.

    `agents` have one value each. None: one value.
    """

    def __init__(self, agents=None):
        self.agents = agents

    def value(self, history, agent):
        return number("value", history) if agent is None else number("value", history, agent)

    def values(self, inputs):
        histories = [history for each in inputs for history in each.histories]
        if self.agents is None:
            return torch.tensor([self.value(history, None) for history in histories])
        return torch.tensor([[self.value(history, agent) for agent in self.agents] for history in histories])


class Exact(Arbitrary):
    """Critic whose value is the expected sum of the later rewards, given the history before a turn of the agent."""

    def __init__(self, game, agents=None, *, reward="team"):
        super().__init__(agents)
        self.game, self.reward = game, reward
        self.known = {}

    def value(self, history, agent):
        key = history, agent
        if key not in self.known:
            self.known[key] = self._value(history, agent)
        return self.known[key]

    def _value(self, history, agent):
        kind, *rest = history
        if kind == "own":
            agent, words = rest
        start = len(words) if kind == "own" else rest[0].count("{")
        mean = weight = 0.0
        for course, chance in zip(self.game.courses, self.game.probabilities(self.game.logits).tolist(), strict=True):
            if len(course.turns) <= start:
                continue
            if kind == "own":
                is_known = agent in course.turns[start] and course.own(agent, start) == words
            else:
                is_known = repr(course.turns[:start]) == rest[0]
            if is_known:
                later = course.own_return(agent, start) if self.reward == "own" else course.team_return(start)
                mean, weight = mean + chance * later, weight + chance
        return mean / weight if weight else 0.0


class ExactQ(Exact):
    """Exact critic that also evaluates joint actions; agents that do not act give None."""

    def values(self, inputs):
        found = []
        for each in inputs:
            found += [self.value(history, None) for history in each.histories]
            found += [self._of_action(*pair) for pair in zip(each.histories, each.actions, strict=True)]
        return torch.tensor(found)

    def _of_action(self, history, action):
        start = history[1].count("{")
        words = {agent: word for agent, word in zip(AGENTS, action, strict=True) if word is not None}
        mean = weight = 0.0
        for course, chance in zip(self.game.courses, self.game.probabilities(self.game.logits).tolist(), strict=True):
            if repr(course.turns[:start]) == history[1] and course.turns[start:][:1] == (words,):
                mean, weight = mean + chance * course.team_return(start), weight + chance
        return mean / weight


class Prescribed:
    """Collector that returns the episodes that a test has chosen."""

    def __init__(self, game, policies):
        self.policies = policies
        self.vector = SimpleNamespace(
            possible_agents=list(AGENTS), turn_limit=game.num_turns, num_envs=1, interests="common"
        )
        self.side_by_side = SideBySide()
        self.seconds = defaultdict(float)
        self.skipped = []
        self.version = 0
        self.episodes = []

    def collect(self, plans):
        return self.episodes

    def collect_turns(self, num_turns, seeds, *, difficulty=None):
        return self.episodes


def make_algorithm(name, **settings):
    """Return an algorithm with learning rate 0, without normalization of advantages and clipping of gradients."""
    spec = algorithm_spec(name)
    chosen = {"advantage_normalization": "none", "agent_learning_rate": 0.0, "max_grad_norm": 1e9}
    if issubclass(spec.config, ActorCriticConfig):
        chosen |= {"critic_warmup": 0, "value_normalization": False, "ppo_epochs": 1, "mini_batch_size": None}
    return spec.make(spec.config(**(chosen | settings)))


def make_trainer(algorithm, game, *, is_shared=False, has_reference=False, is_exact=False, **options):
    """Return a trainer of one table per agent, or of a shared table. Reference policies have probabilities 1/2."""
    policies = {agent: Table(game, (agent,), **options) for agent in AGENTS}
    if is_shared:
        policies = dict.fromkeys(AGENTS, Table(game, AGENTS, **options))
    critics = {}
    reward = algorithm.config.credited_reward or "team"
    agents = AGENTS if algorithm.critic_reads == "joint" and reward == "own" else None
    for name in {"own": AGENTS, "joint": ("joint",), "nothing": ()}[algorithm.critic_reads]:
        critic = Exact(game, agents, reward=reward) if is_exact else Arbitrary(agents)
        if algorithm.has_actor_heads:
            critic = TableHead(policies[name])
        elif is_exact and algorithm.replies is not None:
            critic = ExactQ(game)
        critics[name] = CriticLearner(critic, algorithm.config, torch.Generator(), agents and len(agents))
    references = {agent: policy.reference() for agent, policy in policies.items()} if has_reference else {}
    return Trainer(algorithm, Prescribed(game, policies), critics, references=references)


def expected_gradient(algorithm, game, num_episodes=2, **options):
    """Return the trainer's expected policy gradient, [rows of the game]. Groups are consecutive episodes."""
    trainer = make_trainer(algorithm, game, **options)
    policies = list(dict.fromkeys(trainer.collector.policies.values()))
    probabilities = game.probabilities(game.logits).tolist()
    size = algorithm.config.num_generations
    places = range(num_episodes)
    episodes = [[game.episode(course, place // size, place) for course in game.courses] for place in places]
    total = [torch.zeros_like(policy.received) for policy in policies]
    for numbers in product(range(len(game.courses)), repeat=num_episodes):
        trainer.collector.episodes = [episodes[place][number] for place, number in enumerate(numbers)]
        for policy in policies:
            policy.received.zero_()
        trainer.step()
        weight = prod(probabilities[number] for number in numbers)
        for gradient, policy in zip(total, policies, strict=True):
            gradient -= weight * policy.received
    by_row = {}
    for policy, gradient in zip(policies, total, strict=True):
        by_row |= dict(zip(policy.rows, gradient, strict=True))
    return torch.stack([by_row[row] for row in game.rows])


def exact_gradient(game, reward="team"):
    """Return the gradient of the expected team return, or of each agent's own return in its own rows."""
    logits = game.logits.clone().requires_grad_()
    probabilities = game.probabilities(logits)
    if reward == "team":
        returns = torch.tensor([course.team_return() for course in game.courses], dtype=torch.float64)
        return torch.autograd.grad((probabilities * returns).sum(), logits)[0]
    found = torch.zeros_like(game.logits)
    for agent in AGENTS:
        returns = torch.tensor([course.own_return(agent) for course in game.courses], dtype=torch.float64)
        (gradient,) = torch.autograd.grad((probabilities * returns).sum(), logits, retain_graph=True)
        found = torch.where(rows_of(game, agent), gradient, found)
    return found


class Tokens(NamedTuple):
    """Entropies of one turn's tokens, and their KL divergences (estimator k2) from the uniform distribution."""

    entropies: Tensor
    divergences: Tensor


def expected_sum(game, of_turn):
    """Return the gradient of the expected sum over all turns of `of_turn`, a scalar function of `Tokens`."""
    logits = game.logits.clone().requires_grad_()
    place = {row: i for i, row in enumerate(game.rows)}
    total = torch.zeros((), dtype=torch.float64)
    for course, probability in zip(game.courses, game.probabilities(game.logits), strict=True):
        for agent in AGENTS:
            for turn, words in enumerate(course.turns):
                if agent not in words:
                    continue
                word = words[agent]
                own = logits[[place[agent, course.own(agent, turn), word[:n]] for n in range(len(word))]]
                chances = torch.stack([sigmoid(own), sigmoid(-own)])
                logprobs = logsigmoid(own * (2.0 * torch.tensor(word) - 1))
                tokens = Tokens(-(chances * chances.log()).sum(dim=0), (logprobs + log(2)).square() / 2)
                total = total + probability * of_turn(tokens)
    return torch.autograd.grad(total, logits)[0]


def rows_of(game, agent):
    """Return a bool mask [rows], True for the rows of an agent."""
    return torch.tensor([row[0] == agent for row in game.rows])


def relative_error(found, exact):
    return float((found - exact).norm() / exact.norm())


def cosines(found, exact, game):
    """Return the cosine of two gradients for each agent."""
    own = [rows_of(game, agent) for agent in AGENTS]
    return [float(torch.cosine_similarity(found[rows], exact[rows], dim=0)) for rows in own]
