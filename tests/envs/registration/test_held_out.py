"""Held-out seeds are what they are, and training cannot draw them."""

from __future__ import annotations

import hashlib
import json

import pytest

from collm.algorithms.rollout.requests import MAX_SEED, task_seeds
from collm.algorithms.runs.evaluation import FIRST_EVALUATION_SEED
from collm.envs import spec, specs
from collm.envs.registration import held_out
from collm.envs.registration.held_out import END_OF_SEEDS, FIRST_HELD_OUT_SEED, SEEDS_FILE, drawn_seeds, held_out_seeds

LISTS = json.loads(SEEDS_FILE.read_text())
DIGEST_OF_ALL = "f95e7e93c7426660d7389c42497f9c803ffc6b0981a2375e66fb87bde683cb26"


def test_every_environment_of_the_package_has_a_list_of_its_own_version():
    ours = {each.id for each in specs() if each.id.startswith("collm/")}
    assert set(LISTS) == ours
    assert all(spec(id).held_out.seeds == tuple(LISTS[id]["seeds"]) for id in ours)


def test_the_lists_are_those_that_were_published():
    """A change of any seed changes what every submission was measured on: raise the environment's version instead."""
    assert hashlib.sha256(json.dumps(LISTS, sort_keys=True).encode()).hexdigest() == DIGEST_OF_ALL


@pytest.mark.parametrize("id", sorted(LISTS))
def test_nobody_chose_the_seeds(id):
    seeds = held_out_seeds(id).seeds
    assert seeds == drawn_seeds(id)
    assert len(set(seeds)) == len(seeds) == 50
    assert hashlib.sha256(json.dumps([id, list(seeds)]).encode()).hexdigest() == LISTS[id]["sha256"]


def test_no_training_and_no_evaluation_while_training_can_draw_them():
    """Training draws below 2^31; its evaluations play a billion tasks from there before they would reach one."""
    assert MAX_SEED == FIRST_EVALUATION_SEED == 2**31
    assert FIRST_HELD_OUT_SEED - FIRST_EVALUATION_SEED == 2**30
    for lists in LISTS.values():
        assert all(FIRST_HELD_OUT_SEED <= seed < END_OF_SEEDS for seed in lists["seeds"])
    for seed in (0, 1, 2**31 - 1, 2**63):
        for update in (1, 10**6):
            assert all(0 <= drawn < MAX_SEED for drawn in task_seeds(seed, update, 10_000))


def test_lists_of_two_environments_share_nothing():
    everything = [seed for lists in LISTS.values() for seed in lists["seeds"]]
    assert len(set(everything)) == len(everything)


def test_a_changed_list_is_found_out(monkeypatch):
    id = "collm/MiniBuild-v0"
    changed = {id: {**LISTS[id], "seeds": [LISTS[id]["seeds"][0] + 1, *LISTS[id]["seeds"][1:]]}}
    monkeypatch.setattr(held_out, "_lists", lambda: changed)
    with pytest.raises(ValueError, match="restore the file"):
        held_out_seeds(id)
    assert held_out_seeds("somebody/Else-v3") is None
