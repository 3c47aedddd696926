"""Evaluations truncate endless episodes, report progress, stop on signals, and keep only text observations."""

from __future__ import annotations

import gc
import io
import os
import signal
import time
import tracemalloc
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from killed import assert_resumes, changed
from pettingzoo import ParallelEnv
from rich.console import Console

from collm._progress import observing, phase
from collm.agents.numeric.config import NetworkConfig
from collm.algorithms import IPPOConfig
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.algorithms.runs.api import Run
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.algorithms.runs.assembly.policies import make_policies
from collm.algorithms.runs.checkpoint import newest_checkpoint
from collm.algorithms.runs.evaluation import evaluate
from collm.algorithms.runs.loggers import read_lines
from collm.algorithms.runs.loggers.display import TrainingDisplay
from collm.algorithms.runs.records import episode_records
from collm.algorithms.runs.run import run_experiment
from collm.algorithms.runs.stopping import Stopped, StopSignals
from collm.envs import register
from collm.envs.registration.turn_limit import DEFAULT_TURN_LIMIT
from collm.envs.vectors.processes import ProcessVector
from collm.envs.vectors.vector import SyncVector

SIDE = 96


class Pictures(ParallelEnv):
    """Two agents with image observations and two actions. `num_turns` None: episodes do not end."""

    metadata: ClassVar = {"name": "pictures"}

    def __init__(self, num_turns: int | None = None):
        self.possible_agents = ["left_0", "right_0"]
        self.num_turns = num_turns

    def observation_space(self, agent):
        return Box(0, 255, (SIDE, SIDE, 3), np.uint8)

    def action_space(self, agent):
        return Discrete(2)

    def reset(self, seed=None, options=None):
        self.rng, self.turn = np.random.default_rng(seed), 0
        self.agents = list(self.possible_agents)
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.turn += 1
        agents, is_over = self.agents, self.turn == self.num_turns
        if is_over:
            self.agents = []
        rewards = {agent: float(action) for agent, action in actions.items()}
        ended, cut = dict.fromkeys(agents, is_over), dict.fromkeys(agents, False)
        return self._seen(), rewards, ended, cut, {agent: {"metric/turn": self.turn} for agent in agents}

    def _seen(self):
        return {agent: self.rng.integers(0, 255, (SIDE, SIDE, 3), np.uint8) for agent in self.possible_agents}


class Endless(Pictures):
    """Environment that sends a stop signal to the process after `stops_in` turns."""

    stops_in: ClassVar[int | None] = None
    asked_at: ClassVar[float] = 0.0

    def step(self, actions):
        if Endless.stops_in is not None:
            Endless.stops_in -= 1
            if Endless.stops_in == 0:
                Endless.stops_in = None
                Endless.asked_at = time.monotonic()
                os.kill(os.getpid(), signal.SIGTERM)
        return super().step(actions)


@pytest.fixture
def experiment(clean_registry):
    register("test/Endless-v0", Endless)
    size = {"num_updates": 2, "rollout_buffer_size": 2, "turns_per_update": 3, "ppo_epochs": 1, "critic_warmup": 0}
    config = IPPOConfig(eval_num_samples=2, eval_max_turns=5, eval_interval=1, **size)
    network = NetworkConfig(hidden_dims=(4,), images="flat")
    return Experiment(algorithm="ippo", config=config, env="test/Endless-v0", network=network)


def collector_of(experiment, vector):
    team = make_policies(experiment.make_algorithm(), vector, experiment.model, experiment.network)
    return RolloutCollector(vector, team)


def pictures(experiment, num_turns):
    return collector_of(experiment, SyncVector(lambda: Pictures(num_turns), 2))


def played(experiment, num_turns, **settings):
    return evaluate(pictures(experiment, num_turns), 3, greedy=False, **settings)


def peak_bytes(experiment, num_turns):
    """Peak of Python's allocated memory during an evaluation."""
    gc.collect()
    tracemalloc.start()
    result = played(experiment, num_turns)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [episode.num_turns for episode in result.episodes] == [num_turns] * 3
    return peak


def test_the_episodes_are_those_of_a_collector_that_keeps_everything_in_less_memory(experiment):
    result = played(experiment, 7)
    whole = pictures(experiment, 7).collect([Plan(2**31 + i, group=i) for i in range(3)])
    assert episode_records(result.episodes) == episode_records(whole)
    assert [episode.team_return for episode in result.episodes] == [episode.team_return for episode in whole]
    for one, other in zip(result.episodes, whole, strict=True):
        for agent, track in one.tracks.items():
            kept = other.tracks[agent]
            assert [turn.completion.logprobs for turn in track] == [turn.completion.logprobs for turn in kept]
            assert kept[0].observation is not None and kept[0].completion.tokens is not None
    peak_bytes(experiment, 4)  # fill caches
    num_decisions = 60 * 3 * 2  # turns, episodes, agents
    assert peak_bytes(experiment, 64) - peak_bytes(experiment, 4) < num_decisions * SIDE * SIDE * 3 / 10


@pytest.mark.parametrize(
    ("num_turns", "limit", "expected", "num_cut"),
    [(None, None, DEFAULT_TURN_LIMIT, 3), (None, 4, 4, 3), (4, 4, 4, 0), (3, 4, 3, 0), (9, None, 9, 0)],
)
def test_an_episode_has_no_more_turns_than_the_limit(experiment, num_turns, limit, expected, num_cut):
    result = played(experiment, num_turns, max_turns=limit)
    assert [episode.num_turns for episode in result.episodes] == [expected] * 3
    assert result.num_cut == num_cut
    assert [any(episode.is_terminated.values()) for episode in result.episodes] == [num_cut == 0] * 3


