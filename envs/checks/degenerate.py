"""Teams that earn without doing the task, in any text environment that knows reference replies.

A trick is a function of an environment that is about to play: it returns one team or more, of which the best counts. A
team is a function (agent, observation) -> reply, and may read the turn and the references of the environment it is in.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from itertools import cycle
from typing import TypeAlias

from ..core import TextParallelEnv, messages_of
from ..players import Player

Trick: TypeAlias = Callable[[TextParallelEnv], Iterable[Player]]

ELSEWHERE = range(10_000, 10_012)
"""Seeds of the other tasks from which the players that read no prompt have their replies."""
NUM_CONSTANTS = 6
LINKS = "also for example therefore however first then finally indeed overall likewise although if when".split()
FILLERS = [*LINKS, *"it is so and we are of the this that they were in a an for to by at on".split()]
_WORD = re.compile(r"\w+")
_LEAST_KEYWORD = 4  # letters


def empty(env: TextParallelEnv) -> Iterable[Player]:
    """All say nothing: the floor."""
    return [_silent]


def copied_prompt(env: TextParallelEnv) -> Iterable[Player]:
    """All repeat what they read: everything, or the last message."""
    return [_whole_prompt, _last_message]


def keyword_salad(env: TextParallelEnv) -> Iterable[Player]:
    """Words of the prompt in no order among linking words; the second text as long as the first, or longer."""
    return [_salad(env, num_words, ratio) for num_words in (10, 40, 150) for ratio in (1.0, 1.45, 2.5)]


def ordered_keywords(env: TextParallelEnv) -> Iterable[Player]:
    """Long words of the prompt's longest line in their order, with linking and function words between them."""
    for num_words, density in ((14, 0.7), *((num, density) for num in (40, 130) for density in (0.1, 0.35, 0.7))):
        yield _keywords(env, num_words, density)


def one_does_all(env: TextParallelEnv) -> Iterable[Player]:
    """One gives its own reference reply, or all agents', and the others nothing."""
    for doer in env.possible_agents:
        yield _lone(env, doer, (doer,))
        yield _lone(env, doer, tuple(env.possible_agents))


def others_for_show(env: TextParallelEnv) -> Iterable[Player]:
    """One gives its own reference reply, or all agents', and the others a token amount of theirs.

    A token amount is the first line or two of the reference reply, the first two words of one that is shorter, or the
    shortest reference reply of another task.
    """
    shortest = _Elsewhere(env, lambda others, turn: min(others, key=len))
    tokens: list[Player] = [_first_lines(env, 1), _first_lines(env, 2), shortest]
    for doer in env.possible_agents:
        for done in ((doer,), tuple(env.possible_agents)):
            for token in tokens:
                yield _lone(env, doer, done, token)


def constant(env: TextParallelEnv) -> Iterable[Player]:
    """The reference replies of another task, in every task and turn.

    An agent that waits in the first turn of the other task has its first reply there that is not empty.
    """
    return [_Elsewhere(env, _other(number), is_fixed=True) for number in range(NUM_CONSTANTS)]


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
    "ordered keywords": ordered_keywords,
    "one does all": one_does_all,
    "others for show": others_for_show,
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


def _keywords(env: TextParallelEnv, num_words: int, density: float) -> Player:
    def reply(agent: str, observation: str) -> str:
        line = max(observation.splitlines(), key=len, default="")
        known = list(dict.fromkeys(word for word in _WORD.findall(line) if len(word) >= _LEAST_KEYWORD))
        place = env.possible_agents.index(agent)
        wanted = round(num_words * 1.45**place)
        keywords, fillers = cycle(known or FILLERS), cycle(FILLERS)
        is_keyword = (int((number + 1) * density) > int(number * density) for number in range(wanted))
        return " ".join(next(keywords if each else fillers) for each in is_keyword)

    return reply


def _first_lines(env: TextParallelEnv, count: int) -> Player:
    def reply(agent: str, observation: str) -> str:
        whole = env.reference_reply(agent)
        lines, words = whole.splitlines(), whole.split()
        if len(lines) > 2 * count:
            return "\n".join(lines[:count])
        return " ".join(words[:2]) if len(words) > 4 else ""

    return reply


def _silent(agent: str, observation: str) -> str:
    return ""


def _lone(env: TextParallelEnv, doer: str, done: tuple[str, ...], others: Player = _silent) -> Player:
    def reply(agent: str, observation: str) -> str:
        if agent != doer:
            return str(others(agent, observation))
        return "\n\n".join(env.reference_reply(each) for each in done if each in env.agents)

    return reply


def _led(env: TextParallelEnv, leader: str) -> Player:
    # who leads may have left; then the others follow one who has not
    return lambda agent, observation: env.reference_reply(leader if leader in env.agents else env.agents[0])


def _late(env: TextParallelEnv, bad: Player) -> Player:
    return lambda agent, observation: env.reference_reply(agent) if env.turn else bad(agent, observation)


class _Elsewhere:
    """A player that has its replies from the agent's first reference replies in other tasks, empty ones aside.

    Args:
        env: where it plays.
        choose: the other tasks' replies of the agent and the turn -> its reply.
        is_fixed: whether the replies are the same in all tasks, so that they are right in the task that they are from.
            False: replies from the present task are left out, since among few tasks they are often found.
    """

    def __init__(self, env: TextParallelEnv, choose: Callable[[list[str], int], str], *, is_fixed: bool = False):
        self._env = env
        self._is_fixed = is_fixed
        self._choose = choose
        self._others: dict[str, list[str]] = {}
        other = deepcopy(env)
        self._found: list[tuple[str, dict[str, str]]] = []
        for seed in ELSEWHERE:
            other.reset(seed=seed)
            self._found.append((str(other.state()), _first_replies(other)))

    def __call__(self, agent: str, observation: str) -> str:
        if not self._env.turn:
            self._others[agent] = [replies[agent] for replies in self._elsewhere()] or [""]
        return self._choose(self._others[agent], self._env.turn)[: self._env.action_space(agent).max_length]

    def _elsewhere(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = []
        for state, replies in self._found:
            if replies not in found and (self._is_fixed or not self._is_of_this_task(state, replies)):
                found.append(replies)
        return found if len(found) > 1 or not self._is_fixed else []  # a single task has no other one

    def _is_of_this_task(self, state: str, replies: Mapping[str, str]) -> bool:
        own = {agent: self._env.reference_reply(agent) for agent in self._env.agents}
        return state == str(self._env.state()) and all(replies[agent] == reply for agent, reply in own.items() if reply)


def _first_replies(env: TextParallelEnv) -> dict[str, str]:
    """Each agent's first reference reply that is not empty, in the episode that is about to begin.

    In a game by turns an agent that waits replies nothing; then the episode is played on.
    """
    found = dict.fromkeys(env.agents, "")
    while env.agents:
        replies = {agent: env.reference_reply(agent) for agent in env.agents}
        found |= {agent: reply for agent, reply in replies.items() if not found[agent]}
        if all(found.values()):
            break
        env.step(replies)
    return found
