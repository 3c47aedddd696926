import json
from dataclasses import asdict

import gymnasium
import numpy as np
import pytest

from collm.agents.numeric.features import Features


def test_choices_become_one_hot_vectors_side_by_side():
    features = Features.of(gymnasium.spaces.MultiDiscrete([2, 3], start=[0, 4]))
    assert features.vector(np.array([1, 4])).tolist() == [0, 1, 1, 0, 0]
    assert Features.of(gymnasium.spaces.Discrete(3, start=-1)).vector(1).tolist() == [0, 0, 1]


def test_numbers_stay_as_they_are():
    features = Features.of(gymnasium.spaces.Box(-1, 1, (2, 2)))
    assert features.vector([[0.5, 1], [2, 3]]).tolist() == [0.5, 1, 2, 3]
    assert Features.of(gymnasium.spaces.MultiBinary(2)).vector([1, 0]).tolist() == [1, 0]


@pytest.mark.parametrize(
    "space", [gymnasium.spaces.MultiDiscrete([2, 3], start=[0, 4]), gymnasium.spaces.Box(-1, 1, (3,))]
)
def test_features_survive_json_and_fit_every_sample(space):
    features = Features.of(space)
    assert Features.from_dict(json.loads(json.dumps(asdict(features)))) == features
    space.seed(0)
    assert all(features.vector(space.sample()).shape == (features.size,) for _ in range(5))


@pytest.mark.parametrize("choice", [3, -1, [0, 1]])
def test_a_choice_that_does_not_exist_is_refused(choice):
    with pytest.raises(ValueError, match="not among"):
        Features.of(gymnasium.spaces.Discrete(3)).vector(choice)


def test_a_vector_of_another_length_is_refused():
    with pytest.raises(ValueError, match="has 3 numbers, but the space has 2"):
        Features.of(gymnasium.spaces.Box(-1, 1, (2,))).vector([1, 2, 3])


BOX = gymnasium.spaces.Box(-1, 1, (2,))


class Mission(gymnasium.spaces.Space):
    """A space of a library's own, which does not define whether it can be flattened, like MiniGrid's."""


@pytest.mark.parametrize(
    ("space", "ways"),
    [
        (gymnasium.spaces.Text(5), ["flatten=True"]),
        (gymnasium.spaces.Tuple([BOX, gymnasium.spaces.Discrete(3)]), ["flatten=True"]),
        (gymnasium.spaces.Sequence(BOX), []),
        (gymnasium.spaces.Dict(image=BOX, mission=gymnasium.spaces.Text(5)), ["observed=image", "flatten=True"]),
        (gymnasium.spaces.Dict(near=BOX, far=gymnasium.spaces.Sequence(BOX)), ["observed=near"]),
        (gymnasium.spaces.Dict(image=BOX, mission=Mission()), ["observed=image"]),
        (Mission(), []),
    ],
)
def test_a_space_without_vectors_is_refused_with_the_arguments_that_make_some(space, ways):
    with pytest.raises(ValueError, match="not a space of vectors") as found:
        Features.of(space)
    told = str(found.value).replace(str(space), "")
    assert [way for way in told.replace(",", " ").split() if "=" in way] == ways
    assert ("--env-kwargs" in told) == bool(ways)
