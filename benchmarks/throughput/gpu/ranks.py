"""Two processes on one GPU: whether gradients that are summed over both are those of one process."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ....algorithms.distribution.launch import joined
from ....algorithms.learning.policy_learner import PolicyLearner, TurnBatch
from ....algorithms.registry import algorithm_spec
from .laws import full_precision
from .results import Part, Row, Setting
from .shapes import TINY, random_policy, random_prompts, tracks_of

SIZE = 2
COUNT, LENGTH = 6, 16
TIMEOUT_S = 300
MAX_DIFFERENCE = 1e-5
"""Largest difference of a gradient, in units of the greatest one."""


def part() -> Part:
    return Part("ranks", "Two processes on one GPU", measurements)


def measurements(setting: Setting) -> Mapping[str, Callable[[], Row]]:
    return {"gradients of two gloo ranks = of one process": partial(_equal, setting)}


def _equal(setting: Setting) -> Row:
    one = _gradient(setting)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "gradient.npy")
        _of_ranks(setting, file)
        found = np.load(file)
    worst = float(np.abs(found - one).max() / np.abs(one).max())
    return {
        "weights": len(one),
        "max |Δ| / max": worst,
        "allowed": MAX_DIFFERENCE,
        "holds": worst <= MAX_DIFFERENCE,
    }


def _of_ranks(setting: Setting, file: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = get_context("spawn")
    ranks = [context.Process(target=_rank, args=(rank, port, setting, file), daemon=True) for rank in range(SIZE)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join(TIMEOUT_S)
    statuses = [each.exitcode for each in ranks]
    for each in ranks:
        each.kill()
    if statuses != [0] * SIZE:
        raise RuntimeError(f"the ranks ended with {statuses}; None stands for no end within {TIMEOUT_S} s")


def _rank(rank: int, port: int, setting: Setting, file: Path) -> None:
    sizes = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": SIZE, "LOCAL_WORLD_SIZE": SIZE, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in sizes.items()} | {"MASTER_ADDR": "127.0.0.1"})
    with joined() as group:
        found = _gradient(setting)
        group.by_writer(lambda: np.save(file, found))


def _gradient(setting: Setting) -> NDArray[np.float32]:
    """[K] gradient of an update, of all weights in a row."""
    policy = random_policy(TINY, setting.device)
    spec = algorithm_spec("mareinforce")
    # Passes so short that both ranks have some, and one of them one less; no gradient is so long as to be clipped.
    rule = spec.make(spec.config(agent_learning_rate=1e-6, max_batch_tokens=4 * LENGTH, max_grad_norm=1e9))
    learner = PolicyLearner(policy, rule, torch.Generator())
    with full_precision():
        tracks = tracks_of(random_prompts(TINY, COUNT, LENGTH), random_prompts(TINY, COUNT, LENGTH, seed=1))
        logprobs = [each.float().cpu().numpy() for each in learner.logprobs(policy, tracks)]
        tracks = [(replace(track[0], logprobs=each),) for track, each in zip(tracks, logprobs, strict=True)]
        learner.update(TurnBatch(tracks=tracks, advantages=torch.linspace(-1, 1, COUNT)))
    gradients = [weight.grad for weight in policy.parameters() if weight.grad is not None]
    found: NDArray[np.float32] = torch.cat([each.reshape(-1) for each in gradients]).float().cpu().numpy()
    return found
