"""A stub of vLLM's HTTP API that samples from a small model, and generators that use it."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from collm.agents.decoding.samples import Prompt
from collm.agents.scoring.scorer import Scorer
from collm.agents.vllm.server import Serving, VLLMServer

GENERATE = "/inference/v1/generate"
EXCHANGE = ["/pause?mode=wait", "/update_weight_version", "/collective_rpc", "/update_weight_version", "/resume"]
STOP = [0, 2]


def learner(folder, *urls, **serving):
    """Return a `VLLMServer` generator, which samples on servers, with its own copy of the model."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    return VLLMServer(Serving(addresses=urls, **({"patience_s": 0} | serving)), model, Scorer(model), STOP)


def perturb(generator, scale=0.2, of="", seed=3):
    """Change the weights whose names contain `of`, equally for each generator, as an update does."""
    noise = torch.Generator().manual_seed(seed)
    for name, weight in generator._model.named_parameters():
        if of in name:
            weight.data += scale * torch.randn(weight.shape, generator=noise)
    generator.forget()


def prompts(count=8, adapter=None):
    return [Prompt([5 + n, 9, 40 + n], (1, n, 0, 0), 4 + n % 3, adapter=adapter) for n in range(count)]


class Refused(Exception):
    """A rejected request: status and text."""


class StubServer(ThreadingHTTPServer):
    """Stub that responds like a vLLM 0.32 server. `test_real.py` sends the same requests to vLLM."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0):
        self.live: set = set()  # open connections
        super().__init__(("127.0.0.1", port), _Handler)
        self.root = str(folder)
        self.mode = "raw_logprobs"  # or "processed_logprobs"
        self.base = AutoModelForCausalLM.from_pretrained(folder)
        self.version = "default"
        self.adapters: dict[str, PeftModel] = {}
        self.calls: list[tuple[str, dict]] = []
        self.lock = threading.Lock()
        self.changes: dict = {}  # fields of completions to overwrite
        self.fails: dict[str, int] = {}  # path -> number of requests that succeed before all others fail
        self.num_left: int | None = None  # completions until the server dies; None: it does not die
        self.refusals: dict[str, tuple[int, str]] = {}  # path -> status and text of an error response
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def paths(self):
        """Paths of all requests except completions."""
        return [path for path, _ in self.calls if path != GENERATE]

    def die(self):
        """Close all connections, as `kill -9` does."""
        self.shutdown()
        self.server_close()
        for connection in list(self.live):
            connection.close()

    def is_dead(self, path, body):
        """Return True if the server closes the connection without a response."""
        if self.num_left is None:
            return False
        with self.lock:
            self.num_left -= path == GENERATE and bool(body)
            return self.num_left < 0

    def answer(self, path, body):
        if path in self.refusals:
            raise Refused(*self.refusals[path])
        if body == {}:
            raise Refused(400, "fields are missing")
        if path in self.fails:
            self.fails[path] -= 1
            if self.fails[path] < 0:
                raise Refused(500, json.dumps({"error": f"it broke: {path}"}))
        if path == "/v1/models":
            cards = [{"id": "base", "root": self.root, "parent": None}]
            return {"data": cards + [{"id": name, "root": "x", "parent": "base"} for name in self.adapters]}
        if path == "/v1/load_lora_adapter":
            assert body["lora_name"] not in self.adapters, "vLLM refuses a name that is taken"
            base = AutoModelForCausalLM.from_pretrained(self.root)
            self.adapters[body["lora_name"]] = PeftModel.from_pretrained(base, body["lora_path"]).eval()
        elif path == "/v1/unload_lora_adapter":
            del self.adapters[body["lora_name"]]
        elif path == "/collective_rpc":
            assert body["method"] == "reload_weights"
            self.base = AutoModelForCausalLM.from_pretrained(body["kwargs"]["weights_path"])
        elif path == "/weight_info":
            return {"weight_version": self.version}
        elif path == "/update_weight_version":
            self.version = body["new_version"]
        elif path == GENERATE:
            return {"choices": [self.completion(body) | self.changes]}
        return {}

    @torch.no_grad()
    def completion(self, body):
        asked = body["sampling_params"]
        model = self.base if body["model"] == "base" else self.adapters[body["model"]]
        generator = torch.Generator().manual_seed(asked["seed"])
        ids, logprobs = list(body["token_ids"]), []
        assert asked["ignore_eos"]
        for _ in range(asked["max_tokens"]):
            raw = model(input_ids=torch.tensor([ids])).logits[0, -1]
            tempered = raw / (asked["temperature"] or 1)
            if asked["top_k"]:
                tempered[tempered < tempered.topk(asked["top_k"]).values[-1]] = -torch.inf
            drawn = torch.multinomial(tempered.softmax(-1), 1, generator=generator)
            token = int(drawn if asked["temperature"] else tempered.argmax())
            ids.append(token)
            seen = tempered if self.mode == "processed_logprobs" else raw
            logprobs.append({"token_id": token, "logprob": float(seen.log_softmax(-1)[token])})
            if token in asked["stop_token_ids"]:
                break
        reason = "stop" if ids[-1] in asked["stop_token_ids"] else "length"
        sampled = ids[len(body["token_ids"]) :]
        versions = [{"version": self.version, "start": 0, "end": len(sampled)}]
        told = {"token_ids": sampled, "logprobs": {"content": logprobs}}
        return told | {"finish_reason": reason, "weight_versions": versions}


class _Handler(BaseHTTPRequestHandler):
    server: StubServer

    def setup(self):
        self.server.live.add(self.request)
        super().setup()

    def finish(self):
        self.server.live.discard(self.request)
        super().finish()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "null")
        if body != {}:  # an empty body only tests if the route exists
            self.server.calls.append((self.path, body))
        self._do(body)

    def do_GET(self):
        self._do(None)

    def _do(self, body):
        if self.server.is_dead(self.path, body):
            self.close_connection = True
            return
        try:
            with self.server.lock:
                answer = self.server.answer(self.path, body)
        except Refused as refused:
            status, text = refused.args
            self._reply(text.encode(), status)
        except KeyError as missing:
            self._reply(json.dumps({"error": f"the model {missing} does not exist"}).encode(), 404)
        else:
            self._reply(json.dumps(answer).encode())

    def _reply(self, payload, status=200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *arguments):
        pass
