#!/usr/bin/env bash
# peft 0.21.2: a base model saved while it carries a LoRA adapter comes back with random matrices.
#
# Expected: get_base_model().save_pretrained(FOLDER) writes the frozen base model, or refuses.
# Happens: the file holds q_proj.base_layer.weight, a name that no model class has, and the adapter's matrices.
# No warning appears while saving. from_pretrained(FOLDER) fills q_proj with random numbers and only logs a load report.
# Matters: a trainer that stores "the reference model" next to its adapters stores a model with random attention.
# Fix: model.unload() before saving, and compare the names in the file with those of a fresh model.
# Seen with transformers 5.23.0, torch 2.13.0 (numbers vary in the last digits):
#   names in the file: q_proj.base_layer.weight q_proj.lora_A.default.weight q_proj.lora_B.default.weight
#   warnings while saving: 0
#   largest difference of logits, reloaded and base: 5.67
#   after unload(), reloaded and base: 0.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q transformers==5.23.0 peft==0.21.2 torch==2.13.0
export HF_HUB_OFFLINE=1 HF_HUB_DISABLE_PROGRESS_BARS=1 TRANSFORMERS_VERBOSITY=error
"$folder/venv/bin/python" -W ignore - "$folder" <<'EOF'
import sys
import warnings

import torch
from peft import LoraConfig, get_peft_model
from safetensors import safe_open
from transformers import AutoModelForCausalLM, LlamaConfig

torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 64}
config = LlamaConfig(**sizes, initializer_range=0.3)
base = AutoModelForCausalLM.from_config(config)
tokens, folder, errors = torch.arange(10)[None], sys.argv[1], []
before = base(tokens).logits
model = get_peft_model(base, LoraConfig(target_modules=["q_proj"], r=4))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model.get_base_model().save_pretrained(folder + "/base")
model.unload().save_pretrained(folder + "/unloaded")
for name in ("/base", "/unloaded"):
    errors.append((AutoModelForCausalLM.from_pretrained(folder + name)(tokens).logits - before).abs().max().item())
names = safe_open(folder + "/base/model.safetensors", "pt").keys()
print("names in the file:", *(name.split("self_attn.")[1] for name in names if "q_proj" in name))
print("warnings while saving:", len(caught))
print("largest difference of logits, reloaded and base:", round(errors[0], 2))
print("after unload(), reloaded and base:", round(errors[1], 3))
if caught or errors[0] < 0.1 or errors[1] > 1e-5:
    raise SystemExit("changed: the base model under adapters is saved whole, or saving warns")
EOF
