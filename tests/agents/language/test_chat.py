"""Chat models: concurrent requests, retries, costs, names, keys and errors."""

import asyncio
import json
import os
import signal
import threading
import time

import pytest
from chat_server import ChatServer

import collm
from collm._errors import UserError
from collm.agents import ChatPolicy, ModelConfig, Request
from collm.agents.language import chat
from collm.agents.language.chat import address, chat_spec
from collm.agents.registry import Seat
from collm.agents.vllm.client import ServerError, VLLMClient
from collm.algorithms.rollout.collector import RolloutCollector
from collm.algorithms.runs.api import untrained
from collm.algorithms.runs.assembly.policies import playing_team
from collm.algorithms.runs.assembly.trust import UntrustedCodeError, load_experiment
from collm.algorithms.runs.evaluation import evaluate
from collm.benchmarks.cli import main
from collm.envs import make
from collm.envs.core import Message, Transcript
from collm.envs.spaces import OpenText
from collm.envs.vectors.vector import SyncVector

ENV = "collm/MiniBuild-v0"
CHAT = (("system", "play"), ("user", "go"), ("assistant", "a"), ("user", "b"))
HISTORY = Transcript([Message(*each) for each in CHAT])


def request(observation=HISTORY, stream=(1, 2, 3)):
    return Request("writer_0", observation, stream)


def policy(server, **settings):
    return ChatPolicy(server.url, "stub", **settings)


def made(name):
    return chat_spec(name).make(Seat(agent="a_0", observation_space=OpenText(9), action_space=OpenText(9)))


@pytest.fixture
def quick_retries(monkeypatch):
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.002)


def test_a_request_has_the_messages_and_the_sampling_settings():
    with ChatServer() as server:
        asked = policy(server, temperature=0.5, top_p=0.9, top_k=7, max_new_tokens=11, body={"reasoning_effort": "low"})
        (answer,) = asked.act([request()])
        asked.act([request()], greedy=True)
        asked.act([request(stream=(1, 2, 4))])
        policy(server, sends_seed=False).act([request("plain text")])
    first, greedy, later, plain = server.requests
    seed = first.pop("seed")
    assert answer.action == "the fox" and not answer.is_cut and len(answer.logprobs) == 0
    messages = [{"role": role, "content": content} for role, content in CHAT]
    settings = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "max_tokens": 11, "reasoning_effort": "low"}
    assert first == {"model": "stub", "messages": messages, **settings}
    assert isinstance(seed, int) and greedy["seed"] == seed != later["seed"]
    assert (greedy["temperature"], greedy["top_p"], "top_k" in greedy) == (0, 1, False)
    assert plain["messages"] == [{"role": "user", "content": "plain text"}] and "seed" not in plain
    assert server.keys == ["Bearer none"] * 4


def test_requests_are_concurrent_up_to_a_limit_and_in_order():
    with ChatServer(num_gathered=32) as server:
        vector = SyncVector(lambda: make("collm/MiniWriting-v2"), 16)
        team = playing_team(vector, ModelConfig(model=f"openai:stub@{server.url}", max_new_tokens=8))
        assert len({id(each) for each in team.values()}) == 2
        result = evaluate(RolloutCollector(vector, team), 16, greedy=False)
    assert len(result.episodes) == 16 and len(server.requests) == 32
    assert server.most_under_way == 32
    with ChatServer(lambda body: body["messages"][0]["content"][::-1], num_gathered=3) as server:
        both = [policy(server, max_requests=3) for _ in range(2)]
        asked = [(each, request(f"text {number}")) for number in range(10) for each in both]
        answers = both[0].act_together(asked)
    assert [answer.action for answer in answers] == [f"{number} txet" for number in range(10) for _ in both]
    assert server.most_under_way == 3


