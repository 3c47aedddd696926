import math

import gymnasium
import numpy as np
import pytest
import torch
from torch.distributions import AffineTransform, Categorical, Normal, TanhTransform, TransformedDistribution

from collm.agents.numeric.action_heads import CategoricalHead, GaussianHead, SquashedGaussianHead, head_for

LOW, HIGH = [-2.0, 0.5], [3.0, 1.0]
HEADS = [GaussianHead, SquashedGaussianHead]
UNIFORMS = (torch.arange(10_000, dtype=torch.float64)[:, None] + 0.5) / 10_000
SPACES = {
    "discrete": gymnasium.spaces.Discrete(3, start=2),
    "multi_discrete": gymnasium.spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [0, -2]]),
    "box": gymnasium.spaces.Box(np.array([[-1.0, 0.1]], np.float32), np.array([[0.1, 0.7]], np.float32)),
    "open_box": gymnasium.spaces.Box(-math.inf, math.inf, (2,)),
}


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def uniform(seed, *shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_categorical_logprobs_and_entropies_equal_torch_s_for_several_choices():
    head = CategoricalHead([3, 5], [0, 2], [2])
    logits = normal(0, 7, 8)
    raw = head.drawn(logits, uniform(1, 7, 2))
    first, second = Categorical(logits=logits[:, :3]), Categorical(logits=logits[:, 3:])
    torch.testing.assert_close(head.logprobs(logits, raw), first.log_prob(raw[:, 0]) + second.log_prob(raw[:, 1]))
    torch.testing.assert_close(head.entropies(logits), first.entropy() + second.entropy())
    assert CategoricalHead([3], [0]).drawn(torch.tensor([[0.0, 2.0, 1.0]]), None).item() == 1  # the mode


@pytest.mark.parametrize("has_state_std", [False, True])
@pytest.mark.parametrize("head_class", HEADS)
def test_gaussian_logprobs_and_entropies_equal_torch_s(head_class, has_state_std):
    """The log standard deviations of the third action are out of bounds, so their gradient is 0."""
    head = head_class(LOW, HIGH, [2], -0.5, has_state_std=has_state_std, log_std_bounds=(-3.0, 1.0))
    outputs = normal(3, 3, 4 if has_state_std else 2)
    if has_state_std:
        outputs[2, 2:] = torch.tensor([-50.0, 50.0])
        log_std = (outputs[:, 2:] - 0.5).clamp(-3.0, 1.0)
    else:
        head.log_std.data = torch.tensor([0.3, -1.0])
        log_std = head.log_std.detach()
    assert head.num_outputs == outputs.shape[1] and len(list(head.parameters())) == (not has_state_std)
    expected = Normal(outputs[:, :2], log_std.exp())
    raw = head.drawn(outputs, uniform(4, 3, 2)).detach()
    actions = raw
    if head_class is SquashedGaussianHead:
        low, high = torch.tensor(LOW), torch.tensor(HIGH)
        transforms = [TanhTransform(cache_size=1), AffineTransform((low + high) / 2, (high - low) / 2)]
        expected = TransformedDistribution(expected, transforms)
        actions = torch.tensor(np.stack([head.action(each) for each in raw.numpy()]))
    else:
        torch.testing.assert_close(head.entropies(outputs), expected.entropy().sum(-1).expand(3))
    outputs.requires_grad_()
    torch.testing.assert_close(head.logprobs(outputs, raw), expected.log_prob(actions).sum(-1), atol=1e-4, rtol=1e-4)
    (gradient,) = torch.autograd.grad((head.logprobs(outputs, raw) + head.entropies(outputs)).sum(), outputs)
    assert torch.isfinite(gradient).all() and (gradient[:2, 2:] != 0).all() and (gradient[2, 2:] == 0).all()
    assert torch.equal(head.drawn(outputs, None), outputs[:, :2])


def test_samples_have_the_probabilities_and_moments_of_the_distribution():
    logits = torch.tensor([0.0, 1.0, -1.0, 0.5])
    raw = CategoricalHead([4], [0]).drawn(logits.expand(10_000, 4), UNIFORMS)
    torch.testing.assert_close(torch.bincount(raw[:, 0]) / 10_000, logits.softmax(0), atol=2e-4, rtol=0)
    head = GaussianHead([-math.inf], [math.inf], [1], initial_log_std=math.log(2.0))
    raw = head.drawn(torch.full((10_000, 1), 3.0), UNIFORMS)
    assert raw.mean().item() == pytest.approx(3, abs=1e-3) and raw.std().item() == pytest.approx(2, abs=1e-2)


@pytest.mark.parametrize("head_class", HEADS)
@pytest.mark.parametrize("number", [0.0, 1 - 2**-53])
def test_the_extremes_of_the_random_stream_give_finite_actions(head_class, number):
    head = head_class([-1.0], [1.0], [1])
    raw = head.drawn(torch.zeros(1, 1), torch.full((1, 1), number, dtype=torch.float64))
    assert raw.isfinite().all() and head.logprobs(torch.zeros(1, 1), raw).isfinite().all()


@pytest.mark.parametrize("u", [-20.0, 20.0, -200.0, 200.0])
def test_squashed_gaussian_is_exact_where_the_tanh_rounds_to_1(u):
    head = SquashedGaussianHead([-1.0], [1.0], [1])
    raw = torch.tensor([[u]])
    means = torch.tensor([[u]], requires_grad=True)
    logprob = head.logprobs(means, raw)
    # 1 - tanh(u)^2 = 1 / cosh(u)^2, about 4 exp(-2 |u|)
    assert logprob.item() == pytest.approx(-0.5 * math.log(2 * math.pi) - math.log(4) + 2 * abs(u), rel=1e-6)
    assert np.abs(head.action(raw.numpy()[0])) <= 1
    (head.logprobs(means, raw - 1).sum() + head.entropies(means).sum()).backward()
    assert means.grad.isfinite().all() and head.log_std.grad.isfinite().all()


@pytest.mark.parametrize("log_std", [-2.0, 0.0, 0.5])
def test_squashed_gaussian_entropy_is_the_mean_negative_logprob(log_std):
    head = SquashedGaussianHead(LOW, HIGH, [2], log_std)
    means = torch.tensor([[0.3, -1.0]]).expand(10_000, 2)
    surprise = -head.logprobs(means, head.drawn(means, UNIFORMS.expand(-1, 2))).mean()
    torch.testing.assert_close(head.entropies(means)[0], surprise, atol=5e-3, rtol=0)


def test_gaussian_actions_are_clipped_and_squashed_ones_fill_the_bounds():
    raw = np.array([100.0, -100.0], dtype=np.float32)
    for head_class in HEADS:
        np.testing.assert_array_equal(head_class(LOW, HIGH, [2]).action(raw), np.array([3.0, 0.5], dtype=np.float32))
    np.testing.assert_allclose(SquashedGaussianHead(LOW, HIGH, [2]).action(np.zeros(2, np.float32)), [0.5, 0.75])


@pytest.mark.parametrize(("name", "is_squashed"), [*((name, False) for name in SPACES), ("box", True)])
def test_every_action_is_in_its_space(name, is_squashed):
    head = head_for(SPACES[name], is_squashed=is_squashed)
    outputs = 5 * normal(0, 50, head.num_outputs)
    for uniforms in (uniform(1, 50, head.num_uniforms), None):
        for raw in head.drawn(outputs, uniforms).detach().numpy():
            assert SPACES[name].contains(head.action(raw)), head.action(raw)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GaussianHead(LOW, HIGH, [2], initial_log_std=3.0), r"initial_log_std=3.0 .*-20.0..2.0"),
        (lambda: head_for(SPACES["open_box"], is_squashed=True), "not finite"),
        (lambda: head_for(gymnasium.spaces.Text(5)), "Discrete, MultiDiscrete or Box"),
    ],
)
def test_unsupported_heads_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
