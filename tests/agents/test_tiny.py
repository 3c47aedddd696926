import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from collm.agents.language.model import LanguageModel
from collm.agents.language.policy import LanguagePolicy
from collm.agents.tiny import TINY_DIRECTORY
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.envs import SyncVector
from collm.envs.coding.mini_code import VOCABULARY as CODING_WORDS
from collm.envs.coding.mini_code import MiniCode
from collm.envs.games.mini_build import VOCABULARY as BUILDING_WORDS
from collm.envs.games.mini_build import MiniBuild
from collm.envs.games.mini_build.prompts import parsed_move
from collm.envs.writing.mini_writing.env import MiniWriting
from collm.envs.writing.mini_writing.prompts import prompt_vocabulary

ROOT = Path(__file__).parents[2]
STARTS = sorted(ROOT.glob("*/suites/starts/*"))
TOKENIZER = AutoTokenizer.from_pretrained(TINY_DIRECTORY)


@pytest.fixture(scope="module")
def shipped():
    return LanguageModel(AutoModelForCausalLM.from_pretrained(TINY_DIRECTORY, dtype=torch.float32), TOKENIZER)


def played(language_model, make_env, max_new_tokens):
    vector = SyncVector(make_env, 64)
    policy = LanguagePolicy(language_model, max_new_tokens=max_new_tokens)
    collector = RolloutCollector(vector, dict.fromkeys(vector.possible_agents, policy))
    return collector.collect([Plan(seed) for seed in range(64)])


def test_the_folder_is_small_and_loads_in_32_bits(shipped):
    assert sum(path.stat().st_size for path in TINY_DIRECTORY.glob("*.*")) < 2_000_000
    assert 300_000 < shipped.model.num_parameters() < 1_000_000
    assert AutoModelForCausalLM.from_pretrained(TINY_DIRECTORY).dtype == torch.float32


@given(st.text())
def test_the_tokenizer_reverses_any_text(text):
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert TOKENIZER.decode(ids, clean_up_tokenization_spaces=False) == text


@pytest.mark.parametrize("space", ["", " "])
def test_a_word_of_the_mini_tasks_is_one_token_and_so_is_a_digit(space):
    words = {*prompt_vocabulary(), *BUILDING_WORDS, *CODING_WORDS}
    split = {word: TOKENIZER.tokenize(f"{space}{word}") for word in words}
    assert {word for word, tokens in split.items() if len(tokens) != 1} == set()
    assert [TOKENIZER.decode([index]) for index in TOKENIZER("a 1234")["input_ids"]] == ["a", " 1", "2", "3", "4"]


def test_it_rarely_repeats_a_part_in_mini_build(shipped):
    repeats = []
    for episode in played(shipped, lambda: MiniBuild("test"), 8):
        for track in episode.tracks.values():
            moves = [move for turn in track if (move := parsed_move(turn.completion.action)) is not None]
            parts = [part for part, _ in moves]
            repeats += [part in parts[:place] for place, part in enumerate(parts)]
    assert len(repeats) > 500 and np.mean(repeats) <= 0.04


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize(
    ("make_env", "max_new_tokens", "low", "high"),
    [
        (lambda split: MiniWriting(split=split), 48, 0.1, 0.4),
        (lambda split: MiniBuild(split, reward="terminal"), 8, 0.35, 0.6),
        (lambda split: MiniCode(split), 48, 0.3, 0.5),
    ],
    ids=["writing", "building", "coding"],
)
def test_its_returns_are_in_the_middle_of_the_range(shipped, make_env, max_new_tokens, low, high, split):
    episodes = played(shipped, lambda: make_env(split), max_new_tokens)
    assert low < np.mean([episode.team_return for episode in episodes]) < high
    completions = [turn.completion for each in episodes for track in each.tracks.values() for turn in track]
    assert np.mean([each.is_cut for each in completions]) < 0.02
    assert 0.1 < np.mean(np.concatenate([each.entropies for each in completions])) < 1.6


@pytest.mark.parametrize("folder", STARTS, ids=lambda path: path.name)
def test_the_start_checkpoints_are_small_and_differ_in_weights_only(folder):
    assert sum(path.stat().st_size for path in folder.iterdir()) < 2_000_000
    model, shipped = (AutoModelForCausalLM.from_pretrained(each) for each in (folder, TINY_DIRECTORY))
    assert model.config.to_dict() | {"_name_or_path": ""} == shipped.config.to_dict() | {"_name_or_path": ""}
    assert (folder / "tokenizer.json").read_text() == (TINY_DIRECTORY / "tokenizer.json").read_text()
    weights = {each.name: AutoModelForCausalLM.from_pretrained(each).lm_head.weight for each in STARTS}
    assert all(torch.equal(weights[name], weights[folder.name]) == (name == folder.name) for name in weights)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"
