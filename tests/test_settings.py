"""What settings classes declare is read from where it stands: docstrings, groups, other names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest

from collm._errors import UserError
from collm._ranges import Also, Checked, Count, Positive
from collm._settings import UnknownSettingError, settings_of, sorted_out
from collm.agents.config import ModelConfig
from collm.algorithms.config import MAPPOConfig


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

    # Planting.

    plants: Count
    """Number of plants."""


def test_a_class_that_changes_a_default_keeps_docstring_group_and_other_names():
    depth = settings_of(Garden)["depth"]
    assert (depth.text, depth.group, depth.also) == ("Depth of the hole, in spades.", "Digging", ("deep", "how_deep"))
    assert depth.default == 5 and not depth.is_required


def test_settings_stand_in_the_group_whose_title_is_above_them():
    groups = {name: each.group for name, each in settings_of(Garden).items()}
    assert groups == {"early": "Ground", "depth": "Digging", "width": "Digging", "plants": "Planting"}
    assert settings_of(Garden)["plants"].is_required


def test_values_go_to_the_first_class_that_has_them_by_any_name():
    given = {"how_deep": 3, "model_name_or_path": "tiny", "plants": 1}
    assert sorted_out(given, [Garden, ModelConfig], "run.toml") == [{"depth": 3, "plants": 1}, {"model": "tiny"}]


def test_an_unknown_name_is_told_with_the_nearest_of_all_names():
    with pytest.raises(UnknownSettingError, match=r"run.toml.*'how_dep'.*'how_deep'"):
        sorted_out({"how_dep": 3}, [Garden], "run.toml")


def test_a_setting_by_two_names_is_refused():
    with pytest.raises(UserError, match=r"'depth' twice.*'deep'"):
        sorted_out({"depth": 3, "deep": 4}, [Garden], "run.toml")


def test_no_two_settings_of_a_run_share_a_name():
    names = [name for kind in (MAPPOConfig, ModelConfig) for each in settings_of(kind).values() for name in each.also]
    own = {name for kind in (MAPPOConfig, ModelConfig) for name in settings_of(kind)}
    assert len(set(names)) == len(names) and not own & set(names)
