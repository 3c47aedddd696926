"""Logged metrics by hand: counts, seconds, means over a team, evaluations. Every metric must have such a test."""

import json
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from cases import case, cases
from probes import AGENTS, TextProbe, word_policies
from small_trainers import text_trainer

from collm.algorithms import algorithm_specs, train
from collm.algorithms.algorithm import PolicyBatch
from collm.algorithms.config import ActorCriticConfig
from collm.algorithms.runs.evaluation import FIRST_EVALUATION_SEED
from collm.benchmarks.comparison.summaries import TurnDiagnostics
from collm.envs.core import Outcome, TextParallelEnv


@case("update", "environment_steps", "sampled_tokens", "tokens_per_second", "seconds/decoding", "seconds/environment")
@case("seconds/credit", "seconds/critics", "seconds/policies", "seconds/learning", "seconds/update", "seconds/total")
def test_counts_and_seconds_of_updates_add_up():
    trainer = text_trainer("iac", rollout_buffer_size=4, num_envs=2, use_separate_critic=False)
    turns = tokens = seconds = 0
    for update in (1, 2):
        episodes, metrics = trainer.step()
        sampled = sum(len(t.completion.logprobs) for e in episodes for track in e.tracks.values() for t in track)
        turns += 3 * len(episodes)
        tokens += sampled
        seconds += metrics["seconds/update"]
        assert (metrics["update"], metrics["environment_steps"], metrics["sampled_tokens"]) == (update, turns, tokens)
        assert metrics["seconds/total"] == pytest.approx(seconds)
        collecting = metrics["seconds/update"] - metrics["seconds/learning"]
        assert 0.5 * collecting < sampled / metrics["tokens_per_second"] <= collecting
        phases = metrics["seconds/decoding"] + metrics["seconds/environment"]
        assert 0.5 * collecting < phases <= collecting
        assert min(metrics["seconds/decoding"], metrics["seconds/environment"], metrics["seconds/learning"]) > 0
        learning = [metrics[f"seconds/{phase}"] for phase in ("credit", "critics", "policies")]
        assert min(learning) > 0 and sum(learning) == pytest.approx(metrics["seconds/learning"])


def test_metrics_of_a_team_are_means_over_its_policies():
    trainer = text_trainer("mareinforce", rollout_buffer_size=4, agent_learning_rate=0.0, reward_shift=1.0)
    rows = []
    for learner in trainer.learners.values():

        def prepare(batch, inner=learner.prepare):
            update = inner(batch)
            return lambda: rows.append(found := update()) or found

        learner.prepare = prepare
    _, metrics = trainer.step()
    assert len(rows) == 2 and rows[0]["grad_norm"] != rows[1]["grad_norm"]
    for name in rows[0]:
        assert metrics[name] == pytest.approx((rows[0][name] + rows[1][name]) / 2)


class Lottery(TextParallelEnv):
    """Two turns, with a reward that depends only on the seed."""

    def __init__(self):
        super().__init__(AGENTS, 2)

    def deal(self, task):
        self.prize = self.rng.random()
        return dict.fromkeys(AGENTS, "say")

    def play(self, replies):
        ends = self.turn == 1
        metrics = {"metric_turn": float(self.turn)}
        return Outcome(self.prize, {} if ends else dict.fromkeys(AGENTS, "next"), {"prize": self.prize}, metrics)


def prize(seed):
    env = Lottery()
    env.reset(seed=seed)
    return env.prize


@case("evaluation/*/return", "evaluation/*/return_low", "evaluation/*/return_high", "evaluation/*/reward/*")
@case("evaluation/*/metric/*")
def test_an_evaluation_s_numbers_by_hand(tmp_path):
    settings = {"num_updates": 1, "rollout_buffer_size": 2, "num_generations": 2, "eval_num_samples": 12}
    train("magrpo", Lottery, out=tmp_path / "run", policies=word_policies(), progress=False, **settings)
    rows = [json.loads(line) for line in (tmp_path / "run" / "evaluation.jsonl").read_text().splitlines()]
    returns = [2 * prize(FIRST_EVALUATION_SEED + number) for number in range(12)]
    found = scipy.stats.bootstrap((returns,), np.mean, method="percentile", n_resamples=20_000, rng=0)
    low, high = found.confidence_interval
    assert len(rows) == 2
    for row in rows:
        for how in ("greedy", "sampled"):
            assert row[f"evaluation/{how}/return"] == pytest.approx(np.mean(returns))
            assert row[f"evaluation/{how}/return_low"] == pytest.approx(low, abs=0.03 * (high - low))
            assert row[f"evaluation/{how}/return_high"] == pytest.approx(high, abs=0.03 * (high - low))
            assert row[f"evaluation/{how}/reward/prize"] == pytest.approx(np.mean(returns))
            assert row[f"evaluation/{how}/metric/metric_turn"] == pytest.approx(0.5)


