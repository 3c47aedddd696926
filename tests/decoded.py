"""Random prompts, prompts of the next turn, and comparisons of samples, for tests of decoders."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from peft import PeftModel

from collm.agents.decoding.adapters import active_adapter
from collm.agents.decoding.decoder import Prompt


def ragged_prompts(count, seed=0, *, longest=30, new=14, parks=False, **changes):
    """Return prompts with random tokens, lengths and limits. `parks`: each prompt has a different `Prompt.parked`."""
    rng = np.random.default_rng(seed)
    found = []
    for row in range(count):
        ids, limit = rng.integers(4, 97, int(rng.integers(1, longest))), int(rng.integers(1, new))
        found.append(replace(Prompt(ids, (seed, row), limit, parked=row if parks else None), **changes))
    return found


def next_turn(prompts, samples, seed=1):
    """Return the prompts of the next turn: prompt, sample and a few other tokens."""
    rng = np.random.default_rng(seed)
    found = []
    for prompt, sample in zip(prompts, samples, strict=True):
        ids = np.concatenate([prompt.ids, sample.ids, rng.integers(4, 97, int(rng.integers(1, 6)))])
        found.append(replace(prompt, ids=ids, stream=(*prompt.stream, seed)))
    return found


def assert_same(found, expected, atol=1e-5):
    for one, other in zip(found, expected, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert one.is_cut == other.is_cut
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=atol)
        np.testing.assert_allclose(one.entropies, other.entropies, atol=atol)
        assert (one.value is None) == (other.value is None)
        assert one.value is None or one.value == pytest.approx(other.value, abs=atol)


@torch.no_grad()
def assert_exact(model, prompts, samples, temperature=1.0):
    """Compare log-probabilities and entropies with one full forward pass per token, with the prompt's adapter."""
    for prompt, sample in zip(prompts, samples, strict=True):
        ids = torch.from_numpy(np.concatenate([np.asarray(prompt.ids), sample.ids]))
        facts = []
        with active_adapter(model, prompt.adapter) if isinstance(model, PeftModel) else nullcontext():
            for place in range(len(prompt.ids), len(ids)):
                logprobs = torch.log_softmax(model(input_ids=ids[None, :place]).logits[0, -1] / temperature, -1)
                facts.append((logprobs[ids[place]].item(), -(logprobs.exp() * logprobs).sum().item()))
        np.testing.assert_allclose([sample.logprobs, sample.entropies], np.array(facts).T, atol=1e-5)


def stores(decoder):
    return [store for layer in decoder._engine.arena.layers for store in (layer.keys, layer.values)]
