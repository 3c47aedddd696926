"""Distributions over actions, against torch.distributions and numerical integration."""

import math

import gymnasium
import numpy as np
import pytest
import torch
from torch.distributions import (
    AffineTransform,
    Categorical,
    Independent,
    Normal,
    TanhTransform,
    TransformedDistribution,
)

from collm.agents.numeric.action_heads import (
    CategoricalHead,
    GaussianHead,
    SquashedGaussianHead,
    head_for,
    log_slope_of_tanh,
)

LOW, HIGH = [-2.0, 0.5], [3.0, 1.0]


def draw(seed, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def uniform(seed, *shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def squashed(log_std=(0.3, -1.0)):
    head = SquashedGaussianHead(LOW, HIGH, [2])
    head.log_std.data = torch.tensor(log_std)
    return head


def oracle(head, means):
    """The same squashed distribution made of torch's parts."""
    low, high = torch.tensor(LOW), torch.tensor(HIGH)
    normal = Normal(means, head.log_std.detach().exp())
    transforms = [TanhTransform(cache_size=1), AffineTransform((low + high) / 2, (high - low) / 2)]
    return TransformedDistribution(normal, transforms)


def test_categorical_logprobs_and_entropies_equal_torch_s_for_several_choices():
    head = CategoricalHead([3, 5], [0, 2], [2])
    logits = draw(0, 7, 8)
    raw = head.drawn(logits, uniform(1, 7, 2))
    first, second = Categorical(logits=logits[:, :3]), Categorical(logits=logits[:, 3:])
    torch.testing.assert_close(head.logprobs(logits, raw), first.log_prob(raw[:, 0]) + second.log_prob(raw[:, 1]))
    torch.testing.assert_close(head.entropies(logits), first.entropy() + second.entropy())


def test_categorical_draws_come_as_often_as_they_are_probable():
    head = CategoricalHead([4], [0])
    logits = torch.tensor([0.0, 1.0, -1.0, 0.5])
    uniforms = (torch.arange(10_000, dtype=torch.float64)[:, None] + 0.5) / 10_000
    raw = head.drawn(logits.expand(10_000, 4), uniforms)
    torch.testing.assert_close(torch.bincount(raw[:, 0]) / 10_000, logits.softmax(0), atol=2e-4, rtol=0)


def test_gaussian_logprobs_and_entropies_equal_torch_s():
    head = GaussianHead([-math.inf] * 2, [math.inf] * 2, [2])
    head.log_std.data = torch.tensor([0.3, -1.0])
    means, raw = draw(0, 6, 2), draw(1, 6, 2)
    normal = Independent(Normal(means, head.log_std.exp()), 1)
    torch.testing.assert_close(head.logprobs(means, raw), normal.log_prob(raw))
    torch.testing.assert_close(head.entropies(means), normal.entropy())


@pytest.mark.parametrize("head_class", [GaussianHead, SquashedGaussianHead])
def test_a_deviation_of_the_state_is_clamped_and_exact(head_class):
    """Against torch's parts; the third decision's deviations are beyond the bounds, where no gradient is."""
    head = head_class(LOW, HIGH, [2], initial_log_std=-0.5, has_state_std=True, log_std_bounds=(-3.0, 1.0))
    assert head.num_outputs == 4 and list(head.parameters()) == []
    outputs = draw(3, 3, 4)
    outputs[2, 2:] = torch.tensor([-50.0, 50.0])
    outputs.requires_grad_()
    log_std = (outputs[:, 2:] - 0.5).detach().clamp(-3.0, 1.0)
    assert log_std[2].tolist() == [-3.0, 1.0]
    normal = Normal(outputs[:, :2].detach(), log_std.exp())
    raw = head.drawn(outputs, uniform(4, 3, 2)).detach()
    expected = normal.log_prob(raw).sum(-1)
    if head_class is SquashedGaussianHead:
        low, high = torch.tensor(LOW), torch.tensor(HIGH)
        transforms = [TanhTransform(cache_size=1), AffineTransform((low + high) / 2, (high - low) / 2)]
        actions = low + (high - low) * (torch.tanh(raw) + 1) / 2
        expected = TransformedDistribution(normal, transforms).log_prob(actions).sum(-1)
    else:
        torch.testing.assert_close(head.entropies(outputs), normal.entropy().sum(-1))
    torch.testing.assert_close(head.logprobs(outputs, raw), expected, atol=1e-4, rtol=1e-4)
    (gradient,) = torch.autograd.grad((head.logprobs(outputs, raw) + head.entropies(outputs)).sum(), outputs)
    assert torch.isfinite(gradient).all() and (gradient[:2, 2:] != 0).all() and (gradient[2, 2:] == 0).all()
    assert torch.equal(head.drawn(outputs, None), outputs[:, :2])


def test_gaussian_draws_have_the_mean_and_deviation_that_they_should():
    head = GaussianHead([-math.inf], [math.inf], [1], initial_log_std=math.log(2.0))
    uniforms = (torch.arange(10_000, dtype=torch.float64)[:, None] + 0.5) / 10_000
    raw = head.drawn(torch.full((10_000, 1), 3.0), uniforms)
    assert raw.mean().item() == pytest.approx(3, abs=1e-3) and raw.std().item() == pytest.approx(2, abs=1e-2)


@pytest.mark.parametrize("head_class", [GaussianHead, SquashedGaussianHead])
@pytest.mark.parametrize("number", [0.0, 1 - 2**-53])
def test_the_extremes_of_the_random_stream_give_finite_actions(head_class, number):
    head = head_class([-1.0], [1.0], [1])
    raw = head.drawn(torch.zeros(1, 1), torch.full((1, 1), number, dtype=torch.float64))
    assert raw.isfinite().all() and head.logprobs(torch.zeros(1, 1), raw).isfinite().all()


def test_squashed_gaussian_logprobs_equal_torch_s():
    head = squashed()
    means, raw = draw(0, 6, 2), draw(1, 6, 2)
    distribution = oracle(head, means)
    action = torch.tensor(np.stack([head.action(each) for each in raw.numpy()]))
    expected = distribution.log_prob(action).sum(-1)
    torch.testing.assert_close(head.logprobs(means, raw), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -0.5), (-1.2, 0.4)])
