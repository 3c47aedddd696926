"""Kernels compute what torch computes, with its gradients. Unsupported inputs are left to torch."""

import pytest
import torch
from torch.nn import functional

from collm.agents.decoding.cpu import fused_ops, kernels
from collm.agents.decoding.decoder import Decoder, Prompt
from collm.agents.decoding.kv_cache import visibility
from collm.agents.decoding.sampling import Sampling
from collm.benchmarks.throughput.decode import random_llama

needs_compiler = pytest.mark.skipif(kernels.compiler() is None, reason="this machine has no C++ compiler")


def inputs(num_rows=5, num_heads=6, num_kept=2, num_columns=37, width=32, capacity=48, scale=1.0):
    generator = torch.Generator().manual_seed(num_rows + 7 * num_columns + width)
    query = torch.randn(num_rows, 1, num_heads, width, generator=generator).transpose(1, 2) * scale
    key, value = torch.randn(2, num_rows, num_kept, capacity, width, generator=generator)[:, :, :, :num_columns]
    last = torch.randint(0, num_columns, (num_rows, 1), generator=generator)
    return query, key, value, visibility(last, num_columns, torch.float32)


@torch.no_grad()
def plain(query, key, value, mask, scale):
    """In double precision."""
    group = query.shape[1] // key.shape[1]
    key, value = (each.double().repeat_interleave(group, dim=1) for each in (key, value))
    scores = scale * query.double() @ key.transpose(2, 3) + mask.double()
    return (functional.softmax(scores, -1) @ value).transpose(1, 2).float()


@needs_compiler
@pytest.mark.parametrize("width, num_heads, num_kept", [(16, 4, 4), (32, 6, 2), (64, 14, 2), (80, 5, 1), (128, 8, 4)])
@pytest.mark.parametrize("num_columns", [1, 16, 37])
def test_it_is_a_softmax_over_what_the_mask_shows(width, num_heads, num_kept, num_columns):
    given = inputs(num_heads=num_heads, num_kept=num_kept, num_columns=num_columns, width=width)
    with torch.no_grad():
        found = fused_ops.attend(*given, 0.3)
    torch.testing.assert_close(found, plain(*given, 0.3), atol=3e-6, rtol=1e-5)


@needs_compiler
def test_scores_may_be_flat_or_steep_and_a_mask_may_be_any_number_and_may_hide_all():
    for scale in (1e-4, 30.0):
        given = inputs(num_rows=40, num_columns=200, capacity=200, scale=scale)
        with torch.no_grad():
            torch.testing.assert_close(fused_ops.attend(*given, 1.0), plain(*given, 1.0), atol=2e-5, rtol=1e-4)
    query, key, value, mask = inputs(num_rows=3)
    mask = torch.randn(mask.shape)
    mask[1] = -torch.inf
    mask[1, ..., 20] = 0.5
    mask[2] = torch.finfo().min
    with torch.no_grad():
        found = fused_ops.attend(query, key, value, mask, 0.3)
    torch.testing.assert_close(found[:2], plain(query, key, value, mask, 0.3)[:2], atol=3e-6, rtol=1e-5)
    assert (found[2] == 0).all()


@needs_compiler
def test_neither_threads_nor_other_rows_nor_hidden_columns_change_a_bit(monkeypatch):
    monkeypatch.setattr(fused_ops, "NUMBERS_PER_THREAD", 1)
    threads = torch.get_num_threads()
    query, key, value, mask = inputs(num_rows=11)
    mask[0, ..., 32:] = torch.finfo().min
    with torch.no_grad():
        alone = fused_ops.attend(query[:1], key[:1, :, :32], value[:1, :, :32], mask[:1, ..., :32], 0.3)
        found = []
        for count in (1, 2, 7):
            torch.set_num_threads(count)
            found.append(fused_ops.attend(query, key, value, mask, 0.3))
    torch.set_num_threads(threads)
    assert all(torch.equal(found[0], other) for other in found[1:])
    assert torch.equal(alone, found[0][:1])


@needs_compiler
def test_other_types_and_layouts_are_left_to_torch():
    query, key, value, mask = inputs()
    assert fused_ops.attend(query, key, value, mask, 0.3) is None  # a gradient might be wanted
    with torch.no_grad():
        assert fused_ops.attend(query, key, value, mask, 0.3) is not None
        for given in (
            (query.double(), key.double(), value.double(), mask.double()),
            (query.bfloat16(), key.bfloat16(), value.bfloat16(), mask.bfloat16()),
            (query, key, value.transpose(2, 3).contiguous().transpose(2, 3), mask),
            (query.to("meta"), key.to("meta"), value.to("meta"), mask.to("meta")),
            (query.expand(-1, -1, 2, -1), key, value, mask),
            inputs(width=24),
            inputs(num_heads=5),
            inputs(num_heads=34),
        ):
            assert fused_ops.attend(*given, 0.3) is None
        x, weight, angles = random(4, 6, 32), random(32), random(1, 6, 16)
        heads = x.view(4, 6, 2, 16).transpose(1, 2)
        for other in (x.double(), x.bfloat16(), x.to("meta"), x[..., :31]):
            assert fused_ops.rms_norm(other, weight, 0.0) is None
            assert fused_ops.swiglu(other, x) is None
        assert fused_ops.rms_norm(x[..., :24], weight[:24], 0.0) is None
        assert fused_ops.swiglu(x[:1, :1, :24], x[:1, :1, :24]) is None
        for other in (heads.double(), heads.contiguous(), heads[..., :8]):
            assert fused_ops.rope(other, angles, angles) is None
        for wrong in (random(4, 6, 8), random(2, 6, 16), angles.double()):
            assert fused_ops.rope(heads, wrong, wrong) is None


