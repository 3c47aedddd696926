"""Demonstrations of the talk games by scripted players, for supervised training of a small model.

collm imitate collm.envs.games.talk.demonstrations:tiny_hanabi FOLDER
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import TypeAlias, get_args

from ...core import Message
from . import matrix_game as matrix_games
from . import tiny_hanabi as hanabi
from .advice import Advice
from .core import TalkEnv
from .matrix_game import MatrixGame
from .profile import Profile
from .tiny_hanabi import TinyHanabi

Demonstration: TypeAlias = Callable[[Random], Mapping[str, tuple[Message, ...]]]


def demonstration(
    rng: Random, make: Callable[[Random], TalkEnv], skill: float = 0.0
) -> Mapping[str, tuple[Message, ...]]:
    """Run one episode, in which each reply is the reference's with probability `skill`, else a random legal action.

    Args:
        rng: random number generator for the game, the task and the replies.
        make: function that returns the game.
        skill: probability of a reference reply. At 0, a model learns the legal actions and nothing else.

    Returns:
        The messages of each agent; role "assistant" marks its replies.
    """
    env = make(rng)
    observations, _ = env.reset(seed=rng.randrange(2**31))
    while env.agents:
        replies = {
            agent: env.reference_reply(agent) if rng.random() < skill else rng.choice(env.options(agent))
            for agent in env.movers
        }
        observations = env.step(replies)[0]
    return {agent: observations[agent].messages for agent in env.possible_agents}


tiny_hanabi: Demonstration = partial(demonstration, make=lambda rng: TinyHanabi(rng.choice(get_args(hanabi.Game))))
advice: Demonstration = partial(demonstration, make=lambda rng: Advice(rng.choice((0, 1, 2))))
matrix_game: Demonstration = partial(
    demonstration,
    make=lambda rng: MatrixGame(
        rng.choice(get_args(matrix_games.Game)), num_rounds=rng.choice((1, 1, 2)), num_messages=rng.choice((0, 1))
    ),
    skill=0.6,
)
profile: Demonstration = partial(
    demonstration,
    make=lambda rng: Profile(num_agents=3, num_options=rng.choice((4, 6, 8)), num_messages=rng.choice((0, 1))),
    skill=0.7,
)
