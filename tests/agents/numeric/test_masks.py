"""Action masks in numeric policies: illegal options have no probability and no gradient, in acting and in learning."""

import math

import gymnasium
import numpy as np
import pytest
import torch

from collm.agents.core import Request
from collm.agents.numeric.action_heads import CategoricalHead, GaussianHead
from collm.agents.numeric.policy import NumericPolicy

INNER = gymnasium.spaces.Box(-1, 1, (3,))
MASKED = gymnasium.spaces.Dict(observation=INNER, action_mask=gymnasium.spaces.Box(0, 1, (5,), np.int8))
KINDS = {"one choice": gymnasium.spaces.Discrete(5, start=2), "two choices": gymnasium.spaces.MultiDiscrete([2, 3])}


def made(space=KINDS["one choice"], observation=INNER, **settings):
    policy = NumericPolicy.for_spaces(observation, space, **settings)
    with torch.no_grad():
        policy.output.weight.mul_(200)
    return policy


def masks(count):
    """Random masks of five options, of which each choice of 2 + 3 has a legal one."""
    rng = np.random.default_rng(1)
    rows = (rng.random((count, 5)) < 0.4).astype(np.int8)
    rows[np.arange(count), rng.integers(0, 2, count)] = 1
    rows[np.arange(count), rng.integers(2, 5, count)] = 1
    return rows


def requests(rows, convention):
    seen = np.random.default_rng(0).normal(size=(len(rows), 3)).astype(np.float32)
    if convention == "info":
        return [Request("a", seen[i], (i,), action_mask=row) for i, row in enumerate(rows)]
    return [Request("a", {"observation": seen[i], "action_mask": row}, (i,)) for i, row in enumerate(rows)]


def test_masked_logprobs_and_entropies_are_those_of_the_legal_options_alone():
    head = CategoricalHead([4], [0])
    logits = torch.tensor([[0.3, 50.0, -1.0, 2.0]])
    masked = head.masked(logits, torch.tensor([[True, False, True, True]]))
    left = torch.distributions.Categorical(logits=logits[:, [0, 2, 3]])
    torch.testing.assert_close(head.logprobs(masked, torch.tensor([[2]])), left.log_prob(torch.tensor([1])))
    torch.testing.assert_close(head.entropies(masked), left.entropy())
    assert head.drawn(masked, None).tolist() == [[3]]


@pytest.mark.parametrize("uniform", [0.0, 0.5, math.nextafter(1, 0)])
def test_an_illegal_option_is_not_drawn_at_the_ends_of_the_random_numbers(uniform):
    head = CategoricalHead([4, 3], [0, 0])
    legal = torch.tensor([[False, True, True, False, False, False, True]])
    for logits in (torch.zeros(1, 7), torch.tensor([[99.0, -99, -98, 99, 99, 99, -99]])):
        (first, second) = head.drawn(head.masked(logits, legal), torch.full((1, 2), uniform, dtype=torch.float64))[0]
        assert first in (1, 2) and second == 2


@pytest.mark.parametrize("convention", ["info", "observation"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("greedy", [False, True])
def test_an_illegal_action_is_never_taken(kind, convention, greedy):
    space = KINDS[kind]
    rows = masks(300)
    policy = made(space, MASKED if convention == "observation" else INNER)
    policy.fix_shapes()  # also where a pass is padded
    for row, answer in zip(rows, policy.act(requests(rows, convention), greedy=greedy), strict=True):
        if kind == "one choice":
            assert row[answer.action - 2]
        else:
            assert row[answer.action[0]] and row[2 + answer.action[1]]


def test_both_conventions_say_the_same():
    rows = masks(30)
    told = made().act(requests(rows, "info"))
    seen = made(observation=MASKED).act(requests(rows, "observation"))
    assert [each.action for each in told] == [each.action for each in seen]
    assert [each.logprobs.item() for each in told] == [each.logprobs.item() for each in seen]


@pytest.mark.parametrize("kind", KINDS)
def test_the_scoring_pass_masks_as_the_acting_pass_did(kind):
    policy = made(KINDS[kind])
    free = Request("a", np.ones(3, np.float32), (99,))  # one row without a mask among those with one
    track = policy.act([*requests(masks(40), "info"), free])
    for evaluation in (policy.evaluate([track]), policy.reference().evaluate([track])):
        acted = torch.tensor([each.logprobs[0] for each in track])
        torch.testing.assert_close(evaluation.logprobs.detach(), acted, atol=1e-5, rtol=1e-5)
        acted = torch.tensor([each.entropies[0] for each in track])
        torch.testing.assert_close(evaluation.entropies.detach(), acted, atol=1e-5, rtol=1e-5)


def test_illegal_logits_have_no_gradient_and_legal_ones_have():
    head = CategoricalHead([2, 3], [0, 0], [2])
    legal = torch.tensor(masks(50)).bool()
    logits = torch.randn(50, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    masked = head.masked(logits, legal)
    drawn = head.drawn(masked.detach(), torch.rand(50, 2, dtype=torch.float64))
    (head.logprobs(masked, drawn).sum() + head.entropies(masked).sum()).backward()
    assert torch.isfinite(logits.grad).all() and not logits.grad[~legal].any()
    both = legal[:, :2].all(-1)
    assert logits.grad[both][:, :2].any()


def test_one_legal_option_has_no_entropy_and_no_gradient():
    policy = made()
    (answer,) = track = policy.act(requests([[0, 0, 1, 0, 0]], "info"))
    assert answer.action == 4 and answer.logprobs == 0 and answer.entropies == 0
    evaluation = policy.evaluate([track])
    (evaluation.logprobs.sum() + evaluation.entropies.sum()).backward()
    assert not any(parameter.grad.any() for parameter in policy.parameters() if parameter.grad is not None)


def test_masks_in_observation_and_info_both_count():
    request = Request(
        "a", {"observation": np.zeros(3), "action_mask": [1, 1, 0, 0, 0]}, (0,), action_mask=[0, 1, 1, 0, 0]
    )
    assert made(observation=MASKED).act([request])[0].action == 3


def test_a_masked_policy_is_saved_and_read_back(tmp_path):
    policy = made(observation=MASKED)
    policy.save(tmp_path)
    again = NumericPolicy.load(tmp_path)
    asked = requests(masks(10), "observation")
    assert [each.action for each in again.act(asked)] == [each.action for each in policy.act(asked)]


def test_masks_of_numbers_are_refused():
    with pytest.raises(ValueError, match="has no options"):
        NumericPolicy.for_spaces(MASKED, gymnasium.spaces.Box(-1, 1, (5,)))
    with pytest.raises(ValueError, match="choices"):
        GaussianHead([-1], [1], [1]).masked(torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool))
