#!/usr/bin/env bash
# trl 1.16.0: apply_chat_template renders the same prompt differently for different completions.
#
# Expected: in {"prompt": ..., "completion": ...} the prompt's text depends on the prompt only. It is the text that a
# model is given at generation: with add_generation_prompt=True.
# Happens: trl renders prompt and prompt + completion, and keeps as prompt only what both have in common. If the
# template opens a thought ("<think>") in the generation prompt and the completion has none, this opening is cut.
# If the completion has several messages, the thoughts of the earlier ones are dropped, too.
# Matters: the model is trained on prompts that it never sees when it is sampled, and the rows of one data set differ.
# Fix: render with the tokenizer's apply_chat_template(add_generation_prompt=True) and keep the sampled tokens.
# Seen with transformers 5.23.0:
#   sampled from:     [user]Hi[end][assistant]<think>
#   with a thought:   [user]Hi[end][assistant]<think> | 2+2</think>4[end]
#   without thought:  [user]Hi[end][assistant] | 4[end]
#   several messages: [user]Hi[end][assistant] | 4[end][user]Why?[end][assistant]So.[end]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q trl==1.16.0 transformers==5.23.0 tokenizers==0.23.3 jinja2==3.1.6 torch==2.13.0
HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error "$folder/venv/bin/python" -W ignore - <<'EOF'
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from trl.data_utils import apply_chat_template

words = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")
tokenizer.chat_template = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content if loop.last else m.content.split('</think>')[-1] }}[end]"
    "{% endfor %}{% if add_generation_prompt %}[assistant]<think>{% endif %}"
)
prompt = [{"role": "user", "content": "Hi"}]
sampled = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)


def render(*texts):
    roles = ("assistant", "user", "assistant")
    completion = [{"role": role, "content": text} for role, text in zip(roles, texts)]
    return apply_chat_template({"prompt": prompt, "completion": completion}, tokenizer)


rows = [render("<think>2+2</think>4"), render("4"), render("<think>2+2</think>4", "Why?", "So.")]
print("sampled from:    ", sampled)
for name, row in zip(("with a thought:  ", "without thought: ", "several messages:"), rows):
    print(name, row["prompt"], "|", row["completion"])
if [row["prompt"] == sampled for row in rows] != [True, False, False]:
    raise SystemExit("changed: the prompt's text no longer depends on the completion")
EOF
