"""Registry of environments: `make("collm/TLDR-v2", **kwargs)`."""

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
from typing import Any, Literal, TypeAlias, overload

import gymnasium
import pettingzoo
from pettingzoo import ParallelEnv

from ..._errors import UserError, caller_level, near_names
from ..._plugins import load_plugins
from ..core import TextParallelEnv
from ..wrappers.partnered import Partnered
from ..wrappers.reward_functions import RewardFunctions
from ..wrappers.single_model import SingleModel
from .foreign.team import as_team
from .held_out import HeldOut, held_out_seeds
from .turn_limit import TurnLimit

Range: TypeAlias = tuple[float, float]
TextId: TypeAlias = Literal[
    "collm/Advice-v0",
    "collm/ArxivExpansion-v2",
    "collm/BridgeBuild-v2",
    "collm/ClassEval-v1",
    "collm/CoopHumanEval-v1",
    "collm/HouseBuild-v2",
    "collm/HumanEval-v1",
    "collm/MBPP-v1",
    "collm/MatrixGame-v0",
    "collm/MiniBuild-v0",
    "collm/MiniCode-v1",
    "collm/MiniShift-v0",
    "collm/MiniWriting-v2",
    "collm/Profile-v0",
    "collm/ResourceGathering-v2",
    "collm/StrBuild-v2",
    "collm/TLDR-v2",
    "collm/TinyHanabi-v0",
]
"""Ids of collm's environments, which are text environments. Editors complete these ids in calls of `make`."""

GROUP = "collm.envs"  # entry-point group of plugins
_FIXED_LENGTH = "the episodes have a fixed length; shorten episodes with collm.envs.views.TurnLimit(env, max_turns)"
_MAKERS = "parallel_env", "env"  # names of the constructors in PettingZoo's modules
_WRAPPER_KWARGS = "reward_funcs", "reward_weights", "single_model", "partners"
_OPEN_SPIEL = re.compile(r"open_spiel/(?P<game>(?P<name>[\w-]+)(\(.*\))?)")
_TEXTARENA = re.compile(r"textarena/(?P<game>(?P<name>[\w-]+?)(-v(?P<version>\d+)(?P<variant>-[\w/-]+)?)?)")
_ID = re.compile(r"(?P<name>[\w-]+/[\w.-]+?)(-v(?P<version>\d+))?")


class UnknownEnvironmentError(UserError, LookupError):
    """Raised if no environment with this id is registered."""


class EnvironmentArgumentsError(UserError, TypeError):
    """Raised if an environment does not accept its arguments."""