def test_squashed_gaussian_density_integrates_to_1_over_the_actions(mean, log_std):
    low, high = -2.0, 3.0
    head = SquashedGaussianHead([low], [high], [1], initial_log_std=log_std).double()
    # midpoints of the *action* interval: a wrong or missing scale factor would show
    num_cells = 200_000
    action = low + (high - low) * (torch.arange(num_cells, dtype=torch.float64) + 0.5) / num_cells
    raw = torch.atanh(2 * (action - low) / (high - low) - 1)[:, None]
    density = head.logprobs(torch.full_like(raw, mean), raw).exp()
    assert (density.sum() * (high - low) / num_cells).item() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("u", [-20.0, 20.0, -200.0, 200.0])
def test_squashed_gaussian_stays_exact_where_the_tanh_has_rounded_to_1(u):
    head = SquashedGaussianHead([-1.0], [1.0], [1])
    raw = torch.tensor([[u]])
    means = torch.tensor([[u]], requires_grad=True)
    logprob = head.logprobs(means, raw)
    # 1 - tanh(u)^2 = 1 / cosh(u)^2, which is 4 exp(-2 |u|) there
    assert logprob.item() == pytest.approx(-0.5 * math.log(2 * math.pi) - math.log(4) + 2 * abs(u), rel=1e-6)
    assert np.abs(head.action(raw.numpy()[0])) <= 1
    (head.logprobs(means, raw - 1).sum() + head.entropies(means).sum()).backward()
    assert means.grad.isfinite().all() and head.log_std.grad.isfinite().all()


def test_log_slope_of_tanh_by_hand():
    u = torch.tensor([0.0, 0.5, -1.5], dtype=torch.float64)
    torch.testing.assert_close(log_slope_of_tanh(u), (1 - u.tanh() ** 2).log())


@pytest.mark.parametrize("log_std", [-2.0, -0.5, 0.0, 0.5])
def test_squashed_gaussian_entropy_is_the_mean_surprise(log_std):
    head = squashed((log_std, log_std))
    means = torch.tensor([[0.3, -1.0]])
    uniforms = (torch.arange(100_000, dtype=torch.float64)[:, None] + 0.5) / 100_000
    raw = head.drawn(means.expand(100_000, 2), uniforms.expand(-1, 2))
    # both components run through their quantiles together; the surprise is a sum, so its mean is that of each
    surprise = -head.logprobs(means.expand(100_000, 2), raw).mean()
    torch.testing.assert_close(head.entropies(means)[0], surprise, atol=2e-3, rtol=0)


def test_squashed_gaussian_entropy_pulls_means_inwards():
    head = squashed((0.0, 0.0))
    means = torch.tensor([[2.0, -2.0]], requires_grad=True)
    head.entropies(means).sum().backward()
    assert means.grad[0, 0] < 0 < means.grad[0, 1]


def test_gaussian_actions_are_clipped_and_squashed_ones_fill_the_bounds():
    raw = np.array([100.0, -100.0], dtype=np.float32)
    for head in (GaussianHead(LOW, HIGH, [2]), squashed()):
        np.testing.assert_array_equal(head.action(raw), np.array([3.0, 0.5], dtype=np.float32))
    np.testing.assert_allclose(squashed().action(np.zeros(2, dtype=np.float32)), [0.5, 0.75])


SPACES = {
    "discrete": gymnasium.spaces.Discrete(3, start=2),
    "multi_discrete": gymnasium.spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [0, -2]]),
    "box": gymnasium.spaces.Box(np.array([[-1.0, 0.1]], np.float32), np.array([[0.1, 0.7]], np.float32)),
    "open_box": gymnasium.spaces.Box(-math.inf, math.inf, (2,)),
}


@pytest.mark.parametrize(
    ("name", "is_squashed"), [*((name, False) for name in SPACES), ("discrete", True), ("box", True)]
)
def test_every_action_lies_in_its_space(name, is_squashed):
    head = head_for(SPACES[name], is_squashed=is_squashed, initial_log_std=2.0)
    outputs = 5 * draw(0, 50, head.num_outputs)
    for uniforms in (uniform(1, 50, head.num_uniforms), None):
        for raw in head.drawn(outputs, uniforms).detach().numpy():
            assert SPACES[name].contains(head.action(raw)), head.action(raw)


def test_without_uniforms_the_mode_is_drawn():
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    assert CategoricalHead([3], [0]).drawn(logits, None).item() == 1
    assert GaussianHead([-1.0], [1.0], [1]).drawn(torch.tensor([[0.4]]), None).item() == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda: GaussianHead(LOW, HIGH, [2], initial_log_std=3.0),
            r"initial_log_std is 3.0, but log_std_bounds clamp it to -20.0..2.0",
        ),
        (lambda: head_for(SPACES["open_box"], is_squashed=True), "not finite"),
        (lambda: head_for(gymnasium.spaces.Text(5)), "Discrete, MultiDiscrete or Box"),
    ],
)
def test_heads_that_cannot_be_made_are_refused(call, told):
    with pytest.raises(ValueError, match=told):
        call()
