"""Equality of the published variant with recorded scores of CoMLRL's scorer."""

import json

import pytest
from replies import begun

from collm.envs.writing import TLDR, ArxivExpansion


@pytest.mark.parametrize(("game", "name"), [(TLDR, "tldr"), (ArxivExpansion, "arxiv")])
def test_the_published_variant_equals_the_published_scores(shared_data, game, name):
    lines = shared_data(f"published_scores/{name}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    env = game(variant="published")
    for row in rows:
        env.reset(seed=0)
        rewards = env.step({agent: row[agent] for agent in env.agents})[1]
        assert rewards["writer_0"] == pytest.approx(row["score"], abs=1e-9), row
    assert len(rows) == 600 and len({row["score"] for row in rows}) > 100


def test_two_texts_without_content_words_overlap_in_full_as_published():
    env = begun(TLDR(variant="published"), seed=0)
    infos = env.step({"writer_0": "it is so " * 3, "writer_1": "we were all there so that it is " * 2})[4]
    assert infos["writer_0"]["metric/overlap"] == 1.0
