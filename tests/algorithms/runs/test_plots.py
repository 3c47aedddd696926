"""Pictures of learning curves."""

import json

from PIL import Image

from collm.algorithms.runs.loggers.plots import plot_learning_curves


def test_learning_curves_are_drawn_over_seeds(tmp_path):
    runs = [tmp_path / "a", tmp_path / "b"]
    for number, run in enumerate(runs):
        run.mkdir()
        rows = [{"environment_steps": 32 * step, "return": number + step} for step in range(5 + number)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    picture = plot_learning_curves({"maac": runs, "iac": runs[:1]}, tmp_path / "curves.png", title="two")
    with Image.open(picture) as image:
        assert image.size == (840, 480)
