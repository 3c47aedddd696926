"""Initial weights with which the model learns associative recall in 100 updates instead of thousands, and memory.

Two layers look up a word in three operations: a head of the first layer carries each word to its right neighbour. A
head of the second layer finds the position whose left neighbour is the requested word, and copies the word there. From
random weights, no operation is useful before the other two are. The initial weights approximate all three.

One operation avoids repeated words: heads of the second layer attend to words at the starts of lines, where own replies
are, and subtract these words from the copied word. Without an initial approximation, no lesson taught this operation.

Axes: d hidden size, V vocabulary, E head size.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

WORD_SCALE = 0.1  # standard deviation of embeddings; transformers' 0.02 is too small for the layers' outputs
SPELLING_NOISE = 0.3  # distance between a word's embeddings with and without a space, relative to their length
SHARED_PART = 0.3  # component common to all embeddings, relative to their length; neighbour heads attend to it
REST_SCALE = 1.5  # factor of all other weights, relative to transformers' initialization
NUM_ROTATIONS = 3  # fastest rotary frequencies, which distinguish positions at distance 1 and 2
NEIGHBOUR_SCALE = 3.0
MATCH_SCALE = 1.8
COPY_SCALE = 1.2
NUM_HEADS = 2  # heads that match words: they read half of the hidden size; the other half contains the neighbour
BEGINNING_PART = 0.3  # component common to words at starts of lines, relative to their length, for memory heads
SLOW_ROTATIONS = 4  # slowest rotary frequencies, which hardly distinguish positions
ATTENTION_SCALE = 0.6
ERASING_SCALE = 1.5  # factor of subtracted earlier words, relative to COPY_SCALE


@torch.no_grad()
def wire_recall(model: LlamaForCausalLM, spellings: list[tuple[int, int]]) -> None:
    """Set the initial weights, with torch's global random number generator.

    Args:
        model: model with at least two layers and four heads.
        spellings: for each word, its token ids with and without a space before it, which get similar embeddings.
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
        # A query that is rotated back by one position matches the key of the left neighbour.
        phases = 2 * math.pi * torch.rand(head_size // 2)
        first.q_proj.weight[rows] = torch.outer(_rotor(phases - frequencies), shared)
        first.k_proj.weight[rows] = torch.outer(_rotor(phases), shared)
        first.v_proj.weight[rows] = read[rows]
        first.o_proj.weight[:, rows] = WORD_SCALE * carried[rows].T
        second.q_proj.weight[rows] = MATCH_SCALE * read[rows]
        second.k_proj.weight[rows] = MATCH_SCALE * carried[rows]
    # In the second layer all heads copy. Heads that neither match nor erase attend to random positions.
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
    """Set random embeddings [V, d] with a common part along `shared` [d]; without space, also along `beginning` [d]."""
    embeddings.copy_(WORD_SCALE * torch.randn_like(embeddings))
    spaced, bare = (list(ids) for ids in zip(*spellings, strict=True))
    noise = SPELLING_NOISE * WORD_SCALE * torch.randn(len(bare), embeddings.shape[1])
    embeddings[bare] = embeddings[spaced] + noise
    length = WORD_SCALE * math.sqrt(embeddings.shape[1])
    embeddings += torch.outer(SHARED_PART * length - embeddings @ shared, shared)
    embeddings -= torch.outer(embeddings @ beginning, beginning)
    embeddings[bare] += BEGINNING_PART * length * beginning


def _orthogonal_halves(size: int) -> tuple[Tensor, Tensor]:
    """Return halves [d/2, d] of a random orthonormal basis of R^d: for reading a word, and for the carried word."""
    basis: Tensor = torch.linalg.qr(torch.randn(size, size)).Q
    return basis[: size // 2], basis[size // 2 :]


def _rotor(phases: Tensor) -> Tensor:
    """Return a vector [E] with these phases [E/2] in the fastest rotations, in the layout of rotary embeddings."""
    lengths = NEIGHBOUR_SCALE * (torch.arange(len(phases)) < NUM_ROTATIONS)
    return torch.cat([lengths * torch.cos(phases), lengths * torch.sin(phases)])