def test_an_environment_that_declares_a_limit_is_left_to_it(experiment):
    register("test/Long-v0", Pictures, max_turns=1100)
    vector = SyncVector("test/Long-v0", 1)
    assert vector.turn_limit == 1100
    result = evaluate(collector_of(experiment, vector), 1, greedy=True)
    assert result.num_cut == 0 and result.episodes[0].num_turns == 1100
    with ProcessVector("gymnasium/CartPole-v1", 1, num_workers=1) as workers:
        assert workers.turn_limit == 500


def test_notices_of_cut_episodes_are_given_once_and_only_without_a_limit(experiment, tmp_path):
    told = []
    run_experiment(experiment, tmp_path / "r", on_notice=told.append)
    assert len([line for line in told if "declares no limit" in line and "eval-max-turns" in line]) == 1
    assert len([line for line in told if "2 of 2 episodes were truncated after 5" in line]) == 1
    rows = read_lines(tmp_path / "r" / "evaluation.jsonl")
    assert [row["evaluation/greedy/cut_episodes"] for row in rows] == [2.0, 2.0, 2.0]
    register("test/Short-v0", Pictures, kwargs={"num_turns": 3}, max_turns=4)
    told.clear()
    run_experiment(replace(experiment, env="test/Short-v0"), tmp_path / "s", on_notice=told.append)
    assert told == []
    assert not [key for row in read_lines(tmp_path / "s" / "evaluation.jsonl") for key in row if "cut_episodes" in key]


@pytest.mark.parametrize("turns_before", [3, 25, 45])
def test_the_first_signal_stops_an_evaluation_and_a_resumed_run_repeats_it(experiment, tmp_path, turns_before):
    """An evaluation has 20 steps and an update 6: the signal is sent in evaluation 1, update 1, or evaluation 2."""
    run_experiment(experiment, tmp_path / "whole")
    Endless.stops_in = turns_before
    with StopSignals() as stop, pytest.raises(Stopped):
        run_experiment(experiment, tmp_path / "r", stop=stop)
    assert time.monotonic() - Endless.asked_at < 10
    is_first = turns_before == 3
    assert (newest_checkpoint(tmp_path / "r") is None) == is_first  # before training, there is nothing to save
    assert_resumes(experiment, tmp_path / "r", tmp_path / "whole")


def test_the_first_signal_stops_an_evaluation_and_training_without_any_limit(experiment, tmp_path):
    config = replace(experiment.config, turns_per_update=None, eval_max_turns=10**9)
    for name, starts in (("evaluation", True), ("training", False)):
        Endless.stops_in = 50
        with StopSignals() as stop, pytest.raises(Stopped):
            limitless = replace(experiment, config=replace(config, eval_on_start=starts))
            run_experiment(limitless, tmp_path / name, stop=stop)


def test_an_evaluation_after_the_last_update_is_repeated(experiment, tmp_path):
    once = changed(experiment, eval_interval=0, eval_on_start=False)
    run_experiment(once, tmp_path / "whole")
    Endless.stops_in = 2 * 2 * 3 + 3  # two updates of three turns in two copies, then the evaluation
    with StopSignals() as stop, pytest.raises(Stopped, match="after update 2"):
        run_experiment(once, tmp_path / "r", stop=stop)
    assert not (tmp_path / "r" / "evaluation.jsonl").exists()
    for _ in range(2):
        assert_resumes(once, tmp_path / "r", tmp_path / "whole")
        assert newest_checkpoint(tmp_path / "r").num_lines == newest_checkpoint(tmp_path / "whole").num_lines


@pytest.mark.parametrize("is_terminal", [False, True])
def test_progress_is_a_line_now_and_then_or_part_of_the_panel(experiment, monkeypatch, is_terminal):
    clock = [0.0]
    monkeypatch.setattr("collm.algorithms.runs.loggers.display.time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    with TrainingDisplay("run", 2, Console(file=stream, width=100, force_terminal=is_terminal)) as display:

        def observe(work):
            clock[0] += 5
            display.log_progress(work)
            if is_terminal:
                display.console.print(display._panel())

        with observing(observe), phase("evaluation, greedy"):
            evaluate(pictures(experiment, 4), 6, greedy=True)
    text = "evaluation, greedy · play 2 joint turns, 0 of 6 episodes ended"
    if is_terminal:
        assert text in stream.getvalue()
    else:
        first, second = stream.getvalue().splitlines()  # after 10 s, and 30 s later
        assert text in first and "play 14 joint turns, 2 of 6 episodes ended" in second


def test_a_team_that_is_evaluated_again_can_be_given_another_limit(experiment, tmp_path):
    trainer = run_experiment(experiment, tmp_path / "r")
    run = Run(tmp_path / "r", experiment, trainer.collector.policies)
    seen = []
    assert run.evaluate(1).episodes[0].num_turns == 5
    with observing(lambda work: seen.append(work.done)):
        result = run.evaluate(1, eval_max_turns=3)
    assert result.episodes[0].num_turns == 3 and result.num_cut == 1
    assert seen == [0, 1, 2, 3]  # the begin of the phase, and each joint turn
