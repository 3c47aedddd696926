"""Memory does not grow with the number of updates."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from probes import AGENTS, WORDS, word_policies

from collm.algorithms.config import IACConfig
from collm.algorithms.iac import IAC
from collm.algorithms.runs.assembly.trainers import make_trainer
from collm.envs.core import Outcome, TextParallelEnv
from collm.envs.vectors.vector import SyncVector

BYTES_PER_UPDATE = 2_000  # a tenth of the growth with a cache of 8,000 histories


class News(TextParallelEnv):
    """One turn with texts that do not repeat between episodes."""

    def __init__(self):
        super().__init__(AGENTS, 1)

    def deal(self, task):
        return {agent: " ".join(self.rng.choices(WORDS, k=24)) for agent in AGENTS}

    def play(self, replies):
        return Outcome(self.rng.random())


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.slow
def test_memory_stays_flat_over_a_thousand_updates():
    config = IACConfig(rollout_buffer_size=4, critic_warmup=0, critic_replay=2, critic_batch_size=4, critic_steps=1)
    trainer = make_trainer(IAC(config), SyncVector(News, 4), word_policies())
    sizes = []
    for count in (600, 500):  # the first updates fill the caches
        for _ in range(count):
            trainer.step()
        gc.collect()
        sizes.append(resident_bytes())
    assert (sizes[1] - sizes[0]) / 500 < BYTES_PER_UPDATE
