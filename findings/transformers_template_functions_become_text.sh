#!/usr/bin/env bash
# transformers 5.23.0: a function given to a chat template arrives there as the text "<function>".
#
# Expected: keyword arguments of apply_chat_template are variables of the template, as the documentation says.
# So strftime_now=FUNCTION fixes the date of templates that print today's date (Llama 3.2, gpt-oss).
# Happens: 5.23.0 rebuilds each argument as plain data. Functions become "<function>", dates "<date>", sets "<set>".
# A template that calls the function raises a TypeError. A date object is rendered as "<date>" without an error.
# In 5.22.0 and 4.57.6 the same call renders the fixed date.
# Matters: prompts with a date change at midnight, so a resumed run or a later evaluation uses other prompts.
# Fix: pass texts (date_string="1 Jan 2000" if the template reads it), or write the date into the template.
# Seen with tokenizers 0.23.3, jinja2 3.1.6:
#   function: TypeError: 'str' object is not callable
#   date: Today is <date>.
#   text: Today is 2000-01-01.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q transformers==5.23.0 tokenizers==0.23.3 jinja2==3.1.6
HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error "$folder/venv/bin/python" - <<'EOF'
import datetime

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

words = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")


def render(template, **variables):
    try:
        chat = [{"role": "user", "content": "Hello"}]
        return tokenizer.apply_chat_template(chat, chat_template=template, tokenize=False, **variables)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


called = render("Today is {{ strftime_now('%Y-%m-%d') }}.", strftime_now=lambda pattern: "2000-01-01")
date = render("Today is {{ today }}.", today=datetime.date(2000, 1, 1))
text = render("Today is {{ today }}.", today="2000-01-01")
print("function:", called)
print("date:", date)
print("text:", text)
if "not callable" not in called or "<date>" not in date or text != "Today is 2000-01-01.":
    raise SystemExit("changed: templates receive functions or dates again")
EOF
