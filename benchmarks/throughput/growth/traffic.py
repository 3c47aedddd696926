"""What an update computes, sends and waits for on up to 1,000 GPUs: arithmetic of sizes and of the limits below.

    python -m collm.benchmarks.throughput.growth.traffic

Nothing here was measured but `EPISODE_BYTES`; docs/scale.md shows the tables. Per GPU an update has 64 episodes of two
agents with weights of their own and a small critic; each agent's row has 2,048 tokens, 896 of which are sampled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from transformers import AutoConfig

from ....agents.language.shape import FLOAT32, KNOWN, ModelShape
from ...markdown import markdown_table

MODELS = ("Qwen/Qwen3-1.7B", "Qwen/Qwen3-4B")
NUM_GPUS = (8, 64, 256, 1000)
GPUS_PER_MACHINE = 8
NUM_AGENTS = 2
EPISODES_PER_GPU = 64
ROW_TOKENS = 2_048
NUM_TURNS = 4
SAMPLED_TOKENS = 896
PASS_TOKENS = 16_384
"""Tokens of a forward and backward pass, after which gradients are reduced."""
BFLOAT16 = 2

MEMORY_RATE = 3.35e12
"""Bytes per second that an H100 reads."""
DECODE_SHARE = 0.6
"""Share of that which decoding reaches: the goal of docs/gpu.md, not reached anywhere yet."""
ARITHMETIC_RATE = 990e12
"""Operations per second of an H100 in bfloat16."""
LEARN_SHARE = 0.35
"""Share of that which learning reaches: likewise."""
OPERATIONS = 8
"""Per weight and token: forward, backward, and the forward pass again, as activations are recomputed."""
NVLINK_RATE = 450e9
"""Bytes per second between GPUs of a machine, one way."""
NETWORK_RATE = 50e9
"""Bytes per second into or out of a machine: 400 Gbit/s."""
HOST_RATE = 1e9
"""Bytes per second in which a process of Python takes in pickled episodes."""
EPISODE_BYTES = 36
"""Bytes of a pickled episode of four turns per token of its rows, as synthetic episodes have: a test counts them."""


@dataclass(frozen=True, slots=True)
class Update:
    """Seconds of an update by what they are spent on, and its bytes."""

    play: float
    learn: float
    exchange: float
    """Gradients among ranks, or weights to collectors."""
    episodes: float
    """Taking in the episodes that others played."""
    sent: float
    """Bytes that each GPU sends of gradients, or the learner's machine of weights."""
    gathered: float
    """Bytes of episodes that each rank, or the process that learns, takes in."""

    @property
    def bound(self) -> str:
        """What takes longest."""
        spent = {"playing": self.play, "learning": self.learn, "network": self.exchange, "one process": self.episodes}
        return max(spent, key=lambda name: spent[name])


def shape_of(model: str) -> ModelShape:
    """Sizes of a model, without its files."""
    return ModelShape.of(AutoConfig.for_model(**KNOWN[model]))


def play_seconds(shape: ModelShape) -> float:
    """Seconds in which one GPU plays its episodes: at each step of a batch it reads all weights, keys and values."""
    read = BFLOAT16 * shape.num_linear + EPISODES_PER_GPU * ROW_TOKENS / 2 * shape.kv_per_token(BFLOAT16)
    return NUM_AGENTS * SAMPLED_TOKENS * read / (DECODE_SHARE * MEMORY_RATE)


def learn_seconds(shape: ModelShape, episodes: float, num_gpus: int) -> float:
    """Seconds in which some GPUs learn from so many episodes."""
    operations = OPERATIONS * shape.num_linear * NUM_AGENTS * ROW_TOKENS * episodes
    return operations / (LEARN_SHARE * ARITHMETIC_RATE * num_gpus)


def on_ranks(shape: ModelShape, num_gpus: int) -> Update:
    """An update under torchrun: every rank plays its episodes and computes its passes; gradients are added up.

    Gradients are reduced in float32 after each pass, all that a GPU sends and receives in a ring; episodes are gathered
    by every rank, as control is replicated.
    """
    num_passes = NUM_AGENTS * EPISODES_PER_GPU * ROW_TOKENS / PASS_TOKENS
    sent = num_passes * 2 * FLOAT32 * shape.num_weights * (num_gpus - 1) / num_gpus
    gathered = episode_bytes() * EPISODES_PER_GPU * (num_gpus - 1)
    return Update(
        play=play_seconds(shape),
        learn=learn_seconds(shape, EPISODES_PER_GPU, 1),
        exchange=sent / (NVLINK_RATE if num_gpus <= GPUS_PER_MACHINE else NETWORK_RATE),
        episodes=gathered / HOST_RATE,
        sent=sent,
        gathered=gathered,
    )


def with_collectors(shape: ModelShape, num_gpus: int) -> Update:
    """An update with Ray's collectors: one machine learns, a GPU each plays on all others.

    Weights go in float32, once to each machine, where its actors share them; they all come from the learner's machine,
    though Ray lets machines that have them pass them on.
    """
    num_collectors = num_gpus - GPUS_PER_MACHINE
    episodes = EPISODES_PER_GPU * num_collectors
    sent = NUM_AGENTS * FLOAT32 * shape.num_weights * num_collectors / GPUS_PER_MACHINE
    gathered = episode_bytes() * episodes
    return Update(
        play=play_seconds(shape),
        learn=learn_seconds(shape, episodes, GPUS_PER_MACHINE),
        exchange=sent / NETWORK_RATE,
        episodes=gathered / HOST_RATE,
        sent=sent,
        gathered=gathered,
    )


def episode_bytes() -> float:
    """Bytes of one episode as it is sent."""
    return EPISODE_BYTES * NUM_AGENTS * ROW_TOKENS


def ranks_table() -> str:
    """`on_ranks` in Markdown."""
    header = ("model", "GPUs", "play", "learn", "gradients", "sent per GPU", "episodes", "gathered per rank", "bound")
    return _table(header, {model: [(gpus, on_ranks(shape_of(model), gpus)) for gpus in NUM_GPUS] for model in MODELS})


def collectors_table() -> str:
    """`with_collectors` in Markdown."""
    header = ("model", "GPUs", "play", "learn on 8", "weights", "sent", "episodes", "gathered", "bound")
    counts = [2 * GPUS_PER_MACHINE, *NUM_GPUS[1:]]
    return _table(header, {model: [(n, with_collectors(shape_of(model), n)) for n in counts] for model in MODELS})


def _table(header: tuple[str, ...], found: Mapping[str, list[tuple[int, Update]]]) -> str:
    rows = [
        (
            *(_short(model), f"{num_gpus:,}", f"{update.play:.1f} s", f"{update.learn:.1f} s"),
            *(f"{update.exchange:.1f} s", f"{update.sent / 1e9:,.0f} GB"),
            *(f"{update.episodes:.1f} s", f"{update.gathered / 1e9:.2f} GB", update.bound),
        )
        for model, updates in found.items()
        for num_gpus, update in updates
    ]
    return markdown_table(header, rows)


def _short(model: str) -> str:
    return model.removeprefix("Qwen/")


if __name__ == "__main__":
    print(ranks_table(), collectors_table(), sep="\n\n")
