"""How many tokens a forward pass of learning may have."""

from __future__ import annotations

import pytest
import torch

from collm.agents.batching import default_max_tokens
from collm.algorithms import IACConfig
from collm.algorithms.learning.passes import tokens_per_pass

CPU = torch.device("cpu")


@pytest.mark.parametrize("given", [None, 1, 255, 4096])
def test_a_pass_has_as_many_tokens_as_the_settings_say_or_as_suit_the_device(given):
    assert tokens_per_pass(IACConfig(max_batch_tokens=given), CPU) == (given or default_max_tokens(CPU))


@pytest.mark.parametrize("given", [None, 256, 257, 4096])
def test_with_deterministic_a_pass_has_256_tokens_whatever_memory_there_is(given):
    assert tokens_per_pass(IACConfig(max_batch_tokens=given, deterministic=True), CPU) == 256


def test_with_deterministic_less_memory_than_a_pass_needs_is_refused():
    with pytest.raises(ValueError, match="max_batch_tokens is 255; raise it to 256"):
        tokens_per_pass(IACConfig(max_batch_tokens=255, deterministic=True), CPU)
