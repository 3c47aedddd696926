"""The part of vLLM's HTTP API that sampling and learning need: completions of token ids, and weights.

Completions: `/inference/v1/generate` of `--enable-scale-out`, tokens in and tokens out, which tells the version of the
weights with them. Adapters: https://docs.vllm.ai/en/latest/features/lora/. Weights: the routes of
`VLLM_SERVER_DEV_MODE=1`, https://docs.vllm.ai/en/latest/training/weight_transfer/. Names and fields are vLLM 0.32's.
Connections go straight to the server, whatever proxy is set.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from ..._errors import UserError
from ..._ranges import refuse_password
from ..decoding.samples import Prompt
from ..decoding.sampling import Sampling, seed_of

GENERATE = "/inference/v1/generate"
LOAD_ADAPTER = "/v1/load_lora_adapter"
WEIGHT_INFO = "/weight_info"
SCALE_OUT = "--enable-scale-out"
DEV_MODE = "VLLM_SERVER_DEV_MODE=1"
RUNTIME_ADAPTERS = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora"


class ServerError(UserError, RuntimeError):
    """A server is not there, refuses a request, or answers what it was not asked."""


class ServerLost(ServerError):
    """A server does not answer, broke off, or failed inside: another one may do what it was asked."""


class NotThere(ServerError):
    """A server does not have the model or adapter that it is asked for, as after a new start, or the route."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as the server lists it."""

    name: str
    """What requests call it."""
    root: str
    """The folder or hub name that it was loaded from."""


@dataclass(frozen=True, slots=True)
class ServedSample:
    """A completion as the server gives it."""

    ids: NDArray[np.int64]  # [T] as sampled
    logprobs: NDArray[np.float32]  # [T] by the server's logprobs mode: before or after temperature and filters
    versions: frozenset[str]  # labels of the weights that sampled its tokens
    url: str  # who sampled


