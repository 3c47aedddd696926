"""Notices on equal returns, constant-sum games and too large updates."""

from __future__ import annotations

import math

import pytest
from probes import AGENTS, TextProbe, word_policies

from collm._progress import Phase
from collm.algorithms import train
from collm.algorithms.runs.loggers import Callback
from collm.algorithms.runs.loggers.callbacks import (
    FEW,
    MAX_NATS,
    PATIENCE,
    LearningWatch,
    as_callback,
    silent_since,
)
from collm.envs.core import Outcome


class Even(TextProbe):
    def play(self, replies):
        return Outcome(0.25)


class Pennies(TextProbe):
    """Matching pennies: a zero-sum game."""

    def play(self, replies):
        sign = 1.0 if replies[AGENTS[0]] == replies[AGENTS[1]] else -1.0
        return Outcome({AGENTS[0]: sign, AGENTS[1]: -sign})


@pytest.fixture
def count_printed(tmp_path, capsys):
    """Function that trains word policies and returns how often a text was printed, and the metrics."""

    def run(text, env, algorithm="magrpo", **settings):
        settings = {"num_updates": 4, "rollout_buffer_size": 16, "eval_num_samples": 2, **settings}
        metrics = train(algorithm, env, out=tmp_path / "run", policies=word_policies(), **settings).metrics
        printed = capsys.readouterr()
        return f"{printed.out}{printed.err}".count(text), metrics

    return run


@pytest.mark.parametrize(
    ("credited_reward", "later", "told"),
    [
        ("team", {"equal_returns": 1.0}, ["nothing is learned", "0.25"]),
        ("team", {"equal_returns": 1.0, "constant_sum": 1.0}, ["credited_reward='own'"]),
        ("team", {"cut_share": 0.96}, ["limit of 48 tokens", "--max-new-tokens"]),
        ("team", {"equal_returns": 1.0, "cut_share": 1.0}, ["nothing is learned", "--max-new-tokens"]),
        ("team", {"cut_share": 1.0, "completion_tokens": 1.0}, []),
        ("team", {"equal_returns": 0.9, "cut_share": 0.9}, []),
        ("own", {"constant_sum": 1.0}, []),
    ],
)
def test_the_watch_tells_once_after_a_few_updates_that_nothing_can_be_learned(credited_reward, later, told):
    lines: list[str] = []
    watch = LearningWatch(lines.append, credited_reward)
    for update in range(1, 60):
        usual = {"return": 0.25, "equal_returns": 0.0, "constant_sum": 0.0, "cut_share": 0.0, "completion_tokens": 48.0}
        watch.log(update, usual | (later if update > 3 else {}))
        assert len(lines) == (update >= 3 + FEW and bool(told))
    assert all(text in lines[0] for text in told)
    if told == ["credited_reward='own'"]:
        assert "nothing is learned" not in lines[0]


def test_a_silent_run_says_so_unless_an_update_says_nothing_of_returns(count_printed):
    lines: list[str] = []
    watch = LearningWatch(lines.append)
    for update in range(1, 100):
        watch.log(update, {"equal_returns": 1.0, "return": 0.0} if update % FEW else {})
    assert not lines
    assert silent_since([1.0] * 30 + [math.nan]) is None
    assert silent_since([0.5, *[1.0] * PATIENCE]) == 1
    count, metrics = count_printed(
        "nothing is learned", lambda: Even("constant"), num_generations=2, rollout_buffer_size=4
    )
    assert count == 1
    assert [row["equal_returns"] for row in metrics] == [1.0] * 4
    assert [row["grad_norm"] for row in metrics] == pytest.approx([0.0] * 4)


@pytest.mark.parametrize("kl", [MAX_NATS * 1.01, math.inf, math.nan])
def test_the_watch_of_jumps_warns_once(kl):
    lines: list[str] = []
    watch = LearningWatch(lines.append)
    watch.log(1, {"return": 0.0})  # critics warm up
    watch.log(2, {"kl_after_update": MAX_NATS})
    assert lines == []
    for update in range(3, 9):
        watch.log(update, {"kl_after_update": kl})
    (line,) = lines
    assert line.startswith("update 3:") and "agent_learning_rate" in line


@pytest.mark.parametrize(
    ("name", "settings", "is_warned"),
    [
        ("magrpo", {"num_generations": 2}, True),
        ("iac", {"critic_warmup": 0}, True),
        ("magrpo", {"num_generations": 2, "credited_reward": "own"}, False),
        ("magrpo", {"num_generations": 2, "reward_processor": abs}, False),
    ],
)
def test_a_run_of_a_constant_sum_game_names_the_fix(count_printed, name, settings, is_warned):
    count, metrics = count_printed("credited_reward='own'", lambda: Pennies("constant"), name, **settings)
    assert count == is_warned
    assert max(row["constant_sum"] for row in metrics) > 0


@pytest.mark.parametrize(("rate", "is_warned"), [(1e-3, False), (3.0, True)])
def test_a_run_with_an_absurd_learning_rate_says_so_once(count_printed, rate, is_warned):
    settings = {"num_updates": 3, "num_generations": 4, "agent_learning_rate": rate}
    count, metrics = count_printed("nats per token (kl_after_update)", lambda: TextProbe("observed"), **settings)
    assert count == (metrics[0]["kl_after_update"] > MAX_NATS) == is_warned


def test_a_logger_without_the_optional_methods_is_a_callback():
    class Plain:
        def __init__(self):
            self.calls = []

        def log(self, step, metrics):
            self.calls.append((step, metrics))

        def close(self):
            self.calls.append("closed")

    logger, callback = Plain(), Callback()
    assert as_callback(callback) is callback
    adapted = as_callback(logger)
    adapted.log(1, {})
    adapted.log_evaluation(1, None)
    adapted.log_progress(Phase("collect"))
    adapted.close()
    assert logger.calls == [(1, {}), "closed"]
