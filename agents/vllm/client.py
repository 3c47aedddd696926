"""Client of vLLM's HTTP API: completions of token ids, and exchange of weights.

Completions use `/inference/v1/generate` (`--enable-scale-out`), which takes and returns token ids and returns the
version of the weights. Adapters: https://docs.vllm.ai/en/latest/features/lora/. Full weights: the routes of
`VLLM_SERVER_DEV_MODE=1`. Routes and fields are those of vLLM 0.32. Proxy settings are ignored.
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
DEV_MODE = "VLLM_SERVER_DEV_MODE=1"
RUNTIME_ADAPTERS = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora"


class ServerError(UserError, RuntimeError):
    """Raised if a server cannot be reached, refuses a request, or returns an invalid response."""


class ServerLost(ServerError):
    """Raised if a server does not respond or has an internal error. Another server may succeed."""


class NotFound(ServerError):
    """Raised if a server lacks the requested model, adapter or route (404), for example after a restart."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """Base model of a server."""

    name: str  # in requests
    root: str  # folder or hub name from which the server loaded the model


@dataclass(frozen=True, slots=True)
class ServedSample:
    """Completion from a server."""

    ids: NDArray[np.int64]  # [T] sampled tokens
    logprobs: NDArray[np.float32]  # [T] before or after temperature and filters, depending on --logprobs-mode
    versions: frozenset[str]  # version labels of the weights that sampled the tokens
    url: str  # of the server


class VLLMClient:
    """HTTP client of one vLLM server, with a URL such as "http://localhost:8000" and a timeout per request."""

    def __init__(self, url: str, timeout_s: float):
        refuse_password(url)
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:  # the port is not a number from 0 to 65535
            raise UserError(f"the server's address {url!r} is not of the form http://host:port: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise UserError(f"the server's address {url!r} is not of the form http://host:port")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self.timeout_s = timeout_s
        self._connection = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port = parts.hostname, port

    def models(self) -> list[dict[str, Any]]:
        """Return the server's list of models: the base model and the adapters."""
        listed: list[dict[str, Any]] = self._json("GET", "/v1/models").get("data", [])
        return listed

    def base_model(self) -> ServedModel:
        """Return the model with which the server was started."""
        listed = self.models()
        bases = [card for card in listed if card.get("parent") is None]
        if not bases:
            raise ServerError(f"the server at {self.url} lists no model: {listed}")
        return ServedModel(bases[0]["id"], bases[0].get("root") or bases[0]["id"])

    def adapters(self) -> set[str]:
        return {card["id"] for card in self.models() if card.get("parent") is not None}

    def check_health(self) -> None:
        """Raise `ServerLost` if the server or its vLLM engine does not run."""
        self._call("GET", "/health", None, "vLLM")

    def check_sampling(self) -> None:
        """Raise `ServerError` if the server was started without `--enable-scale-out`."""
        self._check_route("POST", GENERATE, "--enable-scale-out")

    def check_exchange(self, *, adapters: bool) -> None:
        """Raise `ServerError` if the server was started without the option for replacing weights or adapters."""
        if adapters:
            self._check_route("POST", LOAD_ADAPTER, RUNTIME_ADAPTERS)
        else:
            self._check_route("GET", WEIGHT_INFO, DEV_MODE)

    def complete(self, model: str, prompt: Prompt, sampling: Sampling, stop_ids: Sequence[int]) -> ServedSample:
        """Sample one completion. Raise `ServerError` if the request fails or the response is not complete."""
        answer = self._json("POST", GENERATE, _request(model, prompt, sampling, stop_ids))
        choice = (answer.get("choices") or [{}])[0]
        ids, content = choice.get("token_ids"), (choice.get("logprobs") or {}).get("content")
        versions = choice.get("weight_versions")
        if not ids or content is None or len(ids) != len(content) or not versions:
            raise ServerError(
                f"the response of the server at {self.url} lacks the sampled token ids, their log-probabilities or the "
                "version of the weights; use vLLM 0.32, which returns them"
            )
        reason, ends = choice.get("finish_reason"), ids[-1] in stop_ids
        if reason == "abort":
            raise ServerLost(f"the server at {self.url} aborted a completion")
        if reason not in ("stop", "length") or (reason == "stop" and not ends):
            raise ServerError(
                f"a completion was ended by {reason!r} after token {ids[-1]}; expected a stop token or max_tokens"
            )
        logprobs = np.asarray([token["logprob"] for token in content], np.float32)
        labels = frozenset(span["version"] for span in versions)
        return ServedSample(np.asarray(ids, np.int64), logprobs, labels, self.url)

    def load_adapter(self, name: str, folder: str) -> None:
        self._call("POST", LOAD_ADAPTER, {"lora_name": name, "lora_path": folder}, RUNTIME_ADAPTERS)

    def unload_adapter(self, name: str) -> None:
        self._call("POST", "/v1/unload_lora_adapter", {"lora_name": name}, RUNTIME_ADAPTERS)

    def version(self) -> str | None:
        """Return the version label of the server's weights, or None if the server runs without `DEV_MODE`."""
        try:
            return str(self._json("GET", WEIGHT_INFO)["weight_version"])
        except NotFound:
            return None

    def label(self, version: str) -> None:
        """Set the version label of the server's weights."""
        self._call("POST", "/update_weight_version", {"new_version": version}, DEV_MODE)

    def reload(self, folder: str) -> None:
        call = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
        self._call("POST", "/collective_rpc", call, DEV_MODE)

    def pause(self) -> None:
        """Finish running requests, queue new ones, and clear the KV cache."""
        self._call("POST", "/pause?mode=wait", None, DEV_MODE)

    def resume(self) -> None:
        self._call("POST", "/resume", None, DEV_MODE)

    def _check_route(self, method: str, path: str, needs: str) -> None:
        """Raise `ServerError` if the server lacks a route."""
        # An existing route rejects a request without fields, which has no side effects. If the option `needs` is
        # missing, vLLM 0.32 responds with status 403, and other versions with 404.
        status, _ = self._exchange(method, path, {} if method == "POST" else None)
        if status in (403, 404):
            raise ServerError(f"the server at {self.url} has no {path}: start vLLM with {needs}")

    def _json(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        answer = self._call(method, path, body)
        try:
            found = json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise ServerError(f"{self.url}{path} returned no JSON: {answer[:200]!r}") from error
        if not isinstance(found, dict):
            raise ServerError(f"{self.url}{path} returned no JSON object: {answer[:200]!r}")
        return found

    def _call(self, method: str, path: str, body: Any, needs: str | None = None) -> bytes:
        """Send a request and return the body of the response. `needs`: the option of vLLM that enables the route."""
        status, answer = self._exchange(method, path, body)
        if needs is not None and status in (404, 405):
            raise ServerError(f"the server at {self.url} has no {path}: start vLLM with {needs}")
        if not 200 <= status < 300:
            kind = ServerLost if status >= 500 else NotFound if status == 404 else ServerError
            raise kind(f"{self.url}{path} answers {status}: {answer[:500].decode(errors='replace')}")
        return answer

    def _exchange(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        connection = self._connection(self._host, self._port, timeout=self.timeout_s)
        try:
            payload = None if body is None else json.dumps(body).encode()
            connection.request(method, path, payload, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        except TimeoutError as error:
            raise ServerLost(
                f"{self.url}{path} did not answer within {self.timeout_s:g} s; look at the server's log"
            ) from error
        except (http.client.HTTPException, ConnectionResetError, BrokenPipeError) as error:
            raise ServerLost(
                f"the server at {self.url} closed the connection of {path} ({error}); look at the server's log"
            ) from error
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
            "ignore_eos": True,  # only `stop_token_ids` end a completion
            "stop_token_ids": list(stop_ids),
            "logprobs": 0,  # log-probability of the sampled token only
            "detokenize": False,
        },
    }
