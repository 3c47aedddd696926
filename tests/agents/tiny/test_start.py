"""Start checkpoints: the embedded model taught on, by a recipe that is a function of its seed."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from collm.agents.encoding import Encoder
from collm.agents.tiny import TINY_DIRECTORY
from collm.agents.tiny.make import save
from collm.agents.tiny.start import Start, shift_lessons, taught_on
from collm.agents.tiny.vocabulary import new_tokenizer

STARTS = sorted((Path(__file__).parents[3] / "benchmarks" / "suites" / "starts").iterdir())


def test_every_kind_of_team_feedback_and_horizon_is_taught():
    tokenizer, rng = new_tokenizer(), random.Random(0)
    episodes = [shift_lessons(rng, Encoder(tokenizer)) for _ in range(120)]
    assert {len(lessons) for lessons in episodes} == {2, 3, 4}
    ends = [sum(token == tokenizer.eos_token_id for token in lessons[0].ids) for lessons in episodes]
    assert set(ends) == {2, 4, 6, 8, 12}, "a reply per turn"
    texts = " ".join(tokenizer.decode(lesson.ids) for lessons in episodes for lesson in lessons)
    assert all(f"{words} goal" in texts for words in ("ok", "taken", "ok taken", "taken ok ok", "next"))


def test_a_start_is_a_function_of_its_seed_and_begins_with_the_model(tmp_path):
    start = Start(tmp_path / "start", seed=1, steps=2, batch=2)
    (first, tokenizer), (second, _) = taught_on(start), taught_on(start)
    other, _ = taught_on(Start(tmp_path, seed=2, steps=2, batch=2))
    weights = [torch.cat([each.flatten() for each in model.parameters()]) for model in (first, second, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    shipped = AutoModelForCausalLM.from_pretrained(TINY_DIRECTORY)
    known = torch.cat([each.flatten() for each in shipped.parameters()])
    assert 0 < (weights[0] - known).abs().max() < 0.01, "two steps of warm-up from there"
    save(first, tokenizer, start.out)
    assert AutoTokenizer.from_pretrained(start.out)("roof")["input_ids"] == tokenizer("roof")["input_ids"]


@pytest.mark.parametrize("folder", STARTS, ids=lambda path: path.name)
def test_the_committed_starts_are_small_different_and_of_the_recipe_s_kind(folder):
    assert sum(path.stat().st_size for path in folder.iterdir()) < 2_000_000
    model, shipped = (AutoModelForCausalLM.from_pretrained(each) for each in (folder, TINY_DIRECTORY))
    assert model.config.to_dict() | {"_name_or_path": ""} == shipped.config.to_dict() | {"_name_or_path": ""}
    assert (folder / "tokenizer.json").read_text() == (TINY_DIRECTORY / "tokenizer.json").read_text()
    weights = {each.name: AutoModelForCausalLM.from_pretrained(each).lm_head.weight for each in STARTS}
    assert all(torch.equal(weights[name], weights[folder.name]) == (name == folder.name) for name in weights)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"
