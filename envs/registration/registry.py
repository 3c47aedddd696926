"""The registry: environments by id, made with `make("collm/TLDR-v2", **kwargs)`.

An id is `namespace/Name-vN`; the version is raised whenever the behaviour changes, so that a score always names what it
was measured on.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import gymnasium
import pettingzoo
from pettingzoo import ParallelEnv

from ..._errors import UserError, caller_level
from ..._plugins import load_plugins
from ..wrappers.partnered import Partnered
from ..wrappers.reward_functions import RewardFunctions
from ..wrappers.single_model import SingleModel
from .foreign.team import as_team
from .held_out import HeldOut, held_out_seeds
from .turn_limit import TurnLimit

Range: TypeAlias = tuple[float, float]

GROUP = "collm.envs"  # of entry points
_FIXED_LENGTH = "the length of its episodes is fixed; collm.envs.views.TurnLimit(env, max_turns) cuts them short"
_GYM_TEAM = "collm.envs.registration.foreign.team:gym_team"
_JUDGING = ("reward_funcs", "reward_weights")  # arguments that any text environment takes; see `RewardFunctions`
_MAKERS = "parallel_env", "env"  # what PettingZoo's modules call what builds an environment
_SEATING = ("single_model", "partners")  # arguments that any environment takes; see `SingleModel` and `Partnered`
_PAYING_THE_SAME = {"render_mode", "split"}  # arguments that no reward depends on
_ID = re.compile(r"(?P<name>[\w-]+/[\w.-]+?)(-v(?P<version>\d+))?")


class UnknownEnvironmentError(UserError, LookupError):
    """No environment is registered under this id."""


class EnvironmentArgumentsError(UserError, TypeError):
    """An environment does not take the arguments it is given."""


@dataclass(frozen=True)
class EnvSpec:
    """How an environment is made. JSON-able where its entry point is importable and its kwargs are JSON."""

    id: str
    """`namespace/Name-vN`."""
    entry_point: str | Callable[..., Any]
    """What builds it: "package.module:Class", imported only when one is made, or the class or function itself."""
    kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Arguments of the entry point; those given to `make` come on top."""
    max_turns: int | None = None
    """A limit from outside: after this many turns the episode is truncated. None: the environment ends by itself."""
    summary: str = ""
    """What it is, in one line, for listings."""
    reward_range: Range | None = None
    """Lowest and highest reward of one agent in one turn, with `kwargs`; infinite where there is no bound, None: not
    declared."""
    return_range: Range | None = None
    """Lowest and highest undiscounted return of one agent in one episode, likewise."""
    max_new_tokens: int | None = None
    """Tokens that a reply needs at most, the default of language models that play it. None: not declared."""
    range_preserving_kwargs: tuple[str, ...] = ()
    """Arguments that may take any value without leaving `reward_range` and `return_range`."""

    def __post_init__(self) -> None:
        for name in ("reward_range", "return_range"):
            declared = getattr(self, name)
            if declared is not None:  # JSON has lists in place of tuples
                object.__setattr__(self, name, _range(f"{self.id}: {name}", declared))
        object.__setattr__(self, "range_preserving_kwargs", tuple(self.range_preserving_kwargs))
        match = _ID.fullmatch(self.id)
        if match is None or match["version"] is None:
            raise ValueError(f"an environment's id must look like 'namespace/Name-v0', got {self.id!r}")
        if isinstance(self.entry_point, str) and not re.fullmatch(r"[\w.]+:[\w.]+", self.entry_point):
            raise ValueError(
                f"{self.id}: an entry point must be callable or look like 'package.module:Class', "
                f"got {self.entry_point!r}"
            )
        if self.max_turns is not None and self.max_turns < 1:
            raise ValueError(f"{self.id}: max_turns must be None or at least 1, got {self.max_turns}")

    @property
    def name(self) -> str:
        """The id without its version."""
        return self.id.rpartition("-v")[0]

    @property
    def version(self) -> int:
        """The number at the end of the id."""
        return int(self.id.rpartition("-v")[2])

    @property
    def held_out(self) -> HeldOut | None:
        """Fixed seeds on which teams are compared; None where this version has none."""
        return held_out_seeds(self.id)

    def constructor(self) -> Callable[..., Any]:
        """What builds the environment, imported if need be."""
        if not isinstance(self.entry_point, str):
            return self.entry_point
        module, _, path = self.entry_point.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for name in path.split("."):
                found = getattr(found, name)
        except (ImportError, AttributeError) as error:
            raise ImportError(f"{self.id}: its entry point {self.entry_point!r} cannot be loaded: {error}") from error
        constructor: Callable[..., Any] = found
        return constructor

    def given(self, **kwargs: Any) -> EnvSpec:
        """This specification with arguments on top. The ranges stay only if every argument preserves them."""
        used = {**deepcopy(dict(self.kwargs)), **kwargs}
        if set(kwargs) <= _PAYING_THE_SAME.union(self.range_preserving_kwargs):
            return replace(self, kwargs=used)
        return replace(self, kwargs=used, reward_range=None, return_range=None)

    def make(self, **kwargs: Any) -> ParallelEnv[str, Any, Any]:
        """A new environment; its `spec` is this one with the arguments that were used."""
        constructor = self.constructor()
        spec = self.given(**kwargs)
        used, judging, seating = _sorted_out(constructor, spec.kwargs)
        _refuse_unknown_arguments(self.id, constructor, used)
        try:
            env = constructor(**used)
        except gymnasium.error.Error as error:  # such as a library that is not installed
            raise UserError(f"{self.id} cannot be made: {error}") from error
        except UserError:
            raise
        except (TypeError, LookupError, AttributeError) as error:
            _explain_fixed_argument(self.id, used, error)
            if kwargs or self.id.startswith("unregistered/"):  # else no one but the environment can be at fault
                raise EnvironmentArgumentsError(
                    f"{self.id} cannot be made with the arguments {used or 'none'}: {type(error).__name__}: {error}"
                ) from error
            raise
        env = as_team(env)
        if not isinstance(env, ParallelEnv):
            raise EnvironmentArgumentsError(
                f"{self.id}: its entry point must build an environment of PettingZoo or Gymnasium, "
                f"it built a {type(env).__name__}"
            )
        if self.max_turns is not None:
            env = TurnLimit(env, self.max_turns)
        if judging:
            env = _judged(self.id, env, **judging)
        if seating.get("single_model"):
            env = SingleModel(env)
        if seating.get("partners") is not None:
            env = Partnered(env, seating["partners"])
        env.spec = spec
        return env

    def check(self, **kwargs: Any) -> None:
        """Refuse arguments that the environment does not take, without making one.

        Raises:
            EnvironmentArgumentsError: naming the argument, and the nearest that it takes.
        """
        constructor = self.constructor()
        _refuse_unknown_arguments(self.id, constructor, _sorted_out(constructor, {**self.kwargs, **kwargs})[0])

    def to_json(self) -> str:
        """This specification as JSON, so that another process can make the same environment."""
        entry_point = self.entry_point
        if not isinstance(entry_point, str):
            path = getattr(entry_point, "__qualname__", "<")
            if "<" in path:
                raise ValueError(
                    f"{self.id}: {entry_point!r} cannot be imported by name, so it has no JSON; "
                    "register it as 'package.module:Class'"
                )
            entry_point = f"{entry_point.__module__}:{path}"
        try:
            return json.dumps({**vars(self), "entry_point": entry_point, "kwargs": dict(self.kwargs)})
        except TypeError as error:
            raise ValueError(f"{self.id}: its kwargs {dict(self.kwargs)} are not JSON: {error}") from error

    @classmethod
    def from_json(cls, text: str) -> EnvSpec:
        """The inverse of `to_json`."""
        return cls(**json.loads(text))


