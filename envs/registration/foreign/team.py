"""Any environment of Gymnasium or PettingZoo → a parallel environment."""

from __future__ import annotations

from typing import Any

import gymnasium
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import aec_to_parallel_wrapper

from .gym_as_parallel import Flat, GymAsParallel, Part
from .tuple_team import TupleTeam, is_tuple_team
from .turn_based import TurnBased


def gym_team(
    env: str, *, observed: str | None = None, flatten: bool = False, **kwargs: Any
) -> ParallelEnv[str, Any, Any]:
    """A registered Gymnasium environment as a team: of one agent, or of as many as its Tuple spaces have.

    Args:
        env: id, "module:Id" where a module registers it.
        observed: entry of dict observations that an agent sees, such as "image" in MiniGrid; None: all.
        flatten: flatten observations of Dict and Tuple spaces into one vector.
        kwargs: arguments of `gymnasium.make`.

    Raises:
        TypeError: if there is no such entry, or if observations have no fixed size to flatten.
    """
    seen: gymnasium.Env[Any, Any] = gymnasium.make(env, disable_env_checker=True, **kwargs)
    if observed is not None:
        seen = Part(seen, observed)
    if flatten:
        seen = Flat(seen)
    if observed is None and not flatten and is_tuple_team(seen):
        seen.close()
        return TupleTeam(env, **kwargs)  # by its id, so that it can be made again
    return as_team(seen)


def as_team(env: Any) -> Any:
    """A parallel environment from Gymnasium's or PettingZoo's; what is neither comes back as it is.

    AEC environments in which all agents act before anything happens go through PettingZoo's `aec_to_parallel`, others
    through its `turn_based_aec_to_parallel`.
    """
    if isinstance(env, AECEnv):
        return aec_to_parallel_wrapper(env) if env.metadata.get("is_parallelizable") else TurnBased(env)
    if isinstance(env, gymnasium.Env):
        return TupleTeam(env) if is_tuple_team(env) else GymAsParallel(env)
    return env
