"""Teams that earn without doing the task, in any text environment that knows reference replies.

A trick is a function of an environment that is about to play: it returns one team or more, of which the best counts. A
team is a function (agent, observation) -> reply, and may read the turn and the references of the environment it is in.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import TypeAlias

from ..core import TextParallelEnv, messages_of
from ..players import Player

Trick: TypeAlias = Callable[[TextParallelEnv], Iterable[Player]]

ELSEWHERE = range(10_000, 10_012)
"""Seeds of the other tasks from which the players that read no prompt have their replies."""
LINKS = "also for example therefore however first then finally indeed overall likewise although if when".split()
_WORD = re.compile(r"\w+")


def empty(env: TextParallelEnv) -> Iterable[Player]:
    """All say nothing: the floor."""
    return [lambda agent, observation: ""]


def copied_prompt(env: TextParallelEnv) -> Iterable[Player]:
    """All repeat what they read: everything, or the last message."""
    return [_whole_prompt, _last_message]


def keyword_salad(env: TextParallelEnv) -> Iterable[Player]:
    """Words of the prompt in no order among linking words; the second text as long as the first, or longer."""
    return [_salad(env, num_words, ratio) for num_words in (10, 40, 150) for ratio in (1.0, 1.45, 2.5)]


def one_does_all(env: TextParallelEnv) -> Iterable[Player]:
    """One gives its own reference reply, or all agents', and the others nothing."""
    for doer in env.possible_agents:
        yield _lone(env, doer, (doer,))
        yield _lone(env, doer, tuple(env.possible_agents))


def constant(env: TextParallelEnv) -> Iterable[Player]:
    """The reference replies of another task, in every task and turn."""
    return [_Elsewhere(env, _other(number)) for number in range(3)]


def flood(env: TextParallelEnv) -> Iterable[Player]:
    """The reference replies of many other tasks at once: something of it may be right."""
    return [
        _Elsewhere(env, lambda others, turn: "\n".join(others)),
        _Elsewhere(env, lambda others, turn: "\n".join(dict.fromkeys("\n".join(others).splitlines()))),
    ]


def repeated_partner(env: TextParallelEnv) -> Iterable[Player]:
    """All say what one of them ought to."""
    for leader in env.possible_agents:
        yield _led(env, leader)


def to_and_fro(env: TextParallelEnv) -> Iterable[Player]:
    """By turns the reference replies of two other tasks."""
    return [_Elsewhere(env, lambda others, turn: others[turn % 2 % len(others)])] if env.max_turns > 1 else []


def fail_first(env: TextParallelEnv) -> Iterable[Player]:
    """A bad first turn (nothing, one for all, another task's replies), then the reference."""
    if env.max_turns > 1:
        for bad in (*empty(env), *one_does_all(env), *list(constant(env))[:1]):
            yield _late(env, bad)


TRICKS: Mapping[str, Trick] = {
    "empty": empty,
    "copy of the prompt": copied_prompt,
    "keyword salad": keyword_salad,
    "one does all": one_does_all,
    "constant": constant,
    "flood": flood,
    "repeat the partner": repeated_partner,
    "to and fro": to_and_fro,
    "fail first": fail_first,
}
"""The general tricks by name; a trick's docstring says what its players do. None is played where it has no team."""


def _whole_prompt(agent: str, observation: str) -> str:
    return str(observation)


def _last_message(agent: str, observation: str) -> str:
    return messages_of(observation)[-1].content


def _other(number: int) -> Callable[[list[str], int], str]:
    return lambda others, turn: others[number % len(others)]


def _salad(env: TextParallelEnv, num_words: int, ratio: float) -> Player:
    def reply(agent: str, observation: str) -> str:
        place = env.possible_agents.index(agent)
        rng = random.Random(place)
        known = sorted(set(_WORD.findall(observation)))
        wanted = round(num_words * ratio**place)
        return " ".join(rng.choice(known if known and number % 3 else LINKS) for number in range(wanted))

    return reply


def _lone(env: TextParallelEnv, doer: str, done: tuple[str, ...]) -> Player:
    def reply(agent: str, observation: str) -> str:
        if agent != doer:
            return ""
        return "\n\n".join(env.reference_reply(each) for each in done if each in env.agents)

    return reply


def _led(env: TextParallelEnv, leader: str) -> Player:
    # who leads may have left; then the others follow one who has not
    return lambda agent, observation: env.reference_reply(leader if leader in env.agents else env.agents[0])


def _late(env: TextParallelEnv, bad: Player) -> Player:
    return lambda agent, observation: env.reference_reply(agent) if env.turn else bad(agent, observation)


class _Elsewhere:
    """A player that has its replies from the agent's first reference replies in other tasks."""

    def __init__(self, env: TextParallelEnv, choose: Callable[[list[str], int], str]):
        self._env = env
        self._choose = choose
        self._others: dict[str, list[str]] = {}
        other = deepcopy(env)
        self._found = []
        for seed in ELSEWHERE:
            other.reset(seed=seed)
            self._found.append({agent: other.reference_reply(agent) for agent in other.agents})

    def __call__(self, agent: str, observation: str) -> str:
        if not self._env.turn:  # where tasks are few, this one's own may be among them
            right = {each: self._env.reference_reply(each) for each in self._env.agents}
            others = [replies for replies in self._found if replies != right]
            self._others[agent] = [replies[agent] for replies in others] or [""]
        return self._choose(self._others[agent], self._env.turn)[: self._env.action_space(agent).max_length]
