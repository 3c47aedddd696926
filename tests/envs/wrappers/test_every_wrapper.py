"""Rules of `check_env` under every wrapper."""

import pytest

from collm.envs import check_env, make
from collm.envs.wrappers import KeptLeavers, LastTurns, PotentialShaping, Recorded, Shares

ID = "collm/MiniBuild-v0"
WRAPPED = {
    "KeptLeavers": lambda folder: KeptLeavers(make(ID)),
    "LastTurns": lambda folder: LastTurns(make(ID), 1),
    "Partnered reference": lambda folder: make(ID, partners={"builder_1": "reference"}),
    "Partnered random": lambda folder: make(ID, partners={"builder_1": "random"}),
    "Partnered empty": lambda folder: make(ID, partners={"builder_1": "empty"}),
    "PotentialShaping": lambda folder: PotentialShaping(make(ID), lambda world: len(world._site.built)),
    "Recorded": lambda folder: Recorded(make(ID), folder),
    "RewardFunctions": lambda folder: make(ID, reward_funcs={"own": "own", "seat": lambda turn: 1.0}),
    "Shares": lambda folder: Shares(make(ID)),
    "SingleModel": lambda folder: make(ID, max_turns=2, single_model=True),
}
UNPICKLABLE = {"PotentialShaping", "RewardFunctions"}
"""Wrappers that are built here with lambdas."""


@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapper_keeps_the_rules(name, tmp_path):
    skip = ["hostile_replies", "pettingzoo_api", *(["pickle_branches"] if name in UNPICKLABLE else [])]
    check_env(WRAPPED[name](tmp_path), skip=skip)
