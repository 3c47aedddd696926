"""Sentences, windows, and familiar forms."""

import json

from hypothesis import given
from hypothesis import strategies as st

from collm.envs.writing.documents import forms
from collm.envs.writing.documents.forms import class_of, encoded, is_familiar, sentences, windows


def test_sentences_and_windows_by_hand():
    assert sentences("First, the 3.5 dogs: barked! They slept;; \n well?") == [
        ["first", ",", "the", "3.5", "dogs", ",", "barked"],
        ["they", "slept", ",", "well"],
    ]
    assert sentences(" .,! ") == []
    assert list(windows(["dogs", "bark"])) == [(".", "dogs", "bark"), ("dogs", "bark", ".")]


def test_pronouns_share_a_class_and_unknown_words_have_one_by_their_ending():
    assert class_of("i") == class_of("she") == class_of("we") != class_of("them")
    assert class_of("xyzzying") == class_of("plughing") != class_of("xyzzyed")


def test_english_is_familiar_and_the_same_words_backwards_are_not():
    for text in ("we propose a new method for the problem", "it has been shown that this is an important problem"):
        (told,) = sentences(text)
        forward, backward = ([is_familiar(window) for window in windows(list(words))] for words in (told, told[::-1]))
        assert sum(forward) >= len(forward) - 2 and sum(backward) < len(backward) / 2


@given(st.sets(st.integers(0, 512**3)))
def test_the_numbers_of_forms_survive_their_encoding(numbers):
    assert list(forms._decoded(encoded(numbers))) == sorted(numbers)


def test_the_table_is_small_and_names_its_origin():
    assert forms.FORMS_FILE.stat().st_size < 200_000
    assert "Apache License 2.0" in json.loads(forms.FORMS_FILE.read_text(encoding="utf-8"))["source"]
