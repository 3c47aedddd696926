"""The space OpenText: texts of bounded length."""

import copy
import pickle

import gymnasium
import pytest
from gymnasium.spaces.utils import flatdim, flatten, flatten_space
from gymnasium.vector.utils import batch_space, create_shared_memory
from hypothesis import given
from hypothesis import strategies as st

from collm.envs import OpenText


@given(st.text(max_size=20))
def test_texts_within_the_bounds_are_in_the_space(text):
    assert OpenText(20).contains(text)
    assert OpenText(20, min_length=3).contains(text) == (len(text) >= 3)
    assert not any(OpenText(20).contains(wrong) for wrong in ("x" * 21, "a\ud800", 7, None, b"bytes", ["a"]))


@given(st.integers(0, 8), st.integers(0, 40), st.integers(0, 2**31))
def test_samples_are_in_the_space_and_follow_the_seed(low, extra, seed):
    spaces = [OpenText(low + extra, min_length=low, seed=seed) for _ in range(2)]
    samples = [[space.sample() for _ in range(3)] for space in spaces]
    assert samples[0] == samples[1]
    assert all(spaces[0].contains(sample) for sample in samples[0])


def test_spaces_with_equal_bounds_are_equal_and_a_copy_samples_on_as_the_original():
    assert OpenText(5) == OpenText(5) != OpenText(6)
    assert len({OpenText(5), OpenText(5), OpenText(5, min_length=1)}) == 2
    assert OpenText(5) != gymnasium.spaces.Text(5)
    assert repr(OpenText(5)) == "OpenText(0, 5)"
    space = OpenText(30, seed=1)
    space.sample()
    twins = [copy.deepcopy(space), pickle.loads(pickle.dumps(space))]
    assert [twin.sample() for twin in twins] == [space.sample()] * 2
    assert all(twin == space for twin in twins)
    assert batch_space(OpenText(5), 2).contains(("a", "b\n"))


def test_masks_flattening_shared_memory_and_impossible_bounds_are_refused():
    space = OpenText(5)
    with pytest.raises(ValueError, match="mask"):
        space.sample(mask=(1, None))
    for function, *args in ((flatten_space,), (flatten, "abc"), (flatdim,)):
        with pytest.raises(TypeError, match=r"collm\.envs\.views"):
            function(space, *args)
    with pytest.raises(TypeError, match="shared_memory"):
        create_shared_memory(space, 2)
    for high, low in [(-1, 0), (3, 4), (3, -1)]:
        with pytest.raises(ValueError, match="0 <= min_length <= max_length"):
            OpenText(high, min_length=low)
