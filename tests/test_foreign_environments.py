"""Examples with environments of other libraries learn."""

from __future__ import annotations

import importlib.util
import warnings
from functools import cache

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of others' making


@pytest.fixture(scope="module")
def example(root):
    """Loads an example by name, once: it registers its environments."""

    @cache
    def load(name):
        spec = importlib.util.spec_from_file_location(name, root / "examples" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def test_a_toy_text_game_of_gymnasium_is_learned(example):
    before, after = example("gymnasium_ippo").main(updates=50, seed=0)
    assert before < 0.1 and after > 0.4


@pytest.mark.parametrize(
    ("game", "needs", "gain"), [("tic-tac-toe", "pygame", 0.3), ("archers", "pygame", 0.4), ("spread", "mpe2", 4.0)]
)
def test_a_game_of_pettingzoo_is_learned(game, needs, gain, example):
    for name in ("pygame", needs):
        pytest.importorskip(name)
    before, after = example("pettingzoo_ippo").main(game, seed=0)
    assert after > before + gain


def test_a_language_model_learns_a_text_game_of_textarena(example):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("textarena")
    before, after = example("textarena_ippo").main(updates=40, seed=0)
    assert before < 0.75 and after > before + 0.1
