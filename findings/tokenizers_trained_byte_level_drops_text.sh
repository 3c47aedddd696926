#!/usr/bin/env bash
# tokenizers 0.23.3: a byte-level BPE tokenizer that was trained on own text silently drops the bytes it never saw.
#
# Expected: byte-level tokenizers (GPT-2, Llama 3, Qwen) encode every text without loss.
# Happens: BpeTrainer takes only the bytes of the training text into the vocabulary. Other bytes vanish from the
# ids, without an error or a warning, because the model has no unknown token.
# Matters: a small tokenizer for a task or for tests loses digits and capitals of observations: "7 x 6" becomes spaces,
# and agents cannot read what they are rewarded for.
# Fix: BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet()), and check decode(encode(text)) == text.
# Seen:
#   usual training:        'the 7 dogs: 6 x 7 = 42' -> 'the  os     '
#   with initial_alphabet: 'the 7 dogs: 6 x 7 = 42' -> 'the 7 dogs: 6 x 7 = 42'
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tokenizers==0.23.3
"$folder/venv/bin/python" - <<'EOF'
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers


def train(**options):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<eos>"], show_progress=False, **options)
    tokenizer.train_from_iterator(["the cat sat on the mat"] * 5, trainer)
    return tokenizer


text = "the 7 dogs: 6 x 7 = 42"
usual, full = train(), train(initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
lossy, lossless = (tokenizer.decode(tokenizer.encode(text).ids) for tokenizer in (usual, full))
print(f"usual training:        {text!r} -> {lossy!r}")
print(f"with initial_alphabet: {text!r} -> {lossless!r}")
if lossy == text or lossless != text:
    raise SystemExit("changed: the trained byte-level tokenizer is lossless")
EOF