def test_failed_requests_are_repeated_and_counted(quick_retries):
    with ChatServer(refuses=lambda number: (500, {}) if number % 5 == 4 else None) as server:
        vector = SyncVector(lambda: make(ENV, max_turns=3), 8)
        team = playing_team(vector, ModelConfig(model=f"openai:stub@{server.url}"))
        result = evaluate(RolloutCollector(vector, team), 8, greedy=False)
        usage = sum((each.usage for each in team.values()), start=chat.Usage())
    num_turns = sum(len(track) for episode in result.episodes for track in episode.tracks.values())
    assert len(result.episodes) == 8
    assert usage.requests == num_turns and usage.retries == len(server.requests) - num_turns >= num_turns // 5


def test_tokens_costs_and_truncated_replies_are_counted():
    with ChatServer() as server, ChatServer(changes={"usage": None}) as other:
        asked, unmetered = (policy(each, prices=(3.0, 15.0)) for each in (server, other))
        for each in (asked, unmetered):
            each.act([request(), request()])
            each.act([request()])
    assert str(asked.usage) == "3 requests, 30 prompt and 6 completion tokens, cost 0.00018"
    assert (unmetered.usage.prompt_tokens, unmetered.usage.unmetered) == (0, 3)
    choice = {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": None}}
    with ChatServer(changes={"choices": [choice]}) as server:
        (answer,) = policy(server).act([request()])
    assert answer.action == "" and answer.is_cut


@pytest.mark.parametrize(
    ("refuses", "told"),
    [
        (None, "not a chat completion"),
        ((400, {}), "400 for stub: .*status 400"),
        ((401, {}), "401"),
        ((503, {}), "503"),
    ],
)
def test_the_error_of_a_failed_request_is_one_line(quick_retries, refuses, told):
    with ChatServer(changes={"choices": []}, refuses=lambda number: refuses) as server:
        with pytest.raises(ValueError, match=told) as caught:
            policy(server, max_retries=2).act([request()])
    assert "\n" not in str(caught.value)
    assert len(server.requests) == (3 if refuses == (503, {}) else 1)


def choice(content):
    return {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}]}


@pytest.mark.parametrize(
    "answer",
    [
        {"changes": {"usage": {"prompt_tokens": "10", "completion_tokens": "2"}}},
        {"changes": {"usage": {"prompt_tokens": 10, "completion_tokens": -2}}},
        {"changes": {"usage": {"prompt_tokens": float("inf"), "completion_tokens": 2}}},
        {"changes": choice([{"type": "text", "text": "hello"}])},
        {"changes": choice(5)},
        {"changes": {"choices": 3}},
        {"changes": {"choices": {"a": 1}}},
        {"body": b"\xff\xfe\x00"},
        {"body": b"<html>\nLog in</html>"},
        {"body": b"[]"},
        {"body": b"[" * 100_000 + b"]" * 100_000},
    ],
)
def test_a_response_of_another_form_is_one_line_with_the_server(answer):
    with ChatServer(**answer) as server, pytest.raises(ServerError, match=server.url) as caught:
        policy(server).act([request()])
    assert "\n" not in str(caught.value)


def test_the_timeout_is_that_of_a_whole_attempt(quick_retries):
    with ChatServer(delay_s=0.05) as server, pytest.raises(ServerError, match=r"within 0\.2 s, after 1 retries"):
        policy(server, timeout_s=0.2, max_retries=1).act([request()])
    assert len(server.requests) == 2


def test_connection_errors_and_timeouts_are_reported(quick_retries):
    with ChatServer() as server:
        url = server.url
    with pytest.raises(ValueError, match=f"there is no server at {url}"):
        ChatPolicy(url, "stub", max_retries=1).act([request()])
    with ChatServer(num_gathered=9, patience_s=1.0) as server, pytest.raises(ValueError, match=r"within 0\.1 s"):
        policy(server, timeout_s=0.1, max_retries=0).act([request()])


