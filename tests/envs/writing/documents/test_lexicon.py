"""Words and transition words."""

import pytest

from collm.envs.writing.documents.lexicon import (
    FUNCTION_WORDS,
    TRANSITIONS,
    content_words,
    subject_words,
    transition_categories,
    words,
)


def test_words_are_in_lower_case_and_without_punctuation():
    assert words("The cat's MEAL, \u00fcber 3 nights.") == ["the", "cat", "s", "meal", "\u00fcber", "3", "nights"]


def test_content_words_by_hand():
    assert content_words("The cat ate, and the cat slept.") == {"cat", "ate", "slept"}


def test_subject_words_leave_out_transition_words_too():
    assert subject_words("However, the cat ate; meanwhile it rained.") == {"cat", "ate", "rained"}


def test_there_are_twelve_categories():
    assert len(TRANSITIONS) == 12


@pytest.mark.parametrize("phrase", sorted({phrase for phrases in TRANSITIONS.values() for phrase in phrases}))
def test_every_transition_phrase_is_found_in_a_sentence_in_both_ways(phrase):
    wanted = {name for name, phrases in TRANSITIONS.items() if phrase in phrases}
    sentence = f"Nobody moved. {phrase.capitalize()}, nobody did."
    assert wanted <= transition_categories(sentence)
    assert wanted <= transition_categories(sentence, "substring")


@pytest.mark.parametrize(("text", "category"), [("a person", "cause"), ("the best gift", "condition"), ("ask", "time")])
def test_a_phrase_inside_a_word_counts_only_as_substring(text, category):
    assert category not in transition_categories(text)
    assert category in transition_categories(text, "substring")


def test_a_phrase_is_found_across_a_line_end_and_in_any_case():
    assert transition_categories("FOR\nExample") == {"example"}


def test_a_text_without_transition_words_has_no_category():
    assert transition_categories("Dogs bark at night.") == frozenset()


def test_all_words_of_the_lists_are_in_the_form_that_texts_are_searched_in():
    listed = FUNCTION_WORDS | {phrase for phrases in TRANSITIONS.values() for phrase in phrases}
    assert all(" ".join(words(phrase)) == phrase for phrase in listed)
