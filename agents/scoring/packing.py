"""Packing of episodes for a forward pass with few tokens. A row is the token sequence of an episode's last turn, which
contains all turns. In a tree, several rows share one copy of their first prompt, to which their other tokens attend."""

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
    """Token sequence of consecutive turns. The prompt of each turn starts with the tokens of the previous turn."""

    ids: Ids  # [L] prompt and completion of the last turn, which contain all earlier turns
    turns: tuple[TokenRecord, ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """One row, or several rows that share one copy of their first prompt."""

    rows: tuple[int, ...]  # indices of the rows in the list of rows
    num_shared: int  # number of tokens of the shared prompt
    length: int  # number of tokens of the tree


@dataclass(frozen=True, slots=True)
class PassCost:
    """Cost of a forward pass, in operations."""

    token: float  # operations per token in linear layers
    pair: float  # operations per pair of tokens in attention

    def saved_by_sharing(self, tree: Tree, num_shared: int, length: int) -> float:
        """Return the number of operations that are saved if a row of `length` tokens joins a tree."""
        # Masks of trees are dense: attention computes every pair of tokens in a tree.
        before = tree.length**2 / (2 if len(tree.rows) == 1 else 1)
        more_pairs = (tree.length + length - num_shared) ** 2 - before - length**2 / 2
        return self.token * num_shared - self.pair * more_pairs


@dataclass(frozen=True, slots=True)
class Layout:
    """Tensors of a batch of trees. Axes: R trees, L tokens, N turns, K sampled tokens."""

    ids: Ids  # [R, L] token ids, padded on the right
    places: Ids | None  # [R, L] position of each token in its row; None if each tree is a single row
    is_visible: NDArray[np.bool_] | None  # [R, L, L] True if token i attends to token j; None: causal attention
    predictors: Ids  # [2, K] tree and index of the hidden state that predicts each sampled token
    targets: Ids  # [K] sampled tokens
    prompt_ends: Ids  # [2, N] tree and index of the last prompt token of each turn


def rows_of(track: Sequence[Completion]) -> list[PackedRow]:
    """Pack an agent's turns in an episode (track) into rows: one row, or more rows if the history was rewritten."""
    return [
        PackedRow(np.concatenate([chain[-1].prompt_ids, chain[-1].completion_ids]), chain) for chain in _chains(track)
    ]


def num_tokens(track: Sequence[Completion]) -> int:
    return sum(len(chain[-1].prompt_ids) + len(chain[-1].completion_ids) for chain in _chains(track))


def trees_of(
    rows: Sequence[PackedRow], cost: PassCost, *, max_row: int | None = None, max_tree: int | None = None
) -> list[Tree]:
    """Group rows with the same first prompt into trees if this is cheaper. Every other row becomes a tree with one row.

    Rows with more than `max_row` tokens do not share their prompt. Trees of several rows have up to `max_tree` tokens.
    """
    trees: list[Tree] = []
    newest: dict[bytes, int] = {}  # index of the last tree with each prompt
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
    width = max(tree.length for tree in trees)
    ids = np.zeros((len(trees), width), dtype=np.int64)
    places = np.zeros_like(ids)
    branch = np.zeros_like(ids)  # 0 in the shared prompt, else the index of the row in its tree, from 1
    home: dict[int, tuple[int, int]] = {}  # row → its tree, and the offset of its tokens after the shared prompt
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