def test_a_key_is_read_from_the_environment_and_sent_only_on_request(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret of another")
    monkeypatch.setenv("STUB_KEY", "its own")
    with ChatServer() as server:
        policy(server).act([request()])
        policy(server, key_variable="STUB_KEY").act([request()])
    assert server.keys == ["Bearer none", "Bearer its own"]


@pytest.mark.parametrize(
    ("url", "variable", "is_reported"),
    [
        *((f"http://{host}/v1", "MINE", True) for host in ("models.example.org", "192.168.0.7:8000")),
        *((f"http://{host}:8000/v1", "MINE", False) for host in ("localhost", "127.0.0.9", "[::1]")),
        ("https://models.example.org/v1", "MINE", False),
        ("http://models.example.org/v1", None, False),
    ],
)
def test_a_key_sent_without_encryption_is_reported(monkeypatch, recwarn, url, variable, is_reported):
    monkeypatch.setenv("MINE", "secret")
    ChatPolicy(url, "m", variable)
    messages = [str(each.message) for each in recwarn]
    assert len(messages) == is_reported
    assert all("MINE" in each and "https" in each and "secret" not in each for each in messages)


@pytest.mark.parametrize(
    ("name", "variable"), [("openai:gpt-x", "OPENAI_API_KEY"), ("openai:m@http://h/v1?key=MINE", "MINE")]
)
def test_a_missing_key_is_one_line(monkeypatch, capsys, tmp_path, name, variable):
    monkeypatch.delenv(variable, raising=False)
    out = tmp_path / "run"
    for call in (
        ["play", ENV, "--policy", name],
        ["train", "magrpo", "--env", ENV, "--model", f"tiny,{name}", "--out", str(out)],
    ):
        assert main(call) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line.startswith("error: ") and variable in line
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "model", "url"),
    [
        ("openai:gpt-x", "gpt-x", None),
        ("openai:owner/model:8b@http://h:1", "owner/model:8b", "http://h:1/v1"),
        ("openai:@cf/meta/llama@https://h/ai/v1/", "@cf/meta/llama", "https://h/ai/v1"),
        ("openai:a@b@http://h:1/x", "a@b", "http://h:1/x"),
    ],
)
def test_a_name_has_a_model_and_an_address(monkeypatch, name, model, url):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert (made(name).model, made(name).url) == (model, url or "https://api.openai.com/v1")
    assert chat_spec("tiny") is None and chat_spec("openai/gpt-oss-20b") is None


def test_a_name_has_options_and_fields_of_requests():
    with ChatServer() as server:
        name = f"openai:stub@{server.url}?requests=2&seeds=False&timeout_s=9&body.reasoning_effort=low&body.top_k=3"
        asked = made(name)
        asked.act([request()])
    assert asked.max_requests == 2 and "seed" not in server.requests[0]
    assert (server.requests[0]["reasoning_effort"], server.requests[0]["top_k"]) == ("low", 3)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("openai:m@http://h?retries=-1", "retries .*-1"),
        ("openai:m@http://h?requsts=3", "'requests'"),
        ("openai:m@http://h?key", "'key'"),
        ("openai:m@http://h?seeds=2", "seeds .*2"),
        ("openai:", "openai:MODEL@URL"),
        ("openai:a b", "openai:MODEL@URL"),
        ("openai:@http://h", "openai:MODEL@URL"),
    ],
)
def test_malformed_names_options_and_addresses_are_refused(name, told):
    with pytest.raises(UserError, match=told):
        chat_spec(name)
    for url in ("ftp://h", "h:8000", "http://", "http://h:port", "http://h/v1?a=b"):
        with pytest.raises(ValueError, match="http://host:port/v1"):
            address(url)


@pytest.mark.parametrize(
    "url", ["http://bob:secret@h:1/v1", "http://bob@h", "https://bob:se/cr?et@h", "http://:secret@h"]
)
def test_a_password_in_an_address_is_refused_and_not_repeated(url):
    for refused in (lambda: address(url), lambda: chat_spec(f"openai:m@{url}"), lambda: VLLMClient(url, 1.0)):
        with pytest.raises(ValueError, match="key=VARIABLE") as raised:
            refused()
        assert "secret" not in str(raised.value) and "bob" not in str(raised.value)


