"""A run whose episodes all have the same return says once that there is nothing to learn from."""

from __future__ import annotations

import math

import pytest
from probes import AGENTS, TextProbe, word_policy

from collm.algorithms import train
from collm.algorithms.runs.loggers import silence
from collm.algorithms.runs.loggers.silence import PATIENCE, SilenceWatch, silent_since
from collm.envs.core import Outcome


class Even(TextProbe):
    """Pays a quarter whatever is said."""

    def __init__(self):
        super().__init__("constant")

    def play(self, replies):
        return Outcome(0.25)


def test_the_watch_says_it_once():
    lines: list[str] = []
    watch = SilenceWatch(lines.append)
    for update in range(1, 60):
        watch.log(update, {"return": 0.25, "equal_returns": float(update > 3)})
        assert len(lines) == (update >= 3 + PATIENCE)
    assert lines[0].startswith(f"update {3 + PATIENCE}: for {PATIENCE} updates") and "0.25" in lines[0]
    watch.close()


def test_an_update_that_says_nothing_of_returns_breaks_the_silence():
    lines: list[str] = []
    watch = SilenceWatch(lines.append)
    for update in range(1, 100):
        watch.log(update, {"equal_returns": 1.0, "return": 0.0} if update % PATIENCE else {})
    assert not lines
    assert silent_since([1.0] * 30 + [math.nan]) is None
    assert silent_since([0.5, *[1.0] * PATIENCE]) == 1


def test_a_silent_run_says_so_and_logs_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(silence, "PATIENCE", 2)
    run = train(
        "magrpo",
        Even,
        out=tmp_path / "run",
        policies={agent: word_policy(i) for i, agent in enumerate(AGENTS)},
        num_updates=4,
        rollout_buffer_size=4,
        num_generations=2,
        eval_num_samples=2,
        progress=True,
    )
    assert [row["equal_returns"] for row in run.metrics] == [1.0] * 4
    assert [row["grad_norm"] for row in run.metrics] == pytest.approx([0.0] * 4)
    told = capsys.readouterr()
    assert f"{told.out}{told.err}".count("nothing to learn from") == 1