class VLLMClient:
    """Talks to one server.

    Args:
        url: where it listens, such as "http://localhost:8000".
        timeout_s: seconds that one answer may take.

    Raises:
        UserError: if the address is not one.
    """

    def __init__(self, url: str, timeout_s: float):
        refuse_password(url)
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:  # a port that is no number, or too great
            raise UserError(f"the server's address {url!r} is not of the form http://host:port: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise UserError(f"the server's address {url!r} is not of the form http://host:port")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self.timeout_s = timeout_s
        self._connection = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port = parts.hostname, port

    def models(self) -> list[dict[str, Any]]:
        """What the server lists: the model that it was started with, and its adapters."""
        listed: list[dict[str, Any]] = self._json("GET", "/v1/models").get("data", [])
        return listed

    def base_model(self) -> ServedModel:
        """The model that the server was started with, below its adapters."""
        listed = self.models()
        bases = [card for card in listed if card.get("parent") is None]
        if not bases:
            raise ServerError(f"the server at {self.url} lists no model: {listed}")
        return ServedModel(bases[0]["id"], bases[0].get("root") or bases[0]["id"])

    def adapters(self) -> set[str]:
        """Names of the adapters that it serves."""
        return {card["id"] for card in self.models() if card.get("parent") is not None}

    def check_health(self) -> None:
        """Ask whether the server and its engine live.

        Raises:
            ServerLost: if one of them does not.
        """
        self._post("/health", None, "vLLM", method="GET")

    def check_sampling(self) -> None:
        """Ask whether it samples tokens for tokens.

        Raises:
            ServerError: if it was started without the option for it.
        """
        self._check_route("POST", GENERATE, SCALE_OUT)

    def check_exchange(self, *, adapters: bool) -> None:
        """Ask whether its weights, or adapters, can be exchanged.

        Raises:
            ServerError: if it was started without the option for it.
        """
        if adapters:
            self._check_route("POST", LOAD_ADAPTER, RUNTIME_ADAPTERS)
        else:
            self._check_route("GET", WEIGHT_INFO, DEV_MODE)

    def complete(self, model: str, prompt: Prompt, sampling: Sampling, stop_ids: Sequence[int]) -> ServedSample:
        """Sample one completion.

        Raises:
            ServerError: if the server fails, or its answer lacks token ids or ends where it should not.
        """
        answer = self._json("POST", GENERATE, _request(model, prompt, sampling, stop_ids))
        choice = (answer.get("choices") or [{}])[0]
        ids, content = choice.get("token_ids"), (choice.get("logprobs") or {}).get("content")
        versions = choice.get("weight_versions")
        if not ids or content is None or len(ids) != len(content) or not versions:
            raise ServerError(
                f"the server at {self.url} answers without the ids of the tokens that it sampled, their "
                "log-probabilities or the version of its weights, which vLLM 0.32 tells"
            )
        reason, ends = choice.get("finish_reason"), ids[-1] in stop_ids
        if reason == "abort":
            raise ServerLost(f"the server at {self.url} aborted a completion")
        if reason not in ("stop", "length") or (reason == "stop" and not ends):
            raise ServerError(
                f"a completion ended by {reason!r} after token {ids[-1]}, not by a stop token or the limit"
            )
        return ServedSample(
            np.asarray(ids, np.int64),
            np.asarray([token["logprob"] for token in content], np.float32),
            frozenset(span["version"] for span in versions),
            self.url,
        )

    def load_adapter(self, name: str, folder: str) -> None:
        """Serve an adapter under a name that is not taken."""
        self._post(LOAD_ADAPTER, {"lora_name": name, "lora_path": folder}, RUNTIME_ADAPTERS)

    def unload_adapter(self, name: str) -> None:
        """Let go of an adapter."""
        self._post("/v1/unload_lora_adapter", {"lora_name": name}, RUNTIME_ADAPTERS)

    def version(self) -> str | None:
        """The label of its weights; None where the server does not tell, which only those of `DEV_MODE` do."""
        try:
            return str(self._json("GET", WEIGHT_INFO)["weight_version"])
        except NotThere:  # 404
            return None

    def label(self, version: str) -> None:
        """Label its weights."""
        self._post("/update_weight_version", {"new_version": version}, DEV_MODE)

    def reload(self, folder: str) -> None:
        """Replace the model's weights by those in a folder."""
        self._post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": folder}}, DEV_MODE)

    def pause(self) -> None:
        """Finish what is under way, keep what comes in waiting, and forget what was computed."""
        self._post("/pause?mode=wait", None, DEV_MODE)

    def resume(self) -> None:
        """Go on after a pause."""
        self._post("/resume", None, DEV_MODE)

    def world_size(self) -> int:
        """Number of its workers that hold weights."""
        return int(self._json("GET", "/get_world_size")["world_size"])

    def init_transfer(self, info: dict[str, Any]) -> None:
        """Let its workers join the transfer of weights."""
        self._post("/init_weight_transfer_engine", {"init_info": info}, DEV_MODE)

    def start_update(self) -> None:
        """Let its workers await weights."""
        self._post("/start_weight_update", None, DEV_MODE)

    def update(self, info: dict[str, Any]) -> None:
        """Let its workers receive weights."""
        self._post("/update_weights", {"update_info": info}, DEV_MODE)

    def finish_update(self, version: str) -> None:
        """Let its workers take over what they received, under a label."""
        self._post("/finish_weight_update", {"weight_version": version}, DEV_MODE)

    def _post(self, path: str, body: Any, needs: str, method: str = "POST") -> None:
        status, answer = self._exchange(method, path, body)
        if status in (404, 405):
            raise ServerError(f"the server at {self.url} has no {path}: start vLLM with {needs}")
        self._check(status, path, answer)

    def _check_route(self, method: str, path: str, needs: str) -> None:
        """Refuse a server without a route, by a request that asks for nothing: one with the route misses its fields.

        vLLM 0.32 answers 403 on routes that an option is to enable, other versions 404.
        """
        status, _ = self._exchange(method, path, {} if method == "POST" else None)
        if status in (403, 404):
            raise ServerError(f"the server at {self.url} has no {path}: start vLLM with {needs}")

    def _json(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        status, answer = self._exchange(method, path, body)
        self._check(status, path, answer)
        try:
            found = json.loads(answer)
        except ValueError as error:
            raise ServerError(f"{self.url}{path} answers something that is not JSON: {answer[:200]!r}") from error
        if not isinstance(found, dict):
            raise ServerError(f"{self.url}{path} answers something that is not an object: {answer[:200]!r}")
        return found

    def _check(self, status: int, path: str, answer: bytes) -> None:
        if not 200 <= status < 300:
            kind = ServerLost if status >= 500 else NotThere if status == 404 else ServerError
            raise kind(f"{self.url}{path} answers {status}: {answer[:500].decode(errors='replace')}")

    def _exchange(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        connection = self._connection(self._host, self._port, timeout=self.timeout_s)
        try:
            payload = None if body is None else json.dumps(body).encode()
            connection.request(method, path, payload, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        except TimeoutError as error:
            raise ServerLost(f"{self.url}{path} gave no answer within {self.timeout_s} s; raise timeout_s") from error
        except (http.client.HTTPException, ConnectionResetError, BrokenPipeError) as error:
            raise ServerLost(f"the server at {self.url} broke off {path} ({error}); look at its log") from error
        except OSError as error:
            raise ServerLost(
                f"there is no server at {self.url} ({error}); start one: vllm serve MODEL --port {self._port or 8000}"
            ) from error
        finally:
            connection.close()


def _request(model: str, prompt: Prompt, sampling: Sampling, stop_ids: Sequence[int]) -> dict[str, Any]:
    return {
        "model": model,
        "token_ids": [int(token) for token in prompt.ids],
        "sampling_params": {
            "max_tokens": prompt.max_new_tokens,
            "seed": seed_of(prompt.stream),
            "temperature": 0.0 if sampling.greedy else sampling.temperature,
            "top_k": 0 if sampling.greedy else sampling.top_k,
            "top_p": 1.0 if sampling.greedy else sampling.top_p,
            "ignore_eos": True,  # our own stop tokens alone end a completion
            "stop_token_ids": list(stop_ids),
            "logprobs": 0,  # of the sampled token alone
            "detokenize": False,
        },
    }
