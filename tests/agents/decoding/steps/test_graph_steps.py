"""Recorded steps give the samples of eager steps, and read only their buffers."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from architectures import adapted_model, model_of
from decoded import assert_same, next_turn, ragged_prompts, stores
from kernels import torch_alone
from pretended import NAME, pretended
from taped import Eagerly, Taped, place_of
from torch import nn

from collm._errors import UserError
from collm.agents.decoding import engine
from collm.agents.decoding import sampling as sampling_module
from collm.agents.decoding.decoder import Decoder
from collm.agents.decoding.sampling import Sampling
from collm.agents.decoding.steps import graph_steps as static
from collm.agents.decoding.steps.graph_steps import CudaGraphs, bucket

STOP = 3
FILTERED = Sampling(0.8, 20, 0.9)
GREEDY = Sampling(greedy=True)
BF16 = torch.bfloat16
BF16_NATS = 0.06  # rounding depends on the other rows of a batch
SLOW = pytest.mark.slow


def prompts_of(count, seed=0, **changes):
    return ragged_prompts(count, seed, parks=True, **changes)


def lasting(count, new=12):
    """Prompts without handles, whose completions end in the same step."""
    return ragged_prompts(count, max_new_tokens=new)


@pytest.fixture(autouse=True)
def filters_of_a_device(monkeypatch):
    """Tapes record only torch's operations; on a CPU, filters sort with NumPy."""
    monkeypatch.setattr(sampling_module, "_is_on_host", lambda values: False)
    with torch_alone():
        yield


@pytest.fixture
def equal_widths(monkeypatch):
    """Eager steps read as many columns as recorded ones: in bfloat16 the order of a sum may change a draw."""
    monkeypatch.setattr(engine, "MASK_BLOCK", static.WIDTH_BLOCK)


@pytest.fixture(scope="module")
def llama():
    return model_of("llama")


def test_buckets_are_powers_of_two_and_the_middles_between_them():
    buckets = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 6, 7: 8, 8: 8, 9: 12, 12: 12, 13: 16, 24: 24, 25: 32, 97: 128, 128: 128}
    assert {count: bucket(count) for count in buckets} == buckets


@pytest.mark.parametrize(
    ("name", "sampling"),
    [
        ("qwen3", FILTERED),
        pytest.param("llama", Sampling(), marks=SLOW),
        pytest.param("gpt2", Sampling(greedy=True), marks=SLOW),
        pytest.param("qwen3", Sampling(1.0, 0, 0.7, learns_filtered=True), marks=SLOW),
    ],
    ids=str,
)
@pytest.mark.parametrize("capture", [Taped, pytest.param(Eagerly, marks=SLOW)])
def test_static_steps_say_what_eager_steps_say_over_turns_and_refills(capture, name, sampling):
    model, prompts, recording = model_of(name), prompts_of(11), capture()
    torch.manual_seed(1)
    head = nn.Linear(32, 1)
    ours = Decoder(model, [STOP], max_slots=5, value_head=head, capture=recording)
    eager = Decoder(model, [STOP], max_slots=5, value_head=head)
    for turn in range(3):
        samples = ours.generate(prompts, sampling)
        assert_same(samples, eager.generate(prompts, sampling))
        prompts = next_turn(prompts, samples, turn)[::-1]
    assert recording.num_replays > 2 * recording.num_captured > 0


@pytest.mark.parametrize("name", ["qwen3", pytest.param("llama", marks=SLOW)])
def test_under_autocast_they_say_what_eager_steps_say_of_weights_as_they_are_now(name, equal_widths):
    model, prompts, recording = model_of(name), prompts_of(7), Taped()
    ours, eager = Decoder(model, [STOP], capture=recording), Decoder(model, [STOP])
    for scale in (1.0, 1.1):
        with torch.no_grad():
            model.lm_head.weight.mul_(scale)  # the decoder is not told: each call uses the current weights
        with torch.autocast("cpu", BF16):
            assert_same(ours.generate(prompts, Sampling()), eager.generate(prompts, Sampling()), atol=BF16_NATS)
        prompts = [replace(prompt, parked=None) for prompt in prompts]
    assert recording.num_replays > recording.num_captured > 0


