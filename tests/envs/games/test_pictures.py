"""Structures as pictures."""

import numpy as np
import pytest
from replies import begun

from collm.envs.games.bridge_build import BridgeBuild
from collm.envs.games.house_build import HouseBuild
from collm.envs.games.mini_build import MiniBuild
from collm.envs.games.pictures import LETTERS, PanelRow, ansi, colours, drawn, write_gif, written
from collm.envs.games.resource_gathering import ResourceGathering
from collm.envs.games.str_build import StrBuild

GAMES = (MiniBuild, StrBuild, HouseBuild, BridgeBuild, ResourceGathering)
PALETTE = [(0, 0, 255), (0, 255, 0)]


def test_panels_and_texts_by_hand():
    plain = drawn([PanelRow("A", [[[0, 1]]])], PALETTE)
    crossed = drawn([PanelRow("A", [[[0, 1]]], [[[False, True]]])], PALETTE)
    assert plain.dtype == np.uint8 and plain.shape == crossed.shape and plain.shape[2] == 3
    for colour in PALETTE:
        assert (plain == colour).all(2).any()
    changed = (plain != crossed).any(2).nonzero()[1]
    assert changed.min() >= plain.shape[1] // 2  # only the cell on the right
    one = drawn([PanelRow("A", [[[0]]])], PALETTE)
    beside = drawn([PanelRow("A", [[[0]], [[1]]])], PALETTE)
    below = drawn([PanelRow("A", [[[0]]]), PanelRow("B", [[[0]]])], PALETTE)
    assert beside.shape[1] > one.shape[1] and beside.shape[0] == one.shape[0]
    assert below.shape[0] > one.shape[0] and below.shape[1] == one.shape[1]
    rows = [PanelRow("A", [[[0, 1], [1, 1]], [[0]]])]
    assert ansi(rows, ".x") == "A\n.x  .\nxx   \n"
    assert "\x1b[97;48;2;0;255;0mx \x1b[0m" in ansi(rows, ".x", PALETTE)
    assert len(colours(["air", "gold"])) == 2


@pytest.mark.parametrize("game", GAMES)
def test_every_game_is_drawn_in_an_episode_and_coloured_in_a_terminal_alone(capsys, monkeypatch, game):
    env = game(render_mode="rgb_array")
    pictures = [env.render()]
    env.reset(seed=0)
    pictures.append(env.render())
    while env.agents:
        env.step({agent: env.reference_reply(agent) for agent in env.agents})
        pictures.append(env.render())
    assert all(picture.dtype == np.uint8 and picture.ndim == 3 for picture in pictures)
    assert (pictures[1] != pictures[-1]).any()
    env = begun(game(render_mode="human"), seed=0)
    env.render()
    printed = capsys.readouterr().out
    assert "\x1b" not in printed and env.panels()[0].caption in printed
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    env.render()
    assert "\x1b[" in capsys.readouterr().out


def test_an_episode_becomes_a_gif_of_all_its_frames(tmp_path):
    image = pytest.importorskip("PIL.Image")
    env = begun(StrBuild(render_mode="rgb_array", world="kept"), seed=0)
    frames = [env.render()]
    for agent in env.possible_agents:
        env.step({other: env.reference_reply(other) if other == agent else "" for other in env.agents})
        frames.append(env.render())
    write_gif(tmp_path / "episode.gif", frames, fps=2)
    with image.open(tmp_path / "episode.gif") as gif:
        assert gif.n_frames == 3
        assert gif.size == (frames[0].shape[1], frames[0].shape[0])
    for none, fps in (([], 1.0), (frames, 0.0)):
        with pytest.raises(ValueError, match="at least one frame"):
            write_gif(tmp_path / "no.gif", none, fps)


def test_all_letters_differ_and_fill_their_square_and_what_has_none_is_refused():
    assert written("IC") == ("#####...####", *["..#....#...."] * 3, "#####...####")
    assert written("ML")[:3] == ("#...#..#....", "##.##..#....", "#.#.#..#....")
    glyphs = {written(letter) for letter in LETTERS}
    assert len(glyphs) == 26
    assert all(len(glyph) == 5 and {len(row) for row in glyph} == {5} for glyph in glyphs)
    for text in ("", "A-B", "é"):
        with pytest.raises(ValueError, match="letters"):
            written(text)
