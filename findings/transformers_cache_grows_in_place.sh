#!/usr/bin/env bash
# transformers 5.23.0: a forward pass appends its tokens to the key-value cache that it is given.
#
# Expected: past_key_values is an input. The cache of a shared prompt scores several replies, one after another.
# Happens: the cache object is changed in place, and the output holds the same object. The second reply is
# scored as if it followed the first one. No warning appears.
# Matters: log-probabilities of all replies of a group except the first are wrong, and so are policy gradients.
# Fix: copy.deepcopy(cache) per reply, or cache.crop(-NUMBER_OF_REPLY_TOKENS) after each reply.
# Seen with torch 2.13.0 (largest difference of logits from a pass without a cache; last digits vary):
#   first reply: 0.0
#   second reply, same cache: 1.575
#   second reply, compared with prompt + first reply + second reply: 0.0
#   second reply, copied cache: 0.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q transformers==5.23.0 torch==2.13.0
HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error "$folder/venv/bin/python" - <<'EOF'
import copy

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

torch.manual_seed(0)
torch.set_grad_enabled(False)
config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=64,
                     initializer_range=0.3)
model = AutoModelForCausalLM.from_config(config).eval()
prompt, first, second = torch.arange(10)[None], torch.tensor([[20, 21]]), torch.tensor([[30, 31]])


def difference(logits, *texts):
    """Compare with the logits of the last two tokens of the joined texts, computed without a cache."""
    return round((logits - model(torch.cat(texts, dim=1)).logits[:, -2:]).abs().max().item(), 3)


cache = model(prompt, use_cache=True).past_key_values
copied = copy.deepcopy(cache)
scored = [model(first, past_key_values=cache).logits, model(second, past_key_values=cache).logits]
print("first reply:", right := difference(scored[0], prompt, first))
print("second reply, same cache:", wrong := difference(scored[1], prompt, second))
print("second reply, compared with prompt + first reply + second reply:", difference(scored[1], prompt, first, second))
print("second reply, copied cache:", difference(model(second, past_key_values=copied).logits, prompt, second))
if right > 0.01 or wrong < 0.1:
    raise SystemExit("changed: the cache is not extended in place")
EOF
