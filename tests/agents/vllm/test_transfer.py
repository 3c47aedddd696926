"""Weights from GPU to GPU: what a server is told and in which order, with memory of the CPU in place of a GPU's.

What needs a GPU (`collm.agents.vllm.gpu`) is played by a queue and by pickled tensors. What vLLM itself makes of the
order and of its interruption is tested in `test_real.py`.
"""

from __future__ import annotations

import base64
import pickle
import queue

import pytest
import torch
from transformers import AutoModelForCausalLM
from vllm_server import Broken, StubServer

from collm._errors import UserError
from collm.agents.config import ModelConfig
from collm.agents.decoding.samples import Prompt
from collm.agents.decoding.sampling import Sampling
from collm.agents.loading import check_models
from collm.agents.scoring.scorer import Scorer
from collm.agents.vllm import replicas, weight_transfer
from collm.agents.vllm.server import ServerError, Serving, VLLMServer

PROMPTS = [Prompt([5 + number, 9, 40], (1, number, 0, 0), 4) for number in range(4)]
BEGIN = ["/pause?mode=wait", "/update_weight_version"]
EXCHANGE = ["/start_weight_update", "/update_weights", "/finish_weight_update"]


class FakeGPU:
    """Groups whose broadcasts lie in a queue, in order, until the server takes them."""

    def __init__(self):
        self.sent: dict[bytes, queue.Queue] = {}

    def unique_id(self):
        identity = bytes([len(self.sent)]) * 128
        self.sent[identity] = queue.Queue()
        return identity

    def Group(self, identity, size, device):  # a class in what it plays
        assert size == 2
        self.broadcast = lambda weights: (
            [self.sent[identity].put(weight.clone()) for weight in weights] and (self.sent[identity].empty)
        )
        return self

    def handle(self, weight):
        return {"GPU-0": (None, weight)}

    def let_go(self):
        pass


class TakingServer(StubServer):
    """Takes weights by name, type and shape, in the order in which it was told of them."""

    gpu: FakeGPU
    identity = b""
    breaks_after: int | None = None
    received: tuple = ()

    def answer(self, path, body):
        if path == "/init_weight_transfer_engine" and "nccl_unique_id_b64" in body["init_info"]:
            self.identity = base64.b64decode(body["init_info"]["nccl_unique_id_b64"])
        return super().answer(path, body)

    def receive(self, info):
        handles = info.get("ipc_handles_pickled")
        given = iter(pickle.loads(base64.b64decode(handles))) if handles else None
        weights = dict(self.base.named_parameters())
        self.received = list(zip(info["names"], info["dtype_names"], info["shapes"], strict=True))
        for number, (name, dtype, shape) in enumerate(self.received):
            if number == self.breaks_after:
                self.is_updating = False
                raise Broken("in the middle")
            if given is None:
                weight = self.gpu.sent[self.identity].get(timeout=5)
            else:
                ((_, weight),) = next(given).values()
            assert str(weight.dtype) == f"torch.{dtype}" and list(weight.shape) == shape
            weights[name].data.copy_(weight)


@pytest.fixture
def server(folder, monkeypatch):
    monkeypatch.setattr(replicas, "PROBE_S", 0.02)
    gpu = FakeGPU()
    monkeypatch.setattr(weight_transfer, "gpu", gpu)
    stub = TakingServer(folder)
    stub.gpu = gpu
    yield stub
    stub.die()


def learner(folder, server, way, dtype=None):
    model = AutoModelForCausalLM.from_pretrained(folder)
    serving = Serving(addresses=(server.url,), weights=way, patience_s=0)
    generator = VLLMServer(serving, model, Scorer(model), [0, 2], compute_dtype=dtype)
    generator.generate(PROMPTS, Sampling())
    assert not server.paths()
    return model, generator


def change(model, generator):
    noise = torch.Generator().manual_seed(3)
    for weight in model.parameters():
        weight.data += 0.1 * torch.randn(weight.shape, generator=noise)
    generator.forget()


@pytest.mark.parametrize("way", ["nccl", "ipc"])
def test_weights_reach_the_server_by_name_type_and_shape_in_their_order(folder, server, way):
    model, generator = learner(folder, server, way)
    for _ in range(2):
        change(model, generator)
        generator.generate(PROMPTS, Sampling())
        assert generator.drift < 1e-5
    joins = ["/init_weight_transfer_engine"]
    assert server.paths() == [*BEGIN, *joins, *EXCHANGE, "/resume", *BEGIN, *EXCHANGE, "/resume"]
    assert server.received == [(name, "float32", list(each.shape)) for name, each in model.named_parameters()]
    labels = [body["new_version"] for path, body in server.calls if path == "/update_weight_version"]
    assert labels == ["collm-unfinished"] * 2 and server.version == generator._version
    ((_, joined),) = [call for call in server.calls if call[0] in joins]
    told = {"packed": False} if way == "ipc" else {"packed": False, "rank_offset": 1, "world_size": 2}
    assert {key: value for key, value in joined["init_info"].items() if key != "nccl_unique_id_b64"} == told


def test_weights_are_sent_in_the_type_that_they_are_multiplied_in(folder, server):
    model, generator = learner(folder, server, "nccl", torch.bfloat16)
    change(model, generator)
    generator.generate(PROMPTS, Sampling())
    assert {dtype for _, dtype, _ in server.received} == {"bfloat16"}
    rounded = model.to(torch.bfloat16).state_dict()
    assert all(torch.equal(each, rounded[name].float()) for name, each in server.base.state_dict().items())


@pytest.mark.parametrize("breaks_after", [0, 7])
def test_a_server_whose_transfer_broke_off_stays_paused_until_a_whole_one_has_come(folder, server, breaks_after):
    model, generator = learner(folder, server, "ipc")
    change(model, generator)
    server.breaks_after = breaks_after
    before = len(server.calls)
    message = r"no server answered .*/update_weights answers 500: .*in the middle"
    with pytest.warns(RuntimeWarning, match="set aside"), pytest.raises(ServerError, match=message):
        generator.generate(PROMPTS, Sampling())
    broken = [path for path, _ in server.calls[before:]]
    assert "/resume" not in broken and "/inference/v1/generate" not in broken
    assert server.version == "collm-unfinished"
    server.breaks_after = None
    again = learner_after_a_restart(folder, server, model)
    again.generate(PROMPTS, Sampling())
    settled = ["/start_weight_update", "/finish_weight_update"]  # before the next whole one
    assert [path for path in server.paths() if path.endswith("_update")][-4:] == [*settled, *settled]
    assert server.paths()[-1] == "/resume" and again.drift < 1e-5


def learner_after_a_restart(folder, server, model):
    fresh = AutoModelForCausalLM.from_pretrained(folder)
    fresh.load_state_dict(model.state_dict())
    generator = VLLMServer(Serving(addresses=(server.url,), weights="ipc", patience_s=0), fresh, Scorer(fresh), [0, 2])
    generator.forget()
    return generator


def test_what_lies_on_no_gpu_is_not_sent_from_one():
    served = {"server": "http://localhost:1", "device": "cpu", "weights": "shared"}
    with pytest.raises(UserError, match=r"server_weights='nccl' sends from GPU to GPU, but .* device='cpu'"):
        check_models(ModelConfig(server_weights="nccl", **served), 1)
    with pytest.raises(UserError, match="server_weights='ipc' is for all weights"):
        check_models(ModelConfig(server_weights="ipc", **(served | {"weights": "adapters"})), 1)