registry: dict[str, EnvSpec] = {}


def register(
    id: str,
    entry_point: str | Callable[..., Any],
    *,
    kwargs: Mapping[str, Any] | None = None,
    max_turns: int | None = None,
    summary: str = "",
    reward_range: Range | None = None,
    return_range: Range | None = None,
    max_new_tokens: int | None = None,
    range_preserving_kwargs: Sequence[str] = (),
    replace: bool = False,
) -> EnvSpec:
    """Add an environment to the registry, to PettingZoo's, and (as seen by one agent) to Gymnasium's.

    Registering the same thing twice does nothing.

    Args:
        id: `namespace/Name-vN`.
        entry_point: "package.module:Class", imported only when one is made; or the class or function itself.
        kwargs: arguments of the entry point.
        max_turns: a limit from outside, which truncates; an environment's own last turn terminates.
        summary: what it is, in one line.
        reward_range: lowest and highest reward of one agent in one turn, which `check_env` then holds it to; None: not
            declared.
        return_range: lowest and highest undiscounted return of one agent in one episode, likewise.
        max_new_tokens: tokens that a reply needs at most, the default of language models that play it; None: 256.
        range_preserving_kwargs: names of arguments that may take any value without leaving the two ranges. With any
            other argument the ranges of the environment are unknown.
        replace: whether to overwrite another environment of this id, as in a notebook cell that is run again.

    Raises:
        ValueError: if the id is malformed or taken.
    """
    ranges = reward_range, return_range
    preserving = tuple(range_preserving_kwargs)
    added = EnvSpec(id, entry_point, dict(kwargs or {}), max_turns, summary, *ranges, max_new_tokens, preserving)
    if registry.get(id, added) != added and not replace:
        raise ValueError(
            f"{id} is already registered, as {registry[id].entry_point!r}; raise the version, or pass replace=True"
        )
    registry[id] = added
    mirror(id)
    return added


