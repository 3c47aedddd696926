"""Imperfect programmers of MiniCode, whose episodes a small model is first taught on.

They write code of the language, but each decides by itself which operand is the helper's, the main programmer often
does without the helper, and both blunder; so a model taught on them has the division of labour still to learn.
"""

from __future__ import annotations

import random

from ...core import Message
from . import prompts
from .env import MiniCode
from .rules import COMBINATIONS, OPERATIONS, Exercise, Operand, Split


def demonstration(
    rng: random.Random,
    *,
    split: Split = "train",
    num_operations: int = 2,
    preference: tuple[float, float] = (0.4, 0.6),
    alone: tuple[float, float] = (0.1, 0.3),
    mistakes: tuple[float, float] = (0.2, 0.35),
) -> dict[str, tuple[Message, ...]]:
    """One episode of two noisy programmers, as each of them saw it.

    Args:
        rng: decides the task, the programmers' habits and their blunders.
        split: where the task comes from.
        num_operations: as of the environment.
        preference: range of the probability with which a programmer takes the left operand for the helper's;
            otherwise it takes the right one.
        alone: range of the probability with which main writes out both operands and does not use aux.
        mistakes: range of the probability of a blunder.

    Returns:
        Each agent's whole transcript; its last message, of role "assistant", is its reply.
    """
    env = MiniCode(split, num_operations=num_operations)
    env.reset(seed=rng.randrange(2**31))
    replies = {}
    for agent in env.possible_agents:
        is_left = rng.random() < rng.uniform(*preference)
        is_alone = rng.random() < rng.uniform(*alone)
        is_blunder = rng.random() < rng.uniform(*mistakes)
        is_slip = is_blunder and rng.random() < 0.25  # of the pen; otherwise the code is sound and the sense is wrong
        task = _misread(rng, env.task) if is_blunder and not is_slip else env.task
        if agent == prompts.HELPER:
            reply = prompts.aux_code(task.left if is_left else task.right)
        else:
            reply = prompts.main_code(task, is_left and not is_alone, not is_left and not is_alone)
        replies[agent] = _slipped(rng, reply) if is_slip else reply
    observations = env.step(replies)[0]
    return {agent: observations[agent].messages for agent in env.possible_agents}


def _misread(rng: random.Random, task: Exercise) -> Exercise:
    """The task with one word of each operand, or the combination, perhaps another one."""
    left, right = (
        Operand((rng.choice(tuple(OPERATIONS)), *operand.operations[1:]), operand.variable)
        for operand in (task.left, task.right)
    )
    return Exercise(left, task.combination if rng.random() < 0.7 else rng.choice(tuple(COMBINATIONS)), right)


def _slipped(rng: random.Random, code: str) -> str:
    """The code with one of its tokens lost, or written as another one of the vocabulary."""
    tokens = code.split()
    at = rng.randrange(len(tokens))
    tokens[at : at + 1] = [] if rng.random() < 0.5 else [rng.choice(prompts.VOCABULARY)]
    return " ".join(tokens)
