#!/usr/bin/env bash
# peft 0.21.2: an adapter for a deeper model loads into a shallower one, and half of its tensors vanish without a word.
#
# Expected: loading raises, or warns that the file has tensors for layers that the base model does not have. The opposite
# case, a tensor that is missing in the file, gives a warning.
# Happens: PeftModel.from_pretrained returns a model. load_adapter reports unexpected keys, but from_pretrained drops its report.
# Matters: a base model of the wrong size (or with one layer removed) runs with a part of the trained adapter, and the
# only sign are worse answers.
# Fix: compare the number of tensors in adapter_model.safetensors with those that the loaded model holds.
# Seen with transformers 5.23.0, torch 2.13.0:
#   tensors in the file: 8
#   tensors in the loaded model: 4
#   warnings while loading: 0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q transformers==5.23.0 peft==0.21.2 torch==2.13.0
export HF_HUB_OFFLINE=1 HF_HUB_DISABLE_PROGRESS_BARS=1
"$folder/venv/bin/python" - "$folder/adapter" <<'PY'
import sys
import warnings

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import safe_open
from transformers import AutoModelForCausalLM, LlamaConfig

torch.manual_seed(0)


def build(num_layers):
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "vocab_size": 64}
    return AutoModelForCausalLM.from_config(LlamaConfig(num_hidden_layers=num_layers, **sizes))


targets = ["q_proj", "v_proj"]
get_peft_model(build(2), LoraConfig(target_modules=targets, r=4)).save_pretrained(sys.argv[1])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model = PeftModel.from_pretrained(build(1), sys.argv[1])
in_file = len(safe_open(sys.argv[1] + "/adapter_model.safetensors", "pt").keys())
in_model = sum("lora_" in name for name, _ in model.named_parameters())
about_keys = [warning for warning in caught if "key" in str(warning.message)]
print("tensors in the file:", in_file)
print("tensors in the loaded model:", in_model)
print("warnings while loading:", len(about_keys))
if in_file == in_model or about_keys:
    raise SystemExit("changed: tensors without a layer are reported")
PY