@pytest.mark.parametrize(("name", "compute"), [("llama", None), ("gpt2", BF16)])
def test_what_is_recorded_reads_weights_keys_values_and_buffers_and_nothing_else(name, compute):
    """Also not autocast's weight cache, which layers of gpt2 would use."""
    model, recording = model_of(name), Taped()
    decoder = Decoder(model, [], capture=recording)
    with torch.autocast("cpu", compute, compute is not None):
        decoder.generate(lasting(3), FILTERED)
    held = decoder._scheduler._static._buffers
    known = [*model.parameters(), *model.buffers(), *stores(decoder)]
    known += [held.tokens, held.numbers, held.noise, held.facts]
    known += [] if compute is None else [weight for _, weight, _ in decoder._engine.casts._layers]
    places = {place_of(tensor) for tensor in known}
    assert recording.tapes
    for tape in recording.tapes:
        assert {place_of(tensor) for tensor in tape.read} <= places


def test_padding_changes_nobody_s_keys_and_values(llama):
    decoder = Decoder(llama, [STOP], max_slots=8, capture=Taped())
    decoder.generate([replace(prompt, parked=("first", row)) for row, prompt in enumerate(prompts_of(8))], Sampling())
    rows = {key: row for key, row in decoder._scheduler._table._parked.items()}
    before = {key: [store[row].clone() for store in stores(decoder)] for key, row in rows.items()}
    decoder.generate([replace(prompt, parked=None) for prompt in prompts_of(5, seed=1)], Sampling())
    kept = decoder._scheduler._table._parked
    assert len(kept) == 8
    for key, row in kept.items():
        length = len(decoder._scheduler._table._ids[key])
        for store, old in zip(stores(decoder), before[key], strict=True):
            assert torch.equal(store[row][:, :length], old[:, :length])


@pytest.mark.parametrize("change", ["moved", "replaced", "larger"])
def test_weights_keys_and_values_that_lie_elsewhere_are_recorded_anew(change):
    model, recording = model_of("llama"), Taped()
    ours = Decoder(model, [], capture=recording)
    assert_same(ours.generate(lasting(3), GREEDY), Decoder(model, []).generate(lasting(3), GREEDY))
    recorded = recording.num_captured
    prompts = [replace(prompt, ids=prompt.ids[::-1]) for prompt in lasting(3)]
    old = [weight.data for weight in model.parameters()]
    if change == "moved":  # as offloading does, without telling the decoder
        for weight in model.parameters():
            weight.data = weight.data.clone()
    elif change == "replaced":
        layer = model.model.layers[0].self_attn.q_proj
        layer.weight.data = layer.weight.data * 0.9
        ours.forget()
    else:
        ours.generate(lasting(9), GREEDY)
    expected = Decoder(model, []).generate(prompts, GREEDY)
    kept = {place_of(weight) for weight in model.parameters()}
    for weight in old:
        if place_of(weight) not in kept:
            weight.fill_(torch.nan)
    assert_same(ours.generate(prompts, GREEDY), expected)
    assert recording.num_captured > recorded


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
@pytest.mark.parametrize("compute", [None, pytest.param(BF16, marks=SLOW)])
def test_adapters_one_by_one_and_side_by_side_are_recorded_apart(compute, equal_widths):
    model, recording = adapted_model(), Taped()
    ours = Decoder(model, [STOP], capture=recording)
    calls = [["left"], ["right"], ["left", "right", None], ["right", "left"], ["left"]]
    for turn, names in enumerate(calls):
        if turn == 3:  # the decoder is not told: each call uses the current adapters
            with torch.no_grad():
                for name, weight in model.named_parameters():
                    weight.mul_(0.9 if "lora_B" in name else 1)
        prompts = [replace(each, adapter=names[row % len(names)]) for row, each in enumerate(prompts_of(6, seed=turn))]
        with nullcontext() if compute is None else torch.autocast("cpu", compute):
            expected = Decoder(model, [STOP]).generate(prompts, Sampling())
            assert_same(ours.generate(prompts, Sampling()), expected, atol=1e-5 if compute is None else BF16_NATS)
    assert recording.num_replays > recording.num_captured > 0


def test_a_second_call_of_the_same_kind_records_nothing_new(llama):
    recording = Taped()
    decoder = Decoder(llama, [STOP], capture=recording)
    prompts = lasting(4)
    decoder.generate(prompts, Sampling(2.0))
    count = recording.num_captured
    assert count > 0 and recording.num_releases == 0
    decoder.generate(prompts, Sampling(2.0))
    assert recording.num_captured == count
    decoder.rest()
    assert recording.num_releases == 1
    decoder.generate(prompts, Sampling(2.0))
    assert recording.num_captured == 2 * count


