"""The last layer run where it is read gives what the whole pass gives, gradients included."""

import numpy as np
import pytest
import torch
from architectures import model_of

from collm.agents.scoring.recomputing import recompute_layers
from collm.agents.scoring.small_models import SelectiveLastLayer, selective_last_layer, states_at

IDS = (torch.arange(36) * 5 + 3).view(3, 12) % 97
PREDICTORS = np.array([[0, 0, 0, 2, 2], [3, 4, 5, 1, 2]])
ENDS = np.array([[0, 0, 1, 2], [3, 3, 0, 11]])


def read(backbone, selective, **inputs):
    """The states of both selections, and the gradient of something that weighs them differently."""
    backbone.zero_grad()
    found = states_at(backbone, {"input_ids": IDS, "use_cache": False} | inputs, [PREDICTORS, ENDS], selective)
    sum((states * torch.linspace(-1, 2, states.numel()).view_as(states)).sum() for states in found).backward()
    return torch.cat([states.detach() for states in found]), [weight.grad for weight in backbone.parameters()]


def test_selected_tokens_see_their_mask_and_positions():
    backbone = model_of("llama").base_model
    hides = torch.triu(torch.ones(12, 12, dtype=torch.bool), 1) | (torch.arange(12) == 2)
    mask = torch.zeros(3, 1, 12, 12).masked_fill(hides, torch.finfo(torch.float32).min)
    told = {"attention_mask": mask, "position_ids": (torch.arange(12) + torch.arange(3)[:, None]) * 2}
    whole, _ = read(backbone, None, **told)
    selected, _ = read(backbone, selective_last_layer(backbone), **told)
    torch.testing.assert_close(selected, whole, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(selected, read(backbone, None)[0], atol=1e-3)


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "olmo", "windowed"])
def test_states_and_gradients_are_those_of_the_whole_pass(name):
    backbone = model_of(name).base_model
    whole, whole_gradient = read(backbone, None)
    selected, selected_gradient = read(backbone, selective_last_layer(backbone))
    torch.testing.assert_close(selected, whole, atol=1e-5, rtol=1e-5)
    for ours, theirs in zip(selected_gradient, whole_gradient, strict=True):
        assert float((ours - theirs).norm()) <= 1e-5 * float(theirs.norm())


def test_the_last_layer_is_run_for_selected_tokens_only_also_if_it_runs_again():
    backbone = model_of("llama").base_model
    _, whole_gradient = read(backbone, None)
    recompute_layers(backbone)
    _, selected_gradient = read(backbone, selective_last_layer(backbone))
    for ours, theirs in zip(selected_gradient, whole_gradient, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    selective = selective_last_layer(backbone)
    seen = []
    handle = backbone.layers[-1].mlp.register_forward_hook(lambda module, args, output: seen.append(output.shape[1]))
    read(backbone, selective)
    handle.remove()
    assert seen == [3]
    backbone = model_of("gpt2").base_model
    assert selective_last_layer(backbone) is None
    with pytest.raises(ValueError, match="Linear has no layers"):
        SelectiveLastLayer(torch.nn.Linear(2, 2))
