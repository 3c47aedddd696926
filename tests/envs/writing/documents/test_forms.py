"""Sentences, windows, and familiar forms."""

import json

from hypothesis import given
from hypothesis import strategies as st

from collm.envs.writing.documents import forms
from collm.envs.writing.documents.forms import encoded, is_familiar, sentences, windows


def test_sentences_and_windows_by_hand_and_english_is_familiar_but_not_backwards():
    for text in ("we propose a new method for the problem", "it has been shown that this is an important problem"):
        (told,) = sentences(text)
        forward, backward = ([is_familiar(window) for window in windows(list(words))] for words in (told, told[::-1]))
        assert sum(forward) >= len(forward) - 2 and sum(backward) < len(backward) / 2
    assert sentences("First, the 3.5 dogs: barked! They slept;; \n well?") == [
        ["first", ",", "the", "3.5", "dogs", ",", "barked"],
        ["they", "slept", ",", "well"],
    ]
    assert sentences(" .,! ") == []
    assert list(windows(["dogs", "bark"])) == [(".", "dogs", "bark"), ("dogs", "bark", ".")]
    assert forms.FORMS_FILE.stat().st_size < 200_000
    assert "Apache License 2.0" in json.loads(forms.FORMS_FILE.read_text(encoding="utf-8"))["source"]


@given(st.sets(st.integers(0, 512**3)))
def test_the_numbers_of_forms_survive_their_encoding(numbers):
    assert list(forms._decoded(encoded(numbers))) == sorted(numbers)
