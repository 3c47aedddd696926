"""Held-out seeds are fixed, derived from ids, and never drawn by training."""

import hashlib
import json

import pytest

from collm.algorithms.rollout.requests import MAX_SEED, task_seeds
from collm.algorithms.runs.evaluation import FIRST_EVALUATION_SEED
from collm.envs import spec, specs
from collm.envs.registration import held_out
from collm.envs.registration.held_out import END_OF_SEEDS, FIRST_HELD_OUT_SEED, SEEDS_FILE, held_out_seeds

LISTS = json.loads(SEEDS_FILE.read_text())
DIGEST_OF_ALL = "5c1b7781ad8572922ad94f694562121c055dda5f800353920cc14bae2b0be3f5"


def test_every_environment_has_its_published_list_that_is_derived_from_its_id_and_shares_nothing(monkeypatch):
    ours = {each.id for each in specs() if each.id.startswith("collm/")}
    assert set(LISTS) == ours
    assert all(spec(id).held_out.seeds == tuple(LISTS[id]["seeds"]) for id in ours)
    everything = [seed for lists in LISTS.values() for seed in lists["seeds"]]
    assert len(set(everything)) == len(everything)
    assert hashlib.sha256(json.dumps(LISTS, sort_keys=True).encode()).hexdigest() == DIGEST_OF_ALL
    assert {id: held_out_seeds(id).seeds for id in LISTS} == {id: drawn_seeds(id) for id in LISTS}
    id = "collm/MiniBuild-v0"
    changed = {id: {**LISTS[id], "seeds": [LISTS[id]["seeds"][0] + 1, *LISTS[id]["seeds"][1:]]}}
    monkeypatch.setattr(held_out, "_lists", lambda: changed)
    with pytest.raises(ValueError, match="restore the file"):
        held_out_seeds(id)
    assert held_out_seeds("somebody/Else-v3") is None


def drawn_seeds(id):
    """50 different seeds: the first bytes of SHA-256 of the id and a number, in the range of held-out seeds."""
    seeds = {}
    number = 0
    while len(seeds) < 50:
        drawn = int.from_bytes(hashlib.sha256(f"{id} {number}".encode()).digest()[:8], "big")
        seeds[FIRST_HELD_OUT_SEED + drawn % (END_OF_SEEDS - FIRST_HELD_OUT_SEED)] = None
        number += 1
    return tuple(seeds)


def test_no_training_and_no_evaluation_while_training_can_draw_them():
    """Evaluations count upwards from 2^31, a billion seeds below the first held-out seed."""
    assert MAX_SEED == FIRST_EVALUATION_SEED == 2**31
    assert FIRST_HELD_OUT_SEED - FIRST_EVALUATION_SEED == 2**30
    for lists in LISTS.values():
        assert all(FIRST_HELD_OUT_SEED <= seed < END_OF_SEEDS for seed in lists["seeds"])
    for seed in (0, 1, 2**31 - 1, 2**63):
        for update in (1, 10**6):
            assert all(0 <= drawn < MAX_SEED for drawn in task_seeds(seed, update, 10_000))
