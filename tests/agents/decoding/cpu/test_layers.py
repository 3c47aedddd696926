"""The layers' kernels compute what torch computes, and its gradients; what they were not made for they leave."""

import pytest
import torch
from torch.nn import functional

from collm.agents.decoding.cpu import compiling, layers

pytestmark = pytest.mark.skipif(compiling.compiler() is None, reason="this machine has no C++ compiler")


def random(*shape, seed=0, scale=1.0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def gradients(function, inputs, seed=9):
    """The result, and the slopes of a random sum of it by every input."""
    leaves = [each.detach().clone().requires_grad_() for each in inputs]
    result = function(*leaves)
    result.backward(random(*result.shape, seed=seed))
    return [result.detach(), *(leaf.grad for leaf in leaves)]


def exact(function):
    """In double precision."""
    return lambda *inputs: function(*(each.double() for each in inputs))


def check(ours, plain, inputs):
    with torch.no_grad():
        torch.testing.assert_close(ours(*inputs).double(), exact(plain)(*inputs), atol=2e-6, rtol=2e-5)
    for found, meant in zip(gradients(ours, inputs), gradients(exact(plain), inputs), strict=True):
        torch.testing.assert_close(found.double(), meant.double(), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("shape", [(16,), (1, 48), (5, 7, 192), (3, 0, 32)])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3])
def test_norms(shape, scale):
    x, weight = random(*shape, scale=scale), random(shape[-1], seed=1)
    with torch.no_grad():
        meant = functional.rms_norm(x.double(), weight.shape, weight.double(), 1e-6)
        torch.testing.assert_close(layers.normalised(x, weight, 1e-6).double(), meant, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
def test_norms_have_gradients(monkeypatch, threads):
    monkeypatch.setattr(layers, "_num_threads", lambda x: threads)
    check(
        lambda x, weight: layers.normalised(x, weight, 0.1),
        lambda x, weight: functional.rms_norm(x, weight.shape, weight, 0.1),
        (random(5, 7, 48), random(48, seed=1)),
    )


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 40.0])
def test_gates(monkeypatch, threads, scale):
    monkeypatch.setattr(layers, "_num_threads", lambda x: threads)
    inputs = random(5, 7, 48, scale=scale), random(5, 7, 48, seed=1)
    check(layers.gated, lambda gate, up: functional.silu(gate) * up, inputs)


def test_gates_far_out_are_open_or_shut():
    gate = torch.tensor([-1e30, -200.0, -80.0, 0.0, 80.0, 200.0, 1e30, -0.0] * 2, requires_grad=True)
    opened = layers.gated(gate, torch.ones(16))
    torch.testing.assert_close(opened, functional.silu(gate), atol=1e-33, rtol=1e-5)
    opened.sum().backward()
    assert gate.grad.isfinite().all()


def turned(x, cosine, sine):
    first, second = x.chunk(2, dim=-1)
    return x * cosine[:, None] + torch.cat([-second, first], dim=-1) * sine[:, None]


@pytest.mark.parametrize("width", [2, 10, 32, 64])
@pytest.mark.parametrize("rows_of_angles", [1, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_turns_by_positions(monkeypatch, width, rows_of_angles, threads):
    monkeypatch.setattr(layers, "_num_threads", lambda x: threads)
    cosine, sine = random(2, rows_of_angles, 5, width, seed=1)  # both halves of their own, as no model has them
    x = random(3, 5, 4, width)

    def ours(x):
        return layers.rotated(x.transpose(1, 2), cosine, sine)

    def plain(x):
        return turned(x.transpose(1, 2), cosine.to(x.dtype), sine.to(x.dtype))

    check(ours, plain, (x,))
    assert ours(x).stride() == x.transpose(1, 2).stride()


def test_new_keys_and_values_are_kept_where_they_belong():
    keys, values = random(2, 3, 1, 2, 16).transpose(2, 3)  # rows, heads, a token
    ours, plain = ([random(6, 2, 9, 16, seed=seed) for seed in (1, 2)] for _ in range(2))
    rows, columns = torch.tensor([4, 0, 5]), torch.tensor([8, 0, 3])
    assert layers.keep(keys, values, *ours, rows, columns)
    for store, states in zip(plain, (keys, values), strict=True):
        store[rows, :, columns] = states[:, :, 0]
    assert all(map(torch.equal, ours, plain))


def test_what_they_were_not_made_for_is_left():
    x, weight, angles = random(4, 6, 32), random(32), random(1, 6, 16)
    heads = x.view(4, 6, 2, 16).transpose(1, 2)
    store, places = random(4, 2, 9, 16), torch.arange(4)
    step = heads[:, :, :1]
    with torch.no_grad():
        for other in (x.double(), x.bfloat16(), x.to("meta"), x[..., :31]):
            assert layers.normalised(other, weight, 0.0) is None
            assert layers.gated(other, x) is None
        assert layers.normalised(x[..., :24], weight[:24], 0.0) is None
        assert layers.gated(x[:1, :1, :24], x[:1, :1, :24]) is None
        for other in (heads.double(), heads.contiguous(), heads[..., :8]):
            assert layers.rotated(other, angles, angles) is None
        for wrong in (random(4, 6, 8), random(2, 6, 16), angles.double()):
            assert layers.rotated(heads, wrong, wrong) is None
        assert not layers.keep(heads, heads, store, store, places, places)
        assert not layers.keep(step, step, store[:, :, ::2], store[:, :, ::2], places, places)
        assert not layers.keep(step, step, store, store, places.int(), places.int())
        assert not layers.keep(step.double(), step.double(), store, store, places, places)


def test_without_a_compiler_nothing_is_done(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    x = random(4, 6, 32)
    heads = x.view(4, 6, 2, 16).transpose(1, 2)
    assert layers.normalised(x, x[0, 0], 0.0) is None and layers.gated(x, x) is None
    assert layers.rotated(heads, *random(2, 1, 6, 16)) is None
    assert not layers.keep(heads[:, :, :1], heads[:, :, :1], heads, heads, torch.arange(4), torch.arange(4))
