import copy

import pytest
import torch
from fakes import language_policy, random_llama
from torch import nn

from collm.agents.config import ModelConfig
from collm.agents.loading import load_policies
from collm.agents.scoring.recomputing import recompute_layers

IDS = torch.arange(1, 25).reshape(2, 12)


def gradient(model):
    """A gradient, and the bytes stored for it."""
    sizes = []
    model.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: sizes.append(kept.nbytes) or kept, lambda kept: kept):
        loss = model(input_ids=IDS, use_cache=False).logits.pow(2).sum()
    loss.backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters()]), sum(sizes)


def test_the_gradient_is_the_same_less_is_kept_and_a_copy_runs_its_own_layers():
    model = random_llama().eval()
    before, all_kept = gradient(model)
    recompute_layers(model)
    after, kept = gradient(model)
    torch.testing.assert_close(after, before)
    assert kept < all_kept / 2
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    assert float(twin(input_ids=IDS).logits.detach().abs().max()) > 0


def test_a_team_is_loaded_with_it_and_models_without_such_layers_are_refused():
    with pytest.raises(ValueError, match="recomputes_activations=False"):
        recompute_layers(nn.Linear(2, 2))
    policies = load_policies(ModelConfig(recomputes_activations=True), ["a"])
    assert "forward" in vars(policies["a"].language_model.base.model.layers[0])
    assert "forward" not in vars(language_policy().language_model.base.model.layers[0])
