"""Measure decoding and training on one GPU with models of the shapes of Qwen3, and run the commands that measure speed.

    python research/gpu/run.py --out research/gpu/results

Writes README.md with the device, the versions and the tables, and the tables of `collm throughput` to the same folder.
Weights are random, so no model is downloaded. `--device cpu --shapes tiny --repeats 1` tests the script without a GPU.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from collm.agents.core import Completion
from collm.agents.decoding.decoder import Decoder, Prompt
from collm.agents.decoding.sampling import Sampling
from collm.agents.decoding.steps.graph_steps import CudaGraphs
from collm.agents.encoding import TokenRecord
from collm.agents.loading import check_device
from collm.agents.scoring.packing import rows_of
from collm.agents.scoring.scorer import Scorer
from collm.benchmarks.markdown import markdown_table
from collm.benchmarks.throughput.limit import operations
from collm.benchmarks.throughput.timing import clock_of, timed_rounds, unit_of

# Hidden size, layers, query heads, width of the feed-forward part, vocabulary. All have 8 heads of keys and values.
SHAPES = {
    "tiny": (128, 2, 8, 256, 4096),
    "Qwen3-0.6B": (1024, 28, 16, 3072, 151_936),
    "Qwen3-1.7B": (2048, 28, 16, 6144, 151_936),
    "Qwen3-4B": (2560, 36, 32, 9728, 151_936),
}
BATCHES = (1, 32, 128)
PROMPT_TOKENS, NEW_TOKENS = 512, 128
LEARNED_TOKENS = 16_384  # tokens per pass, the default of `max_batch_tokens` on a GPU


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["Qwen3-0.6B", "Qwen3-1.7B", "Qwen3-4B"])
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    device, repeats, out = arguments.device, arguments.repeats, arguments.out
    check_device(device)  # also sets PyTorch's options for GPUs
    out.mkdir(parents=True, exist_ok=True)
    name = platform.machine() if device == "cpu" else torch.cuda.get_device_name(device)
    versions = f"CUDA {torch.version.cuda}, torch {torch.__version__}, transformers {transformers.__version__}"
    sections = ["# One GPU, measured", f"{name}; {versions}; {date.today()}."]
    sections += [] if device == "cpu" else ["## Commands", commands(device, repeats, out)]
    header = ("model", "batch", "decoder", f"tokens per {unit_of(device)}", "GB/s of weights", "peak GiB")
    rows = [row for shape in arguments.shapes for row in decoding(shape, device, repeats)]
    sections += [f"## Decoding, {NEW_TOKENS} tokens after {PROMPT_TOKENS}", markdown_table(header, rows)]
    rates = ("model", f"tokens per {unit_of(device)}", "TFLOP/s", "peak GiB")
    learned = [learning(shape, device, repeats) for shape in arguments.shapes]
    sections += [f"## Learning, passes of {LEARNED_TOKENS} tokens", markdown_table(rates, learned)]
    text = "\n\n".join(sections) + "\n"
    (out / "README.md").write_text(text)
    print(text)
    return 1 if "FAILED" in text else 0


def commands(device: str, repeats: int, out: Path) -> str:
    """Run `collm throughput`, which writes tables to `out`, and the tests marked `gpu`. Returns a table of results."""
    options = f"--device {device} --repeats {repeats} --out {out}"
    calls = [f"collm throughput {name} {options}" for name in ("rollout", "decode", "update")]
    rows = []
    for call in (*calls, "pytest -q -m gpu"):
        done = subprocess.run([sys.executable, "-m", *call.split()], stdout=subprocess.PIPE, text=True)
        last = (done.stdout.strip().splitlines() or [""])[-1]
        rows.append((call, "passed" if done.returncode == 0 else "FAILED", last))
    return markdown_table(("command", "result", "last line"), rows)


def made(shape: str, device: str, dtype: torch.dtype) -> Any:
    """Return a model of this shape with random weights."""
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    sizes: dict[str, Any] = dict(zip(names, SHAPES[shape], strict=True))
    torch.manual_seed(0)
    with torch.device(device):
        config = Qwen3Config(**sizes, num_key_value_heads=8, head_dim=128, tie_word_embeddings=True)
        model: Any = Qwen3ForCausalLM(config)
        return model.to(dtype).eval()


def decoding(shape: str, device: str, repeats: int) -> Iterator[tuple[str, ...]]:
    """Measure tokens per second of `Decoder` without and with CUDA graphs, and of transformers' `generate`."""
    model = made(shape, device, torch.bfloat16)
    num_bytes = 2 * sum(weight.numel() for weight in model.parameters())
    decoders = {"eager": Decoder(model, [], max_slots=max(BATCHES))}
    if device != "cpu":
        graphs = CudaGraphs(torch.device(device))
        decoders["CUDA graphs"] = Decoder(model, [], max_slots=max(BATCHES), capture=graphs)
    settings = GenerationConfig(max_new_tokens=NEW_TOKENS, do_sample=True, top_k=0, pad_token_id=0, eos_token_id=None)
    for batch in BATCHES:
        ids = np.random.default_rng(batch).integers(1, model.config.vocab_size, (batch, PROMPT_TOKENS))
        prompts = [Prompt(row, (number,), NEW_TOKENS) for number, row in enumerate(ids)]
        tensor = torch.from_numpy(ids).to(device)
        works: dict[str, Callable[[], object]] = {
            name: partial(decoder.generate, prompts, Sampling()) for name, decoder in decoders.items()
        }
        works["generate"] = partial(model.generate, tensor, generation_config=settings)
        for name, work in works.items():
            seconds, memory = measured(work, device, repeats)
            per_s = batch * NEW_TOKENS / seconds
            yield shape, str(batch), name, f"{per_s:,.0f}", f"{per_s / batch * num_bytes / 1e9:,.0f}", memory


def learning(shape: str, device: str, repeats: int) -> tuple[str, ...]:
    """Measure tokens and operations per second of a forward and backward pass. Returns a row of the table."""
    model = made(shape, device, torch.float32)
    num_rows = LEARNED_TOKENS // (PROMPT_TOKENS + NEW_TOKENS)
    ids = np.random.default_rng(0).integers(1, model.config.vocab_size, (num_rows, PROMPT_TOKENS + NEW_TOKENS))
    replies = [TokenRecord(row[:PROMPT_TOKENS], row[PROMPT_TOKENS:], False, "") for row in ids]
    rows = [row for reply in replies for row in rows_of((Completion("", tokens=reply),))]
    scorer = Scorer(model)

    def update() -> None:
        model.zero_grad()
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            logprobs, _, _ = scorer.scores(rows, 1.0)
        torch.autograd.backward(logprobs.sum())

    seconds, memory = measured(update, device, repeats)
    flops = 3 * operations(model, [PROMPT_TOKENS] * num_rows, NEW_TOKENS)
    return shape, f"{ids.size / seconds:,.0f}", f"{flops / seconds / 1e12:,.1f}", memory


def measured(work: Callable[[], object], device: str, repeats: int) -> tuple[float, str]:
    """Return the median seconds of `work`, and the peak of memory allocated on the device, in GiB."""
    if device == "cpu":
        return statistics.median(taken for _, taken in timed_rounds({"": work}, repeats)[""]), ""
    torch.cuda.reset_peak_memory_stats(device)
    rounds = timed_rounds({"": work}, repeats, clock=clock_of(device))[""]
    return statistics.median(taken for _, taken in rounds), f"{torch.cuda.max_memory_allocated(device) / 2**30:.1f}"


if __name__ == "__main__":
    raise SystemExit(main())