def test_the_oldest_recordings_leave_first(llama, monkeypatch):
    monkeypatch.setattr(static, "MAX_RECORDED", 2)
    recording = Taped()
    ours = Decoder(llama, [STOP], capture=recording)
    prompts = prompts_of(9, new=25)
    assert_same(ours.generate(prompts, Sampling()), Decoder(llama, [STOP]).generate(prompts, Sampling()))
    assert recording.num_captured > 2
    assert sum(replay is not None for replay in ours._scheduler._static._recorded.values()) <= 2


def test_fixed_shapes_are_bit_for_bit_alike_in_static_steps_too(llama):
    decoder = Decoder(llama, [STOP], capture=Taped())
    decoder.fix_shapes()
    prompts = prompts_of(6, longest=90)
    together = decoder.generate(prompts, Sampling())
    for prompt, sample in zip(prompts, together, strict=True):
        (alone,) = decoder.generate([prompt], Sampling())
        assert alone.ids.tolist() == sample.ids.tolist()
        assert alone.logprobs.tobytes() == sample.logprobs.tobytes()


def test_the_scratch_row_counts_as_memory_and_graphs_need_cuda(llama):
    row = 2 * 2 * 2 * 8 * 4 * 64 / 2**30  # layers, keys and values, heads, their width, bytes, columns
    decoder = Decoder(llama, [STOP], kv_memory=3.5 * row, capture=Eagerly())
    prompts = prompts_of(5)
    assert_same(decoder.generate(prompts, Sampling()), Decoder(llama, [STOP]).generate(prompts, Sampling()))
    assert decoder.kv_bytes == 3 * row * 2**30  # two sequences at a time
    with pytest.raises(UserError, match=r"of one sequence of .* and of a spare row take"):
        Decoder(llama, [STOP], kv_memory=1.5 * row, capture=Eagerly()).generate(prompts, Sampling())
    with pytest.raises(UserError, match="sampler='graphs'"):
        CudaGraphs(torch.device("cpu"))


class Watched(Eagerly):
    """Counts synchronizations and launches on the pretended device."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen
        self.waits, self.launches = [], []

    def warm_up(self, work):
        self._watch(lambda: Eagerly.warm_up(self, work))

    def capture(self, work):
        replay = super().capture(work)
        return lambda: self._watch(replay)

    def _watch(self, work):
        waits, launches = self.seen.num_waits, self.seen.num_launches
        work()
        self.waits.append(self.seen.num_waits - waits)
        self.launches.append(self.seen.num_launches - launches)


@pytest.mark.parametrize(
    "sampling",
    [FILTERED, pytest.param(Sampling(), marks=SLOW), pytest.param(Sampling(0.9, 0, 0.8), marks=SLOW)],
    ids=str,
)
def test_on_a_device_no_step_asks_the_host_and_two_copies_are_all_that_is_started_besides(sampling):
    """The two copies: tokens, and log-probabilities with entropies. The next step overwrites both."""
    expected = Decoder(model_of("qwen3"), []).generate(lasting(4), sampling)
    with pretended() as seen:
        watched = Watched(seen)
        decoder = Decoder(model_of("qwen3").to(NAME), [], capture=watched)
        besides = []
        for _ in range(2):
            for new in (4, 12):
                watched.launches.clear()
                seen.clear()
                samples = decoder.generate(lasting(4, new), sampling)
                besides.append(seen.num_launches - sum(watched.launches))
    assert_same(samples, expected)
    assert set(watched.waits) == {0}
    assert watched.num_replays > 0 and len(watched.launches) == 12
    assert besides[-1] - besides[-2] == 2 * (12 - 4)


@pytest.mark.gpu
@pytest.mark.parametrize("compute", [None, BF16])
@pytest.mark.parametrize("sampling", [Sampling(), FILTERED], ids=str)
def test_on_a_gpu_recorded_steps_are_the_eager_ones(compute, sampling):
    model = model_of("qwen3").to("cuda")
    ours = Decoder(model, [STOP], max_slots=6, capture=CudaGraphs(model.device))
    eager = Decoder(model, [STOP], max_slots=6)
    prompts = prompts_of(13)
    for turn in range(4):
        if turn == 2:
            ours.rest()
        with torch.autocast("cuda", compute, compute is not None):
            samples = ours.generate(prompts, sampling)
            expected = eager.generate(prompts, sampling)
        if compute is None:
            assert_same(samples, expected, atol=1e-4)
        prompts = next_turn(prompts, samples, turn)
    assert any(ours._scheduler._static._recorded.values())
