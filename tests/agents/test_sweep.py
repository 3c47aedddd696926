"""Every type of causal language model in transformers gives right log-probabilities, or is refused in one line.

Run with `-rP` for the table: each type, with the largest difference of a log-probability from a plain forward pass.
"""

from functools import partial

import pytest
import torch
from architectures import smallest_model
from fakes import byte_tokenizer
from torch import nn
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from collm._errors import UserError
from collm.agents.config import ModelConfig
from collm.agents.core import Request
from collm.agents.decoding.adapters import active_adapter
from collm.agents.loading import load_policies
from collm.envs.core import Message, Transcript

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
AGENT = "fox_0"
TEXTS = "a fox", "the red fox said hello to a blue stone near the old river, and then the fox said hello to the river"
NOT_BUILT = {
    "blt": "its four models have sizes that depend on each other",
    "dots3_note": "its vision tower has settings per layer; its text model is dots3_note_text",
    "gemma3n": "its vision tower needs the package timm; its text model is gemma3n_text",
    "gemma4_assistant": "a draft model, which reads hidden states of another model",
    "gemma4_unified_assistant": "a draft model, which reads hidden states of another model",
    "musicgen": "an encoder-decoder for audio tokens",
    "musicgen_melody": "an encoder-decoder for audio tokens",
}
REFUSED = {
    "cpmant": "not causal",
    "emu3": "does not generate text",
    "mllama": "does not generate text",
    "prophetnet": "not causal",
    "reformer": "cannot be trained",
    "xlm": "encoder",
    "xlnet": "not causal",
}
REFUSED_ADAPTERS = {  # `lora_target_modules="all-linear"`
    **dict.fromkeys(("falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h"), "Mamba-based"),  # by peft
    **dict.fromkeys(("deepseek_v4", "llama4", "llama4_text", "phimoe"), "lora_target_modules"),  # not plain layers
}
LARGEST = 1e-3


@pytest.mark.parametrize("kind", sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys() - NOT_BUILT.keys()))
def test_log_probabilities_and_values_are_those_of_a_plain_pass(kind, tmp_path):
    model = smallest_model(kind)
    model.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    refusal = REFUSED.get(kind)
    if refusal is not None:
        assert_refused(tmp_path, "own", refusal)
        print(f"{kind}: refused ({refusal})")
        return
    policy = loaded(tmp_path, "own")
    error = largest_difference(policy, partial(plain_logits, model, None))
    refusal = REFUSED_ADAPTERS.get(kind)
    if refusal is not None:
        assert_refused(tmp_path, "adapters", refusal)
        print(f"{kind}: equal up to {error:.1e}; adapters of all layers are refused ({refusal})")
        return
    policy = loaded(tmp_path, "adapters")
    adapted = policy.language_model.model
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:  # zero at first, so that a new adapter changes nothing
            nn.init.normal_(weight, std=0.1)
    with_adapter = largest_difference(policy, partial(plain_logits, adapted, policy.adapter))
    print(f"{kind}: equal up to {error:.1e}, with an adapter up to {with_adapter:.1e}")


def test_almost_all_types_are_built():
    assert MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys() >= NOT_BUILT.keys() | REFUSED.keys() | REFUSED_ADAPTERS.keys()
    assert len(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - len(NOT_BUILT) >= 180


def loaded(folder, weights):
    settings = ModelConfig(model=str(folder), is_chat=True, max_new_tokens=16, weights=weights, lora_rank=4)
    return load_policies(settings, [AGENT], has_value_head=True)[AGENT]


def assert_refused(folder, weights, words):
    with pytest.raises(UserError, match=words) as raised:
        loaded(folder, weights)
    assert "\n" not in str(raised.value)


def plain_logits(model, adapter, ids):
    with torch.no_grad(), active_adapter(model, adapter):
        return model(input_ids=ids, use_cache=False).logits[0].float()


def largest_difference(policy, logits_of):
    """Play two turns of two episodes, and compare sampled and trained log-probabilities with a plain pass."""
    nn.init.normal_(policy.value_head.weight)
    histories = [[Message("user", text)] for text in TEXTS]
    tracks = [[], []]
    for turn in range(2):
        requests = [
            Request(AGENT, Transcript(history), (0, row, 0, turn), *track[-1:])
            for row, (history, track) in enumerate(zip(histories, tracks, strict=True))
        ]
        for history, track, completion in zip(histories, tracks, policy.act(requests), strict=True):
            track.append(completion)
            history += [Message("assistant", completion.action), Message("user", "what next?")]
    scores = policy.evaluate(tracks)
    (scores.logprobs.sum() + scores.values.sum()).backward()
    gradients = [weight.grad.norm() for weight in policy.parameters() if weight.grad is not None]
    assert 0 < sum(gradients) < torch.inf
    turns = [turn for track in tracks for turn in track]
    expected = []
    for turn in turns:
        ids = torch.tensor([*turn.tokens.prompt_ids, *turn.tokens.completion_ids])[None]
        start = len(turn.tokens.prompt_ids)
        logprobs = logits_of(ids).log_softmax(-1)[start - 1 : -1]
        expected.append(logprobs.gather(1, ids[0, start:, None])[:, 0])
    expected = torch.cat(expected)
    sampled = torch.cat([torch.from_numpy(turn.logprobs) for turn in turns])
    error = max((known - expected).abs().max().item() for known in (sampled, scores.logprobs.detach()))
    assert error < LARGEST
    assert scores.values.tolist() == pytest.approx([turn.value for turn in turns], abs=LARGEST)
    return error
