import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collm._terminal import shown, terminal


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b2J", "\\x9b2J"),
        ("a\rb", "a\\rb"),
        ("a\x08b\x00", "a\\x08b\\x00"),
        ("one\ntwo\tthree", "one\ntwo\tthree"),
        ("\u202egnirts", "\\u202egnirts"),
        ("line\u2028line", "line\\u2028line"),
        ("\ud800", "\\ud800"),
        ("grüße 漢字 👩‍💻 [bold]", "grüße 漢字 👩‍💻 [bold]"),
    ],
)
def test_control_characters_become_escapes_and_all_else_stays(text, expected):
    assert shown(text) == expected


@given(st.text(st.characters()))
def test_nothing_that_a_terminal_obeys_is_left(text):
    left = shown(text)
    assert {letter for letter in left if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp")} <= set("\n\t")
    left.encode("utf-8")
    assert shown(left) == left


def test_texts_are_printed_as_they_are(capsys):
    terminal(width=60).print("openai:m: 8 requests :warning:", markup=False)
    assert capsys.readouterr().out == "openai:m: 8 requests :warning:\n"
