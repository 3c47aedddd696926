#!/usr/bin/env bash
# gguf 0.19.0: an empty array that is added to a file's metadata is missing from the file.
#
# Expected: add_array(name, []) writes an array of length 0, which the format can hold, or raises.
# Happens: add_array returns without a warning, and the reader finds no field of this name.
# Matters: a converter that writes "no merges" or "no added tokens" makes a file in which the field is absent. A loader
# that needs the field then fails, far from the place where the field was lost.
# Fix: after writing, compare the names of the fields with those that were added.
# Seen with numpy 2.4.6:
#   fields in the file: GGUF.version GGUF.tensor_count GGUF.kv_count general.architecture tokenizer.ggml.tokens
#   length of tokenizer.ggml.tokens: 2
#   tokenizer.ggml.merges is in the file: False
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q gguf==0.19.0 numpy==2.4.6
"$folder/venv/bin/python" - "$folder/small.gguf" <<'PY'
import sys

import gguf

writer = gguf.GGUFWriter(sys.argv[1], "llama")
writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
writer.add_array("tokenizer.ggml.merges", [])
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
fields = gguf.GGUFReader(sys.argv[1]).fields
is_written = "tokenizer.ggml.merges" in fields
print("fields in the file:", *fields)
print("length of tokenizer.ggml.tokens:", len(fields["tokenizer.ggml.tokens"].contents()))
print("tokenizer.ggml.merges is in the file:", is_written)
if is_written:
    raise SystemExit("changed: an empty array is written")
PY
