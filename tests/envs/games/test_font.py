"""Words on a grid."""

import pytest

from collm.envs.games.pictures import LETTERS, written


def test_the_published_letters_by_hand():
    assert written("IC") == ("#####...####", *["..#....#...."] * 3, "#####...####")
    assert written("ML")[:3] == ("#...#..#....", "##.##..#....", "#.#.#..#....")


def test_all_letters_differ_and_fill_their_square_and_what_has_none_is_refused():
    glyphs = {written(letter) for letter in LETTERS}
    assert len(glyphs) == 26
    assert all(len(glyph) == 5 and {len(row) for row in glyph} == {5} for glyph in glyphs)
    for text in ("", "A-B", "é"):
        with pytest.raises(ValueError, match="letters"):
            written(text)