@torch.no_grad()
@pytest.mark.parametrize(("variable", "value"), [("CXX", "no-such-compiler"), (kernels.SWITCH, "0")])
def test_without_a_compiler_or_switched_off_torch_computes(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    x = random(4, 6, 32)
    heads = x.view(4, 6, 2, 16).transpose(1, 2)
    assert kernels.compiler() is None and fused_ops.attend(*inputs(), 0.3) is None
    assert fused_ops.rms_norm(x, x[0, 0], 0.0) is None and fused_ops.swiglu(x, x) is None
    assert fused_ops.rope(heads, *random(2, 1, 6, 16)) is None


@torch.no_grad()
def test_a_compiler_that_fails_is_told_of_once(monkeypatch, tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no vectors here >&2\nexit 1\n", "utf-8")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.warns(RuntimeWarning, match="no vectors here.*CXX.*COLLM_KERNEL=0") as told:
        assert fused_ops.attend(*inputs(), 0.3) is None
        assert fused_ops.attend(*inputs(), 0.3) is None
    assert len(told) == 1


@needs_compiler
@torch.no_grad()
def test_a_folder_that_cannot_be_written_is_told_of(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="Not a directory.*XDG_CACHE_HOME"):
        assert fused_ops.attend(*inputs(), 0.3) is None


@needs_compiler
def test_decoding_uses_it(monkeypatch):
    model = random_llama(97, seed=0, end_id=None, pad_id=0)
    prompts = [Prompt([3 + row, 4, 5], (row,), max_new_tokens=6) for row in range(4)]
    used = set()
    call = fused_ops._call
    monkeypatch.setattr(fused_ops, "_call", lambda name, *given, **heads: used.add(name) or call(name, *given, **heads))
    ours = Decoder(model, stop_ids=[]).generate(prompts, Sampling())
    assert used == {"attend", "rms_norm", "swiglu", "rope"}
    monkeypatch.setattr(fused_ops, "kernels", lambda *heads: None)
    for own, torchs in zip(ours, Decoder(model, stop_ids=[]).generate(prompts, Sampling()), strict=True):
        assert own.ids.tolist() == torchs.ids.tolist()


def random(*shape, seed=0, scale=1.0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def gradients(function, inputs, seed=9):
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


@needs_compiler
@pytest.mark.parametrize("shape", [(16,), (1, 48), (5, 7, 192), (3, 0, 32)])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3])
def test_norms(shape, scale):
    x, weight = random(*shape, scale=scale), random(shape[-1], seed=1)
    with torch.no_grad():
        meant = functional.rms_norm(x.double(), weight.shape, weight.double(), 1e-6)
        torch.testing.assert_close(fused_ops.rms_norm(x, weight, 1e-6).double(), meant, atol=1e-5, rtol=1e-5)


@needs_compiler
@pytest.mark.parametrize("threads", [1, 3])
def test_norms_and_gates_have_gradients(monkeypatch, threads):
    monkeypatch.setattr(fused_ops, "_num_threads", lambda size: threads)
    check(
        lambda x, weight: fused_ops.rms_norm(x, weight, 0.1),
        lambda x, weight: functional.rms_norm(x, weight.shape, weight, 0.1),
        (random(5, 7, 48), random(48, seed=1)),
    )
    for scale in (1e-3, 1.0, 40.0):
        inputs = random(5, 7, 48, scale=scale), random(5, 7, 48, seed=1)
        check(fused_ops.swiglu, lambda gate, up: functional.silu(gate) * up, inputs)


@needs_compiler
def test_gates_far_out_are_open_or_shut():
    gate = torch.tensor([-1e30, -200.0, -80.0, 0.0, 80.0, 200.0, 1e30, -0.0] * 2, requires_grad=True)
    opened = fused_ops.swiglu(gate, torch.ones(16))
    torch.testing.assert_close(opened, functional.silu(gate), atol=1e-33, rtol=1e-5)
    opened.sum().backward()
    assert gate.grad.isfinite().all()


@needs_compiler
@pytest.mark.parametrize("width", [2, 10, 32, 64])
@pytest.mark.parametrize("rows_of_angles", [1, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_turns_by_positions(monkeypatch, width, rows_of_angles, threads):
    monkeypatch.setattr(fused_ops, "_num_threads", lambda size: threads)
    cosine, sine = random(2, rows_of_angles, 5, width, seed=1)  # different halves, unlike in models
    x = random(3, 5, 4, width)

    def ours(x):
        return fused_ops.rope(x.transpose(1, 2), cosine, sine)

    def plain(x):
        first, second = x.transpose(1, 2).chunk(2, dim=-1)
        turned = torch.cat([-second, first], dim=-1) * sine[:, None].to(x.dtype)
        return x.transpose(1, 2) * cosine[:, None].to(x.dtype) + turned

    check(ours, plain, (x,))
    assert ours(x).stride() == x.transpose(1, 2).stride()
