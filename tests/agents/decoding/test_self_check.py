"""The accepted rounding error follows the precision of the matrix multiplications."""

from types import SimpleNamespace

import pytest
import torch

from collm.agents.decoding.self_check import tolerance


@pytest.mark.parametrize(("device", "is_looser"), [("cuda", True), ("cpu", False)])
def test_tf32_is_accepted_on_a_gpu_with_its_rounding(device, is_looser, monkeypatch):
    base = SimpleNamespace(device=torch.device(device), dtype=torch.float32)
    exact = tolerance(base)
    monkeypatch.setattr(torch.backends.cuda, "matmul", SimpleNamespace(fp32_precision="tf32"))
    assert (tolerance(base) > 1e-3) is is_looser and (tolerance(base) == exact) is not is_looser
    assert tolerance(base) < tolerance(SimpleNamespace(device=torch.device(device), dtype=torch.bfloat16))
