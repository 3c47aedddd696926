"""Progress panel, progress lines, sparklines and learning curves."""

import io
import json
import os
import signal

import pytest
from PIL import Image
from rich.console import Console

from collm._progress import advance, expect, observing, phase
from collm.algorithms.runs.evaluation import Evaluated
from collm.algorithms.runs.loggers.display import TrainingDisplay, plot_learning_curve, sparkline
from collm.algorithms.runs.stopping import StopSignals

METRICS = {"return": 0.5, "entropy": 1.0, "tokens_per_second": 100.0, "seconds/total": 3.0}


def test_a_sparkline_by_hand():
    assert sparkline([0.0, 1.0, 0.5]) == "▁█▅"
    assert sparkline([]) == ""
    assert sparkline([2.0, 2.0]) == "▁▁"
    lengths = [len(sparkline([float(i) for i in range(count)])) for count in (1, 59, 60, 61, 1000)]
    assert lengths == [1, 59, 60, 31, 59]


def test_without_a_terminal_a_run_shows_about_twenty_lines():
    stream = io.StringIO()
    with TrainingDisplay("run", 200, Console(file=stream, width=100)) as display:
        for update in range(1, 201):
            display.log(update, METRICS)
    lines = stream.getvalue().strip().splitlines()
    assert len(lines) == 20
    assert lines[-1].startswith("update  200/200  return   0.500")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_panel_shows_metrics_and_escapes_its_title(is_terminal):
    stream = io.StringIO()
    title = "iac on [/red], model \x1b]0;title\x07 runs/[/bold]x"
    with TrainingDisplay(title, 2, Console(file=stream, width=200, force_terminal=is_terminal)) as display:
        display.log(1, METRICS)
        display.log(2, METRICS | {"return": 0.75})
    printed = stream.getvalue()
    assert "\x1b]0;" not in printed and "\x07" not in printed
    if is_terminal:
        assert "iac on [/red], model \\x1b]0;title\\x07 runs/[/bold]x" in printed and "0.500 … 0.750" in printed


def test_a_learning_curve_is_drawn(tmp_path):
    rows = [{"environment_steps": 32 * step, "return": step} for step in range(5)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [{"update": 0}, *rows]))
    plot_learning_curve(tmp_path, tmp_path / "curve.png", title="maac")
    with Image.open(tmp_path / "curve.png") as image:
        assert image.size == (840, 480)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_shares_of_equal_returns_and_cut_replies_are_shown_everywhere(is_terminal):
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=is_terminal)
    with TrainingDisplay("run", 2, console) as display:
        for update in (1, 2):
            display.log(update, METRICS | {"equal_returns": 0.75, "cut_share": 0.25})
        interval = {
            f"evaluation/{how}/return{end}": 0.5 for how in ("sampled", "greedy") for end in ("", "_low", "_high")
        }
        display.log_evaluation(2, Evaluated(interval, {}, None, None))
        console.print(display.evaluation_table())
    printed = stream.getvalue()
    assert ("loading models" in printed) == is_terminal
    assert (
        printed.count("equal returns") >= 2 and printed.count("replies cut") >= 2
    )  # in the panel or lines, and the table
    assert "75%" in printed and "25%" in printed
    assert printed.count("0.500 [0.500, 0.500]") == 2  # 80 columns are enough for whole intervals


def test_the_panel_shows_the_phase_the_expected_end_of_the_training_and_a_stop(monkeypatch):
    stream, now = io.StringIO(), [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    console = Console(file=stream, width=150, force_terminal=True)
    with TrainingDisplay("run", 4, console) as display, StopSignals(is_shown=True) as display.stop:
        with observing(display.log_progress), phase("update 1"), phase("policies", "micro-batches"):
            expect(4)
            now[0] += 10
            advance()
            console.print(display._panel())  # 40 s for this phase, and 4 updates
            os.kill(os.getpid(), signal.SIGINT)
            console.print(display._panel())
    before, after = stream.getvalue().split("stopping after", 1)
    assert "update 1 · policies 1 of 4 micro-batches" in before and "more than 0:02:30 left" in before
    assert "Ctrl-C again stops now" in after
