"""The suite of published tasks, end to end on a CPU with the embedded model: one command, in pieces, to a report."""

import re

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from collm.agents.tiny import TINY_DIRECTORY
from collm.benchmarks.cli import main

SMALL = (
    "--max-new-tokens 8 --config rollout_buffer_size=2 eval_num_samples=1 --environment-steps 8 --seeds 0 --workers 1 "
    "--model-config is_chat=false template_kwargs={} compute_dtype=float32"
).split()


@pytest.mark.slow
def test_the_published_tasks_run_in_pieces_and_are_reported(tmp_path, capfd):
    model = tmp_path / "tiny"  # with a context that holds two players' prompts of 3,000 tokens
    AutoModelForCausalLM.from_pretrained(TINY_DIRECTORY, max_position_embeddings=16_384).save_pretrained(model)
    AutoTokenizer.from_pretrained(TINY_DIRECTORY).save_pretrained(model)
    call = ["benchmark", "published", *SMALL, f"model={model}", "--out", str(tmp_path / "runs")]
    assert main([*call, "--minutes", "0.3"]) == 0
    said = capfd.readouterr().out
    left = re.search(r"(\d+) runs are left", said)
    assert left is not None and int(left[1]) > 0
    assert main(call) == 0
    assert "15 runs finished" in capfd.readouterr().out
    assert main(["report", str(tmp_path / "runs"), "--contrasts", "published"]) == 0
    text = (tmp_path / "runs" / "tables.md").read_text()
    assert "centralized critic - Monte Carlo, StrBuild" in text and "before training" in text
