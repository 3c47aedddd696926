"""A text environment in verifiers: `vf-eval` plays it with a model per agent."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fences import fenced

pytest.importorskip("verifiers")

from chat_server import ChatServer
from reference_play import reference_episode

from collm.agents.interop.verifiers import environment
from collm.envs import make

PACKAGE = """
from collm.agents.interop.verifiers import environment

Tasks, Team = environment("collm/MiniBuild-v0", max_turns=2, first_seed=3)
__all__ = ["Tasks", "Team"]
"""


def test_the_tasks_are_seeds_and_the_agents_roles():
    tasks, team = environment("collm/MiniBuild-v0", num_tasks=3, first_seed=7)
    config = team.__orig_bases__[0].__args__[0]()
    assert [name for name in type(config).model_fields if name.startswith("builder")] == ["builder_0", "builder_1"]
    assert config.builder_0.harness.id == "null" and config.builder_0.runtime.type == "subprocess"
    loaded = list(tasks(tasks.__orig_bases__[0].__args__[1]()).load())
    assert [task.data.seed for task in loaded] == [7, 8, 9]


def evaluated(arguments, folder):
    tools = Path(sys.executable).parent
    settings = {"PYTHONPATH": str(folder), "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "OPENAI_API_KEY": "none"}
    given = {"cwd": folder, "env": os.environ | settings, "capture_output": True, "text": True}
    ended = subprocess.run([tools / "vf-eval", *arguments], timeout=900, **given)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (file,) = folder.glob("outputs/**/traces.jsonl")
    episodes = [json.loads(line) for line in file.read_text().splitlines()]
    assert not any(episode["errors"] for episode in episodes)
    return episodes


def test_each_agent_has_a_model_a_trace_and_a_return(tmp_path):
    (tmp_path / "mini_build_of_a_test.py").write_text(PACKAGE)
    with ChatServer(lambda body: "desk wood") as server:
        call = ["mini_build_of_a_test", "-m", "first", "--client.base-url", server.url]
        episodes = evaluated([*call, "-n", "2", "-r", "1", "--no-push", "--env.builder-1.model", "second"], tmp_path)
        asked = [body["model"] for body in server.requests]
    assert asked.count("first") == asked.count("second") == 2 * 2
    assert len(episodes) == 2
    for episode in episodes:
        env = make("collm/MiniBuild-v0", max_turns=2)
        replies = dict.fromkeys(env.possible_agents, "desk wood")
        _, turns = reference_episode(env, episode["task"]["data"]["seed"], **replies)
        expected = {agent: sum(rewards[agent] for *_, rewards in turns) for agent in replies}
        found = {trace["agent"]["name"]: trace["rewards"]["return"]["score"] for trace in episode["traces"]}
        assert found == pytest.approx(expected)
        assert all("reward/" in " ".join(trace["metrics"]) for trace in episode["traces"])


def test_the_command_of_the_page_evaluates_the_module_of_the_page(root, tmp_path):
    page = (root / "docs" / "use_with" / "verifiers.md").read_text()
    (module,) = fenced(page, "python interop")
    (command,) = fenced(page, "sh")
    (tmp_path / "mini_build.py").write_text(module)
    _, *call = shlex.split(command)
    call[call.index("-n") + 1] = "2"
    with ChatServer(lambda body: "desk wood") as server:
        episodes = evaluated([word.replace("http://localhost:8000/v1", server.url) for word in call], tmp_path)
        asked = [body["model"] for body in server.requests]
    assert len(episodes) >= 2 and asked.count("MODEL") == asked.count("OTHER") == 3 * len(episodes)
