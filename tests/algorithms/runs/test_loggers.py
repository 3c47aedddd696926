"""Loggers of W&B, TensorBoard and trackio: resumption, metrics, evaluations."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from PIL import Image

from collm.agents.scripted import reference_policy
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.algorithms.runs.evaluation import Evaluated
from collm.algorithms.runs.loggers import make_loggers
from collm.envs import make
from collm.envs.vectors.vector import SyncVector


class Wandb:
    def __init__(self):
        self.calls = []
        self.logged = []

    def init(self, **settings):
        self.calls.append(settings)
        run = SimpleNamespace(id=settings.get("id", f"drawn{len(self.calls)}"))
        run.log = lambda metrics, step: self.logged.append((run.id, step, metrics))
        run.finish = lambda: None
        return run

    def Histogram(self, values):
        return ("histogram", values)

    def Table(self, columns, data):
        return ("table", columns, data)

    def Video(self, path, format):
        return ("video", path, format)


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


def written(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return events


def test_tensorboard_hides_what_is_logged_again(tmp_path):
    for update, last in ((0, 5), (3, 7)):  # interrupted after update 5, resumed from update 3
        (logger,) = make_loggers(tmp_path, ("tensorboard",), {}, update=update)
        for step in range(update + 1, last + 1):
            logger.log(step, {"return": float(step)})
        logger.close()
    assert [event.step for event in written(tmp_path).Scalars("return")] == [1, 2, 3, 4, 5, 6, 7]


METRICS = {"evaluation/sampled/return": 0.5, "evaluation/greedy/return": 1.0}


def played(name, seeds):
    env = make(name)
    collector = RolloutCollector(SyncVector(lambda: env, 1), dict.fromkeys(env.possible_agents, reference_policy(env)))
    return [collector.collect([Plan(seed, group=seed)])[0] for seed in seeds]


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> Evaluated:
    """Three episodes of the reference policy in an environment that renders."""
    episodes = played("collm/StrBuild-v2", (5, 6, 7))
    picture = tmp_path_factory.mktemp("pictures") / "new" / "update-3.gif"
    return Evaluated(METRICS, {"sampled": episodes, "greedy": episodes[:1]}, lambda: make("collm/StrBuild-v2"), picture)


def test_evaluations_show_returns_transcripts_and_the_world_if_it_has_pictures(shown, tmp_path):
    assert {name: len(returns) for name, returns in shown.returns.items()} == {"sampled": 3, "greedy": 1}
    assert [row[:2] for row in shown.transcripts][-2:] == [("greedy", 5), ("greedy", 5)]
    assert len(shown.transcripts) == 2 * (3 + 1)  # two agents of each episode
    assert {row[3] for row in shown.transcripts} == set(make("collm/StrBuild-v2").possible_agents)
    with Image.open(shown.animation) as gif:
        assert gif.n_frames > 1
    episodes = played("collm/MiniCode-v1", (1,))
    found = Evaluated(METRICS, {"sampled": episodes}, lambda: make("collm/MiniCode-v1"), tmp_path / "x" / "a.gif")
    assert found.animation is None and not (tmp_path / "x").exists()
    assert len(found.transcripts) == 2  # the episode is both the best and the worst


def test_wandb_gets_evaluations_under_the_names_of_its_environment_variables(shown, tmp_path, monkeypatch):
    module = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setenv("WANDB_PROJECT", "p")
    monkeypatch.setenv("WANDB_NAME", "n")
    (logger,) = make_loggers(tmp_path, ("wandb",), {"seed": 1})
    logger.log_evaluation(3, shown)
    assert module.calls == [{"project": "p", "name": "n", "dir": str(tmp_path), "config": {"seed": 1}}]
    ((_, step, logged),) = module.logged
    assert step == 3 and logged["evaluation/sampled/return"] == 0.5
    assert logged["evaluation/sampled/returns"] == ("histogram", list(shown.returns["sampled"]))
    assert logged["evaluation/transcripts"][2] == [list(row) for row in shown.transcripts]
    assert logged["evaluation/world"] == ("video", str(shown.animation), "gif")


def test_tensorboard_gets_evaluations(shown, tmp_path):
    (logger,) = make_loggers(tmp_path, ("tensorboard",), {})
    logger.log_evaluation(3, shown)
    logger.close()
    events = written(tmp_path)
    assert [(event.step, event.value) for event in events.Scalars("evaluation/greedy/return")] == [(3, 1.0)]
    (histogram,) = events.Histograms("evaluation/sampled/returns")
    assert histogram.histogram_value.num == 3
    assert histogram.histogram_value.sum == pytest.approx(sum(shown.returns["sampled"]))
    (picture,) = events.Images("evaluation/world")
    assert picture.encoded_image_string == shown.animation.read_bytes()
    texts = [tag for tag in events.Tags()["tensors"] if tag.startswith("transcripts/sampled/")]
    assert len(texts) == 2


def test_trackio_gets_metrics_and_evaluations(shown, tmp_path, monkeypatch):
    trackio = Wandb()
    monkeypatch.setitem(sys.modules, "trackio", trackio)
    monkeypatch.setenv("WANDB_RUN_GROUP", "g")
    (logger,) = make_loggers(tmp_path, ("trackio",), {"seed": 1})
    logger.log(1, {"return": 0.25})
    logger.log_evaluation(1, shown)
    logger.close()
    assert trackio.calls == [
        {"project": "collm", "name": tmp_path.name, "group": "g", "config": {"seed": 1}, "resume": "allow"}
    ]
    assert [entry[1:] for entry in trackio.logged] == [(1, {"return": 0.25}), (1, METRICS)]
