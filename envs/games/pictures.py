"""Pictures of worlds: panels of cells with captions, as pixels, text or a GIF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HEIGHT = 5

# Rows of each letter from the top. The letters I, C, M and L look as in the published task.
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


def written(text: str, spacing: int = 2) -> tuple[str, ...]:
    """Draw a text as five rows of characters from the top: "#" for the cells of its letters, "." elsewhere.

    Between two letters, `spacing` columns are empty.
    """
    letters = text.upper()
    unknown = sorted(set(letters) - set(_GLYPHS))
    if unknown or not letters:
        raise ValueError(f"text {text!r} must have at least one character, and only letters, digits and spaces")
    glyphs = [_GLYPHS[letter].split() for letter in letters]
    return tuple(("." * spacing).join(glyph[row] for glyph in glyphs) for row in range(HEIGHT))


Picture = NDArray[np.uint8]  # [height, width, 3] bytes: red, green, blue
Colour = tuple[int, int, int]
Layer = Sequence[Sequence[int]]  # cells of one panel, the top row first: indices into the list of colors

COLOURS: Mapping[str, Colour] = {
    "air": (203, 222, 236),
    "oak_planks": (176, 137, 84),
    "planks": (176, 137, 84),
    "stone": (125, 125, 125),
    "white_concrete": (250, 250, 250),
    "obsidian": (38, 26, 60),
    "stone_stairs": (96, 104, 112),
    "stone_bricks": (158, 150, 142),
    "spruce_planks": (104, 78, 47),
    "bricks": (150, 74, 62),
    "sandstone": (219, 206, 160),
    "glass": (160, 215, 225),
    "gold_block": (246, 208, 61),
    "prismarine": (99, 156, 151),
    "netherrack": (97, 38, 38),
    "quartz_block": (236, 230, 223),
    "terracotta": (152, 94, 67),
}
_UNKNOWN = (200, 80, 200)
_PAPER = (255, 255, 255)
_INK = (60, 60, 60)
_GRID = (200, 210, 218)
_WRONG = (220, 30, 30)

_CELL = 14  # side of a cell in pixels
_GAP = 14  # pixels between panels
_PIXEL = 2  # side of a caption's dot in pixels


class PanelRow(NamedTuple):
    """Panels side by side under one caption."""

    caption: str
    layers: Sequence[Layer]
    wrong: Sequence[Layer] = ()  # marked cells of each panel; empty: no marks


def colours(names: Sequence[str]) -> list[Colour]:
    return [COLOURS.get(name, _UNKNOWN) for name in names]


def drawn(rows: Sequence[PanelRow], palette: Sequence[Colour]) -> Picture:
    """Draw panel rows below each other on white. A red cross marks each wrong cell."""
    strips = [strip for row in rows for strip in (_captioned(row.caption), _strip(row, palette))]
    width = max(strip.shape[1] for strip in strips) + 2 * _GAP
    height = sum(strip.shape[0] for strip in strips) + _GAP
    paper = np.full((height, width, 3), _PAPER, np.uint8)
    top = 0
    for strip in strips:
        paper[top : top + strip.shape[0], _GAP : _GAP + strip.shape[1]] = strip
        top += strip.shape[0]
    return paper


def ansi(rows: Sequence[PanelRow], letters: str, palette: Sequence[Colour] | None = None) -> str:
    """Return panel rows as text with one letter per cell. With a palette, the text has colors for a terminal."""
    lines: list[str] = []
    for row in rows:
        lines.append(row.caption)
        for line in range(max(len(layer) for layer in row.layers)):
            lines.append("  ".join(_text_line(layer, line, letters, palette) for layer in row.layers))
    return "\n".join(lines) + "\n"


def write_gif(path: str | Path, frames: Sequence[Picture], fps: float = 1.0) -> None:
    """Write pictures as a repeating animation. The last picture is shown three times as long as the others.

    Raises:
        ValueError: if there are no frames, or `fps` is not positive.
    """
    if not frames or not fps > 0:
        raise ValueError(f"a GIF needs at least one frame and fps > 0, got {len(frames)} frames and fps={fps}")
    from PIL import Image

    height, width = (max(frame.shape[axis] for frame in frames) for axis in (0, 1))
    images = []
    for frame in frames:
        paper = np.full((height, width, 3), _PAPER, np.uint8)
        paper[: frame.shape[0], : frame.shape[1]] = frame
        images.append(Image.fromarray(paper))
    stand = round(1000 / fps)
    images[0].save(
        path, save_all=True, append_images=images[1:], duration=[stand] * (len(images) - 1) + [3 * stand], loop=0
    )


def _strip(row: PanelRow, palette: Sequence[Colour]) -> Picture:
    panels = [_panel(layer, row.wrong[i] if row.wrong else None, palette) for i, layer in enumerate(row.layers)]
    height = max(panel.shape[0] for panel in panels)
    width = sum(panel.shape[1] for panel in panels) + _GAP * (len(panels) - 1)
    strip = np.full((height, width, 3), _PAPER, np.uint8)
    left = 0
    for panel in panels:
        strip[: panel.shape[0], left : left + panel.shape[1]] = panel
        left += panel.shape[1] + _GAP
    return strip


def _panel(layer: Layer, wrong: Layer | None, palette: Sequence[Colour]) -> Picture:
    cells = np.asarray(palette, np.uint8)[np.asarray(layer, np.intp)]
    pixels = cells.repeat(_CELL, 0).repeat(_CELL, 1)
    if wrong is not None:
        cross = np.eye(_CELL, dtype=bool) | np.eye(_CELL, dtype=bool)[::-1]
        cross |= np.roll(cross, 1, axis=1)
        crossed = np.kron(np.asarray(wrong, bool), cross)
        pixels[crossed] = _WRONG
    pixels[::_CELL] = _GRID
    pixels[:, ::_CELL] = _GRID
    framed = np.full((pixels.shape[0] + 1, pixels.shape[1] + 1, 3), _GRID, np.uint8)
    framed[:-1, :-1] = pixels
    return framed


def _captioned(caption: str) -> Picture:
    dots = np.array([[dot == "#" for dot in row] for row in written(caption, spacing=1)])
    big = dots.repeat(_PIXEL, 0).repeat(_PIXEL, 1)
    strip = np.full((HEIGHT * _PIXEL + 2 * _PIXEL + _GAP // 2, big.shape[1], 3), _PAPER, np.uint8)
    strip[_GAP // 2 : _GAP // 2 + big.shape[0]][big] = _INK
    return strip


def _text_line(layer: Layer, line: int, letters: str, palette: Sequence[Colour] | None) -> str:
    if line >= len(layer):
        return " " * len(layer[0])
    if palette is None:
        return "".join(letters[cell] for cell in layer[line])
    cells = []
    for cell in layer[line]:
        red, green, blue = palette[cell]
        ink = "30" if red + green + blue > 380 else "97"
        cells.append(f"\x1b[{ink};48;2;{red};{green};{blue}m{letters[cell]} \x1b[0m")
    return "".join(cells)
