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


def made(space=KINDS["one choice"], observation=INNER):
    policy = NumericPolicy.for_spaces(observation, space)
    with torch.no_grad():
        policy.output.weight.mul_(200)
    return policy


def masks(count):
    """Random masks of five options, with a legal one among the first two and among the last three."""
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


def test_masked_logprobs_and_entropies_are_those_of_the_legal_options():
    head = CategoricalHead([4], [0])
    logits = torch.tensor([[0.3, 50.0, -1.0, 2.0]], requires_grad=True)
    masked = head.masked(logits, torch.tensor([[True, False, True, True]]))
    legal = torch.distributions.Categorical(logits=logits[:, [0, 2, 3]])
    logprob, entropy = head.logprobs(masked, torch.tensor([[2]])), head.entropies(masked)
    torch.testing.assert_close(logprob, legal.log_prob(torch.tensor([1])))
    torch.testing.assert_close(entropy, legal.entropy())
    assert head.drawn(masked, None).tolist() == [[3]]
    (logprob + entropy).sum().backward()
    assert torch.isfinite(logits.grad).all() and logits.grad[0].bool().tolist() == [True, False, True, True]


@pytest.mark.parametrize("uniform", [0.0, 0.5, math.nextafter(1, 0)])
def test_an_illegal_option_is_not_drawn_at_the_extremes_of_the_random_stream(uniform):
    head = CategoricalHead([4, 3], [0, 0])
    legal = torch.tensor([[False, True, True, False, False, False, True]])
    for logits in (torch.zeros(1, 7), torch.tensor([[99.0, -99, -98, 99, 99, 99, -99]])):
        (first, second) = head.drawn(head.masked(logits, legal), torch.full((1, 2), uniform, dtype=torch.float64))[0]
        assert first in (1, 2) and second == 2


@pytest.mark.parametrize("convention", ["info", "observation"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("greedy", [False, True])
def test_an_illegal_action_is_never_taken(kind, convention, greedy):
    rows = masks(300)
    policy = made(KINDS[kind], MASKED if convention == "observation" else INNER)
    policy.fix_shapes()  # pads batches
    for row, answer in zip(rows, policy.act(requests(rows, convention), greedy=greedy), strict=True):
        if kind == "one choice":
            assert row[answer.action - 2]
        else:
            assert row[answer.action[0]] and row[2 + answer.action[1]]


@pytest.mark.parametrize("kind", KINDS)
def test_evaluating_applies_the_masks_of_acting(kind):
    policy = made(KINDS[kind])
    free = Request("a", np.ones(3, np.float32), (99,))  # has no mask
    track = policy.act([*requests(masks(40), "info"), free])
    for evaluation in (policy.evaluate([track]), policy.reference().evaluate([track])):
        for name in ("logprobs", "entropies"):
            acted = torch.tensor([getattr(each, name)[0] for each in track])
            torch.testing.assert_close(getattr(evaluation, name).detach(), acted, atol=1e-5, rtol=1e-5)


def test_a_single_legal_option_has_no_gradient_and_continuous_actions_have_no_masks():
    policy = made()
    (answer,) = track = policy.act(requests([[0, 0, 1, 0, 0]], "info"))
    assert answer.action == 4 and answer.logprobs == 0 and answer.entropies == 0
    evaluation = policy.evaluate([track])
    (evaluation.logprobs.sum() + evaluation.entropies.sum()).backward()
    assert not any(parameter.grad.any() for parameter in policy.parameters() if parameter.grad is not None)
    observation = {"observation": np.zeros(3), "action_mask": [1, 1, 0, 0, 0]}
    request = Request("a", observation, (0,), action_mask=[0, 1, 1, 0, 0])
    assert made(observation=MASKED).act([request])[0].action == 3
    with pytest.raises(ValueError, match="Discrete or MultiDiscrete"):
        NumericPolicy.for_spaces(MASKED, gymnasium.spaces.Box(-1, 1, (5,)))
    with pytest.raises(ValueError, match="Discrete or MultiDiscrete"):
        GaussianHead([-1], [1], [1]).masked(torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool))
