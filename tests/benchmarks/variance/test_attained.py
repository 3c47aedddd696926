"""What critics explained while they learned, and what those of other settings would have explained."""

from __future__ import annotations

import numpy as np
import pytest

from collm.algorithms.rollout.intervals import Floats
from collm.benchmarks.cli import main
from collm.benchmarks.variance.attained import attained, attained_page
from collm.benchmarks.variance.recorded import Part, recorded
from collm.benchmarks.variance.refit import Setting, refit_page, refitted, share_of_attainable, values_before_learning

TRAIN = (
    "train --env collm/MiniShift-v0 --env-kwargs max_turns=2 reward=terminal --num-updates 6 --rollout-buffer-size 8 "
    "--max-new-tokens 4 --eval-interval 0 --no-eval-on-start --save-interval 0 --seed 3"
).split()
CRITIC = "--critic-model-name-or-path bag_of_words --critic-l2 2 --critic-replay 3 --critic-warmup 1".split()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    for algorithm, critic in (("maac", CRITIC), ("iac", CRITIC), ("magrpo", ["--num-generations", "4"])):
        assert main([*TRAIN[:1], algorithm, *TRAIN[1:], *critic, "--out", str(folder / algorithm)]) == 0
    return folder


@pytest.mark.parametrize(("algorithm", "source"), [("maac", "joint"), ("iac", "own")])
def test_the_settings_of_a_run_give_the_values_that_its_critic_gave(runs, algorithm, source):
    record = recorded(runs / algorithm)
    setting = Setting(critic_l2=2.0, critic_replay=3, critic_input=source)
    for agent, given in enumerate(record.values):
        inputs = [each.joint if source == "joint" else each.own[agent] for each in record.played]
        found: Floats = values_before_learning(inputs, record, setting)
        np.testing.assert_allclose(found, given, atol=1e-5)
        other = values_before_learning(inputs, record, Setting(2.0, 3, source, has_trend=False))
        assert np.abs(other - given).max() > 1e-3, "the trend is seen"
    (part,) = refitted(record, setting, num_parts=1)
    assert part.updates == (1, 6) and part.variance > 0


def test_runs_without_critics_have_episodes_to_choose_one_by(runs, tmp_path, capsys):
    call = ["benchmark", "variance", "refit", "--runs", str(runs / "magrpo"), "--out", str(tmp_path)]
    assert main([*call, "--critic-l2", "2", "20", "--critic-input", "own", "joint", "--trend", "off"]) == 0
    page = (tmp_path / "README.md").read_text()
    assert page.count("\n| ") == 2 + 4 and "| own, critic_l2 20, critic_replay 64, no trend |" in page
    assert main(["benchmark", "variance", "attained", "--runs", str(runs / "magrpo"), "--out", str(tmp_path)]) == 2
    assert "have no values" in capsys.readouterr().err


def test_the_page_tells_what_was_explained_turn_by_turn(runs):
    parts = [Part((1, 20), 0.5, 1.0, [0.3, 0.1], [0.5, 0.7])]
    assert "| 1 to 20 | 0.50 | 0.20 | 0.60 | 0.30 0.10 | 0.50 0.70 |" in attained_page([parts])
    assert [part.updates for part in attained(runs / "maac", num_parts=1)] == [(1, 6)]


def test_what_is_explained_of_the_attainable_leaves_the_first_parts_out():
    parts = [
        Part((1, 2), 0.1, 9.0, [0.0], [0.4]),
        Part((3, 4), 0.5, 2.0, [0.3], [0.4]),
        Part((5, 6), 0.9, 1.0, [0.1], [0.2]),
    ]
    assert share_of_attainable(parts) == "70%" and share_of_attainable(parts[:1]) == "-"
    assert "| joint, critic_l2 50, critic_replay 64, trend | 0.00 | 0.30 | 0.10 | 70% |" in refit_page(
        {Setting(): [parts]}
    )