def spec(id: str) -> EnvSpec:
    """The registered specification of an id; without a version, the newest one, with a warning.

    Not registered but understood: "gymnasium/CartPole-v1" or "CartPole-v1", any of Gymnasium as a team, of one or of as
    many agents as its Tuple spaces have; "gymnasium/minigrid:MiniGrid-Empty-5x5-v0", one that a module registers there
    when it is imported; "pettingzoo.classic.tictactoe_v3", a module of PettingZoo's form; and
    "package.module:function", any class or function that builds an environment of PettingZoo or Gymnasium.

    Raises:
        UnknownEnvironmentError: naming the nearest id and, where the version is wrong, the newest.
    """
    if id in registry:
        return registry[id]
    broken = load_plugins(GROUP)
    if id in registry:
        return registry[id]
    if foreign := _foreign(id):
        return foreign
    match = _ID.fullmatch(id)
    if match is None:
        raise UnknownEnvironmentError(_sentence(f"{id!r} is not of the form 'namespace/Name-v0'", _nearest(id), broken))
    versions = _versions(match["name"])
    if not versions:
        unknown = f"no environment is called {id!r}; an unregistered class is named 'module:Class'"
        raise UnknownEnvironmentError(_sentence(unknown, _nearest(id), broken))
    newest = max(versions, key=lambda found: found.version)
    if match["version"] is not None:
        raise UnknownEnvironmentError(
            _sentence(f"{match['name']} has no version {match['version']}", f"the newest is {newest.id!r}", broken)
        )
    _warn_of_version(id, newest)
    return newest


def versioned(id: str) -> str:
    """The id with its newest version, with a warning, if it is a registered name without one; else the id itself."""
    if id not in registry:
        load_plugins(GROUP)
    match = _ID.fullmatch(id)
    if match is None or match["version"] is not None or not (versions := _versions(id)):
        return id
    newest = max(versions, key=lambda found: found.version)
    _warn_of_version(id, newest)
    return newest.id


