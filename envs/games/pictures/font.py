"""Letters and digits on a grid of five by five, and words made of them."""

from __future__ import annotations

HEIGHT = 5
SPACING = 2  # empty columns between two letters

# Each letter's rows from the top; I, C, M and L are those of the published strings.
_GLYPHS = {
    "A": ".###. #...# ##### #...# #...#",
    "B": "####. #...# ####. #...# ####.",
    "C": ".#### #.... #.... #.... .####",
    "D": "####. #...# #...# #...# ####.",
    "E": "##### #.... ####. #.... #####",
    "F": "##### #.... ####. #.... #....",
    "G": ".#### #.... #..## #...# .####",
    "H": "#...# #...# ##### #...# #...#",
    "I": "##### ..#.. ..#.. ..#.. #####",
    "J": "##### ...#. ...#. #..#. .##..",
    "K": "#...# #..#. ###.. #..#. #...#",
    "L": "#.... #.... #.... #.... #####",
    "M": "#...# ##.## #.#.# #...# #...#",
    "N": "#...# ##..# #.#.# #..## #...#",
    "O": ".###. #...# #...# #...# .###.",
    "P": "####. #...# ####. #.... #....",
    "Q": ".###. #...# #.#.# #..#. .##.#",
    "R": "####. #...# ####. #..#. #...#",
    "S": ".#### #.... .###. ....# ####.",
    "T": "##### ..#.. ..#.. ..#.. ..#..",
    "U": "#...# #...# #...# #...# .###.",
    "V": "#...# #...# #...# .#.#. ..#..",
    "W": "#...# #...# #.#.# ##.## #...#",
    "X": "#...# .#.#. ..#.. .#.#. #...#",
    "Y": "#...# .#.#. ..#.. ..#.. ..#..",
    "Z": "##### ...#. ..#.. .#... #####",
    "0": ".###. #..## #.#.# ##..# .###.",
    "1": "..#.. .##.. ..#.. ..#.. .###.",
    "2": "####. ....# .###. #.... #####",
    "3": "####. ....# .###. ....# ####.",
    "4": "#..#. #..#. ##### ...#. ...#.",
    "5": "##### #.... ####. ....# ####.",
    "6": ".###. #.... ####. #...# .###.",
    "7": "##### ....# ...#. ..#.. ..#..",
    "8": ".###. #...# .###. #...# .###.",
    "9": ".###. #...# .#### ....# .###.",
    " ": "..... ..... ..... ..... .....",
}
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def written(text: str, spacing: int = SPACING) -> tuple[str, ...]:
    """The word as five rows from the top, "#" where it is and "." where it is not.

    Raises:
        ValueError: for an empty text, or one with other characters than letters, digits and spaces.
    """
    letters = text.upper()
    unknown = sorted(set(letters) - set(_GLYPHS))
    if unknown or not letters:
        raise ValueError(f"a text to build is made of letters, digits and spaces, at least one; got {text!r}")
    glyphs = [_GLYPHS[letter].split() for letter in letters]
    return tuple(("." * spacing).join(glyph[row] for glyph in glyphs) for row in range(HEIGHT))
