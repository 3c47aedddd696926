"""Faults of a hub are one line, which names the hub and not the user's run."""

import threading

import pytest
from hub_server import HubServer
from huggingface_hub import constants

import collm
from collm.benchmarks.sharing import hub as sharing

GARBAGE = {
    "a page": b"<html>log in</html>",
    "no text": b"\xff\xfe",
    "a list": b"[]",
    "a number": b"3",
    "nothing": b"{}",
    "another type": b'{"id": 3, "sha": [1], "private": {}, "siblings": 2, "url": null, "files": 1}',
}


@pytest.fixture
def faults(tmp_path, monkeypatch):
    """Dict with the key "answer": the answer of the hub to each request."""
    faults = {}
    with HubServer(tmp_path / "hub", lambda method, path: faults["answer"]()) as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        sharing.downloaded.cache_clear()
        yield faults


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    few = {"num_updates": 1, "rollout_buffer_size": 2, "eval_num_samples": 2, "num_generations": 2}
    kwargs = {"env_kwargs": {"max_turns": 1}, "max_new_tokens": 4, "eval_on_start": False, "progress": False}
    return collm.train("magrpo", "collm/MiniBuild-v0", out=tmp_path_factory.mktemp("run") / "run", **few, **kwargs)


@pytest.fixture
def call(run, tmp_path):
    return {
        "pull": lambda: sharing.pull("me/team", tmp_path / "out"),
        "push": lambda: sharing.push(run.directory, "me/team"),
    }


@pytest.mark.parametrize("name", ["pull", "push"])
@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        *((200, body, "did not answer as a hub for 'me/team'; check HF_ENDPOINT") for body in GARBAGE.values()),
        (500, b"", "the hub failed for 'me/team': .*500"),
        (429, b"", "the hub failed for 'me/team': .*429"),
    ],
)
def test_a_fault_of_the_hub_names_the_hub(faults, call, tmp_path, name, status, body, words):
    faults["answer"] = lambda: (status, body)
    with pytest.raises(sharing.UserError, match=words):
        call[name]()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["pull", "push"])
def test_a_hub_that_never_answers_is_left_after_a_time(faults, call, monkeypatch, name):
    monkeypatch.setattr(sharing, "HUB_TIMEOUT_S", 0.2)
    is_over = threading.Event()
    faults["answer"] = lambda: is_over.wait(60) and (500, b"")
    with pytest.raises(sharing.UserError, match=r"cannot be reached.*ReadTimeout"):
        call[name]()
    is_over.set()