@dataclass(frozen=True)
class EnvSpec:
    """Specification of an environment: id, constructor and arguments."""

    id: str
    """`namespace/Name-vN`. The version N increases whenever the behaviour of the environment changes."""
    entry_point: str | Callable[..., Any]
    """Class or function that builds the environment, or its import path "package.module:Class"."""
    kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Default arguments of the entry point."""
    max_turns: int | None = None
    """Number of turns after which episodes are truncated. None: episodes are not truncated."""
    summary: str = ""
    """Description in one line."""
    reward_range: Range | None = None
    """Minimum and maximum reward of an agent per turn, checked by `check_env`. None: not declared."""
    return_range: Range | None = None
    """Minimum and maximum undiscounted return of an agent per episode, possibly infinite. None: not declared."""
    max_new_tokens: int | None = None
    """Default limit of tokens per reply of language models. None: 256."""
    start: str | None = None
    """Start checkpoint that replaces the model "tiny", such as "tiny-MiniShift". None: training starts from "tiny"."""
    range_preserving_kwargs: tuple[str, ...] = ()
    """Arguments that do not change `reward_range` and `return_range`. With other arguments, both are None."""

    def __post_init__(self) -> None:
        for name in ("reward_range", "return_range"):
            declared = getattr(self, name)
            if declared is not None:  # JSON has lists instead of tuples
                low, high = (float(bound) for bound in declared)
                if not low <= high:
                    raise ValueError(f"{self.id}: {name}={declared} must be (minimum, maximum)")
                object.__setattr__(self, name, (low, high))
        object.__setattr__(self, "range_preserving_kwargs", tuple(self.range_preserving_kwargs))
        match = _ID.fullmatch(self.id)
        if match is None or match["version"] is None:
            raise ValueError(f"id={self.id!r} must have the form 'namespace/Name-v0'")
        if isinstance(self.entry_point, str) and not re.fullmatch(r"[\w.]+:[\w.]+", self.entry_point):
            raise ValueError(
                f"{self.id}: entry_point={self.entry_point!r} must be callable or have the form 'package.module:Class'"
            )
        if self.max_turns is not None and self.max_turns < 1:
            raise ValueError(f"{self.id}: max_turns={self.max_turns} must be at least 1, or None")

    @property
    def name(self) -> str:
        """Id of the environment without the version: "namespace/Name"."""
        return self.id.rpartition("-v")[0]

    @property
    def version(self) -> int:
        return int(self.id.rpartition("-v")[2])

    @property
    def held_out(self) -> HeldOut | None:
        """Evaluation seeds that training never uses. None: the environment has no such seeds."""
        return held_out_seeds(self.id)

    def constructor(self) -> Callable[..., Any]:
        """Import and return the class or function that builds the environment."""
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
        """Return a copy with additional arguments. Reward and return range are None if arguments may change them."""
        used = {**deepcopy(dict(self.kwargs)), **kwargs}
        if set(kwargs) <= {"render_mode", "split", *self.range_preserving_kwargs}:  # no effect on the ranges
            return replace(self, kwargs=used)
        return replace(self, kwargs=used, reward_range=None, return_range=None)

    def make(self, **kwargs: Any) -> ParallelEnv[str, Any, Any]:
        """Build the environment. Its attribute `spec` contains all arguments."""
        constructor = self.constructor()
        spec = self.given(**kwargs)
        used, wrapping = _split_kwargs(constructor, spec.kwargs)
        _refuse_unknown_arguments(self.id, constructor, used)
        _refuse_texts(self.id, constructor, used)
        try:
            env = constructor(**used)
        except gymnasium.error.Error as error:  # e.g., a library is not installed
            raise UserError(f"{self.id} cannot be made: {error}") from error
        except UserError:
            raise
        except (TypeError, LookupError, AttributeError) as error:
            found = re.search(r"multiple values for (?:keyword )?argument '(\w+)'", str(error))
            if found is not None and found[1] in used:
                hint = _FIXED_LENGTH if found[1] == "max_turns" else "remove this argument"
                raise EnvironmentArgumentsError(f"{self.id} already sets argument {found[1]!r}; {hint}") from error
            if kwargs or self.id.startswith("unregistered/"):  # otherwise the environment has a bug
                raise EnvironmentArgumentsError(
                    f"{self.id} cannot be made with the arguments {used or 'none'}: {type(error).__name__}: {error}"
                ) from error
            raise
        env = as_team(env)
        if not isinstance(env, ParallelEnv):
            raise EnvironmentArgumentsError(
                f"{self.id}: its entry point returned a {type(env).__name__}; it must return an environment of "
                "PettingZoo or Gymnasium"
            )
        if self.max_turns is not None:
            env = TurnLimit(env, self.max_turns)
        reward_funcs, reward_weights = wrapping.get("reward_funcs"), wrapping.get("reward_weights")
        if reward_funcs is not None:
            env = RewardFunctions(env, reward_funcs, reward_weights)
        elif reward_weights is not None:
            raise ValueError(f"{self.id}: reward_weights={reward_weights} need reward_funcs; set both or neither")
        if wrapping.get("single_model") not in (None, True, False):
            raise EnvironmentArgumentsError(
                f"{self.id}: single_model={wrapping['single_model']!r} must be True or False"
            )
        if wrapping.get("single_model"):
            env = SingleModel(env)
        if wrapping.get("partners") is not None:
            env = Partnered(env, wrapping["partners"])
        env.spec = spec
        return env

    def check(self, **kwargs: Any) -> None:
        """Check the names of arguments without building the environment. Raises EnvironmentArgumentsError."""
        constructor = self.constructor()
        _refuse_unknown_arguments(self.id, constructor, _split_kwargs(constructor, {**self.kwargs, **kwargs})[0])

    def to_json(self) -> str:
        """Return the specification as JSON, from which another process can build the same environment.

        Raises:
            ValueError: if the entry point cannot be imported by name, or `kwargs` cannot be converted to JSON.
        """
        entry_point = self.entry_point
        if not isinstance(entry_point, str):
            path = getattr(entry_point, "__qualname__", "<")
            if "<" in path:
                raise ValueError(
                    f"{self.id}: {entry_point!r} cannot be imported by name; register it as 'package.module:Class'"
                )
            entry_point = f"{entry_point.__module__}:{path}"
        try:
            return json.dumps({**vars(self), "entry_point": entry_point, "kwargs": dict(self.kwargs)})
        except TypeError as error:
            raise ValueError(f"{self.id}: its kwargs {dict(self.kwargs)} are not JSON: {error}") from error

    @classmethod
    def from_json(cls, text: str) -> EnvSpec:
        """Create a specification from the output of `to_json`."""
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
    start: str | None = None,
    range_preserving_kwargs: Sequence[str] = (),
    replace: bool = False,
) -> EnvSpec:
    """Add an environment to the registries of collm and PettingZoo, and its single-agent version to Gymnasium's.

    Args:
        replace: True: replace an environment with the same id, for example in notebooks.

    The other arguments are the fields of `EnvSpec`.

    Raises:
        ValueError: if the id is malformed, or another environment has this id.
    """
    ranges = reward_range, return_range
    preserving = tuple(range_preserving_kwargs)
    added = EnvSpec(id, entry_point, dict(kwargs or {}), max_turns, summary, *ranges, max_new_tokens, start, preserving)
    if registry.get(id, added) != added and not replace:
        raise ValueError(
            f"{id} is already registered as {registry[id].entry_point!r}; increase the version, or pass replace=True"
        )
    registry[id] = added
    _mirror(id)
    return added


def spec(id: str) -> EnvSpec:
    """Return the specification of an environment id. For an id without version, use the newest version and warn.

    Some ids need no registration:

    - "gymnasium/CartPole-v1" or "CartPole-v1": environment of Gymnasium. If it has Tuple spaces, one agent per entry.
    - "gymnasium/minigrid:MiniGrid-Empty-5x5-v0": environment of Gymnasium that importing `minigrid` registers.
    - "pettingzoo.classic.tictactoe_v3": module with a function `parallel_env` or `env`.
    - "open_spiel/liars_dice(dice_sides=3)": game of OpenSpiel, with parameters.
    - "textarena/TicTacToe-v0": game of TextArena.
    - "package.module:function": class or function that builds an environment of PettingZoo or Gymnasium.

    Raises:
        UnknownEnvironmentError: if no environment has this id. The message contains the most similar id.
    """
    broken = () if id in registry else load_plugins(GROUP)
    if id in registry:
        return registry[id]
    if foreign := _foreign(id):
        return foreign
    match = _ID.fullmatch(id)
    newest = None if match is None else _newest(match["name"])
    if match is None:
        fault, fix = f"id={id!r} must have the form 'namespace/Name-v0'", _nearest(id)
    elif newest is None:
        fault = f"no environment is called {id!r}; if a script registers it, give its class: --env module:Class"
        fix = _nearest(id)
    elif match["version"] is not None:
        fault, fix = f"{match['name']} has no version {match['version']}", f"the newest is {newest.id!r}"
    else:
        _warn_of_version(id, newest)
        return newest
    raise UnknownEnvironmentError("; ".join([fault, fix, *broken]))


def versioned(id: str) -> str:
    """Add the newest version to a registered id without version, and warn. Return other ids unchanged."""
    if id not in registry:
        load_plugins(GROUP)
    match = _ID.fullmatch(id)
    if match is None or match["version"] is not None or not (newest := _newest(id)):
        return id
    _warn_of_version(id, newest)
    return newest.id


def imports_module(id: str) -> bool:
    """Return True if the id contains the name of a module, which `make(id)` imports."""
    is_registered = id in registry or id in gymnasium.registry or _OPEN_SPIEL.fullmatch(id)
    return not is_registered and (":" in id or re.fullmatch(r"[\w-]+(/[\w.-]+)*", id) is None)


@overload
def make(
    id: TextId, *, reward_funcs: None = None, reward_weights: None = None, partners: None = None, **kwargs: Any
) -> TextParallelEnv: ...
@overload
def make(id: str | EnvSpec, **kwargs: Any) -> ParallelEnv[str, Any, Any]: ...
def make(id: str | EnvSpec, **kwargs: Any) -> ParallelEnv[str, Any, Any]:
    """Build an environment.

    Args:
        id: id (see `spec`) or specification.
        kwargs: arguments of the environment, which replace its registered arguments. Additional: `partners` (see
            `collm.envs.wrappers.Partnered`), and for text environments `reward_funcs`, `reward_weights` (see
            `collm.envs.wrappers.RewardFunctions`) and `single_model` (see `collm.envs.wrappers.SingleModel`).

    Returns:
        A `TextParallelEnv` for collm's own ids, unless `partners` or `reward_funcs` wrap the environment.

    Raises:
        UnknownEnvironmentError: if the id is unknown.
        TypeError: if the environment does not accept an argument.
    """
    return (id if isinstance(id, EnvSpec) else spec(id)).make(**kwargs)


def with_explanation(id: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with is_explained=True, unless the environment lacks this argument or a value is given."""
    accepted = accepted_arguments(spec(id).constructor()) or frozenset()
    is_open = "is_explained" in accepted and "is_explained" not in spec(id).kwargs
    return {**({"is_explained": True} if is_open else {}), **kwargs}


