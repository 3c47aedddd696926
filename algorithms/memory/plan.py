"""A team and its work → bytes by phase on one device. Pure arithmetic: no model, no device.

A model whose weights all learn costs 4 bytes each for the weight, its gradient, and AdamW's two moments: 16. Gradients
live in an update only; casts are autocast's copies of the weights in the type that matrices are multiplied in. Ranks
that share a model (FSDP2) divide the 16 bytes, but each decodes with a whole copy, and gathers two layers at a time.
Where servers decode there are no copies, keys and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ...agents.language.shape import FLOAT32, ModelShape
from ...agents.scoring.token_scores import MAX_LOGITS, ON_GPU, TILE_LOGITS

Offload = Literal["none", "moments", "learner"]
MAX_ROWS = 256
"""Rows that a decoder keeps: as many parked between turns as are decoded at a time."""
LEAST_ROWS = 8
"""Rows below which decoding is not worth its steps: with room for fewer a training does not fit."""
PREFILL_TOKENS = 8192
DRAWN_COPIES, SCORED_COPIES = 6, 4
"""Arrays of the logits' size that live at once where a word is drawn, and where one is scored: logits, shares, slope
and, of a model in half precision, the logits as they were made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One model of a team: an actor (or several on one base), or a critic."""

    name: str
    shape: ModelShape
    compute: int = FLOAT32
    """Bytes per number that matrices are multiplied in."""
    num_adapters: int = 0
    """Adapters on a frozen base. 0: all weights learn."""
    rank: int = 0
    num_agents: int = 1
    """Agents that play by it; 0: a critic, which only reads."""
    has_reference: bool = False
    """Whether a frozen copy lies beside it, for a KL penalty."""
    learns: bool = True
    num_shares: int = 1
    """Ranks that share it; 1: it is whole on each."""
    is_served: bool = False
    """Servers decode for it, in memory of their own."""

    @property
    def decodes(self) -> bool:
        return self.num_agents > 0 and not self.is_served

    @property
    def is_shared(self) -> bool:
        return self.num_shares > 1 and not self.num_adapters

    @property
    def num_trained(self) -> int:
        """Weights that one learner of it changes."""
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
        """The whole copy that each of the ranks decodes with, which share the model."""
        return self._in_computing_type if self.is_shared and self.decodes else 0

    @property
    def gathered(self) -> int:
        """What a pass has of the other ranks' shares: two layers and the embeddings, and a layer's gradient."""
        if not self.is_shared:
            return 0
        layer = (self.shape.num_linear - self.shape.num_embedded) // self.shape.num_layers
        embedded = self.shape.num_embedded * (1 if self.shape.is_tied or not self.num_agents else 2)
        return 2 * self.compute * layer + FLOAT32 * (embedded + layer)

    @property
    def casts(self) -> int:
        is_cast = self.compute != FLOAT32 and not self.num_adapters and not self.is_shared
        return self.compute * self.shape.num_linear if is_cast else 0

    @property
    def packed(self) -> int:
        """Copies of weights in the order that a CPU's products want, while it decodes."""
        return FLOAT32 * self.shape.num_linear if self.compute == FLOAT32 else 0

    @property
    def reference(self) -> int:
        if not self.has_reference or self.num_adapters:  # adapters' base is their reference
            return 0
        return self._share(self._in_computing_type)

    @property
    def _in_computing_type(self) -> int:
        """Bytes of all weights, those that are multiplied in the type that they are multiplied in."""
        cast = self.shape.num_linear - (self.shape.num_embedded if self.shape.is_tied else 0)
        return FLOAT32 * self.shape.num_weights - (FLOAT32 - self.compute) * cast

    def _share(self, amount: int) -> int:
        return -(-amount // self.num_shares) if self.is_shared else amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a team's passes read, and how they are made."""

    tokens: int
    """Tokens per pass of learning."""
    row_length: int
    """Tokens of the longest row, prompt and completions."""
    num_rows: int
    """Rows that each agent decodes at a time."""
    shares_prompts: bool = False
    recomputes: bool = False
    offload: Offload = "none"
    max_kv: int | None = None
    """Bytes that keys and values may take; None: what all rows need."""
    prefill_tokens: int = PREFILL_TOKENS
    kind: str = "cpu"
    """Kind of the device."""
    side_by_side: bool = False
    """Whether the actors on it decode, and learn, at the same time."""
    critics_side_by_side: bool = False
    """Whether the critics on it learn at the same time."""
    packs: bool = False
    """Whether decoding multiplies by packed copies of fp32 weights, as on some CPUs."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Bytes of one phase, by what they are for."""

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
    """What one device holds in each phase."""

    phases: tuple[Phase, ...]

    @property
    def peak(self) -> Phase:
        return max(self.phases, key=lambda phase: phase.total)


def plan(members: Sequence[Member], work: Work) -> MemoryPlan:
    """The phases of a training step, in their order, once AdamW's moments exist.

    Args:
        members: models on the device.
        work: their passes.
    """
    everything = sum(each.weights for each in members)
    references = sum(each.reference for each in members)
    # Each is loaded whole, and shared out before the next.
    loaded = max((FLOAT32 * each.shape.num_weights for each in members if each.is_shared), default=0)
    phases = [Phase("loading", weights=everything + references + loaded)]
    actors = [each for each in members if each.decodes]
    moments = sum(each.moments for each in members) if work.offload == "none" else 0
    if actors:
        # Critics of learners that take turns wait in host memory.
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
    for learners in _turns(members, work):
        present = sum(each.weights for each in learners) if work.offload == "learner" else everything
        own = moments
        activations = sum(_kept(each, work) + _working(each, work) for each in learners)
        if work.offload != "none":  # moments come when the activations are gone
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
    return MemoryPlan(tuple(phases))


def _turns(members: Sequence[Member], work: Work) -> list[list[Member]]:
    """Who learns at the same time, in the order of a training step."""
    turns: list[list[Member]] = []
    for are_actors, are_together in ((True, work.side_by_side), (False, work.critics_side_by_side)):
        learners = [each for each in members if each.learns and bool(each.num_agents) is are_actors]
        turns += [learners] * bool(learners) if are_together else [[each] for each in learners]
    return turns


def kv_bytes(actors: Sequence[Member], work: Work) -> int:
    """Keys and values of all rows of all actors, within what they may take."""
    needed = sum(_num_rows(each, work) * _row_bytes(each, work) for each in actors)
    return needed if work.max_kv is None else min(needed, work.max_kv)


def least_kv(actors: Sequence[Member], work: Work) -> int:
    """Keys and values of as few rows as are worth decoding."""
    return sum(min(LEAST_ROWS, _num_rows(each, work)) * _row_bytes(each, work) for each in actors)


def within(members: Sequence[Member], work: Work, capacity: int) -> Work | None:
    """The work with keys and values cut to what a device has beside the rest; None where it does not fit.

    Args:
        capacity: bytes of the device.
    """
    if work.max_kv is None:
        actors = [each for each in members if each.decodes]
        without = plan(members, replace(work, max_kv=0))
        rest = next((phase.total for phase in without.phases if phase.name == "decoding"), 0)
        work = replace(work, max_kv=max(least_kv(actors, work), min(kv_bytes(actors, work), capacity - rest)))
    return work if plan(members, work).peak.total <= capacity else None


def _num_rows(actor: Member, work: Work) -> int:
    return min(MAX_ROWS, work.num_rows * actor.num_agents)


def _row_bytes(actor: Member, work: Work) -> int:
    return work.row_length * actor.shape.kv_per_token(actor.compute)


def _decoding(actor: Member, work: Work) -> int:
    """Working memory of a pass over prompts, or of a step's logits."""
    prefill = min(work.prefill_tokens, _num_rows(actor, work) * work.row_length)
    logits = DRAWN_COPIES * FLOAT32 * min(MAX_ROWS // 2, _num_rows(actor, work)) * actor.shape.vocabulary
    return max(prefill * _width(actor), logits)


def _kept(member: Member, work: Work) -> int:
    """Activations that the backward pass reads, with those of the layer that it runs again."""
    length = work.row_length if work.shares_prompts and member.num_agents else 0
    tokens = max(work.tokens, work.row_length)  # a pass has one row at least
    kept = member.shape.kept_per_token(member.compute, rank=member.rank, row_length=length, recomputes=work.recomputes)
    if work.recomputes:
        kept += member.shape.kept_per_layer(member.compute, rank=member.rank, row_length=length)
    return tokens * kept


def _working(member: Member, work: Work) -> int:
    """What comes and goes within a pass: slopes of a layer, tiles of logits, the gradient of the widest matrix."""
    tokens = max(work.tokens, work.row_length)
    widest = 0 if member.num_adapters else FLOAT32 * member.shape.num_embedded
    if not member.num_agents:  # a critic has no logits
        return tokens * _width(member) + widest
    wanted = tokens * member.shape.vocabulary
    whole, tile = MAX_LOGITS.get(work.kind, ON_GPU), TILE_LOGITS.get(work.kind, ON_GPU)
    logits = SCORED_COPIES * FLOAT32 * (wanted if wanted <= whole else max(tile, tokens))
    states = tokens * member.shape.hidden * (FLOAT32 + member.compute) * 2
    return max(tokens * _width(member), logits + states) + (2 if member.shape.is_tied else 1) * widest


def _width(member: Member) -> int:
    """Bytes per token that a layer works with at a time."""
    shape = member.shape
    return member.compute * (3 * shape.feed_forward + 2 * shape.query) + 3 * FLOAT32 * shape.hidden
