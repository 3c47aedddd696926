"""Words on a grid."""

import pytest

from collm.envs.games.pictures import LETTERS, written


def test_the_published_letters_by_hand():
    assert written("IC") == (
        "#####...####",
        "..#....#....",
        "..#....#....",
        "..#....#....",
        "#####...####",
    )
    assert written("ML")[:3] == ("#...#..#....", "##.##..#....", "#.#.#..#....")


def test_all_letters_differ_and_fill_their_square():
    glyphs = {written(letter) for letter in LETTERS}
    assert len(glyphs) == 26
    assert all(len(glyph) == 5 and {len(row) for row in glyph} == {5} for glyph in glyphs)


@pytest.mark.parametrize("text", ["", "A-B", "é"])
def test_what_has_no_letters_is_refused(text):
    with pytest.raises(ValueError, match="letters"):
        written(text)
