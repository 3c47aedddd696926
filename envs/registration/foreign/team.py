"""Functions that convert environments of Gymnasium and PettingZoo to parallel environments."""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import Any

import gymnasium
from gymnasium.spaces import Dict, Text, flatten_space
from gymnasium.spaces import flatten as flatten_observation
from gymnasium.wrappers import TransformObservation
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import aec_to_parallel_wrapper

from ...core import TextParallelEnv
from ...spaces import is_flattenable
from .adapters import FittedActions
from .gym_as_parallel import GymAsParallel, TupleTeam, is_tuple_team
from .turn_based import TurnBased


def gym_team(
    env: str, *, observed: str | None = None, flatten: bool = False, **kwargs: Any
) -> ParallelEnv[str, Any, Any]:
    """Build a Gymnasium environment as a parallel environment. Tuple spaces give one agent per entry.

    Args:
        env: id, or "module:Id" if importing a module registers the environment.
        observed: key of the entry of Dict observations that the agent gets, such as "image" in MiniGrid. None: all.
        flatten: whether to flatten observations of Dict and Tuple spaces into one vector.
        kwargs: arguments of `gymnasium.make`.

    Raises:
        TypeError: if `observed` is not a key of the observations, or if observations to flatten have no fixed size.
    """
    made: gymnasium.Env[Any, Any] = gymnasium.make(env, disable_env_checker=True, **kwargs)
    # Not Gymnasium's FlattenObservation: it contains a lambda, so it cannot be pickled.
    if observed is not None:
        space = made.observation_space
        if not isinstance(space, Dict) or observed not in space.spaces:
            raise TypeError(f"observed={observed!r} must be a key of the observations, but the space is {space}")
        made = TransformObservation(made, itemgetter(observed), space[observed])
    if flatten:
        space = made.observation_space
        if not is_flattenable(space):
            raise TypeError(f"flatten=True needs observations of a fixed size, but the space is {space}")
        made = TransformObservation(made, partial(flatten_observation, space), flatten_space(space))
    if observed is None and not flatten and is_tuple_team(made):
        made.close()
        return TupleTeam(env, **kwargs)  # with the id, because each reset with a seed builds a new environment
    return as_team(made)


def as_team(env: Any) -> Any:
    """Convert an environment of Gymnasium or PettingZoo to a parallel environment. Return other objects unchanged.

    Agents get names that are texts, and replies are fitted to `Text` action spaces.
    """
    if isinstance(env, AECEnv):
        env = aec_to_parallel_wrapper(env) if env.metadata.get("is_parallelizable") else TurnBased(env)
    elif isinstance(env, gymnasium.Env):
        env = TupleTeam(env) if is_tuple_team(env) else GymAsParallel(env)
    if not isinstance(env, ParallelEnv) or isinstance(env, FittedActions) or isinstance(env.unwrapped, TextParallelEnv):
        return env
    agents = env.possible_agents
    is_fitted = all(isinstance(agent, str) and not isinstance(env.action_space(agent), Text) for agent in agents)
    return env if is_fitted else FittedActions(env)
