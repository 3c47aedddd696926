"""First weights from which associative recall is learned in a hundred updates instead of thousands, and memory at all.

Two layers look a word up in three moves: a head of the first layer carries each word to its right neighbour, a head of
the second finds the place whose left neighbour is the word in question, and copies what stands there. From random
weights every one of the moves waits for the other two. Here they start as rough sketches, and training refines them.

Not to say a word again takes one move: heads of the second layer look at the words that began a line, as own replies
do, and take them from what is copied. These heads, too, start as a sketch; without it no lesson made them form.

Axes: d hidden size, V vocabulary, E head size.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

WORD_SCALE = 0.1  # standard deviation of embeddings; the library's 0.02 would drown in the layers' outputs
SPELLING_NOISE = 0.3  # how far a word without its space starts from the word with it, of its length
SHARED_PART = 0.3  # what all embeddings have in common, of their length: neighbour heads find no hold in words
REST_SCALE = 1.5  # all other weights, times the library's first ones
NUM_ROTATIONS = 3  # the fastest ones, which tell a neighbour from the next but one
NEIGHBOUR_SCALE = 3.0
MATCH_SCALE = 1.8
COPY_SCALE = 1.2
NUM_HEADS = 2  # that match; together they read half of the hidden size, and the neighbour is carried to the other half
BEGINNING_PART = 0.3  # what all words that begin a line have in common, of their length: memory finds hold in it
SLOW_ROTATIONS = 4  # the slowest ones, which hardly tell one place from another
ATTENTION_SCALE = 0.6
ERASING_SCALE = 1.5  # of what was said before, times COPY_SCALE


@torch.no_grad()
def wire_recall(model: LlamaForCausalLM, spellings: list[tuple[int, int]]) -> None:
    """Set the first weights, with torch's own random generator.

    Args:
        model: one of two layers or more, and four heads or more.
        spellings: token ids of one word with and without a space before it, which start alike.
    """
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    size, head_size = model.config.hidden_size, first.head_dim
    for weights in model.model.layers.parameters():
        if weights.dim() == 2:
            weights *= REST_SCALE
    shared, beginning = torch.linalg.qr(torch.randn(size, 2)).Q.T
    _set_embeddings(model.model.embed_tokens.weight, shared, beginning, spellings)
    read, carried = _orthogonal_halves(size)
    frequencies = model.model.rotary_emb.inv_freq
    for head in range(NUM_HEADS):
        rows = slice(head * head_size, (head + 1) * head_size)
        # A query turned back by one step meets the key of the left neighbour.
        phases = 2 * math.pi * torch.rand(head_size // 2)
        first.q_proj.weight[rows] = torch.outer(_rotor(phases - frequencies), shared)
        first.k_proj.weight[rows] = torch.outer(_rotor(phases), shared)
        first.v_proj.weight[rows] = read[rows]
        first.o_proj.weight[:, rows] = WORD_SCALE * carried[rows].T
        second.q_proj.weight[rows] = MATCH_SCALE * read[rows]
        second.k_proj.weight[rows] = MATCH_SCALE * carried[rows]
    # In the second layer all heads copy; those that are wired neither to match nor to erase look around at random.
    num_heads = model.config.num_attention_heads
    copied = read.repeat(num_heads // NUM_HEADS, 1)
    second.v_proj.weight.copy_(copied)
    second.o_proj.weight.copy_(COPY_SCALE * copied.T)
    everywhere = ATTENTION_SCALE * (torch.arange(head_size) % (head_size // 2) >= head_size // 2 - SLOW_ROTATIONS)
    for head in range(num_heads - NUM_HEADS, num_heads):
        rows = slice(head * head_size, (head + 1) * head_size)
        second.q_proj.weight[rows] = torch.outer(everywhere, shared)
        second.k_proj.weight[rows] = torch.outer(everywhere, beginning)
        second.o_proj.weight[:, rows] *= -ERASING_SCALE


def _set_embeddings(embeddings: Tensor, shared: Tensor, beginning: Tensor, spellings: list[tuple[int, int]]) -> None:
    """Random words [V, d] that have nothing but the shared direction [d] in common, and another if without a space."""
    embeddings.copy_(WORD_SCALE * torch.randn_like(embeddings))
    spaced, bare = (list(ids) for ids in zip(*spellings, strict=True))
    noise = SPELLING_NOISE * WORD_SCALE * torch.randn(len(bare), embeddings.shape[1])
    embeddings[bare] = embeddings[spaced] + noise
    length = WORD_SCALE * math.sqrt(embeddings.shape[1])
    embeddings += torch.outer(SHARED_PART * length - embeddings @ shared, shared)
    embeddings -= torch.outer(embeddings @ beginning, beginning)
    embeddings[bare] += BEGINNING_PART * length * beginning


def _orthogonal_halves(size: int) -> tuple[Tensor, Tensor]:
    """A random orthonormal basis of R^d in two halves [d/2, d]: where a word is read, and where it is carried to."""
    basis: Tensor = torch.linalg.qr(torch.randn(size, size)).Q
    return basis[: size // 2], basis[size // 2 :]


def _rotor(phases: Tensor) -> Tensor:
    """A vector [E] of these phases [E/2] in the fastest rotations, in the layout of rotary positions."""
    lengths = NEIGHBOUR_SCALE * (torch.arange(len(phases)) < NUM_ROTATIONS)
    return torch.cat([lengths * torch.cos(phases), lengths * torch.sin(phases)])
