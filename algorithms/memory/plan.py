"""Memory plan: bytes that each phase of a training needs on one device, computed from the sizes of models and passes.

A trained weight takes 16 bytes: 4 each for the weight, its gradient, and AdamW's two moments. With FSDP2, each rank
holds only its shard of these, but decodes with a whole copy. Memory of inference servers is not planned here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ...agents.language.shape import FLOAT32, ModelShape
from ...agents.scoring.token_scores import MAX_LOGITS, ON_GPU, TILE_LOGITS

Offload = Literal["none", "moments", "learner"]
MAX_ROWS = 256  # Largest number of sequences whose keys and values a decoder keeps
LEAST_ROWS = 8  # Smallest number of sequences decoded at a time. With memory for fewer, a training does not fit.
DRAWN_COPIES, SCORED_COPIES = 6, 4  # Temporary arrays of the logits' size when tokens are sampled, and evaluated


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One model of a training: an actor, several actors as adapters on one base, a critic, or a frozen model."""

    name: str
    shape: ModelShape
    compute: int = FLOAT32  # Bytes per number in matrix multiplications
    num_adapters: int = 0  # Number of adapters on a frozen model. 0: all weights learn.
    rank: int = 0  # Rank of the adapters
    num_agents: int = 1  # Number of agents that act with the model. 0: a critic, reward model or reference.
    has_reference: bool = False  # True if a frozen copy for a KL penalty is on the same device
    learns: bool = True
    num_shares: int = 1  # Number of ranks that shard the model. 1: each rank has the whole model.
    is_served: bool = False  # True if inference servers decode with the model

    @property
    def decodes(self) -> bool:
        return self.num_agents > 0 and not self.is_served

    @property
    def is_shared(self) -> bool:
        return self.num_shares > 1 and not self.num_adapters

    @property
    def num_trained(self) -> int:
        if not self.learns:
            return 0
        return self.shape.adapter_weights(self.rank) if self.num_adapters else self.shape.num_weights

    @property
    def weights(self) -> int:
        if self.is_shared:
            return FLOAT32 * self._share(self.shape.num_weights) + self.copy
        adapters = FLOAT32 * self.num_adapters * self.shape.adapter_weights(self.rank)
        return self.shape.num_weights * (self.compute if self.num_adapters else FLOAT32) + adapters

    @property
    def gradients(self) -> int:
        return FLOAT32 * self._share(self.num_trained)

    @property
    def moments(self) -> int:
        return 2 * FLOAT32 * self._share(self.num_trained) * max(1, self.num_adapters)

    @property
    def copy(self) -> int:
        """Bytes of the whole copy of a sharded model with which each rank decodes."""
        return self._in_compute_type if self.is_shared and self.decodes else 0

    @property
    def gathered(self) -> int:
        """Bytes that a pass gathers from other ranks: two layers, the embeddings, and the gradient of a layer."""
        if not self.is_shared:
            return 0
        layer = (self.shape.num_linear - self.shape.num_embedded) // self.shape.num_layers
        embedded = self.shape.num_embedded * (1 if self.shape.is_tied or not self.num_agents else 2)
        return 2 * self.compute * layer + FLOAT32 * (embedded + layer)

    @property
    def casts(self) -> int:
        # Autocast keeps copies of the weights in the type of the matrix multiplications.
        is_cast = self.compute != FLOAT32 and not self.num_adapters and not self.is_shared
        return self.compute * self.shape.num_linear if is_cast else 0

    @property
    def packed(self) -> int:
        """Bytes of fp32 weights copied into the layout of a CPU's matrix multiplications, while the model decodes."""
        return FLOAT32 * self.shape.num_linear if self.compute == FLOAT32 else 0

    @property
    def reference(self) -> int:
        if not self.has_reference or self.num_adapters:  # the reference of adapters is their base
            return 0
        return self._share(self._in_compute_type)

    @property
    def _in_compute_type(self) -> int:
        """Bytes of all weights, with the matrices in the type of the matrix multiplications."""
        cast = self.shape.num_linear - (self.shape.num_embedded if self.shape.is_tied else 0)
        return FLOAT32 * self.shape.num_weights - (FLOAT32 - self.compute) * cast

    def _share(self, amount: int) -> int:
        return -(-amount // self.num_shares) if self.is_shared else amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Sizes of the model passes on one device, and options that change the memory of these passes."""

    tokens: int  # Tokens per pass when the models learn
    row_length: int  # Tokens of the longest sequence: prompts and completions together
    num_rows: int  # Number of sequences that each agent decodes at a time
    learned: int | None = None  # Tokens of an agent's sequences in an update. None: unknown
    shares_prompts: bool = False
    recomputes: bool = False
    offload: Offload = "none"
    max_kv: int | None = None  # Maximum bytes of keys and values. None: no limit.
    kind: str = "cpu"  # Type of the device, as in `torch.device.type`
    side_by_side: bool = False  # True if the device's actors decode at the same time, and also learn at the same time
    critics_side_by_side: bool = False  # True if the device's critics learn at the same time
    rounds_pinned: bool = True  # True if PyTorch rounds the sizes of pinned tensors up to powers of two (its default)
    fuses: bool = False  # True if one kernel computes each RMSNorm and SwiGLU in fp32, as on CPUs with a compiler
    packs: bool = False  # True if decoding uses packed copies of fp32 weights, as on some CPUs


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    weights: int = 0
    moments: int = 0
    gradients: int = 0
    casts: int = 0
    kv: int = 0
    activations: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.moments + self.gradients + self.casts + self.kv + self.activations


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    phases: tuple[Phase, ...]
    pinned: int = 0  # Bytes of pinned host memory for offloaded weights and moments

    @property
    def peak(self) -> Phase:
        return max(self.phases, key=lambda phase: phase.total)


def plan(members: Sequence[Member], work: Work) -> MemoryPlan:
    """Compute the memory plan of a training step on one device, after AdamW has allocated its moments."""
    everything = sum(each.weights for each in members)
    references = sum(each.reference for each in members)
    # A model is loaded whole and sharded before the next model is loaded.
    loaded = max((FLOAT32 * each.shape.num_weights for each in members if each.is_shared), default=0)
    phases = [Phase("loading", weights=everything + references + loaded)]
    actors = [each for each in members if each.decodes]
    moments = sum(each.moments for each in members) if work.offload == "none" else 0
    if actors:
        # With offload="learner", critics are in host memory.
        present = everything if work.offload != "learner" else sum(each.weights for each in actors)
        phases.append(
            Phase(
                "decoding",
                weights=present + references,
                moments=moments,
                casts=sum(each.casts + (each.packed if work.packs else 0) for each in actors),
                kv=kv_bytes(actors, work),
                activations=(sum if work.side_by_side else max)(_decoding(each, work) for each in actors),
            )
        )
    for learners in _updates(members, work):
        present = sum(each.weights for each in learners) if work.offload == "learner" else everything
        own = moments
        activations = sum(_kept(each, work) + _working(each, work) for each in learners)
        if work.offload != "none":  # moments are moved to the device after the activations are freed
            own = sum(each.moments // max(1, each.num_adapters) for each in learners)
            activations = max(0, activations - own)
        phases.append(
            Phase(
                f"update of {' and '.join(each.name for each in learners)}",
                weights=present + references,
                moments=own,
                gradients=sum(each.gradients for each in learners),
                casts=sum(each.casts + each.gathered for each in learners),
                activations=activations,
            )
        )
    return MemoryPlan(tuple(phases), _pinned(members, work))


def _pinned(members: Sequence[Member], work: Work) -> int:
    # All models are in host memory for a moment between two learners, and PyTorch keeps pinned memory for later copies.
    total = 0.0
    for each in members:
        if each.learns and work.offload != "none" and work.kind == "cuda":
            rounding = each.shape.num_pinned / each.shape.num_weights if work.rounds_pinned else 1
            total += rounding * (each.moments + (each.weights if work.offload == "learner" else 0))
    return int(total)


def _updates(members: Sequence[Member], work: Work) -> list[list[Member]]:
    """Return groups of models that learn at the same time, in the order of a training step."""
    updates: list[list[Member]] = []
    for are_actors, are_together in ((True, work.side_by_side), (False, work.critics_side_by_side)):
        learners = [each for each in members if each.learns and bool(each.num_agents) is are_actors]
        updates += [learners] * bool(learners) if are_together else [[each] for each in learners]
    return updates


def kv_bytes(actors: Sequence[Member], work: Work) -> int:
    """Return the bytes of keys and values for all sequences of all actors, at most `max_kv`."""
    needed = sum(_num_rows(each, work) * _row_bytes(each, work) for each in actors)
    return needed if work.max_kv is None else min(needed, work.max_kv)


def within(members: Sequence[Member], work: Work, capacity: int) -> Work | None:
    """Limit the KV cache to the free part of a device's `capacity` in bytes. None: the passes need more memory."""
    if work.max_kv is None:
        actors = [each for each in members if each.decodes]
        without = plan(members, replace(work, max_kv=0))
        rest = next((phase.total for phase in without.phases if phase.name == "decoding"), 0)
        least = sum(min(LEAST_ROWS, _num_rows(each, work)) * _row_bytes(each, work) for each in actors)
        work = replace(work, max_kv=max(least, min(kv_bytes(actors, work), capacity - rest)))
    return work if plan(members, work).peak.total <= capacity else None


def _num_rows(actor: Member, work: Work) -> int:
    return min(MAX_ROWS, work.num_rows * actor.num_agents)


def _row_bytes(actor: Member, work: Work) -> int:
    return work.row_length * actor.shape.kv_per_token(actor.compute)


def _decoding(actor: Member, work: Work) -> int:
    """Return the peak temporary memory of decoding in bytes: that of a prefill, or of a step's logits."""
    prefill = min(8192 if work.kind == "cuda" else 1536, _num_rows(actor, work) * work.row_length)
    logits = DRAWN_COPIES * FLOAT32 * min(MAX_ROWS // 2, _num_rows(actor, work)) * actor.shape.vocabulary
    return max(prefill * _width(actor), logits)


def _pass_tokens(member: Member, work: Work) -> int:
    """Return the tokens of a pass: at least one sequence, and at most all sequences of an actor in an update."""
    # A critic replays sequences of earlier updates too.
    most = work.learned * member.num_agents if work.learned is not None and member.num_agents else work.tokens
    return max(min(work.tokens, most), work.row_length)


def _kept(member: Member, work: Work) -> int:
    """Return the bytes of activations that are kept for the backward pass."""
    length = work.row_length if work.shares_prompts and member.num_agents else 0
    tokens = _pass_tokens(member, work)
    is_fused = work.fuses and member.compute == FLOAT32 and member.shape.num_products == 3
    shape, compute, rank = member.shape, member.compute, member.rank
    kept = shape.kept_per_token(compute, rank=rank, row_length=length, recomputes=work.recomputes, is_fused=is_fused)
    if work.recomputes:
        kept += shape.kept_per_layer(compute, rank=rank, row_length=length, is_fused=is_fused)
    return tokens * kept


def _working(member: Member, work: Work) -> int:
    """Return the temporary bytes of a pass: gradients of a layer, tiles of logits, gradient of the embeddings."""
    tokens = _pass_tokens(member, work)
    widest = 0 if member.num_adapters else FLOAT32 * member.shape.num_embedded
    if not member.num_agents:  # a critic has no logits
        return tokens * _width(member) + widest
    wanted = tokens * member.shape.vocabulary
    whole, tile = MAX_LOGITS.get(work.kind, ON_GPU), TILE_LOGITS.get(work.kind, ON_GPU)
    logits = SCORED_COPIES * FLOAT32 * (wanted if wanted <= whole else max(tile, tokens))
    states = tokens * member.shape.hidden * (FLOAT32 + member.compute) * 2
    return max(tokens * _width(member), logits + states) + (2 if member.shape.is_tied else 1) * widest


def _width(member: Member) -> int:
    """Bytes per token of a layer's temporary tensors."""
    shape = member.shape
    return member.compute * (3 * shape.feed_forward + 2 * shape.query) + 3 * FLOAT32 * shape.hidden