def imports_module(id: str) -> bool:
    """Whether the id of an environment names a module to import, instead of a registered environment."""
    is_registered = id in registry or id in gymnasium.registry
    return not is_registered and (":" in id or re.fullmatch(r"[\w-]+(/[\w.-]+)*", id) is None)


def make(id: str | EnvSpec, **kwargs: Any) -> ParallelEnv[str, Any, Any]:
    """A new environment.

    Args:
        id: a registered id, or a specification.
        kwargs: arguments of the environment, on top of those it was registered with. Every text environment also takes
            `reward_funcs` and `reward_weights` (see `collm.envs.wrappers.RewardFunctions`), every environment takes
            `partners` (see `collm.envs.wrappers.Partnered`) and `single_model` (see `collm.envs.wrappers.SingleModel`).

    Raises:
        UnknownEnvironmentError: if no environment has this id.
        TypeError: if the environment does not take one of the arguments.
    """
    return (id if isinstance(id, EnvSpec) else spec(id)).make(**kwargs)


def specs() -> tuple[EnvSpec, ...]:
    """All environments by id, plugins' too; a plugin that fails to load is a warning."""
    for failure in load_plugins(GROUP):
        warnings.warn(failure, RuntimeWarning, stacklevel=caller_level())
    return tuple(registry[id] for id in sorted(registry))


def pprint_registry() -> None:
    """Print every id with its line."""
    found = specs()
    width = max((len(each.id) for each in found), default=0)
    for each in found:
        print(f"{each.id:<{width}}  {each.summary}".rstrip())


def _versions(name: str) -> list[EnvSpec]:
    return [found for found in registry.values() if found.name == name]


def _warn_of_version(id: str, newest: EnvSpec) -> None:
    message = f"{id!r} names no version; using the newest, {newest.id!r}"
    warnings.warn(message, UserWarning, stacklevel=caller_level())


def accepted_arguments(constructor: Callable[..., Any]) -> frozenset[str] | None:
    """The names of the arguments that a constructor takes; None if it takes any.

    A class that hands `**kwargs` on to its base class takes the base's arguments as well.
    """
    steps: list[Any] = [constructor]
    if inspect.isclass(constructor):
        steps = [vars(ancestor)["__init__"] for ancestor in constructor.__mro__ if "__init__" in vars(ancestor)]
    if steps[0] is object.__init__:
        return frozenset()
    names: set[str] = set()
    for step in steps:
        if step is object.__init__:  # it takes nothing, so the class above must have read **kwargs itself
            break
        parameters = inspect.signature(step).parameters.values()
        names |= {each.name for each in parameters if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)}
        if not any(each.kind is each.VAR_KEYWORD for each in parameters):
            return frozenset(names - {"self"})
    return None


def _judged(
    id: str, env: ParallelEnv[str, Any, Any], reward_funcs: Any = None, reward_weights: Any = None
) -> ParallelEnv[str, Any, Any]:
    if reward_funcs is None:
        raise ValueError(f"{id}: reward_weights={reward_weights} belong to reward_funcs; give both, or neither")
    return RewardFunctions(env, reward_funcs, reward_weights)


