"""The synthetic dialogue pays for the first word, and its agents are trained as others are."""

from __future__ import annotations

import pytest

from research.speed.synthetic import (
    FEEDBACK_WORDS,
    PROMPT_WORDS,
    SyntheticDialogue,
    reward,
    synthetic_tokenizer,
    synthetic_trainer,
)


@pytest.mark.parametrize(("reply", "expected"), [("w1024 w0", 0.5), ("w0", 0.0), ("", 0.0), ("<end>", 0.0)])
def test_a_reply_is_worth_its_first_word(reply, expected):
    assert reward(reply) == expected


def test_texts_have_exactly_the_lengths_that_are_timed():
    env, tokenizer = SyntheticDialogue(num_turns=2), synthetic_tokenizer()
    observations, _ = env.reset(seed=0)
    before = len(tokenizer(str(observations["speaker_0"])).input_ids)
    observations, *_ = env.step(dict.fromkeys(env.agents, "w1 w2"))
    assert before == PROMPT_WORDS
    assert len(tokenizer(str(observations["speaker_0"])).input_ids) == PROMPT_WORDS + 2 + FEEDBACK_WORDS


def test_an_update_learns_from_one_episode_of_each_environment():
    trainer = synthetic_trainer("iac", 2, num_turns=2, max_new_tokens=2, use_separate_critic=False)
    episodes, metrics = trainer.step()
    assert [episode.num_turns for episode in episodes] == [2, 2]
    assert metrics["completion_tokens"] <= 2
