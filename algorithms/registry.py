"""Registry of algorithms by name. This package, users and plugins register algorithms.

A plugin declares an entry point in its `pyproject.toml`:

    [project.entry-points."collm.algorithms"]
    my_methods = "my_package.registrations"

The value is a module that calls `collm.register_algorithm` when it is imported, or a function that calls it. Commands
such as `collm train` then accept the registered names.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._errors import UserError
from .._plugins import load_plugins
from .config import C3Config, IACConfig, IPPOConfig, MAACConfig, MAPPOConfig, MARLOOConfig, ReinforceConfig, TrainConfig
from .published import (
    ATGRPOConfig,
    CoLLMCCConfig,
    CoLLMDCConfig,
    COMAConfig,
    DAPOConfig,
    DrGRPOConfig,
    GRPOConfig,
    GSPOConfig,
    RAEConfig,
)

if TYPE_CHECKING:
    from .algorithm import Algorithm

GROUP = "collm.algorithms"
_NAME = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")


class UnknownAlgorithmError(UserError, LookupError):
    """Error for an algorithm name that is not registered."""


@dataclass(frozen=True)
class AlgorithmSpec:
    """Registry entry of an algorithm: its name, its class and the class of its settings."""

    name: str
    entry_point: str | type[Algorithm[Any]]
    """The algorithm's class, or "package.module:Class", which is imported when first needed."""
    config: type[TrainConfig]
    """Class of the settings, a frozen dataclass."""
    summary: str = ""
    """Description in one line, for listings."""

    def algorithm_class(self) -> type[Algorithm[Any]]:
        """Return the algorithm's class; import it first if `entry_point` is a string."""
        if not isinstance(self.entry_point, str):
            return self.entry_point
        module, _, name = self.entry_point.partition(":")
        try:
            found: type[Algorithm[Any]] = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ImportError(f"the algorithm {self.name!r} ({self.entry_point}) cannot be loaded: {error}") from error
        return found

    def make(self, config: TrainConfig | None = None) -> Algorithm[Any]:
        """Make the algorithm with these settings (None: defaults). Raises `ValueError` if settings are invalid."""
        return self.algorithm_class()(self.config() if config is None else config)


_registry: dict[str, AlgorithmSpec] = {}


