"""The CPU kernel attends as torch does; where there is none, torch does it."""

import stat
import subprocess

import pytest
import torch
from torch.nn import functional

from collm.agents.decoding.cache.arena import visibility
from collm.agents.decoding.cpu import attention, compiling
from collm.agents.decoding.decoder import Decoder, Prompt
from collm.agents.decoding.sampling import Sampling
from collm.benchmarks.throughput.synthetic import random_llama

needs_compiler = pytest.mark.skipif(compiling.compiler() is None, reason="this machine has no C++ compiler")


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
        found = attention.attended(*given, 0.3)
    torch.testing.assert_close(found, plain(*given, 0.3), atol=3e-6, rtol=1e-5)


@needs_compiler
@pytest.mark.parametrize("scale", [1e-4, 30.0])
def test_flat_and_steep_scores_are_as_exact(scale):
    given = inputs(num_rows=40, num_columns=200, capacity=200, scale=scale)
    with torch.no_grad():
        torch.testing.assert_close(attention.attended(*given, 1.0), plain(*given, 1.0), atol=2e-5, rtol=1e-4)


@needs_compiler
def test_a_mask_may_be_any_number_and_may_hide_all():
    query, key, value, mask = inputs(num_rows=3)
    mask = torch.randn(mask.shape)
    mask[1] = -torch.inf
    mask[1, ..., 20] = 0.5
    mask[2] = torch.finfo().min
    with torch.no_grad():
        found = attention.attended(query, key, value, mask, 0.3)
    torch.testing.assert_close(found[:2], plain(query, key, value, mask, 0.3)[:2], atol=3e-6, rtol=1e-5)
    assert (found[2] == 0).all()


@needs_compiler
def test_neither_threads_nor_other_rows_nor_hidden_columns_change_a_bit(monkeypatch):
    monkeypatch.setattr(attention, "READ_BY_THREAD", 1)
    threads = torch.get_num_threads()
    query, key, value, mask = inputs(num_rows=11)
    mask[0, ..., 32:] = torch.finfo().min
    with torch.no_grad():
        alone = attention.attended(query[:1], key[:1, :, :32], value[:1, :, :32], mask[:1, ..., :32], 0.3)
        found = []
        for count in (1, 2, 7):
            torch.set_num_threads(count)
            found.append(attention.attended(query, key, value, mask, 0.3))
    torch.set_num_threads(threads)
    assert all(torch.equal(found[0], other) for other in found[1:])
    assert torch.equal(alone, found[0][:1])


@needs_compiler
def test_what_it_was_not_made_for_is_left_to_torch():
    query, key, value, mask = inputs()
    assert attention.attended(query, key, value, mask, 0.3) is None  # a gradient might be wanted
    with torch.no_grad():
        assert attention.attended(query, key, value, mask, 0.3) is not None
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
            assert attention.attended(*given, 0.3) is None


@needs_compiler
def test_it_is_compiled_once(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = []
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: calls.append(args) or run(*args, **kwargs))
    for _ in range(2):
        assert attention.kernel_for(32, 3) is not None
        attention.kernel_for.cache_clear()
        compiling.kernels.cache_clear()
    assert len(calls) == 1
    (made,) = compiling.cache_folder().iterdir()
    assert made.name.startswith("attention_32_3_") and stat.S_IMODE(made.parent.stat().st_mode) == 0o700


@torch.no_grad()
def test_without_a_compiler_torch_attends(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert compiling.compiler() is None and attention.attended(*inputs(), 0.3) is None


@torch.no_grad()
def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv(compiling.SWITCH, "0")
    assert compiling.compiler() is None and attention.attended(*inputs(), 0.3) is None


@torch.no_grad()
def test_a_compiler_that_fails_is_told_of_once(monkeypatch, tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no vectors here >&2\nexit 1\n", "utf-8")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.warns(RuntimeWarning, match="no vectors here.*CXX.*COLLM_KERNEL=0") as told:
        assert attention.attended(*inputs(), 0.3) is None
        assert attention.attended(*inputs(), 0.3) is None
    assert len(told) == 1


@needs_compiler
@torch.no_grad()
def test_a_folder_that_cannot_be_written_is_told_of(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("", "utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="Not a directory.*XDG_CACHE_HOME"):
        assert attention.attended(*inputs(), 0.3) is None


@needs_compiler
def test_decoding_uses_it(monkeypatch):
    model = random_llama(97, seed=0, end_id=None, pad_id=0)
    prompts = [Prompt([3 + row, 4, 5], (row,), max_new_tokens=6) for row in range(4)]
    used = []
    attended = attention.kernel_for(32, 3)
    monkeypatch.setattr(attention, "kernel_for", lambda *shape: lambda *given: used.append(shape) or attended(*given))
    ours = Decoder(model, stop_ids=[]).generate(prompts, Sampling())
    assert set(used) == {(32, 3)}
    monkeypatch.setattr(attention, "kernel_for", lambda *shape: None)
    for own, torchs in zip(ours, Decoder(model, stop_ids=[]).generate(prompts, Sampling()), strict=True):
        assert own.ids.tolist() == torchs.ids.tolist()
