"""The classics of other packages keep the contract here, and an update of each trains. Needs lbforaging and others."""

from __future__ import annotations

import numpy as np
import pytest

from collm.algorithms import MAPPOConfig
from collm.algorithms.runs.experiment import Experiment
from collm.envs import make
from collm.envs.views import TupleTeam

pytestmark = pytest.mark.slow
GAMES = {
    "gymnasium/lbforaging:Foraging-8x8-2p-2f-v3": ("lbforaging", 2, {}),
    "gymnasium/lbforaging:Foraging-10x10-3p-3f-v3": ("lbforaging", 3, {}),
    "gymnasium/rware:rware-tiny-2ag-v2": ("rware", 2, {}),
    "gymnasium/minigrid:MiniGrid-Empty-5x5-v0": ("minigrid", 1, {"observed": "image"}),
}


@pytest.mark.filterwarnings("ignore")  # of others' making
@pytest.mark.parametrize("id", GAMES)
def test_a_classic_plays_and_trains_as_a_team(id):
    package, num_agents, kwargs = GAMES[id]
    pytest.importorskip(package)
    env = make(id, **kwargs)
    assert len(env.possible_agents) == num_agents and isinstance(env, TupleTeam) == (num_agents > 1)
    first, second = (env.reset(seed=seed)[0] for seed in range(2))
    assert first.keys() == second.keys() == set(env.agents)
    config = MAPPOConfig(num_updates=1, num_envs=2, turns_per_update=20, critic_warmup=0)
    _, metrics = Experiment(algorithm="mappo", config=config, env=id, env_kwargs=kwargs).make_trainer().step()
    assert metrics["environment_steps"] == 40 and np.isfinite(metrics["policy_loss"])