def specs() -> tuple[EnvSpec, ...]:
    """Return the specifications of all registered environments, sorted by id. Warn if a plugin cannot be loaded."""
    for failure in load_plugins(GROUP):
        warnings.warn(failure, RuntimeWarning, stacklevel=caller_level())
    return tuple(registry[id] for id in sorted(registry))


def pprint_registry() -> None:
    """Print the id and the summary of each registered environment."""
    found = specs()
    width = max((len(each.id) for each in found), default=0)
    for each in found:
        print(f"{each.id:<{width}}  {each.summary}".rstrip())


def _newest(name: str) -> EnvSpec | None:
    versions = (found for found in registry.values() if found.name == name)
    return max(versions, key=lambda found: found.version, default=None)


def _warn_of_version(id: str, newest: EnvSpec) -> None:
    message = f"{id!r} has no version; using the newest, {newest.id!r}"
    warnings.warn(message, UserWarning, stacklevel=caller_level())


def accepted_arguments(constructor: Callable[..., Any]) -> frozenset[str] | None:
    """Return the names of arguments that a function or class accepts. None: any name is accepted.

    If the constructor of a class has `**kwargs`, the arguments of its base class are accepted too.
    """
    steps: list[Any] = [constructor]
    if inspect.isclass(constructor):
        steps = [vars(ancestor)["__init__"] for ancestor in constructor.__mro__ if "__init__" in vars(ancestor)]
    if steps[0] is object.__init__:
        return frozenset()
    names: set[str] = set()
    for step in steps:
        if step is object.__init__:  # accepts no arguments, so the previous class itself uses **kwargs
            break
        parameters = inspect.signature(step).parameters.values()
        names |= {each.name for each in parameters if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)}
        if not any(each.kind is each.VAR_KEYWORD for each in parameters):
            return frozenset(names - {"self"})
    return None


