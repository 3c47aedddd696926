"""Word lists of the writing scores."""

from collm.envs.writing.documents.lexicon import OWN, Lexicon, published, words

INSIDE = Lexicon(OWN.function_words, OWN.transitions, is_whole=False)
PHRASES = sorted({phrase for phrases in OWN.transitions.values() for phrase in phrases})


def test_words_by_hand_and_the_lists_of_phrases():
    assert words("The cat's MEAL, \u00fcber 3 nights.") == ["the", "cat", "s", "meal", "\u00fcber", "3", "nights"]
    assert OWN.content_words("The cat ate, and the cat slept.") == {"cat", "ate", "slept"}
    assert OWN.subject_words("However, the cat ate; meanwhile it rained.") == ["cat", "ate", "rained"]
    for phrase in PHRASES:
        wanted = {name for name, phrases in OWN.transitions.items() if phrase in phrases}
        sentence = f"Nobody moved. {phrase.capitalize()}, nobody did."
        assert wanted <= OWN.transition_categories(sentence) & INSIDE.transition_categories(sentence), phrase
    listed = published()
    assert len(listed.transitions) == len(OWN.transitions) == 12 and not listed.is_whole
    for phrases in listed.transitions.values():
        assert not [phrase for phrase in phrases for other in phrases if other != phrase and other in phrase]


def test_a_phrase_is_found_across_a_line_end_and_in_any_case_but_inside_a_word_only_as_substring():
    for text, category in [("a person", "cause"), ("the best gift", "condition"), ("ask", "time")]:
        assert category not in OWN.transition_categories(text)
        assert category in INSIDE.transition_categories(text)
    assert OWN.transition_categories("FOR\nExample") == {"example"}
    assert OWN.transition_categories("Dogs bark at night.") == frozenset()
    assert all(" ".join(words(phrase)) == phrase for phrase in [*OWN.function_words, *PHRASES])
