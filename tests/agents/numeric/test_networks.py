from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch

from collm.agents.core import CriticInput, Request
from collm.agents.numeric.critics import NumericCritic
from collm.agents.numeric.features import Features
from collm.agents.numeric.networks import Convolution, Perceptron
from collm.agents.numeric.policy import NumericPolicy

Box = gymnasium.spaces.Box
GRID = Box(0, 255, (7, 7, 3), np.uint8)
ACTIONS = gymnasium.spaces.Discrete(3)


def made(shape, num_others=0, scale=255.0):
    return Convolution(shape, scale, num_others, (8,), "tanh", torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("shape", "num_features"),
    [
        ((7, 7, 3), 32 * 3 * 3),  # 7 -> 5 -> 3
        ((3, 7, 9), 32 * 3 * 5),
        ((84, 84, 4), 64 * 7 * 7),  # 84 -> 20 -> 9 -> 7, as in the paper
        ((457, 120, 3), 64 * 53 * 11),  # pistonball
    ],
)
def test_the_number_of_features_is_the_one_counted_by_hand(shape, num_features):
    network = made(shape)
    assert network.hidden[0].in_features == num_features
    assert network(torch.zeros(2, np.prod(shape))).shape == (2, 8)


def test_channels_are_first_or_last_and_only_pixels_are_scaled():
    last, first = made((6, 8, 3)), made((3, 6, 8))
    image = torch.rand(4, 6, 8, 3, generator=torch.Generator().manual_seed(1)) * 255
    torch.testing.assert_close(last(image.flatten(1)), first(image.permute(0, 3, 1, 2).flatten(1)))
    image, others = torch.rand(4, 5 * 6 * 2), torch.rand(4, 2)
    scaled, plain = made((5, 6, 2), 2), made((5, 6, 2), 2, scale=1.0)
    torch.testing.assert_close(scaled(torch.hstack([image * 255, others])), plain(torch.hstack([image, others])))
    assert not torch.equal(plain(torch.hstack([image, others])), plain(torch.hstack([image, 2 * others])))


@pytest.mark.parametrize(
    ("space", "images", "kind"),
    [
        (GRID, "auto", Convolution),
        (Box(0, 1, (7, 7, 3)), "auto", Perceptron),
        (Box(0, 255, (4, 4, 3), np.uint8), "auto", Perceptron),
        (GRID, "flat", Perceptron),
        (Box(0, 1, (7, 7, 3)), "convolved", Convolution),
        (Box(0, 1, (7,)), "convolved", "three axes"),
        (Box(0, 1, (4, 4, 3)), "convolved", "4 x 4 is too small"),
    ],
)
def test_auto_convolves_uint8_images_of_sufficient_size(space, images, kind):
    if isinstance(kind, str):
        with pytest.raises(ValueError, match=kind):
            NumericPolicy.for_spaces(space, ACTIONS, images=images)
    else:
        assert type(NumericPolicy.for_spaces(space, ACTIONS, images=images).trunk) is kind


@pytest.mark.parametrize("normalizes", [False, True])
def test_a_convolutional_policy_trains_all_weights_and_is_saved(normalizes, tmp_path):
    masked = gymnasium.spaces.Dict(observation=GRID, action_mask=Box(0, 1, (3,), np.int8))
    policy = NumericPolicy.for_spaces(masked, ACTIONS, images="auto", normalizes_observations=normalizes)
    images = np.random.default_rng(0).integers(0, 256, (12, 7, 7, 3), dtype=np.uint8)
    seen = [{"observation": image, "action_mask": np.array([1, 1, 0], np.int8)} for image in images]
    track = policy.act([Request("a", each, (i,)) for i, each in enumerate(seen)])
    policy.evaluate([track]).logprobs.square().sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in policy.parameters())
    policy.save(tmp_path)
    again = NumericPolicy.load(tmp_path).evaluate([track]).logprobs
    torch.testing.assert_close(again, policy.evaluate([track]).logprobs)


def test_a_convolutional_critic_reads_actions_after_the_image(tmp_path):
    critic = NumericCritic(Features.of(GRID), [Features.of(ACTIONS)], images="auto")
    item = CriticInput(histories=(np.full((7, 7, 3), 9, np.uint8),) * 2, actions=(0, 2))
    values = critic.values([item])
    assert values.shape == (4,) and len(set(values[[0, 2, 3]].tolist())) == 3
    critic.save(tmp_path)
    torch.testing.assert_close(NumericCritic.load(tmp_path).values([item]), values)


@pytest.mark.parametrize("images", ["convolved", "flat"])
def test_images_are_kept_as_uint8_copies(images):
    """A copy is needed because environments may write into their last observation."""
    policy = NumericPolicy.for_spaces(GRID, ACTIONS, images=images, has_value_head=True)
    observed = np.random.default_rng(0).integers(0, 255, (2, 7, 7, 3), np.uint8)
    done = policy.act([Request("a_0", image, (0, number)) for number, image in enumerate(observed)])
    floats = [Features.of(GRID).vector(image) for image in observed]
    observed[:] = 0
    for completion, vector in zip(done, floats, strict=True):
        assert completion.tokens.features.dtype == np.uint8
        assert np.array_equal(completion.tokens.features, vector)
        found = policy.evaluate([[completion]])
        before = policy.evaluate([[replace(completion, tokens=replace(completion.tokens, features=vector))]])
        assert torch.equal(found.logprobs, before.logprobs) and torch.equal(found.values, before.values)
    image = np.full((7, 7, 3), 300.5)  # no pixels of 8 bits
    kept = Features.of(GRID).compact(image)
    assert kept.dtype == np.float32 and np.array_equal(kept, image.ravel())
