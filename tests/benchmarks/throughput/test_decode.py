"""The decoding workloads count tokens as they say, and the table prints what was found."""

import pytest
import torch

from collm.agents.decoding.sampling import Sampling
from collm.benchmarks.throughput import decode as throughput


def test_both_workloads_count_the_tokens_that_they_decode(monkeypatch):
    monkeypatch.setattr(throughput, "NEW_TOKENS", 3)
    model, prompts = throughput.tiny_model(), throughput.ragged_prompts(2)
    assert throughput._decoding(model, prompts, Sampling())() == 6
    assert throughput._generating(model, prompts, Sampling(top_k=5), 2)() == 6


def test_the_table_states_ratios_and_targets():
    row = throughput.DecodeRow("batch 2", {"ours": [20, 30, 40], "theirs": [10, 12, 8]}, "ours", "theirs", 1.5)
    cells = "ours 30 (20-40) | theirs | 10 (8-12) | 2.50 (2.00-5.00)x | 1.5x"
    assert throughput.table([row]).splitlines()[-1] == f"| batch 2 | {cells} |"


@pytest.mark.slow
def test_decoding_reaches_its_floors():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    measured = throughput.measure(repeats=3)
    torch.set_num_threads(threads)
    assert not [row.name for row in measured if row.ratio.median < row.floor]
