import gc
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fences import fenced

pytest.importorskip("inspect_ai")

from chat_server import ChatServer
from inspect_ai import eval
from inspect_ai.log import list_eval_logs, read_eval_log
from inspect_ai.model import get_model
from reference_play import reference_episode, text_of

from collm.agents.interop.inspect_ai import episodes, write_log
from collm.envs import make
from collm.envs.wrappers import Recorded

pytestmark = pytest.mark.filterwarnings("ignore")

SETTINGS = {"max_turns": 2, "reward": "terminal"}


def test_each_agent_is_a_role_and_its_return_a_score(tmp_path):
    expected, written = {}, {}
    for seed in (3, 4):
        opening, turns = reference_episode(make("collm/MiniBuild-v0", **SETTINGS), seed, builder_1="nothing")
        written[str(opening["builder_0"])] = [replies["builder_0"] for replies, *_ in turns]
        expected[seed] = sum(rewards["builder_0"] for *_, rewards in turns)

    def reply(body):
        if body["model"] == "second":
            return "nothing"
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        return written[text_of(body["messages"][: -2 * turn or None])][turn]

    with ChatServer(reply) as server:
        at = {"base_url": server.url, "api_key": "none"}
        model, other = (get_model(f"openai-api/stub/{name}", **at) for name in ("first", "second"))
        task = episodes("collm/MiniBuild-v0", num_samples=2, first_seed=3, **SETTINGS)
        (log,) = eval(task, model=model, model_roles={"builder_1": other}, log_dir=str(tmp_path), display="none")
        asked = [body["model"] for body in server.requests]
    gc.collect()  # warnings about the library's unclosed streams are ignored here
    assert log.status == "success", log.error
    assert asked.count("first") == asked.count("second") == 4
    for sample in log.samples:
        (score,) = sample.scores.values()
        earned = expected[sample.metadata["seed"]]
        assert score.value == pytest.approx({"team": earned, "builder_0": earned, "builder_1": earned})
        assert [message.role for message in sample.messages].count("assistant") == 2
        assert sorted(sample.store["histories"]) == ["builder_0", "builder_1"]
        assert any(name.startswith(("reward/", "metric/")) for name in score.metadata)
    team = {score.name: score.metrics for score in log.results.scores}["team"]
    assert team["mean"].value == pytest.approx(sum(expected.values()) / 2)


def test_the_command_of_the_page_evaluates_the_file_of_the_page(root, tmp_path):
    page = (root / "docs" / "use_with" / "inspect_ai.md").read_text()
    (file,) = fenced(page, "python interop")
    (command,) = fenced(page, "sh")
    (tmp_path / "mini_build.py").write_text(file)
    _, *call = shlex.split(command)
    with ChatServer(lambda body: "desk wood") as first, ChatServer(lambda body: "nothing") as second:
        settings = {"OPENAI_BASE_URL": first.url, "LOCAL_BASE_URL": second.url}
        settings |= dict.fromkeys(("OPENAI_API_KEY", "LOCAL_API_KEY"), "none")
        given = {"cwd": tmp_path, "env": os.environ | settings, "capture_output": True, "text": True}
        call = [Path(sys.executable).with_name("inspect"), *call, "--display", "plain"]
        done = subprocess.run(call, timeout=600, **given)
        assert done.returncode == 0, done.stdout + done.stderr
        asked = [{body["model"] for body in server.requests} for server in (first, second)]
        assert asked == [{"gpt-4o-mini"}, {"my-model"}] and len(first.requests) == len(second.requests) >= 20
    assert len(list((tmp_path / "logs").glob("*.eval"))) == 1


@pytest.mark.parametrize("suffix", ["eval", "json"])
def test_recorded_episodes_are_samples_of_a_log(tmp_path, suffix):
    env = Recorded(make("collm/MiniBuild-v0", **SETTINGS), tmp_path)
    turns = [reference_episode(env, seed, builder_1="no\ud800thing")[1] for seed in (3, 4)]
    rows = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    write_log(rows, tmp_path / "logs" / f"log.{suffix}")
    log = read_eval_log(str(tmp_path / "logs" / f"log.{suffix}"))
    assert (log.status, log.eval.task, len(log.samples)) == ("success", "collm/MiniBuild-v0", 2)
    for row, played, sample in zip(rows, turns, log.samples, strict=True):
        assert sample.scores["return"].value == row["return"]
        assert sample.metadata["seed"] == row["seed"] and sample.metadata["env_kwargs"] == SETTINGS
        wrote = [message.text for message in sample.messages if message.role == "assistant"]
        replies = [(agent, reply) for given, *_ in played for agent, reply in given.items()]
        assert wrote == [f"[{agent} writes] {reply}".replace("\ud800", "\\ud800") for agent, reply in replies]
        read = [message["content"] for track in row["agents"].values() for message in track["last_read"]]
        assert [message.text.partition("] ")[2] for message in sample.messages][-len(read) :] == read
    (metric,) = log.results.scores[0].metrics.values()
    assert metric.value == pytest.approx(sum(row["return"] for row in rows) / 2)
    assert len(list_eval_logs(str(tmp_path / "logs"))) == (
        suffix == "eval"
    )  # `inspect view` lists other names of .json
