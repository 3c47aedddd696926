"""Experiment with a few short episodes."""

import pytest
from probes import NumberProbe

from collm.agents.numeric.config import NetworkConfig
from collm.algorithms import IPPOConfig
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.envs import register


@pytest.fixture
def short_experiment(clean_registry):
    """Function that makes the experiment with settings of IPPO."""
    register("test/Number-v0", NumberProbe, kwargs={"probe": "delayed"}, max_turns=9)

    def made(**settings):
        chosen = {"critic_warmup": 0, "ppo_epochs": 1, "eval_num_samples": 2, "save_interval": 1} | settings
        parts = {"env": "test/Number-v0", "network": NetworkConfig(hidden_dims=(4,))}
        return Experiment(algorithm="ippo", config=IPPOConfig(**chosen), **parts)

    return made
