"""Two ranks and one server, in one process: one rank sends weights, the other one waits for them."""

from unittest.mock import Mock

import numpy as np
import pytest
import torch
from fakes import byte_tokenizer
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM
from vllm_server import EXCHANGE, learner, perturb, prompts

from collm.agents.decoding.sampling import Sampling
from collm.agents.language.model import LanguageModel
from collm.agents.loading import with_adapters
from collm.agents.vllm import replicas, weight_transfer
from collm.agents.vllm.server import ServerError, Serving


class First:
    """The rank that writes. `Second` reads its results later."""

    is_writer = True

    def __init__(self):
        self.done = []

    def by_writer(self, work):
        self.done.append(work())
        return self.done[-1]


class Second:
    is_writer = False

    def __init__(self, first):
        self.first = first

    def by_writer(self, work):
        return self.first.done.pop(0)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(replicas, "PROBE_S", 0.0)


@pytest.fixture
def ranks(folder, stub):
    return learner(folder, stub.url), learner(folder, stub.url)


def make_ready(ranks, adapter=None):
    processes = First()
    ranks[0].make_ready(processes, adapter, None)
    ranks[1].make_ready(Second(processes), adapter, None)


def learn(ranks, of=""):
    for rank in ranks:
        perturb(rank, of=of)


def same(ranks, asked=None):
    first, second = (rank.generate(asked or prompts(4), Sampling()) for rank in ranks)
    assert max(rank.drift for rank in ranks) < 1e-5
    return all(np.array_equal(a.ids, b.ids) for a, b in zip(first, second, strict=True))


def test_one_rank_sends_and_both_are_answered_by_what_was_sent(ranks, stub):
    make_ready(ranks)
    assert same(ranks) and not stub.paths()
    learn(ranks)
    make_ready(ranks)
    assert same(ranks) and stub.paths() == EXCHANGE


def test_a_rank_that_sends_nothing_waits_until_a_new_server_has_the_weights(ranks, stub, folder):
    learn(ranks)
    make_ready(ranks)
    assert same(ranks)
    stub.base, stub.version = AutoModelForCausalLM.from_pretrained(folder), "default"  # restarted
    with pytest.warns(RuntimeWarning, match="not used until"), pytest.raises(ServerError, match="has not received"):
        ranks[1].generate(prompts(4), Sampling())
    ranks[0].generate(prompts(4), Sampling())  # which notices, and sends the weights again
    assert stub.paths() == EXCHANGE * 2
    with pytest.warns(RuntimeWarning, match="responds again"):
        assert same(ranks)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft asks for it
def test_one_rank_sends_adapters_and_both_ask_for_them(folder, stub):
    def generator():
        torch.manual_seed(0)
        model = with_adapters(AutoModelForCausalLM.from_pretrained(folder), ["fox", "stone"], rank=4)
        return LanguageModel(model, byte_tokenizer(), serving=Serving(addresses=(stub.url,), patience_s=0)).generator

    ranks = generator(), generator()
    for _ in range(2):
        learn(ranks, of="lora_")
        for adapter in ("fox", "stone"):
            make_ready(ranks, adapter)
        assert same(ranks, prompts(2, "fox") + prompts(2, "stone"))
    assert stub.paths() == ["/v1/load_lora_adapter"] * 2 + ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"] * 2


def test_single_weights_are_written_as_by_save_pretrained_or_gone_through(folder, monkeypatch):
    model, written = AutoModelForCausalLM.from_pretrained(folder), weight_transfer.WeightFolder()
    written.write(model, model.named_parameters(), "first", First())
    loaded = AutoModelForCausalLM.from_pretrained(written._folder / "first")
    assert loaded.config.to_dict() | {"_name_or_path": ""} == model.config.to_dict() | {"_name_or_path": ""}
    assert all(torch.equal(weight, model.state_dict()[name]) for name, weight in loaded.state_dict().items())
    model = AutoModelForCausalLM.from_pretrained(folder)
    weights = iter(list(model.named_parameters()))
    monkeypatch.setattr(weight_transfer, "save_file", Mock(side_effect=SafetensorError("No space left on device")))
    with pytest.raises(ServerError, match=r"cannot be written to .*: No space left on device"):
        weight_transfer.WeightFolder().write(model, weights, "first", First())
    assert list(weights) == []
