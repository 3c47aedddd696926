"""The same environment turn by turn, as PettingZoo's AEC interface wants it."""

from __future__ import annotations

from typing import Any

from gymnasium.spaces import Text
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec

from .parallel import make_parallel
from .structured import DictObservations


def to_aec(env: ParallelEnv[str, Any, Any]) -> AECEnv[str, Any, Any]:
    """The environment as an `AECEnv`: agents act one after the other, and what they did counts when all have.

    Texts come as {"text": ...}, because PettingZoo's AEC tools ask every bare observation for its dtype.
    """
    if any(isinstance(env.observation_space(agent), Text) for agent in env.possible_agents):
        env = DictObservations(env)
    return parallel_to_aec(env)


def make_aec(env_id: str, max_cycles: int | None = None, **kwargs: Any) -> AECEnv[str, Any, Any]:
    """What `pettingzoo.make("aec", id)` calls for an environment of ours."""
    return to_aec(make_parallel(env_id, max_cycles, **kwargs))
