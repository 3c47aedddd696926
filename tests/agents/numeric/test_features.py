import json
from dataclasses import asdict

import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence, Space, Text, Tuple

from collm.agents.numeric.features import Features

BOX = Box(-1, 1, (2,))


@pytest.mark.parametrize(
    ("space", "element", "vector"),
    [
        (MultiDiscrete([2, 3], start=[0, 4]), [1, 4], [0, 1, 1, 0, 0]),
        (Discrete(3, start=-1), 1, [0, 0, 1]),
        (Box(-1, 1, (2, 2)), [[0.5, 1], [2, 3]], [0.5, 1, 2, 3]),
        (MultiBinary(2), [1, 0], [1, 0]),
    ],
)
def test_options_become_one_hot_vectors_and_numbers_are_unchanged(space, element, vector):
    features = Features.of(space)
    assert features.vector(element).tolist() == vector and features.size == len(vector)
    assert Features.from_dict(json.loads(json.dumps(asdict(features)))) == features


@pytest.mark.parametrize(
    ("space", "element"), [*((Discrete(3), option) for option in (3, -1, [0, 1])), (BOX, [1, 2, 3])]
)
def test_elements_outside_of_the_space_are_refused(space, element):
    with pytest.raises(ValueError, match=r"not in the space|has 3 numbers"):
        Features.of(space).vector(element)


class Mission(Space):
    """A custom space without `is_np_flattenable`, like that of MiniGrid."""


@pytest.mark.parametrize(
    ("space", "ways"),
    [
        (Text(5), ["flatten=True"]),
        (Tuple([BOX, Discrete(3)]), ["flatten=True"]),
        (Sequence(BOX), []),
        (Dict(image=BOX, mission=Text(5)), ["observed=image", "flatten=True"]),
        (Dict(near=BOX, far=Sequence(BOX)), ["observed=near"]),
        (Dict(image=BOX, mission=Mission()), ["observed=image"]),
        (Mission(), []),
    ],
)
def test_a_space_without_vectors_is_refused_with_the_arguments_that_make_some(space, ways):
    with pytest.raises(ValueError, match="not a space of vectors") as found:
        Features.of(space)
    told = str(found.value).replace(str(space), "")
    assert [way for way in told.replace(",", " ").split() if "=" in way] == ways
    assert ("--env-kwargs" in told) == bool(ways)
