import socket
import subprocess
import sys
import threading
import time

import pytest
from fences import fenced

pytest.importorskip("openenv")

import uvicorn
from openenv.core.generic_client import GenericEnvClient
from reference_play import reference_episode, text_of

from collm.agents.interop.openenv import server
from collm.envs import make
from collm.envs.views import SingleAgent

pytestmark = pytest.mark.filterwarnings("ignore")


def team():
    return make("collm/MiniBuild-v0", max_turns=2, reward="terminal")


@pytest.fixture
def serve(monkeypatch):
    """Start servers that run until the end of the test; returns an address."""
    monkeypatch.setenv("ENABLE_WEB_INTERFACE", "false")
    running = []

    def start(build):
        app = uvicorn.Server(uvicorn.Config(server(build), host="127.0.0.1", port=0, log_level="warning"))
        thread = threading.Thread(target=app.run, daemon=True)
        thread.start()
        running.append((app, thread))
        while not app.started:
            time.sleep(0.02)
        return f"http://127.0.0.1:{app.servers[0].sockets[0].getsockname()[1]}"

    yield start
    for app, thread in running:
        app.should_exit = True
        thread.join()


def test_a_client_plays_one_agent(serve):
    opening, turns = reference_episode(team(), 3)
    with GenericEnvClient(base_url=serve(lambda: SingleAgent(team(), "builder_0"))).sync() as client:
        result = client.reset(seed=3)
        assert text_of(result.observation["messages"]) == str(opening["builder_0"])
        rewards = []
        for replies, *_ in turns:
            assert not result.done
            result = client.step({"text": replies["builder_0"]})
            rewards.append(result.reward)
        assert result.done and rewards == [0.0, 1.0]
        assert client.state()["step_count"] == 2


def test_a_client_plays_all_agents_in_separate_sessions(serve):
    url = serve(team)
    _, turns = reference_episode(team(), 3)
    with GenericEnvClient(base_url=url).sync() as first, GenericEnvClient(base_url=url).sync() as second:
        result, other = first.reset(seed=3), second.reset(seed=4)
        assert result.observation["agents"] == ["builder_0", "builder_1"]
        assert result.observation["messages"]["builder_0"] != other.observation["messages"]["builder_0"]
        for replies, *_ in turns:
            result = first.step({"texts": replies})
            other = second.step({"texts": dict.fromkeys(replies, "")})
        assert result.done and result.reward == 1.0
        assert result.observation["rewards"] == {"builder_0": 1.0, "builder_1": 1.0}
        assert other.done and other.reward < 1.0


def test_the_programs_of_the_page_play_an_episode(root, tmp_path):
    served, played = fenced((root / "docs/use_with/openenv.md").read_text(), "python")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    at = {"cwd": tmp_path, "text": True, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", served.replace("8000", port)], **at) as process:
        try:
            wait_for(port)
            done = subprocess.run([sys.executable, "-c", played.replace("8000", port)], **at, timeout=300)
        finally:
            process.terminate()
    assert done.returncode == 0 and done.stdout.count("'role': 'user'") >= 2


def wait_for(port, seconds=120):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", int(port))) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(port)