def register_algorithm(
    name: str,
    algorithm: str | type[Algorithm[Any]],
    config: type[TrainConfig],
    *,
    summary: str = "",
    replace: bool = False,
) -> AlgorithmSpec:
    """Add an algorithm to the registry. Registering the same algorithm twice has no effect.

    Raises `ValueError` if the name is malformed or registered for another algorithm, and `TypeError` if a class has the
    wrong base class.

    Args:
        name: name for `collm train`: lower-case letters, digits, and ". _ -" between them.
        algorithm: a subclass of `Algorithm`, or "package.module:Class", which is imported when first needed.
        config: class of its settings, a frozen dataclass derived from `TrainConfig` (`ActorCriticConfig` for a critic).
        summary: one line for listings. Default: the first line of the docstring of `algorithm`, if it is a class.
        replace: overwrite an algorithm of the same name, for example in a notebook cell that runs again.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"an algorithm's name must look like 'my-method', got {name!r}")
    if isinstance(algorithm, str):
        if not re.fullmatch(r"[\w.]+:\w+", algorithm):
            raise ValueError(f"{name}: an algorithm must be a class or 'package.module:Class', got {algorithm!r}")
    else:
        from .algorithm import Algorithm  # imports torch, which a listing of names does not need

        if not (inspect.isclass(algorithm) and issubclass(algorithm, Algorithm)):
            raise TypeError(
                f"{name}: algorithm must be a class derived from collm.algorithms.Algorithm, got {algorithm!r}"
            )
        summary = summary or (inspect.getdoc(algorithm) or "").partition("\n")[0]
    if not (inspect.isclass(config) and issubclass(config, TrainConfig)):
        raise TypeError(f"{name}: its settings must be a dataclass derived from TrainConfig, got {config!r}")
    added = AlgorithmSpec(name, algorithm, config, summary)
    if _registry.get(name, added) != added and not replace:
        raise ValueError(
            f"an algorithm {name!r} is already registered, {_registry[name].entry_point!r}; choose another name, "
            "or pass replace=True"
        )
    _registry[name] = added
    return added


def algorithm_spec(name: str) -> AlgorithmSpec:
    """Look up a registered algorithm by its name. Raises `UnknownAlgorithmError`, which suggests the nearest name."""
    broken = () if name in _registry else load_plugins(GROUP)
    if name in _registry:
        return _registry[name]
    near = difflib.get_close_matches(name.lower(), _registry, 1, 0.5)
    hint = f"did you mean {near[0]!r}? there are" if near else "there are"
    unknown = f"there is no algorithm {name!r}; {hint} {', '.join(_registry)}"
    other = "other algorithms must be registered (collm.register_algorithm) by an imported module or a plugin"
    raise UnknownAlgorithmError("; ".join([unknown, other, *broken]))


def algorithm_specs() -> tuple[AlgorithmSpec, ...]:
    """Return all algorithms in the order of registration. Warns about plugins that fail to load."""
    for failure in load_plugins(GROUP):
        warnings.warn(failure, RuntimeWarning, stacklevel=2)
    return tuple(_registry.values())


for _name, _class, _config, _summary in (
    ("iac", "iac:IAC", IACConfig, "independent actor-critic: one critic per agent, on the agent's own history"),
    ("maac", "maac:MAAC", MAACConfig, "multi-agent actor-critic: one critic on the joint history"),
    ("ippo", "ppo:IPPO", IPPOConfig, "IAC with PPO's clipped ratios over several epochs"),
    ("mappo", "ppo:MAPPO", MAPPOConfig, "MAAC with PPO's clipped ratios over several epochs"),
    ("magrpo", "reinforce:MAGRPO", ReinforceConfig, "Monte Carlo returns minus the mean of the group"),
    ("mareinforce", "reinforce:MAREINFORCE", ReinforceConfig, "Monte Carlo returns without a baseline"),
    ("marloo", "reinforce:MARLOO", MARLOOConfig, "Monte Carlo returns minus the mean of the others in the group"),
    ("maremax", "reinforce:MAReMax", ReinforceConfig, "Monte Carlo returns minus the largest of the group; biased"),
    ("dr-grpo", "reinforce:MAGRPO", DrGRPOConfig, "MAGRPO with a clipped ratio per token and a constant denominator"),
    ("dapo", "reinforce:MAGRPO", DAPOConfig, "GRPO per agent and turn with clip-higher and a mean loss over tokens"),
    ("gspo", "reinforce:MAGRPO", GSPOConfig, "GRPO per agent and turn with one clipped ratio per completion"),
    ("at-grpo", "reinforce:MAGRPO", ATGRPOConfig, "GRPO on each turn's own reward, per agent and turn"),
    ("dr-mas", "reinforce:DrMAS", GRPOConfig, "GRPO on whole episodes, normalized over all turns of each agent"),
    ("m-grpo", "reinforce:MGRPO", GRPOConfig, "GRPO on whole episodes, with equal weights of an agent's rollouts"),
    ("rae", "reinforce:RAE", RAEConfig, "returns minus a moving average of each agent's earlier returns"),
    ("difference", "reinforce:DifferenceRewards", MARLOOConfig, "MARLOO on difference rewards, for text"),
    ("coma", "maac:COMA", COMAConfig, "critic on joint actions, minus its mean over the agent's replies, for text"),
    ("c3", "reinforce:C3", C3Config, "alternatives of single decisions by replay, minus the mean of the others"),
    ("collm-cc", "maac:MAAC", CoLLMCCConfig, "MAAC with the settings of CoLLM-CC, as published"),
    ("collm-dc", "iac:IAC", CoLLMDCConfig, "IAC with the settings of CoLLM-DC, as published"),
):
    register_algorithm(_name, f"{__package__}.{_class}", _config, summary=_summary)
