"""Action masks reach the policies in whole episodes, segments, resumed trainings and worker processes."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from pettingzoo import ParallelEnv
from small_trainers import through_a_file, timeless

from collm.agents.numeric.policy import NumericPolicy
from collm.agents.scripted import RandomPolicy
from collm.algorithms import IPPOConfig, MAPPOConfig
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.envs import make
from collm.envs.vectors.faults import EnvironmentFault
from collm.envs.vectors.processes import ProcessVector
from collm.envs.vectors.vector import SyncVector

NUM_OPTIONS = 6
SEEN = Box(0, 1, (2,), np.float32)
AGENTS = ("a_0", "b_0")


class Gates(ParallelEnv):
    """Six turns with six gates, some of them open. Taking a closed gate is an error."""

    def __init__(self, convention: str = "info", fault: str = ""):
        self.metadata = {"name": "gates_v0"}
        self.render_mode = None
        self.possible_agents, self.agents = list(AGENTS), []
        self.convention, self.fault = convention, fault

    def observation_space(self, agent):
        if self.convention == "info":
            return SEEN
        return Dict(observation=SEEN, action_mask=Box(0, 1, (NUM_OPTIONS,), np.int8))

    def action_space(self, agent):
        return Discrete(NUM_OPTIONS)

    def reset(self, seed=None, options=None):
        self.rng, self.turn, self.agents = np.random.default_rng(seed), 0, list(AGENTS)
        return self.told()

    def told(self):
        self.open = {agent: (self.rng.random(NUM_OPTIONS) < 0.3).astype(np.int8) for agent in AGENTS}
        for gates in self.open.values():
            gates[self.rng.integers(NUM_OPTIONS)] = 1
        if self.turn == 2 and self.fault:
            self.open["b_0"] = {"closed": np.zeros(6), "short": np.ones(5), "halves": np.full(6, 0.5)}[self.fault]
        if self.turn == 6:  # the episode is over
            self.open = {agent: np.zeros(NUM_OPTIONS, np.int8) for agent in AGENTS}
        seen = {agent: self.rng.random(2, dtype=np.float32) for agent in AGENTS}
        if self.convention == "info":
            return seen, {agent: {"action_mask": gates} for agent, gates in self.open.items()}
        masked = {agent: {"observation": seen[agent], "action_mask": self.open[agent]} for agent in AGENTS}
        return masked, {agent: {} for agent in AGENTS}

    def step(self, actions):
        for agent, action in actions.items():
            assert self.open[agent][action], f"{agent} took the closed gate {action}"
        self.turn += 1
        is_over = self.turn == 6
        self.agents = [] if is_over else self.agents
        rewards = {agent: float(action) for agent, action in actions.items()}
        seen, infos = self.told()
        return seen, rewards, dict.fromkeys(AGENTS, is_over), dict.fromkeys(AGENTS, False), infos


def collector(convention, vector=None):
    env = Gates(convention)
    spaces = env.observation_space("a_0"), env.action_space("a_0")
    policies = {agent: NumericPolicy.for_spaces(*spaces, seed=seed) for seed, agent in enumerate(AGENTS)}
    return RolloutCollector(vector or SyncVector(lambda: Gates(convention), 3), policies)


CONVENTIONS = pytest.mark.parametrize("convention", ["info", "observation"])


@CONVENTIONS
def test_open_gates_only_are_taken_also_by_random_partners(convention):
    episodes = collector(convention).collect([Plan(seed) for seed in range(8)])
    assert all(len(episode.infos) == 6 for episode in episodes)
    env = Gates(convention)
    everyone = RandomPolicy({agent: env.action_space(agent) for agent in AGENTS})
    vector = SyncVector(lambda: Gates(convention), 2)
    RolloutCollector(vector, dict.fromkeys(AGENTS, everyone)).collect([Plan(seed) for seed in range(8)])
    partnered = make(f"{__name__}:Gates", convention=convention, partners={"b_0": "random"})
    for seed in range(8):
        seen, infos = partnered.reset(seed=seed)
        while partnered.agents:
            mask = infos["a_0"]["action_mask"] if convention == "info" else seen["a_0"]["action_mask"]
            seen, *_, infos = partnered.step({"a_0": int(mask.argmax())})


@CONVENTIONS
def test_a_training_that_is_resumed_goes_on_as_if_unbroken(convention, tmp_path):
    def trainer():
        config = IPPOConfig(num_updates=4, num_envs=3, turns_per_update=4, critic_warmup=0, reference_kl_coef=0.1)
        parts = {"env": f"{__name__}:Gates", "env_kwargs": {"convention": convention}}
        return Experiment(algorithm="ippo", config=config, **parts).make_trainer()

    unbroken, halted = trainer(), trainer()
    expected = [unbroken.step()[1] for _ in range(4)]
    for _ in range(2):
        halted.step()
    resumed = trainer()
    resumed.load_state_dict(through_a_file(halted.state_dict()))
    for metrics in expected[2:]:
        np.testing.assert_equal(timeless(resumed.step()[1]), timeless(metrics))
    assert all(np.isfinite(value) for metrics in expected for value in metrics.values())


def test_the_joint_history_of_masked_observations_is_the_observations_alone():
    config = MAPPOConfig(num_updates=1, num_envs=2, turns_per_update=6, critic_warmup=0)
    kwargs = {"convention": "observation"}
    trainer = Experiment(algorithm="mappo", config=config, env=f"{__name__}:Gates", env_kwargs=kwargs).make_trainer()
    episodes, _ = trainer.step()
    assert episodes[0].states[0].shape == (4,)


@pytest.mark.slow
def test_masks_come_from_worker_processes_too():
    with ProcessVector(Gates, 2, num_workers=1) as vector:
        collector("info", vector).collect([Plan(seed) for seed in range(3)])


@CONVENTIONS
@pytest.mark.parametrize(
    ("fault", "problem"),
    [("closed", "leaves no legal option"), ("short", "has 5 entries, but there are 6 options"), ("halves", "0.5")],
)
def test_a_mask_that_leaves_nothing_or_does_not_fit_is_the_environment_s_fault(convention, fault, problem):
    faulty = collector(convention, SyncVector(lambda: Gates(convention, fault), 1))
    with pytest.raises(EnvironmentFault, match=rf"seed 5, agent b_0, turn 2: the action mask of 'b_0' .*{problem}"):
        faulty.collect([Plan(5)])
