"""One warning if a single update changes a policy beyond recognition."""

from __future__ import annotations

import math

import pytest
from probes import AGENTS, TextProbe, word_policy

from collm.algorithms import train
from collm.algorithms.runs.loggers.jumps import MAX_NATS, JumpWatch


@pytest.mark.parametrize("kl", [MAX_NATS * 1.01, math.inf, math.nan])
def test_the_watch_warns_once(kl):
    lines: list[str] = []
    watch = JumpWatch(lines.append)
    watch.log(1, {"return": 0.0})  # critics warm up
    watch.log(2, {"kl_after_update": MAX_NATS})
    assert lines == []
    for update in range(3, 9):
        watch.log(update, {"kl_after_update": kl})
    watch.close()
    (line,) = lines
    assert line.startswith("update 3:") and "agent_learning_rate" in line


@pytest.mark.parametrize(("rate", "is_warned"), [(1e-3, False), (3.0, True)])
def test_a_run_with_an_absurd_learning_rate_says_so_once(tmp_path, capsys, rate, is_warned):
    run = train(
        "magrpo",
        lambda: TextProbe("observed"),
        out=tmp_path / "run",
        policies={agent: word_policy(i) for i, agent in enumerate(AGENTS)},
        num_updates=3,
        rollout_buffer_size=16,
        num_generations=4,
        agent_learning_rate=rate,
        eval_num_samples=2,
        progress=True,
    )
    assert (run.metrics[0]["kl_after_update"] > MAX_NATS) == is_warned
    told = capsys.readouterr()
    assert f"{told.out}{told.err}".count("nats per token (kl_after_update)") == is_warned
