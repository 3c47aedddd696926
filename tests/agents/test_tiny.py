"""The embedded model and the start checkpoints: load, read and write the mini tasks."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from collm.agents.core import Request
from collm.agents.language.model import LanguageModel
from collm.agents.language.policy import LanguagePolicy
from collm.agents.tiny import TINY_DIRECTORY
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
    model = AutoModelForCausalLM.from_pretrained(TINY_DIRECTORY, dtype=torch.float32)
    return LanguageModel(model, TOKENIZER)


def played(language_model, envs, max_new_tokens):
    """The mean return of one episode in each environment, and all completions."""
    policy = LanguagePolicy(language_model, max_new_tokens=max_new_tokens)
    observations = [env.reset(seed=seed)[0] for seed, env in enumerate(envs)]
    total, completions = 0.0, []
    while envs[0].agents:
        seats = [(i, agent) for i, env in enumerate(envs) for agent in env.agents]
        streams = [(0, i, env.agents.index(agent), env.turn) for i, env in enumerate(envs) for agent in env.agents]
        requests = [
            Request(agent, observations[i][agent], stream) for (i, agent), stream in zip(seats, streams, strict=True)
        ]
        answers = dict(zip(seats, policy.act(requests), strict=True))
        completions += answers.values()
        for i, env in enumerate(envs):
            observations[i], rewards, *_ = env.step({agent: answers[i, agent].action for agent in env.agents})
            total += next(iter(rewards.values()))
    return total / len(envs), completions


def test_the_folder_is_small_and_loads_in_32_bits(shipped):
    assert sum(path.stat().st_size for path in TINY_DIRECTORY.glob("*.*")) < 2_000_000
    assert 300_000 < shipped.model.num_parameters() < 1_000_000
    assert AutoModelForCausalLM.from_pretrained(TINY_DIRECTORY).dtype == torch.float32


@given(st.text())
def test_the_tokenizer_reverses_any_text(text):
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert TOKENIZER.decode(ids, clean_up_tokenization_spaces=False) == text


@pytest.mark.parametrize("space", ["", " "])
def test_a_word_of_the_mini_tasks_is_one_token(space):
    words = {*prompt_vocabulary(), *BUILDING_WORDS, *CODING_WORDS}
    split = {word: TOKENIZER.tokenize(f"{space}{word}") for word in words}
    assert {word for word, tokens in split.items() if len(tokens) != 1} == set()


def test_digits_are_tokens_of_their_own():
    assert [TOKENIZER.decode([index]) for index in TOKENIZER("a 1234")["input_ids"]] == ["a", " 1", "2", "3", "4"]


def test_it_does_not_name_again_what_it_has_named(shipped):
    envs = [MiniBuild("test") for _ in range(64)]
    _, completions = played(shipped, envs, 8)
    moves = {}
    for number, completion in enumerate(completions):  # by turn, then environment, then agent
        seat, turn = number % 128, number // 128
        if (move := parsed_move(completion.action)) is not None:
            moves.setdefault(seat, []).append((turn, move[0]))
    repeats = [
        part in {earlier for _, earlier in named[:place]}
        for named in moves.values()
        for place, (_, part) in enumerate(named)
    ]
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
def test_it_starts_in_the_middle_with_room_to_learn(shipped, make_env, max_new_tokens, low, high, split):
    mean_return, completions = played(shipped, [make_env(split) for _ in range(64)], max_new_tokens)
    assert low < mean_return < high
    assert np.mean([each.is_cut for each in completions]) < 0.02
    assert 0.1 < np.mean(np.concatenate([each.entropies for each in completions])) < 1.6


@pytest.mark.parametrize("folder", STARTS, ids=lambda path: path.name)
def test_the_committed_starts_are_small_different_and_of_the_recipe_s_kind(folder):
    assert sum(path.stat().st_size for path in folder.iterdir()) < 2_000_000
    model, shipped = (AutoModelForCausalLM.from_pretrained(each) for each in (folder, TINY_DIRECTORY))
    assert model.config.to_dict() | {"_name_or_path": ""} == shipped.config.to_dict() | {"_name_or_path": ""}
    assert (folder / "tokenizer.json").read_text() == (TINY_DIRECTORY / "tokenizer.json").read_text()
    weights = {each.name: AutoModelForCausalLM.from_pretrained(each).lm_head.weight for each in STARTS}
    assert all(torch.equal(weights[name], weights[folder.name]) == (name == folder.name) for name in weights)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"
