"""What an update sends and what bounds it: cases by hand, laws of growth, and the page's tables."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from collm.algorithms.rollout.plays import Plan
from collm.benchmarks.throughput.growth import traffic
from collm.benchmarks.throughput.synthetic import synthetic_trainer

DOCS = Path(__file__).parents[4] / "docs"


@pytest.mark.parametrize("table", [traffic.ranks_table, traffic.collectors_table])
def test_the_page_shows_the_tables_that_the_arithmetic_makes_today(table):
    assert table() in (DOCS / "scale.md").read_text()


def test_an_update_of_a_model_of_four_billion_weights_by_hand():
    """4.02 billion weights, tied; keys and values of 36 layers x 8 heads x 128 numbers x 2 x 2 bytes per token."""
    shape = traffic.shape_of("Qwen/Qwen3-4B")
    step = (2 * 4.02e9 + 64 * 1024 * 147_456) / (0.6 * 3.35e12)
    assert traffic.play_seconds(shape) == pytest.approx(2 * 896 * step, rel=0.01)
    assert traffic.learn_seconds(shape, 64, 1) == pytest.approx(8 * 4.02e9 * 2 * 2048 * 64 / (0.35 * 990e12), rel=0.01)
    update = traffic.on_ranks(shape, 64)
    assert update.sent == pytest.approx(16 * 2 * 4 * 4.02e9 * 63 / 64, rel=0.01)
    assert update.gathered == 63 * 64 * 36 * 4096
    assert traffic.with_collectors(shape, 64).sent == pytest.approx(7 * 2 * 4 * 4.02e9, rel=0.01)


@pytest.mark.parametrize("model", traffic.MODELS)
def test_what_grows_with_the_number_of_gpus_and_what_does_not(model):
    shape = traffic.shape_of(model)
    few, many = traffic.on_ranks(shape, 64), traffic.on_ranks(shape, 1000)
    assert (few.play, few.learn) == (many.play, many.learn)
    assert few.sent < many.sent < few.sent * 1.02
    assert many.gathered == pytest.approx(few.gathered * 999 / 63)
    few, many = traffic.with_collectors(shape, 108), traffic.with_collectors(shape, 1008)
    assert few.play == many.play
    for name in ("learn", "sent", "gathered"):
        assert getattr(many, name) == pytest.approx(10 * getattr(few, name))
    assert traffic.Update(1.0, 2.0, 3.0, 2.5, 0, 0).bound == "network"


@pytest.mark.slow
def test_an_episode_has_as_many_bytes_as_the_arithmetic_says():
    torch.set_num_threads(1)
    trainer = synthetic_trainer("magrpo", 2, num_turns=traffic.NUM_TURNS, max_new_tokens=32, num_generations=2)
    episodes = trainer.collector.collect([Plan(0), Plan(1)])
    last = [track[-1].completion.tokens for episode in episodes for track in episode.tracks.values()]
    num_tokens = sum(len(tokens.prompt_ids) + len(tokens.completion_ids) for tokens in last)
    assert len(pickle.dumps(episodes)) / num_tokens == pytest.approx(traffic.EPISODE_BYTES, rel=0.1)
