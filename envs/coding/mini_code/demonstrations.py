"""Demonstrations of MiniCode for supervised training. They show the form of the code, but do not divide the work."""

from __future__ import annotations

import random

from ...core import Message
from . import prompts
from .env import MiniCode
from .rules import COMBINATIONS, OPERATIONS, Exercise, Operand


def demonstration(
    rng: random.Random, *, num_operations: int = 2, mistakes: tuple[float, float] = (0.2, 0.35)
) -> dict[str, tuple[Message, ...]]:
    """Run an episode of MiniCode with two scripted programmers that make mistakes.

    Args:
        rng: random number generator for the task, the programmers' choices, and their mistakes.
        num_operations: number of operations in the task, 2 to 4.
        mistakes: range from which the probability of a mistake is sampled.

    Returns:
        Messages of each agent. The last message has the role "assistant" and is the agent's completion.
    """
    env = MiniCode(num_operations=num_operations)
    env.reset(seed=rng.randrange(2**31))
    replies = {}
    for agent in env.possible_agents:
        is_left = rng.random() < rng.uniform(0.4, 0.6)  # the helper computes the left operand
        is_alone = rng.random() < rng.uniform(0.1, 0.3)  # main does not use the helper
        is_blunder = rng.random() < rng.uniform(*mistakes)
        is_slip = is_blunder and rng.random() < 0.25  # a wrong token; other mistakes are valid code for another task
        task = _misread(rng, env.task) if is_blunder and not is_slip else env.task
        if agent == prompts.HELPER:
            reply = prompts.aux_code(task.left if is_left else task.right)
        else:
            reply = prompts.main_code(task, is_left and not is_alone, not is_left and not is_alone)
        replies[agent] = _slipped(rng, reply) if is_slip else reply
    observations = env.step(replies)[0]
    return {agent: observations[agent].messages for agent in env.possible_agents}


def _misread(rng: random.Random, task: Exercise) -> Exercise:
    """Sample the first operation of each operand again, and with probability 0.3 also the combination."""
    left, right = (
        Operand((rng.choice(tuple(OPERATIONS)), *operand.operations[1:]), operand.variable)
        for operand in (task.left, task.right)
    )
    return Exercise(left, task.combination if rng.random() < 0.7 else rng.choice(tuple(COMBINATIONS)), right)


def _slipped(rng: random.Random, code: str) -> str:
    """Return the code with one token removed or replaced by a random token."""
    tokens = code.split()
    at = rng.randrange(len(tokens))
    tokens[at : at + 1] = [] if rng.random() < 0.5 else [rng.choice(prompts.VOCABULARY)]
    return " ".join(tokens)
