#!/usr/bin/env bash
# peft 0.21.2: add_weighted_adapter(..., combination_type="linear") does not average the adapters' updates.
#
# Expected: weights [0.5, 0.5] and "linear" give an adapter whose update of W is the mean of both updates.
# Happens: A and B are combined apart, so the update is 1/2 (B1 + B2)(A1 + A2). Its cross terms B1 A2 and B2 A1
# are as large as the mean itself for adapters that were trained separately.
# Matters: averaging agents' adapters, or interpolating between checkpoints of different runs, gives another model.
# combination_type="cat" is exact (the rank grows). One adapter alone is scaled correctly, so a quick check passes.
# Seen with torch 2.13.0, transformers 5.23.0:
#   size of the mean update: 2.9
#   error of "linear": 2.82
#   error of "cat": 0.0
#   error of "linear" with one adapter and weight 2: 0.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q peft==0.21.2 transformers==5.23.0 torch==2.13.0
HF_HUB_OFFLINE=1 "$folder/venv/bin/python" - <<'EOF'
import torch
from peft import LoraConfig, get_peft_model

torch.manual_seed(0)
config = LoraConfig(target_modules=["0"], r=4, init_lora_weights=False)
model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(32, 32)), config, adapter_name="first")
model.add_adapter("second", config)
for kind in ("linear", "cat"):
    model.add_weighted_adapter(["first", "second"], [0.5, 0.5], kind, combination_type=kind)
model.add_weighted_adapter(["first"], [2.0], "doubled", combination_type="linear")
layer = model.base_model.model[0]
first, second, linear, cat, doubled = map(layer.get_delta_weight, ("first", "second", "linear", "cat", "doubled"))
mean = (first + second) / 2
errors = [round(difference.norm().item(), 2) for difference in (linear - mean, cat - mean, doubled - 2 * first)]
print("size of the mean update:", round(mean.norm().item(), 2))
print('error of "linear":', errors[0])
print('error of "cat":', errors[1])
print('error of "linear" with one adapter and weight 2:', errors[2])
if errors[0] < 0.5 * mean.norm() or errors[1:] != [0, 0]:
    raise SystemExit('changed: "linear" averages the updates')
EOF
