"""One warning if a run has nothing to learn from: equal returns, or a constant sum of the agents' rewards."""

from __future__ import annotations

import math

import pytest
from probes import AGENTS, TextProbe, word_policy

from collm.algorithms import train
from collm.algorithms.runs.loggers import silence
from collm.algorithms.runs.loggers.silence import CONSTANT_SUM_PATIENCE, PATIENCE, SilenceWatch, silent_since
from collm.envs.core import Outcome


class Even(TextProbe):
    """Pays a quarter whatever is said."""

    def __init__(self):
        super().__init__("constant")

    def play(self, replies):
        return Outcome(0.25)


def test_the_watch_says_it_once():
    lines: list[str] = []
    watch = SilenceWatch(lines.append)
    for update in range(1, 60):
        watch.log(update, {"return": 0.25, "equal_returns": float(update > 3)})
        assert len(lines) == (update >= 3 + PATIENCE)
    assert lines[0].startswith(f"update {3 + PATIENCE}: for {PATIENCE} updates") and "0.25" in lines[0]
    watch.close()


def test_an_update_that_says_nothing_of_returns_breaks_the_silence():
    lines: list[str] = []
    watch = SilenceWatch(lines.append)
    for update in range(1, 100):
        watch.log(update, {"equal_returns": 1.0, "return": 0.0} if update % PATIENCE else {})
    assert not lines
    assert silent_since([1.0] * 30 + [math.nan]) is None
    assert silent_since([0.5, *[1.0] * PATIENCE]) == 1


def test_a_silent_run_says_so_and_logs_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(silence, "PATIENCE", 2)
    run = train(
        "magrpo",
        Even,
        out=tmp_path / "run",
        policies={agent: word_policy(i) for i, agent in enumerate(AGENTS)},
        num_updates=4,
        rollout_buffer_size=4,
        num_generations=2,
        eval_num_samples=2,
        progress=True,
    )
    assert [row["equal_returns"] for row in run.metrics] == [1.0] * 4
    assert [row["grad_norm"] for row in run.metrics] == pytest.approx([0.0] * 4)
    told = capsys.readouterr()
    assert f"{told.out}{told.err}".count("nothing to learn from") == 1


class Pennies(TextProbe):
    """Matching pennies: the first agent wins if both say the same word, else the second one; the sum is 0."""

    def __init__(self):
        super().__init__("constant")

    def play(self, replies):
        sign = 1.0 if replies[AGENTS[0]] == replies[AGENTS[1]] else -1.0
        return Outcome({AGENTS[0]: sign, AGENTS[1]: -sign})


def test_a_constant_sum_is_warned_of_once_and_is_no_silence():
    lines: list[str] = []
    watch = SilenceWatch(lines.append, "team")
    for update in range(1, 60):
        watch.log(update, {"return": 0.0, "equal_returns": 1.0, "constant_sum": float(update > 2)})
        assert len(lines) == (update >= 2 + CONSTANT_SUM_PATIENCE)
    assert "credited_reward='own'" in lines[0] and "nothing to learn from" not in lines[0]


def test_a_constant_sum_is_no_fault_with_own_rewards():
    lines: list[str] = []
    watch = SilenceWatch(lines.append, "own")
    for update in range(1, 60):
        watch.log(update, {"return": 0.0, "equal_returns": 0.0, "constant_sum": 1.0})
    assert lines == []


@pytest.mark.parametrize(
    ("name", "settings", "is_warned"),
    [
        ("magrpo", {"num_generations": 2}, True),
        ("iac", {"critic_warmup": 0}, True),
        ("magrpo", {"num_generations": 2, "credited_reward": "own"}, False),
        ("magrpo", {"num_generations": 2, "reward_processor": abs}, False),
    ],
)
def test_a_run_of_a_constant_sum_game_names_the_fix(tmp_path, capsys, name, settings, is_warned):
    run = train(
        name,
        Pennies,
        out=tmp_path / "run",
        policies={agent: word_policy(i) for i, agent in enumerate(AGENTS)},
        num_updates=CONSTANT_SUM_PATIENCE + 1,
        rollout_buffer_size=16,
        eval_num_samples=2,
        progress=True,
        **settings,
    )
    assert max(row["constant_sum"] for row in run.metrics) > 0
    told = capsys.readouterr()
    assert f"{told.out}{told.err}".count("credited_reward='own'") == is_warned
