"""Difficulty schedules by hand, in runs that are cut, resumed and replayed, and results per difficulty."""

from __future__ import annotations

import random
from typing import ClassVar

import numpy as np
import pytest
from cases import case
from gymnasium import spaces
from killed import assert_resumes, changed, kill_after
from pettingzoo import ParallelEnv

from collm._errors import UserError
from collm.agents.numeric.config import NetworkConfig
from collm.algorithms import IPPOConfig
from collm.algorithms.rollout.curriculum import check_curriculum, curriculum
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.algorithms.runs.loggers import read_lines
from collm.algorithms.runs.run import run_experiment
from collm.benchmarks.cli import main
from collm.envs import register
from collm.envs.games.sources import difficulties


class Ladder(ParallelEnv):
    """Two turns; pays the difficulty in each, and succeeds in the second if the difficulty is at most 2."""

    metadata: ClassVar[dict] = {"name": "ladder_v0", "render_modes": [], "highest_difficulty": 4}

    def __init__(self, difficulty="1-4"):
        self.possible_agents = ["climber_0"]
        self.difficulty = difficulty
        self._rng = random.Random(0)

    def observation_space(self, agent):
        return spaces.Box(0, 9, (2,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self._rng = random.Random(seed)
        dealt = difficulties((options or {}).get("difficulty") or self.difficulty, 4)
        self.rung, self.turn, self.agents = self._rng.choice(dealt), 0, list(self.possible_agents)
        return {"climber_0": self._seen()}, {"climber_0": {}}

    def _seen(self):
        return np.array([self.rung, self.turn], np.float32)

    def step(self, actions):
        self.turn += 1
        is_over = self.turn == 2
        success = float(is_over and self.rung <= 2)
        info = {"metric/difficulty": float(self.rung), "metric/success": success}
        if is_over:
            self.agents = []
        agent = "climber_0"
        return {agent: self._seen()}, {agent: float(self.rung)}, {agent: is_over}, {agent: False}, {agent: info}


@pytest.fixture
def experiment(clean_registry):
    register("test/Ladder-v0", Ladder)
    settings = {"num_updates": 4, "rollout_buffer_size": 6, "critic_warmup": 0, "ppo_epochs": 1, "save_interval": 1}
    schedule = "0: 1, 0.5: 2-3, 0.75: 4"
    config = IPPOConfig(eval_num_samples=12, deterministic=True, difficulty_schedule=schedule, **settings)
    return Experiment(algorithm="ippo", config=config, env="test/Ladder-v0", network=NetworkConfig(hidden_dims=(4,)))


@pytest.mark.parametrize(
    ("schedule", "found"),
    [
        ("3", [3] * 8),
        (" 2 - 4 ", ["2-4"] * 8),
        ("linear: 1-4", [1, 1, 2, 2, 3, 3, 4, 4]),
        ("linear:2-2", [2] * 8),
        ("linear: 1-3", [1, 1, 1, 2, 2, 2, 3, 3]),  # shares of 3/8 and 6/8 are past a third and two thirds
        ("0: 1, 0.25: 1-2,0.5:3", [1, 1, "1-2", "1-2", 3, 3, 3, 3]),
    ],
)
def test_schedules_by_hand(schedule, found):
    assert [curriculum(schedule)(update / 8) for update in range(8)] == found
    assert curriculum(schedule)(1.0) == found[-1]


@pytest.mark.parametrize(
    "schedule",
    (
        *("", "hard", "3-2", "linear", "linear: 3-2", "linear: 0.1-0.9", "0.5: 2", "0: 1, 0: 2", "0: 1, 1: 2", "0: 1,"),
        *("0: 1, 0.3: 2, 0.3: 3, 0.5: 4", "-0.1: 1, 0: 2", "0: 1, 1.5: 2"),
        *("0: 1, 0.5: 2, 0.3: 3", "0: 1; 0.5: 2", "0: 1, 0.5.1: 2", "0: 1, 0.5: a", "1: 2: 3"),
    ),
)
def test_what_is_no_schedule_is_refused_in_one_line(schedule):
    with pytest.raises(UserError, match=r"^difficulty_schedule must be .*; got '") as caught:
        curriculum(schedule)
    assert "\n" not in str(caught.value)


def test_a_schedule_is_refused_where_the_environment_cannot_follow_it(experiment):
    check_curriculum(None, {})
    check_curriculum("linear: 1-4", Ladder.metadata)
    with pytest.raises(UserError, match=r"difficulty_schedule='1' .*'highest_difficulty'"):
        check_curriculum("1", {})
    with pytest.raises(UserError, match="'3-5'"):
        check_curriculum("0: 1, 0.9: 3-5", Ladder.metadata)
    with pytest.raises(UserError, match=r"difficulty=.* 1 to 4"):
        changed(experiment, difficulty_schedule="0").check()


def test_updates_have_the_difficulty_of_their_share_and_their_episodes_are_replayed(tmp_path, experiment, capsys):
    run_experiment(experiment, tmp_path / "r")
    found = {update: set() for update in (1, 2, 3, 4)}
    for row in read_lines(tmp_path / "r" / "episodes.jsonl"):
        found[row["update"]].add(row["infos"][0]["metric/difficulty"])
        assert row["options"] == {"difficulty": {1: 1, 2: 1, 3: "2-3", 4: 4}[row["update"]]}
    assert found == {1: {1}, 2: {1}, 3: {2, 3}, 4: {4}}
    for row in read_lines(tmp_path / "r" / "evaluation.jsonl"):
        assert {f"evaluation/greedy/difficulty/{each}/return" for each in range(1, 5)} <= row.keys()
    hardest = next(row["index"] for row in read_lines(tmp_path / "r" / "episodes.jsonl") if row["update"] == 4)
    assert main(["replay", str(tmp_path / "r"), "--episode", str(hardest)]) == 0
    assert "return: climber_0 8.000" in capsys.readouterr().out

    assert main(["evaluate", str(tmp_path / "r"), "--episodes", "12", "--no-transcripts"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    told = {tuple(words[1:4]): words[4:] for words in lines if words[2:3] == ["difficulty"]}
    told |= {tuple(words[1:4]): words[4:] for words in lines if words[1:2] in (["return,"], ["success,"])}
    assert told[("return,", "difficulty", "3")][1] == "6.000" and told[("success,", "difficulty", "3")][1] == "0.000"


@case("evaluation/*/difficulty/*/*")
def test_scores_per_difficulty_by_hand(tmp_path, experiment):
    run_experiment(changed(experiment, num_updates=1, difficulty_schedule=None), tmp_path / "r")
    counts = dict.fromkeys(range(1, 5), 0)
    for seed in range(2**31, 2**31 + 12):
        counts[random.Random(seed).choice(range(1, 5))] += 1
    assert min(counts.values()) > 0
    for row in read_lines(tmp_path / "r" / "evaluation.jsonl"):
        for how in ("sampled", "greedy"):
            told = {key: value for key, value in row.items() if key.startswith(f"evaluation/{how}/difficulty/")}
            wanted = {}
            for each, count in counts.items():
                success = float(each <= 2)
                numbers = {"num_episodes": count, **dict.fromkeys(("return", "return_low", "return_high"), 2.0 * each)}
                numbers |= dict.fromkeys(("success", "success_low", "success_high"), success)
                wanted |= {f"evaluation/{how}/difficulty/{each}/{name}": value for name, value in numbers.items()}
            assert told == wanted


@pytest.mark.parametrize("settings", [{}, {"turns_per_update": 3, "num_envs": 2}])
def test_a_run_with_a_schedule_that_dies_goes_on_with_the_same_bytes(tmp_path, experiment, settings):
    cut = changed(experiment, **settings)
    run_experiment(cut, tmp_path / "whole")
    kill_after(2, cut, tmp_path / "r")
    assert_resumes(cut, tmp_path / "r", tmp_path / "whole")
    if not settings:
        run_experiment(changed(cut, num_envs=1), tmp_path / "one")
        assert (tmp_path / "one" / "episodes.jsonl").read_bytes() == (tmp_path / "r" / "episodes.jsonl").read_bytes()
    with pytest.raises(ValueError, match="num_updates = 4, not 5"):
        run_experiment(changed(cut, num_updates=5), tmp_path / "r", resume=True)
