import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from typing import Annotated

import pytest

from collm._errors import UserError
from collm._ranges import Advanced, Also, Checked, Count, Parts, Positive
from collm._settings import FOREIGN_NAMES, UnknownSettingError, settings_of, sorted_out
from collm.agents.config import ModelConfig
from collm.agents.numeric.config import NetworkConfig
from collm.algorithms import config, published
from collm.algorithms.registry import algorithm_specs
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.algorithms.runs.loggers.sinks import LogConfig
from collm.benchmarks import commands
from collm.benchmarks.commands.train import TrainArguments


@dataclass(frozen=True, kw_only=True)
class Ground(Checked):
    early: int = 1

    # Digging.

    depth: Annotated[Count, Also("deep", "how_deep")] = 2
    """Depth of the hole,
    in spades."""
    # A remark, which is no title of a group
    width: Positive | None = None
    """Width of the hole. None: as deep."""


@dataclass(frozen=True, kw_only=True)
class Garden(Ground):
    depth: int = 5
    size: Annotated[tuple[Count, Positive], Parts("rows", "space")] = (3, 0.5)

    # Planting.

    plants: Count
    """Number of plants."""
    weeds: Advanced[Annotated[Count | None, Also("unwanted")]] = None
    """Number of weeds."""


def test_classes_that_change_defaults_and_advanced_settings_keep_docstrings_groups_and_names():
    depth = settings_of(Garden)["depth"]
    assert (depth.text, depth.group, depth.also) == ("Depth of the hole, in spades.", "Digging", ("deep", "how_deep"))
    assert depth.default == 5 and not depth.is_required
    assert not depth.is_advanced
    weeds = settings_of(Garden)["weeds"]
    assert weeds.is_advanced and weeds.also == ("unwanted",)
    with pytest.raises(UserError, match="weeds must be a whole number of at least 1, or None, got 0"):
        Garden(plants=1, weeds=0)
    groups = {name: each.group for name, each in settings_of(Garden).items()}
    assert groups == {
        **{"early": "Ground", "depth": "Digging", "width": "Digging"},
        **{"size": "Garden", "plants": "Planting", "weeds": "Planting"},
    }
    assert settings_of(Garden)["plants"].is_required


def test_values_go_to_the_first_class_that_has_them_by_any_name_and_wrong_names_are_refused():
    given = {"how_deep": 3, "model_name_or_path": "tiny", "plants": 1}
    assert sorted_out(given, [Garden, ModelConfig], "run.toml") == [{"depth": 3, "plants": 1}, {"model": "tiny"}]
    with pytest.raises(UnknownSettingError, match=r"run.toml.*'how_dep'.*'how_deep'"):
        sorted_out({"how_dep": 3}, [Garden], "run.toml")
    with pytest.raises(UnknownSettingError, match=r"'batch_size'.*rollout_buffer_size"):
        sorted_out({"batch_size": 2}, [Garden], "run.toml")
    with pytest.raises(UserError, match=r"'depth' twice.*'deep'"):
        sorted_out({"depth": 3, "deep": 4}, [Garden], "run.toml")


def test_single_values_of_a_tuple_have_names_and_ranges():
    assert sorted_out({"space": 2.0}, [Garden], "run.toml") == [{"size": (3, 2.0)}]
    assert sorted_out({"space": 2.0, "rows": 4}, [Garden], "run.toml") == [{"size": (4, 2.0)}]
    for both in ({"size": (1, 1.0), "rows": 4}, {"rows": 4, "size": (1, 1.0)}):
        with pytest.raises(UserError, match="'size' twice"):
            sorted_out(both, [Garden], "run.toml")
    with pytest.raises(UserError, match=r"size\[0\] must be a whole number of at least 1, got 0"):
        Garden(plants=1, size=(0, 0.5))
    with pytest.raises(UserError, match="size must be 2 values"):
        Garden(plants=1, size=(3,))


CONFIGS = list(dict.fromkeys(spec.config for spec in algorithm_specs()))


@pytest.mark.parametrize("kind", CONFIGS, ids=lambda kind: kind.__name__)
def test_no_two_settings_of_a_run_share_a_name_and_none_has_a_foreign_name(kind):
    kinds = (kind, ModelConfig, NetworkConfig, LogConfig, TrainArguments)
    settings = [(kind, each) for kind in kinds for each in settings_of(kind).values()]
    settings = [each for kind, each in settings if (kind, each.name) != (TrainArguments, "model")]
    names = [name for each in settings for name in (each.name, *each.also, *each.parts)]
    assert sorted(set(names)) == sorted(names) and not set(names) & set(FOREIGN_NAMES)


def settings_classes() -> list[type]:
    """Dataclasses whose fields `--help` shows."""
    found = [ModelConfig, NetworkConfig, Experiment]
    names = [each.name for each in pkgutil.walk_packages(commands.__path__, f"{commands.__name__}.")]
    for module in (config, published, *map(importlib.import_module, names)):
        for name, each in inspect.getmembers(module, is_dataclass):
            is_own = each.__module__ == module.__name__
            found += [each] if is_own and (name.endswith("Arguments") or module.__name__ not in names) else []
    return found


def undocumented(kind: type) -> Iterator[str]:
    """Settings without a docstring, except fields that hold other settings."""
    for name, setting in settings_of(kind).items():
        is_nested = str(setting.field.type) == "Settings" or is_dataclass(setting.field.default_factory)
        if not setting.text and not is_nested:
            yield f"{kind.__name__}.{name}"


@dataclass
class Incomplete:
    documented: int = 0
    """Number of updates."""
    bare: int = 0


def test_every_setting_has_a_docstring():
    kinds = settings_classes()
    assert [name for kind in kinds for name in undocumented(kind)] == []
    names = {kind.__name__ for kind in kinds}
    assert {"TrainConfig", "MAACConfig", "CoLLMCCConfig", "TrainArguments", "EvaluateArguments"} <= names
    assert list(undocumented(Incomplete)) == ["Incomplete.bare"]
