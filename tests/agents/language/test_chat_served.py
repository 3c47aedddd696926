"""`transformers serve` on the embedded model gives the same replies as the model itself."""

import re
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("openai")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from ranked import free_port
from transformers import AutoTokenizer

from collm.agents import ChatPolicy, ModelConfig, load_policies
from collm.agents.tiny import TINY_DIRECTORY
from collm.algorithms.rollout.collector import RolloutCollector
from collm.algorithms.runs.evaluation import evaluate
from collm.envs import make
from collm.envs.vectors.vector import SyncVector

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[3] / "docs" / "use_with" / "chat_servers.md"
(AS_PLAIN_TEXT,) = re.findall(r"(?m)^```jinja\n(.*)\n```$", PAGE.read_text())


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Address and name of the embedded model, served with a template that renders what the model itself reads."""
    folder = tmp_path_factory.mktemp("served")
    for file in ("config.json", "generation_config.json", "model.safetensors"):
        shutil.copy(TINY_DIRECTORY / file, folder)
    tokenizer = AutoTokenizer.from_pretrained(TINY_DIRECTORY)
    tokenizer.chat_template = AS_PLAIN_TEXT
    tokenizer.save_pretrained(folder)
    port = free_port()
    call = ["-m", "transformers.cli.transformers", "serve", str(folder), "--device", "cpu", "--port", str(port)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, *call], stdout=log, stderr=log)
        try:
            end = time.monotonic() + 300
            while not is_up(port):
                assert process.poll() is None and time.monotonic() < end, (folder / "log").read_text()
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}", str(folder)
        finally:
            process.terminate()
            process.wait()


def is_up(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def texts(policy):
    vector = SyncVector(lambda: make("collm/MiniBuild-v0"), 4)
    team = dict.fromkeys(vector.possible_agents, policy)
    result = evaluate(RolloutCollector(vector, team), 4, greedy=True)
    return [[turn.completion.action for turn in track] for each in result.episodes for track in each.tracks.values()]


def test_a_served_model_writes_what_the_model_itself_writes(served):
    url, name = served
    asked = ChatPolicy(url, name, max_new_tokens=8)
    own = load_policies(ModelConfig(max_new_tokens=8, device="cpu"), ["builder_0"])["builder_0"]
    expected = texts(own)
    assert texts(asked) == expected
    assert asked.usage.requests == sum(map(len, expected)) and asked.usage.unmetered == 0
    assert asked.usage.prompt_tokens > asked.usage.completion_tokens > 0