def _split_kwargs(constructor: Callable[..., Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    used = dict(given)
    own = accepted_arguments(constructor) or ()
    return used, {name: used.pop(name) for name in _WRAPPER_KWARGS if name in used and name not in own}


def _refuse_unknown_arguments(id: str, constructor: Callable[..., Any], given: Mapping[str, Any]) -> None:
    accepted = accepted_arguments(constructor)
    for name in given:
        if accepted is not None and name not in accepted:
            near = difflib.get_close_matches(name, accepted, 1, 0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            hint = f"{hint}accepted arguments: {', '.join(sorted(accepted)) or 'none'}"
            raise EnvironmentArgumentsError(  # Python's wording, which other libraries search for
                f"{id} got an unexpected keyword argument {name!r}; {_FIXED_LENGTH if name == 'max_turns' else hint}"
            )


def _refuse_texts(id: str, constructor: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Raise an error for texts as values of arguments whose annotation allows only numbers, True, False and None."""
    for step in inspect.getmro(constructor) if inspect.isclass(constructor) else (constructor,):
        function = vars(step).get("__init__", object.__init__) if inspect.isclass(step) else step
        for name, kind in inspect.get_annotations(function).items():
            kinds = re.split(r" *\| *", kind if isinstance(kind, str) else getattr(kind, "__name__", ""))
            if isinstance(given.get(name), str) and set(kinds) <= {"bool", "int", "float", "None"}:
                raise EnvironmentArgumentsError(f"{id}: {name}={given[name]!r} must be {' or '.join(kinds)}")


def _foreign(id: str) -> EnvSpec | None:
    if re.fullmatch(r"[\w.]+:[\w.]+", id):
        return EnvSpec(f"unregistered/{id.rpartition(':')[2]}-v0", id)
    if re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", id):
        return _module_spec(id)
    if game := _OPEN_SPIEL.fullmatch(id):
        entry_point = "collm.envs.views.open_spiel:OpenSpiel"
        return EnvSpec(f"open_spiel/{game['name']}-v0", entry_point, {"game": game["game"]}, max_new_tokens=64)
    if game := _TEXTARENA.fullmatch(id):
        name = f"{game['name']}{game['variant'] or ''}".replace("/", "_")
        entry_point = "collm.envs.views.textarena:TextArena"
        return EnvSpec(f"textarena/{name}-v{game['version'] or 0}", entry_point, {"game": game["game"]})
    registered = name = id.removeprefix("gymnasium/")
    if name != id and re.fullmatch(r"[\w.]+:[\w./-]+", name):
        module, _, registered = name.partition(":")
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise UnknownEnvironmentError(f"{id!r}: its module {module!r} cannot be imported: {error}") from error
        if registered not in gymnasium.registry:
            near = difflib.get_close_matches(registered, gymnasium.registry, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else "gymnasium.pprint_registry() lists all ids"
            raise UnknownEnvironmentError(f"{id!r}: module {module!r} registers no id {registered!r}; {hint}")
    elif "/" in name or name not in gymnasium.registry:
        return None
    entry_point = "collm.envs.registration.foreign.team:gym_team"
    return EnvSpec(f"gymnasium/{registered.rpartition('/')[2]}", entry_point, {"env": name})


def _module_spec(name: str) -> EnvSpec:
    """Return the specification of a module with a function `parallel_env` or `env`, such as PettingZoo's modules."""
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise UnknownEnvironmentError(f"{name!r} cannot be imported as a module: {error}") from error
    makers = [maker for maker in _MAKERS if callable(getattr(module, maker, None))]
    if not makers:
        raise UnknownEnvironmentError(f"module {name!r} has no {' or '.join(_MAKERS)}; use {name}:function")
    return EnvSpec(f"unregistered/{name.rpartition('.')[2]}-v0", f"{name}:{makers[0]}")


def _nearest(id: str) -> str:
    by_name = {_short(found): found for found in registry}
    near = near_names(_short(id), by_name)
    return f"did you mean {by_name[near[0]]!r}?" if near else "collm.envs.pprint_registry() lists all ids"


def _short(id: str) -> str:
    """Return the name in an id in lower case, without namespace and version."""
    return re.sub(r"-v\d+$", "", id.rpartition("/")[2].lower())


def _mirror(id: str) -> None:
    """Register an id in Gymnasium and PettingZoo. Both store only the id, so `replace=True` has effect in both."""
    if id not in gymnasium.registry:
        gymnasium.register(id, entry_point="collm.envs.views.single_agent:make_single_agent", kwargs={"env_id": id})
    # PettingZoo has a registry since version 1.27.
    if getattr(pettingzoo, "register", None) is not None and id not in pettingzoo.parallel_registry:
        pettingzoo.register("parallel", id, entry_point="collm.envs.views.aec:make_parallel", kwargs={"env_id": id})
        pettingzoo.register("aec", id, entry_point="collm.envs.views.aec:make_aec", kwargs={"env_id": id})
