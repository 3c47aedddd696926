"""What only a GPU can show of training: pinned copies, events, free memory, offload, fused steps, autocast critics."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from probes import AGENTS, TextProbe, random_llama, word_tokenizer

from collm.agents.batching import sent
from collm.agents.core import CriticInput
from collm.agents.decoding.decoder import Decoder
from collm.agents.decoding.sampling import Sampling, draw
from collm.agents.decoding.steps.eager_steps import HostCopy
from collm.agents.language.critics import TextCritic
from collm.agents.language.model import LanguageModel
from collm.agents.language.policy import LanguagePolicy
from collm.algorithms import algorithm_spec
from collm.algorithms.learning.offloading import WeightOffloader, to_host
from collm.algorithms.memory.devices import capacity
from collm.algorithms.runs.assembly.trainers import make_trainer
from collm.envs.vectors.vector import SyncVector

pytestmark = pytest.mark.gpu
GPU = torch.device("cuda")


def test_copies_and_weights_wait_in_pinned_memory_and_free_memory_bounds_rows():
    numbers = np.arange(1000)
    there = sent(numbers, GPU)
    readings = [HostCopy(there * factor) for factor in range(5)]  # all queued before the first is read
    for factor, reading in enumerate(readings):
        np.testing.assert_array_equal(reading.numbers(), numbers * factor)
    weights = [torch.nn.Parameter(torch.randn(100, device=GPU)) for _ in range(2)]
    before = [weight.detach().clone() for weight in weights]
    offloader = WeightOffloader({0: weights[:1], 1: weights[1:]})
    offloader.only([1])
    assert weights[0].device.type == "cpu" and weights[0].is_pinned() and weights[1].device.type == "cuda"
    offloader.only([0, 1])
    assert all(torch.equal(weight, old) for weight, old in zip(weights, before, strict=True))
    assert to_host(weights[0]).is_pinned()

    free, total = torch.cuda.mem_get_info(GPU)
    assert 0 < free <= total
    assert 0 < capacity(GPU) < total
    engine = Decoder(random_llama().to(GPU), [1])._engine
    few, many = engine.max_rows(4096), engine.max_rows(64)
    assert few is not None and many is not None and 0 < few < many


@pytest.mark.parametrize("offload", ["none", "moments", "learner"])
def test_updates_take_their_steps_and_leave_only_weights_on_the_device(offload):
    spec = algorithm_spec("maac")
    rates = {"agent_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "critic_warmup": 0, "critic_steps": 3}
    clip = {"clip_range": 0.2, "ppo_epochs": 3}
    algorithm = spec.make(spec.config(rollout_buffer_size=4, critic_batch_size=2, offload=offload, **rates, **clip))
    policies = {
        agent: LanguagePolicy(
            LanguageModel(random_llama(seed).to(GPU), word_tokenizer(), compute_dtype=torch.bfloat16), max_new_tokens=3
        )
        for seed, agent in enumerate(AGENTS)
    }
    before = [weight.detach().clone() for policy in policies.values() for weight in policy.parameters()]
    trainer = make_trainer(algorithm, SyncVector(lambda: TextProbe("delayed"), 4), policies)
    for _ in range(2):
        _, metrics = trainer.step()
        assert metrics["optimizer_steps"] == 3
        assert all(math.isfinite(metrics[name]) for name in ("policy_loss", "grad_norm", "value_loss"))
    after = [weight for policy in policies.values() for weight in policy.parameters()]
    assert {weight.device.type for weight in after} == {"cuda"} and all(weight.grad is None for weight in after)
    assert not all(torch.equal(weight, old) for weight, old in zip(after, before, strict=True))
    for learner in trainer.unique_learners:
        kinds = {value.device.type for state in learner.optimizer.adamw.state.values() for value in state.values()}
        assert kinds == {"cuda" if offload == "none" else "cpu"}
        assert learner.policy.language_model.generator.kv_bytes == 0


def test_critics_compute_in_16_bits_and_say_what_they_say_in_32():
    item = CriticInput(("say red", "say red\nnow blue"))
    said = {}
    for dtype in (None, torch.bfloat16):
        critic = TextCritic.small(word_tokenizer(), device=GPU, compute_dtype=dtype)
        torch.nn.init.ones_(critic.head.get_parameter("weight"))  # a new critic says 0 of everything
        said[dtype] = critic.values([item]).detach()
    assert {values.dtype for values in said.values()} == {torch.float32}
    torch.testing.assert_close(said[torch.bfloat16], said[None], rtol=0.05, atol=0.02)
    assert not torch.equal(said[torch.bfloat16], said[None])


def test_the_first_use_of_a_gpu_turns_on_expandable_segments_and_turns_off_plans_per_shape():
    program = (
        "import torch; from collm.agents.loading import device_named; torch.ones(9, device=device_named('cuda'));"
        "print(torch.cuda.memory._snapshot()['allocator_settings']['expandable_segments'],"
        "torch.backends.cuda.cudnn_sdp_enabled())"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).split() == ["True", "False"]


@pytest.mark.parametrize("num_rows", [1, 5])
@pytest.mark.parametrize("settings", [{}, {"top_p": 0.9}, {"top_k": 50, "top_p": 0.9}])
def test_sampling_is_allowed_among_deterministic_operations_and_equals_that_of_a_cpu(num_rows, settings):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(num_rows, 10_000, generator=generator)
    noise = torch.rand(num_rows, generator=generator, dtype=torch.float64)
    expected = draw(logits.clone(), Sampling(**settings), noise)
    torch.use_deterministic_algorithms(True)
    try:
        found = draw(logits.to(GPU), Sampling(**settings), noise.to(GPU))
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(found.tokens.cpu(), expected.tokens)
    torch.testing.assert_close(found.logprobs.cpu(), expected.logprobs, rtol=1e-5, atol=1e-5)