@pytest.mark.parametrize("option", ["--model", "--server", "--collectors", "--partner", "--config"])
def test_a_password_in_an_address_is_never_written(tmp_path, capsys, option):
    url = "http://bob:sekretpw@127.0.0.1:9"
    value = {"--server": f"{url},{url}1", "--collectors": url.replace("http", "ray")}
    value |= {"--partner": f"builder_1=openai:m@{url}"}
    (tmp_path / "settings.toml").write_text(f'model = "openai:m@{url}"\n')
    given = str(tmp_path / "settings.toml") if option == "--config" else value.get(option, f"openai:m@{url}")
    call = ["train", "magrpo", "--env", ENV, "--out", str(tmp_path / "run"), option, given]
    assert main(call) == 2
    printed = capsys.readouterr()
    assert "key=VARIABLE" in printed.err and "sekretpw" not in printed.err + printed.out
    assert not (tmp_path / "run").exists()


def test_a_chat_model_plays_with_a_trained_model(tmp_path, monkeypatch):
    settings = {"num_updates": 1, "rollout_buffer_size": 4, "eval_num_samples": 2, "max_new_tokens": 8}
    with ChatServer(lambda body: "the red fox") as server:
        name = f"openai:stub@{server.url}"
        settings |= {"model": f"tiny,{name}", "num_generations": 2, "progress": False, "out": tmp_path / "run"}
        run = collm.train("magrpo", env="collm/MiniWriting-v2", **settings)
        texts = {turn["wrote"] for row in run.episodes for turn in row["agents"]["writer_1"]["turns"]}
        assert texts == {"the red fox"}
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of another user"))
        with pytest.raises(UntrustedCodeError, match="openai:stub"):
            collm.load_team(tmp_path / "run")
        team = collm.load_team(tmp_path / "run", trust=True)
        assert isinstance(team["writer_1"], ChatPolicy) and team["writer_1"].model == "stub"
    config = tmp_path / "run" / "config.json"
    saved = json.loads(config.read_text())
    assert saved["model"]["model"] == f"tiny,{name}"
    saved["model"]["model"] += "?key=A_SECRET_OF_THE_READER"
    config.write_text(json.dumps(saved))
    with pytest.raises(UntrustedCodeError, match="key=A_SECRET_OF_THE_READER"):
        load_experiment(tmp_path / "run")
    assert load_experiment(tmp_path / "run", trust=True).model.model == saved["model"]["model"]


def test_prompts_explain_the_rules_to_teams_of_chat_models():
    with ChatServer(lambda body: "wall wood") as server:
        name = f"openai:stub@{server.url}"
        untrained(ModelConfig(model=name), "collm/MiniBuild-v0").evaluate(1)
        assert "name one part and its material" in server.requests[0]["messages"][0]["content"]
        for model, given in ((name, {"is_explained": False}), (f"tiny,{name}", {})):  # tiny was trained without rules
            assert untrained(ModelConfig(model=model), "collm/MiniBuild-v0", **given).experiment.env_kwargs == given


def test_the_command_plays_with_a_chat_model_which_needs_text_actions(capsys):
    with ChatServer(lambda body: "the blue bird") as server:
        main(["play", ENV, "--policy", f"openai:stub@{server.url}", "--max-new-tokens", "9"])
    told = capsys.readouterr().out
    assert "the blue bird" in told and "return: " in told
    assert "openai:stub: " in told and f"{len(server.requests)} requests" in told
    assert all(body["max_tokens"] == 9 for body in server.requests)
    assert main(["play", "gymnasium/CartPole-v1", "--policy", "openai:stub@http://127.0.0.1:9"]) == 2
    assert "writes texts" in capsys.readouterr().err


def test_an_interrupt_cancels_all_requests():
    loop = chat._background
    with ChatServer(num_gathered=9, patience_s=20.0) as server:
        asked = policy(server)

        def interrupt():
            while server.under_way < 2:
                time.sleep(0.01)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            asked.act([request(), request()])
        assert server.most_under_way == 2
        server.let_go()
        assert asked.act([request()])[0].action == "the fox"
        assert asyncio.all_tasks(loop._loop) == set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_has_separate_connections():
    with ChatServer() as server:
        asked = policy(server)
        asked.act([request()])
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, asked.act([request()])[0].action.encode())
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0 and os.read(read, 100) == b"the fox"
        os.close(read), os.close(write)
