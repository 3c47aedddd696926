"""Curves elsewhere go on where a run does."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from collm.algorithms.runs.loggers import make_loggers


class Wandb:
    """Stands for the module: keeps what `init` was called with."""

    def __init__(self):
        self.calls = []
        self.logged = []

    def init(self, **settings):
        self.calls.append(settings)
        run = SimpleNamespace(id=settings.get("id", f"drawn{len(self.calls)}"))
        run.log = lambda metrics, step: self.logged.append((run.id, step, metrics))
        run.finish = lambda: None
        return run


def test_wandb_goes_on_with_the_run_of_its_id(tmp_path, monkeypatch):
    module = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    for update in (0, 4):
        (logger,) = make_loggers(tmp_path, ("wandb",), {"seed": 1}, update=update)
        logger.log(update + 1, {"return": 0.5})
        logger.close()
    first, second = module.calls
    assert "id" not in first and "resume" not in first
    assert (second["id"], second["resume"]) == ("drawn1", "allow")
    assert [entry[:2] for entry in module.logged] == [("drawn1", 1), ("drawn1", 5)]


def test_tensorboard_hides_what_is_logged_again(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for update, last in ((0, 5), (3, 7)):  # interrupted after update 5, resumed from update 3
        (logger,) = make_loggers(tmp_path, ("tensorboard",), {}, update=update)
        for step in range(update + 1, last + 1):
            logger.log(step, {"return": float(step)})
        logger.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("return")] == [1, 2, 3, 4, 5, 6, 7]
