import pytest
import torch

from collm.agents.decoding.sampling import Sampling
from collm.benchmarks.throughput import decode as throughput


def test_both_workloads_count_the_tokens_that_they_decode(monkeypatch):
    monkeypatch.setattr(throughput, "NEW_TOKENS", 3)
    model, prompts = throughput.tiny_model(), throughput.ragged_prompts(2)
    assert throughput._decoding(model, prompts, Sampling())() == 6
    assert throughput._generating(model, prompts, Sampling(top_k=5), 2)() == 6


@pytest.mark.slow
def test_decoding_reaches_its_floors():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    measured = throughput.measure(repeats=3)
    torch.set_num_threads(threads)
    assert not [row.name for row in measured if row.ratio.median < row.floor]
