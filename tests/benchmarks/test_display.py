"""What a person sees of a run: lines, curves, pictures, scores."""

import io
import json

import pytest
from PIL import Image
from rich.console import Console

from collm.benchmarks.plots import plot_learning_curves
from collm.benchmarks.progress import TrainingDisplay, sparkline
from collm.benchmarks.scores import mean_scores, play_episode, player
from collm.envs import make

METRICS = {"return": 0.5, "entropy": 1.0, "tokens_per_second": 100.0, "seconds/total": 3.0}


def test_a_sparkline_by_hand():
    assert sparkline([0.0, 1.0, 0.5]) == "▁█▅"
    assert sparkline([]) == ""
    assert sparkline([2.0, 2.0]) == "▁▁"


@pytest.mark.parametrize("count", [1, 59, 60, 61, 1000])
def test_a_sparkline_never_outgrows_its_width(count):
    assert 1 <= len(sparkline([float(i) for i in range(count)], width=60)) <= 60


def test_without_a_terminal_a_run_shows_about_twenty_lines():
    stream = io.StringIO()
    with TrainingDisplay("run", 200, Console(file=stream, width=100)) as display:
        for update in range(1, 201):
            display.update(update, METRICS)
    lines = stream.getvalue().strip().splitlines()
    assert len(lines) == 20
    assert lines[-1].startswith("update  200/200  return   0.500")


def test_on_a_terminal_the_panel_shows_the_metrics():
    stream = io.StringIO()
    with TrainingDisplay("maac on an environment", 2, Console(file=stream, width=100, force_terminal=True)) as display:
        display.update(1, METRICS)
        display.update(2, METRICS | {"return": 0.75})
    shown = stream.getvalue()
    assert "maac on an environment" in shown
    assert "0.500 … 0.750" in shown


def test_learning_curves_are_drawn_over_seeds(tmp_path):
    runs = [tmp_path / "a", tmp_path / "b"]
    for number, run in enumerate(runs):
        run.mkdir()
        rows = [{"environment_steps": 32 * step, "return": number + step} for step in range(5 + number)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    picture = plot_learning_curves({"maac": runs, "iac": runs[:1]}, tmp_path / "curves.png", title="two")
    with Image.open(picture) as image:
        assert image.size == (840, 480)


def test_scores_of_the_scripted_players():
    scores = mean_scores(make("collm/MiniBuild-v0"), num_episodes=3)
    assert scores["reference"] == 1.0
    assert scores["empty"] == 0.0
    assert 0.0 <= scores["random"] < 1.0


def test_an_episode_of_a_player_repeats():
    env = make("collm/MiniBuild-v0")
    first, second = (play_episode(env, player(env, "random"), seed=1) for _ in range(2))
    assert first == second


def test_an_environment_without_a_reference_player_has_no_ceiling():
    env = make("gymnasium/CartPole-v1")
    assert player(env, "reference") is None
