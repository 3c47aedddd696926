"""A text environment in verifiers: `vf-eval` plays it by a server, one seat per agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("verifiers")

from chat_server import ChatServer

from collm.agents.interop.verifiers import environment
from collm.envs import make

PACKAGE = """
from collm.agents.interop.verifiers import environment

Tasks, Team = environment("collm/MiniBuild-v0", max_turns=2, first_seed=3)
__all__ = ["Tasks", "Team"]
"""


def returns_of(seed, reply):
    """What the environment pays when both builders always write the same."""
    env = make("collm/MiniBuild-v0", max_turns=2)
    env.reset(seed=seed)
    earned = dict.fromkeys(env.possible_agents, 0.0)
    while env.agents:
        _, rewards, *_ = env.step(dict.fromkeys(env.agents, reply))
        earned = {agent: earned[agent] + rewards[agent] for agent in earned}
    return earned


def test_the_tasks_are_seeds_and_the_agents_roles():
    tasks, team = environment("collm/MiniBuild-v0", num_tasks=3, first_seed=7)
    config = team.__orig_bases__[0].__args__[0]()
    assert [name for name in type(config).model_fields if name.startswith("builder")] == ["builder_0", "builder_1"]
    assert config.builder_0.harness.id == "null" and config.builder_0.runtime.type == "subprocess"
    loaded = list(tasks(tasks.__orig_bases__[0].__args__[1]()).load())
    assert [task.data.seed for task in loaded] == [7, 8, 9]


def test_each_agent_is_a_seat_with_a_model_a_trace_and_a_return_of_its_own(tmp_path):
    (tmp_path / "mini_build_of_a_test.py").write_text(PACKAGE)
    folder = Path(sys.executable).parent
    environ = os.environ | {"PYTHONPATH": str(tmp_path), "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    with ChatServer(lambda body: "desk wood") as server:
        call = [folder / "vf-eval", "mini_build_of_a_test", "-m", "first", "--client.base-url", server.url]
        call += ["-n", "2", "-r", "1", "--no-push", "--env.builder-1.model", "second"]
        ended = subprocess.run(
            call, cwd=tmp_path, env=environ | {"OPENAI_API_KEY": "none"}, capture_output=True, text=True, timeout=900
        )
        asked = [body["model"] for body in server.requests]
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert asked.count("first") == asked.count("second") == 2 * 2
    (file,) = tmp_path.glob("outputs/**/traces.jsonl")
    episodes = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(episodes) == 2 and not any(episode["errors"] for episode in episodes)
    for episode in episodes:
        expected = returns_of(episode["task"]["data"]["seed"], "desk wood")
        found = {trace["agent"]["name"]: trace["rewards"]["return"]["score"] for trace in episode["traces"]}
        assert found == pytest.approx(expected)
        assert all("reward/" in " ".join(trace["metrics"]) for trace in episode["traces"])
