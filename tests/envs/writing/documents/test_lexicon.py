"""Words and transition words."""

import pytest

from collm.envs.writing.documents.lexicon import FUNCTION_WORDS, OWN, TRANSITIONS, Lexicon, published, words

INSIDE = Lexicon(FUNCTION_WORDS, TRANSITIONS, is_whole=False)


def test_words_are_in_lower_case_and_without_punctuation():
    assert words("The cat's MEAL, \u00fcber 3 nights.") == ["the", "cat", "s", "meal", "\u00fcber", "3", "nights"]


def test_content_words_by_hand():
    assert OWN.content_words("The cat ate, and the cat slept.") == {"cat", "ate", "slept"}


def test_subject_words_leave_out_transition_words_too():
    assert OWN.subject_words("However, the cat ate; meanwhile it rained.") == ["cat", "ate", "rained"]


def test_there_are_twelve_categories():
    assert len(TRANSITIONS) == 12


@pytest.mark.parametrize("phrase", sorted({phrase for phrases in TRANSITIONS.values() for phrase in phrases}))
def test_every_transition_phrase_is_found_in_a_sentence_in_both_ways(phrase):
    wanted = {name for name, phrases in TRANSITIONS.items() if phrase in phrases}
    sentence = f"Nobody moved. {phrase.capitalize()}, nobody did."
    assert wanted <= OWN.transition_categories(sentence)
    assert wanted <= INSIDE.transition_categories(sentence)


@pytest.mark.parametrize(("text", "category"), [("a person", "cause"), ("the best gift", "condition"), ("ask", "time")])
def test_a_phrase_inside_a_word_counts_only_as_substring(text, category):
    assert category not in OWN.transition_categories(text)
    assert category in INSIDE.transition_categories(text)


def test_a_phrase_is_found_across_a_line_end_and_in_any_case():
    assert OWN.transition_categories("FOR\nExample") == {"example"}


def test_a_text_without_transition_words_has_no_category():
    assert OWN.transition_categories("Dogs bark at night.") == frozenset()


def test_all_words_of_the_lists_are_in_the_form_that_texts_are_searched_in():
    listed = FUNCTION_WORDS | {phrase for phrases in TRANSITIONS.values() for phrase in phrases}
    assert all(" ".join(words(phrase)) == phrase for phrase in listed)


def test_the_published_lists_have_twelve_categories_and_no_phrase_that_another_makes_idle():
    listed = published()
    assert len(listed.transitions) == 12 and not listed.is_whole
    for phrases in listed.transitions.values():
        assert not [phrase for phrase in phrases for other in phrases if other != phrase and other in phrase]