def pattern_of(name):
    """Name with wildcards for the environment's terms and the decoding mode."""
    parts = name.split("/")
    if parts[0] == "evaluation":
        parts[1] = "*"
    if len(parts) > 1 and parts[-2] in ("reward", "metric", "share"):
        parts[-1] = "*"
    return "/".join(parts)


def logged(name, folder, **settings):
    settings |= {"num_updates": 1, "rollout_buffer_size": 2, "eval_num_samples": 2, "progress": False}
    settings |= {"reference_kl_coef": 0.1, "entropy_coef": 0.1}
    settings["policies"] = word_policies(has_value_head=name == "ippo")
    train(name, lambda: TextProbe("delayed"), out=folder, **settings)
    files = [folder / "metrics.jsonl", folder / "evaluation.jsonl"]
    return {key for file in files for line in file.read_text().splitlines() for key in json.loads(line)}


def test_every_logged_metric_has_a_case_by_hand(tmp_path):
    actor_critic = {"critic_warmup": 0}
    found = logged("magrpo", tmp_path / "magrpo", num_generations=2)
    found |= logged("maac", tmp_path / "maac", **actor_critic)
    found |= logged("ippo", tmp_path / "ippo", use_separate_critic=False, **actor_critic)
    found |= logged("magrpo", tmp_path / "stale", num_generations=2, max_staleness=1)
    ones = torch.ones(2)
    for spec in algorithm_specs():  # metrics of losses
        changes = (
            {"critic_warmup": 0}
            if issubclass(spec.config, ActorCriticConfig)
            else {"num_generations": 1 if spec.name == "c3" else 2}
        )
        for clip_range in (None, 0.2):
            settings = {"ppo_epochs": 1, "clip_range": clip_range, "rollout_buffer_size": 2, **changes}
            settings |= {"clip_range_high": None, "mini_batch_size": None}
            algorithm = spec.make(spec.config(**settings))
            found |= algorithm.loss(PolicyBatch(ones, ones, torch.tensor([0, 1]), ones, 2, 2)).metrics.keys()
    found |= {f"diagnostics/{field.name}" for field in fields(TurnDiagnostics)}
    marked = cases(Path(__file__).parents[2]).keys()
    patterns = {pattern_of(name) for name in found}
    assert not patterns - marked, f"no test computes {sorted(patterns - marked)} by hand"
    elsewhere = {"metric/*", "evaluation/*/metric/*", "evaluation/*/difficulty/*/*", "skipped_episodes"}
    elsewhere |= {"advantage_limit"}  # only where returns are nearly equal
    elsewhere |= {"return/*", "welfare/*"}  # of games without common interests
    assert not marked - patterns - elsewhere, "a case of what no run logs"


def test_every_logged_metric_is_explained_on_the_page_of_loggers():
    root = Path(__file__).parents[3]
    text = (root / "docs" / "extend" / "logger.md").read_text().replace("<play>", "*")
    table, rest = text.split("## Metrics")[1].split("`evaluation.jsonl`")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| `")]
    assert all(len(row) == 2 and len(row[1]) > 20 for row in rows)
    told = {name for row in rows for name in re.findall(r"`([^`]+)`", row[0])}
    told |= {name for name in re.findall(r"`([^`]+)`", rest)}
    marked = cases(root / "tests").keys()
    logged_ones = {re.sub(r"(reward|metric|return|welfare)/\*", r"\1/<>", each) for each in marked if "/*/" not in each}
    explained = {re.sub(r"<\w+>", "<>", each) for each in told}
    missing = {each for each in logged_ones if each not in explained and not each.startswith("diagnostics/")}
    assert not missing, f"docs/extend/logger.md does not say what {sorted(missing)} are"