def _sorted_out(
    constructor: Callable[..., Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Arguments of the environment, those of `RewardFunctions`, and those that say who sits where."""
    used = dict(given)
    own = accepted_arguments(constructor) or ()
    judging = {name: used.pop(name) for name in _JUDGING if name in used and name not in own}
    seating = {name: used.pop(name) for name in _SEATING if name in used and name not in own}
    return used, judging, seating


def _range(name: str, declared: Any) -> Range:
    low, high = (float(bound) for bound in declared)
    if not low <= high:
        raise ValueError(f"{name} must be the lower bound and the upper one, got {declared}")
    return low, high


def _refuse_unknown_arguments(id: str, constructor: Callable[..., Any], given: Mapping[str, Any]) -> None:
    accepted = accepted_arguments(constructor)
    for name in given:
        if accepted is not None and name not in accepted:
            near = difflib.get_close_matches(name, accepted, 1, 0.5)
            hint = f"did you mean {near[0]!r}? it" if near else "it"
            raise EnvironmentArgumentsError(  # Python's own words, which other libraries look for
                f"{id} got an unexpected keyword argument {name!r}; "
                f"{_FIXED_LENGTH if name == 'max_turns' else f'{hint} takes {_listed(accepted)}'}"
            )


def _explain_fixed_argument(id: str, given: Mapping[str, Any], error: Exception) -> None:
    """Say it where a class sets an argument of its base class by itself, and it was given as well."""
    found = re.search(r"multiple values for (?:keyword )?argument '(\w+)'", str(error))
    if found is not None and found[1] in given:
        hint = _FIXED_LENGTH if found[1] == "max_turns" else "leave it out"
        raise EnvironmentArgumentsError(f"{id} sets {found[1]!r} by itself; {hint}") from error


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _foreign(id: str) -> EnvSpec | None:
    if re.fullmatch(r"[\w.]+:[\w.]+", id):
        return EnvSpec(f"unregistered/{id.rpartition(':')[2]}-v0", id)
    if re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", id):
        return _module_spec(id)
    name = id.removeprefix("gymnasium/")
    if name != id and re.fullmatch(r"[\w.]+:[\w./-]+", name):
        module, _, registered = name.partition(":")
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise UnknownEnvironmentError(f"{id!r}: its module {module!r} cannot be imported: {error}") from error
        if registered not in gymnasium.registry:
            near = difflib.get_close_matches(registered, gymnasium.registry, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else "gymnasium.pprint_registry() lists all"
            raise UnknownEnvironmentError(f"{id!r}: module {module!r} registers no {registered!r}; {hint}")
        return EnvSpec(f"gymnasium/{registered.rpartition('/')[2]}", _GYM_TEAM, {"env": name})
    if "/" not in name and name in gymnasium.registry:
        return EnvSpec(f"gymnasium/{name}", _GYM_TEAM, {"env": name})
    return None


def _module_spec(name: str) -> EnvSpec:
    """The environment of a module of PettingZoo's form: its `parallel_env`, else its `env`."""
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise UnknownEnvironmentError(f"{name!r} cannot be imported as a module: {error}") from error
    makers = [maker for maker in _MAKERS if callable(getattr(module, maker, None))]
    if not makers:
        raise UnknownEnvironmentError(
            f"module {name!r} has no {' or '.join(_MAKERS)}; name what builds the environment: {name}:function"
        )
    return EnvSpec(f"unregistered/{name.rpartition('.')[2]}-v0", f"{name}:{makers[0]}")


def _nearest(id: str) -> str:
    by_name = {found.rpartition("/")[2].lower(): found for found in registry} | {
        found.lower(): found for found in registry
    }
    near = difflib.get_close_matches(id.lower(), by_name, 1, 0.5)
    return f"did you mean {by_name[near[0]]!r}?" if near else "collm.envs.pprint_registry() lists them all"


def _sentence(fault: str, fix: str, broken: tuple[str, ...]) -> str:
    return "; ".join([fault, fix, *broken])


def mirror(id: str) -> None:
    """Add the environment to PettingZoo's registry, and as seen by one agent to Gymnasium's; twice does nothing.

    The mirrors hold the id alone, so an environment that is replaced here is replaced there.
    """
    if id not in gymnasium.registry:
        gymnasium.register(id, entry_point="collm.envs.views.single_agent:make_single_agent", kwargs={"env_id": id})
    # PettingZoo has a registry from version 1.27 on.
    if getattr(pettingzoo, "register", None) is not None and id not in pettingzoo.parallel_registry:
        pettingzoo.register("parallel", id, entry_point="collm.envs.views.aec:make_parallel", kwargs={"env_id": id})
        pettingzoo.register("aec", id, entry_point="collm.envs.views.aec:make_aec", kwargs={"env_id": id})
