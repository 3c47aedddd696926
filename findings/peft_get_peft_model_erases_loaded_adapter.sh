#!/usr/bin/env bash
# peft 0.21.2: get_peft_model on a model that was loaded from a LoRA folder sets the loaded adapter back to zero.
#
# Expected: AutoModelForCausalLM.from_pretrained(LORA_FOLDER) loads the base model and the adapter, so the next
# adapter trains on top of both (supervised fine-tuning first, reinforcement learning second).
# Happens: transformers and peft both name the adapter "default". get_peft_model initializes "default" again:
# the loaded weights are lost. Training starts from the bare base model. Two warnings speak of "multiple adapters".
# With adapter_name="second" the loaded weights survive, but they are inactive: the outputs are the bare model's, too.
# Matters: the first stage of training is thrown away, and the second stage still runs and learns.
# Fix: PeftModel.from_pretrained(base, LORA_FOLDER).merge_and_unload() first, or train on with is_trainable=True.
# Seen with transformers 5.23.0, torch 2.13.0:
#   loaded folder: same logits as the first stage: True
#   get_peft_model: logits of the bare base: True; adapters: ['default']; sum of |B|: 0.0
#   adapter_name="second": logits of the bare base: True; active: ['second']
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q transformers==5.23.0 peft==0.21.2 torch==2.13.0
export HF_HUB_OFFLINE=1 HF_HUB_DISABLE_PROGRESS_BARS=1 TRANSFORMERS_VERBOSITY=error
"$folder/venv/bin/python" -W ignore - "$folder" <<'EOF'
import sys

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig

tokens, lora = torch.arange(10)[None], sys.argv[1] + "/lora"
config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=64)
AutoModelForCausalLM.from_config(config).save_pretrained(sys.argv[1] + "/base")
base = AutoModelForCausalLM.from_pretrained(sys.argv[1] + "/base")
bare = base(tokens).logits
first = get_peft_model(base, LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False)).eval()
first.save_pretrained(lora)
loaded_right = torch.allclose(AutoModelForCausalLM.from_pretrained(lora)(tokens).logits, first(tokens).logits)
print("loaded folder: same logits as the first stage:", loaded_right)
new = LoraConfig(target_modules=["q_proj", "v_proj"])
erased = get_peft_model(AutoModelForCausalLM.from_pretrained(lora), new).eval()
total = sum(value.abs().sum().item() for name, value in erased.named_parameters() if "lora_B" in name)
is_bare = torch.allclose(erased(tokens).logits, bare)
print(f"get_peft_model: logits of the bare base: {is_bare}; adapters: {list(erased.peft_config)}; sum of |B|: {total}")
second = get_peft_model(AutoModelForCausalLM.from_pretrained(lora), new, adapter_name="second").eval()
is_bare_too = torch.allclose(second(tokens).logits, bare)
print(f'adapter_name="second": logits of the bare base: {is_bare_too}; active: {second.active_adapters}')
if not (loaded_right and is_bare and total == 0 and not torch.allclose(first(tokens).logits, bare)):
    raise SystemExit("changed: get_peft_model keeps the loaded adapter")
EOF
