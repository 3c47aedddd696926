"""Turns of the building games are timed with replies that have as many commands as they say."""

from __future__ import annotations

import pytest

from collm.benchmarks.throughput import games
from collm.envs.games.house_build import HouseBuild
from collm.envs.games.str_build import StrBuild


@pytest.mark.parametrize(("env", "script"), [(StrBuild(), games.random_cells), (HouseBuild(), games.whole_boxes)])
def test_builders_share_the_commands_of_a_turn(env, script):
    env.reset(seed=0)
    replies = [script(8)(env, agent) for agent in env.agents]
    assert [len(reply.splitlines()) for reply in replies] == [4, 4]


def test_a_turn_takes_time(monkeypatch):
    monkeypatch.setattr(games, "_NUM_EPISODES", 2)
    assert games.milliseconds_per_turn(StrBuild(), games.reference) > 0


def test_the_table_has_a_row_per_measurement():
    found = games.table([games.GameRow("MiniBuild", "reference", 0.25)])
    assert found.splitlines()[-1] == "| MiniBuild | reference | 0.250 |"
