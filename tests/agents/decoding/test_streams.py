"""A stream is its whole name."""

from __future__ import annotations

import numpy as np

from collm.agents.decoding.streams import seed_of, uniforms


def test_a_stream_is_named_by_all_its_parts_and_a_longer_one_only_appends():
    assert np.array_equal(uniforms((1, 2, 3), 5), uniforms((1, 2, 3), 50)[:5])
    streams = [(1, 2), (1, 2, 0), (2, 1), (12,), (-1, 2), (2**70,)]
    assert len({uniforms(stream, 1)[0] for stream in streams}) == len(streams)


def test_streams_of_different_names_have_seeds_of_their_own():
    assert seed_of((1, 2)) != seed_of((12,)) != seed_of((1, 2, 0))


def test_the_numbers_of_a_stream_never_change():
    assert uniforms((1, 2, 3), 2).tolist() == [0.2617229189507949, 0.674029184267088]
    assert seed_of((1, 2, 3)) == 1517167407554927345
