"""Tracks → rows → trees: as few tokens as hold all turns of all episodes of a batch.

A row is the last turn of an episode, which holds its earlier turns; a tree is rows that begin with the same prompt,
with one copy of it: the prompt, then each row's own tokens, which see the prompt and themselves but not each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core import Completion
from ..encoding import TokenRecord

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PackedRow:
    """The tokens of consecutive turns that extend each other."""

    ids: Ids
    """[L] the last of these turns' prompt and completion: it contains all the others."""
    turns: tuple[TokenRecord, ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """Rows with one copy of the prompt that all begin with."""

    rows: tuple[int, ...]
    """Their numbers."""
    num_shared: int
    """Tokens of that prompt."""
    length: int
    """Tokens in all."""


@dataclass(frozen=True, slots=True)
class PassCost:
    """What a forward pass costs a model, in operations."""

    token: float
    """Operations per token in linear layers."""
    pair: float
    """Operations per pair of a token and one that it may attend to."""

    def saved_by_sharing(self, tree: Tree, num_shared: int, length: int) -> float:
        """Operations saved if a row of `length` tokens joins `tree` instead of being scored alone.

        Tree masks are dense, so every pair of tokens of a tree counts.
        """
        before = tree.length**2 / (2 if len(tree.rows) == 1 else 1)
        more_pairs = (tree.length + length - num_shared) ** 2 - before - length**2 / 2
        return self.token * num_shared - self.pair * more_pairs


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the tokens of a batch lie. Axes: R trees, L tokens, N turns, K sampled tokens."""

    ids: Ids
    """[R, L] padded on the right."""
    places: Ids | None
    """[R, L] each token's place in its own row; None where every tree is a single row."""
    is_visible: NDArray[np.bool_] | None
    """[R, L, L] which tokens (last axis) a token sees; None where it sees all before it."""
    predictors: Ids
    """[2, K] tree and position of the hidden state that predicts each sampled token."""
    targets: Ids
    """[K] the sampled tokens."""
    prompt_ends: Ids
    """[2, N] tree and position of the last prompt token of each turn."""


def rows_of(track: Sequence[Completion]) -> list[PackedRow]:
    """As few rows as hold all the turns of a track: one, unless its history was rewritten."""
    return [
        PackedRow(np.concatenate([chain[-1].prompt_ids, chain[-1].completion_ids]), chain) for chain in _chains(track)
    ]


def num_tokens(track: Sequence[Completion]) -> int:
    """Tokens of all rows of a track."""
    return sum(len(chain[-1].prompt_ids) + len(chain[-1].completion_ids) for chain in _chains(track))


def trees_of(
    rows: Sequence[PackedRow], cost: PassCost, *, max_row: int | None = None, max_tree: int | None = None
) -> list[Tree]:
    """Trees of the rows that begin with the same prompt, as far as sharing it is cheaper; other rows stand alone.

    Args:
        cost: what a token costs the model.
        max_row: a longer row stands alone; None: none is too long.
        max_tree: tokens of a tree of several rows.
    """
    trees: list[Tree] = []
    newest: dict[bytes, int] = {}  # the tree that a prompt's next row may join
    for number, row in enumerate(rows):
        prompt, length = row.turns[0].prompt_ids, len(row.ids)
        if max_row is not None and length > max_row:
            trees.append(Tree((number,), length, length))
            continue
        key = prompt.tobytes()
        if key in newest:
            tree = trees[newest[key]]
            grown = tree.length + length - len(prompt)
            is_cheaper = cost.saved_by_sharing(tree, len(prompt), length) > 0
            if is_cheaper and (max_tree is None or grown <= max_tree):
                trees[newest[key]] = Tree((*tree.rows, number), len(prompt), grown)
                continue
        newest[key] = len(trees)
        trees.append(Tree((number,), length, length))
    return trees


def laid_out(rows: Sequence[PackedRow], trees: Sequence[Tree]) -> Layout:
    """A row of the batch for each tree."""
    width = max(tree.length for tree in trees)
    ids = np.zeros((len(trees), width), dtype=np.int64)
    places = np.zeros_like(ids)
    branch = np.zeros_like(ids)  # 0 in what is shared, then counted from 1
    home: dict[int, tuple[int, int]] = {}  # row → its tree, and how far its own tokens lie from their places
    for number, tree in enumerate(trees):
        start = tree.num_shared
        ids[number, :start], places[number, :start] = rows[tree.rows[0]].ids[:start], np.arange(start)
        for count, row in enumerate(tree.rows, 1):
            own = rows[row].ids[tree.num_shared :]
            stop = start + len(own)
            ids[number, start:stop], branch[number, start:stop] = own, count
            places[number, start:stop] = np.arange(tree.num_shared, len(rows[row].ids))
            home[row] = number, start - tree.num_shared
            start = stop
    is_shared = any(len(tree.rows) > 1 for tree in trees)
    visible = None
    if is_shared:
        visible = (branch[:, None, :] == 0) | (branch[:, None, :] == branch[:, :, None])
        visible &= np.tri(width, dtype=np.bool_)
    return Layout(ids, places if is_shared else None, visible, *_positions(rows, trees, home))


def _positions(
    rows: Sequence[PackedRow], trees: Sequence[Tree], home: dict[int, tuple[int, int]]
) -> tuple[Ids, Ids, Ids]:
    predictors, targets, ends = [], [], []
    for number, row in enumerate(rows):
        tree, shift = home[number]
        num_shared = trees[tree].num_shared
        for turn in row.turns:
            start, length = len(turn.prompt_ids), len(turn.completion_ids)
            own = np.arange(start - 1, start - 1 + length)
            predictors.append(np.stack([np.full(length, tree), np.where(own < num_shared, own, own + shift)]))
            targets.append(turn.completion_ids)
            ends.append((tree, start - 1 if start <= num_shared else start - 1 + shift))
    return np.concatenate(predictors, axis=1), np.concatenate(targets), np.asarray(ends).T


def _chains(track: Sequence[Completion]) -> list[tuple[TokenRecord, ...]]:
    chains: list[list[TokenRecord]] = []
    for completion in track:
        turn: TokenRecord = completion.tokens
        if chains and turn.is_extension:
            chains[-1].append(turn)
        else:
            chains.append([turn])
    return [tuple(chain) for chain in chains]
