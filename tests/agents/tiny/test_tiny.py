"""The embedded model: loads, reads and writes the mini tasks, and its recipe makes the same tokenizer again."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from collm.agents.core import Request
from collm.agents.encoding import Encoder
from collm.agents.language.model import LanguageModel
from collm.agents.language.policy import LanguagePolicy
from collm.agents.tiny import TINY_DIRECTORY
from collm.agents.tiny.lessons import (
    Lesson,
    batch,
    demonstration_lessons,
    memory_lesson,
    recall_lesson,
    transcript_lesson,
)
from collm.agents.tiny.make import Recipe, make, new_model, save, target_loss
from collm.agents.tiny.vocabulary import MAX_TOKENS, new_tokenizer, words
from collm.agents.tiny.wiring import NUM_HEADS
from collm.envs.coding.mini_code import MiniCode
from collm.envs.core import Message, Transcript
from collm.envs.games.mini_build import MiniBuild
from collm.envs.games.mini_build.prompts import parsed_move
from collm.envs.writing.mini_writing.env import MiniWriting

TOKENIZER = new_tokenizer()


@pytest.fixture(scope="module")
def shipped():
    model = AutoModelForCausalLM.from_pretrained(TINY_DIRECTORY, dtype=torch.float32)
    return LanguageModel(model, AutoTokenizer.from_pretrained(TINY_DIRECTORY))


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


def test_the_shipped_tokenizer_is_the_recipe_s(shipped):
    assert shipped.encoder.tokenizer.backend_tokenizer.to_str() == TOKENIZER.backend_tokenizer.to_str()
    assert len(TOKENIZER) == shipped.model.config.vocab_size <= MAX_TOKENS


@given(st.text())
def test_the_tokenizer_reverses_any_text(text):
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert TOKENIZER.decode(ids, clean_up_tokenization_spaces=False) == text


@pytest.mark.parametrize("space", ["", " "])
def test_a_word_of_the_mini_tasks_is_one_token(space):
    split = {word: TOKENIZER.tokenize(f"{space}{word}") for word in words()}
    assert {word for word, tokens in split.items() if len(tokens) != 1} == set()


def test_digits_are_tokens_of_their_own():
    assert [TOKENIZER.decode([index]) for index in TOKENIZER("a 1234")["input_ids"]] == ["a", " 1", "2", "3", "4"]


def test_a_transcript_s_lesson_is_what_the_policy_reads_and_writes():
    encoder = Encoder(TOKENIZER)
    messages = [
        Message("user", "builder 0 goal"),
        Message("assistant", "roof wood", "builder_0"),
        Message("user", "ok"),
    ]
    lesson = transcript_lesson(messages, encoder)
    asked, _ = encoder.prompt(Transcript(messages[:1]))
    answer = [*encoder.content("roof wood"), encoder.end_id]
    assert list(lesson.ids) == [*asked, *answer]
    assert list(lesson.is_target) == [False] * len(asked) + [True] * len(answer)


def test_a_recall_lesson_says_the_pairs_of_its_list_again():
    lesson = recall_lesson(random.Random(0), Encoder(TOKENIZER))
    text = [TOKENIZER.decode([index]).strip() for index in lesson.ids]
    end = text.index("")
    listed, said = (sorted(zip(half[::2], half[1::2], strict=True)) for half in (text[:end], text[end + 1 :]))
    assert listed == said
    assert list(lesson.is_target) == [False] * (end + 1) + [True] * end


def test_a_memory_lesson_answers_every_pair_of_its_list_once_in_replies():
    encoder = Encoder(TOKENIZER)
    for seed in range(20):
        lesson = memory_lesson(random.Random(seed), encoder)
        end = lesson.is_target.index(True)
        listed = [TOKENIZER.decode([index]).strip() for index in lesson.ids[: end - 1]]
        replied = [index for index, is_target in zip(lesson.ids, lesson.is_target, strict=True) if is_target]
        replies = TOKENIZER.decode(replied).split("<|endoftext|>")[:-1]
        pairs = [" ".join(pair) for pair in zip(listed[::2], listed[1::2], strict=True)]
        assert sorted(replies) == sorted(pairs) and len({reply.split()[0] for reply in replies}) == len(replies)


def test_wired_heads_of_the_second_layer_look_at_what_replies_began_with():
    torch.manual_seed(0)
    model = new_model(TOKENIZER)
    model.set_attn_implementation("eager")
    encoder = Encoder(TOKENIZER)
    ids = encoder.content(" wall stone roof wood door glass\n") + encoder.content("roof wood") + [encoder.end_id]
    ids += encoder.content("ok\n")
    attention = model(torch.tensor([ids]), output_attentions=True).attentions[1][0, -NUM_HEADS:, -1]
    begun = [ids.index(encoder.content(word)[0]) for word in ("roof", "ok")]
    others = [place for place in range(len(ids)) if place not in begun]
    assert attention[:, begun].min() > attention[:, others].max()
    assert attention[:, begun[0]].min() > 2 * attention[:, others].max()


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


def test_wired_heads_of_the_first_layer_look_at_the_left_neighbour():
    torch.manual_seed(0)
    model = new_model(TOKENIZER)
    model.set_attn_implementation("eager")
    ids = TOKENIZER(" wall stone roof wood door glass shelf wool lamp iron", return_tensors="pt")["input_ids"]
    attention = model(ids, output_attentions=True).attentions[0][0, :NUM_HEADS, 1:, :-1]
    assert attention.diagonal(dim1=-2, dim2=-1).min() > 0.8


def test_both_spellings_of_a_word_start_alike_and_two_words_do_not():
    torch.manual_seed(0)
    weights = new_model(TOKENIZER).model.embed_tokens.weight
    spaced, bare, other = (weights[TOKENIZER(text)["input_ids"][0]] for text in (" wall", "wall", " roof"))
    assert torch.cosine_similarity(spaced, bare, dim=0) > 0.9
    assert torch.cosine_similarity(spaced, other, dim=0) < 0.5


def test_every_mini_task_is_taught():
    rng, encoder = random.Random(0), Encoder(TOKENIZER)
    texts = [TOKENIZER.decode(each.ids) for _ in range(60) for each in demonstration_lessons(rng, encoder)]
    openings = {"post: ", "builder 0", "builder 1", "helper task", "main task"}
    assert {opening for opening in openings for text in texts if text.startswith(opening)} == openings


def test_the_loss_counts_target_tokens_alone_and_no_padding():
    torch.manual_seed(0)
    model = new_model(TOKENIZER)
    long, short = Lesson((5, 6, 7, 8), (False, False, True, True)), Lesson((9, 10), (False, True))
    loss = target_loss(model, *batch([long, short], TOKENIZER.pad_token_id))
    by_hand = []
    for lesson in (long, short):
        logprobs = model(torch.tensor([lesson.ids])).logits[0].log_softmax(-1)
        by_hand += [-logprobs[i - 1, lesson.ids[i]] for i in range(len(lesson.ids)) if lesson.is_target[i]]
    assert loss.item() == pytest.approx(torch.stack(by_hand).mean().item(), abs=1e-5)


def test_the_recipe_is_a_function_of_its_seed(tmp_path):
    recipe = Recipe(tmp_path / "model", recall_steps=2, recall_batch=2, task_steps=2, task_batch=2)
    first, second = make(recipe)[0], make(recipe)[0]
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    save(first, TOKENIZER, recipe.out)
    loaded = AutoModelForCausalLM.from_pretrained(recipe.out)
    assert loaded.dtype == torch.float32
    assert torch.allclose(loaded.lm_head.weight, second.lm_head.weight, atol=1e-3)


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
