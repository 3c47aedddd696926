"""The part of vLLM's HTTP API that sampling needs: completions of token ids, adapters, weights from a folder.

Names and fields are those of https://docs.vllm.ai/en/latest/serving/openai_compatible_server/ and, for adapters, of
https://docs.vllm.ai/en/latest/features/lora/. Connections go straight to the server, whatever proxy is set.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from ..._errors import UserError
from ..decoding.samples import Prompt
from ..decoding.sampling import Sampling
from ..decoding.streams import seed_of


class ServerError(UserError, RuntimeError):
    """A server is not there, refuses a request, or answers what it was not asked."""


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


class VLLMClient:
    """Talks to one server.

    Args:
        url: where it listens, such as "http://localhost:8000".
        timeout_s: seconds that one answer may take.

    Raises:
        UserError: if the address is not one.
    """

    def __init__(self, url: str, timeout_s: float):
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

    def base_model(self) -> ServedModel:
        """The model that the server was started with, below its adapters."""
        listed = self._json("GET", "/v1/models").get("data", [])
        bases = [card for card in listed if card.get("parent") is None]
        if not bases:
            raise ServerError(f"the server at {self.url} lists no model: {listed}")
        return ServedModel(bases[0]["id"], bases[0].get("root") or bases[0]["id"])

    def complete(self, model: str, prompt: Prompt, sampling: Sampling, stop_ids: Sequence[int]) -> ServedSample:
        """Sample one completion.

        Raises:
            ServerError: if the server fails, or its answer lacks token ids or ends where it should not.
        """
        answer = self._json("POST", "/v1/completions", _request(model, prompt, sampling, stop_ids))
        choices = answer.get("choices") or [{}]
        ids, logprobs = choices[0].get("token_ids"), (choices[0].get("logprobs") or {}).get("token_logprobs")
        if not ids or logprobs is None or len(ids) != len(logprobs):
            raise ServerError(
                f"the server at {self.url} answers without the ids (or log-probabilities) of the tokens it sampled: "
                "it must know return_token_ids, as vLLM does from 0.10.2"
            )
        reason, ends = choices[0].get("finish_reason"), ids[-1] in stop_ids
        if reason not in ("stop", "length") or (reason == "stop" and not ends):
            raise ServerError(
                f"a completion ended by {reason!r} after token {ids[-1]}, not by a stop token or the limit"
            )
        return ServedSample(np.asarray(ids, np.int64), np.asarray(logprobs, np.float32))

    def load_adapter(self, name: str, folder: Path) -> None:
        """Serve an adapter under a name that is not taken."""
        self._post(
            "/v1/load_lora_adapter",
            {"lora_name": name, "lora_path": str(folder)},
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora",
        )

    def unload_adapter(self, name: str) -> None:
        """Let go of an adapter."""
        self._post(
            "/v1/unload_lora_adapter", {"lora_name": name}, "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora"
        )

    def reload(self, folder: Path) -> None:
        """Replace the model's weights by those in a folder, and forget what was computed with the old ones."""
        how = "VLLM_SERVER_DEV_MODE=1"
        self._post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}, how)
        self._post("/reset_prefix_cache", None, how)

    def _post(self, path: str, body: Any, needs: str) -> None:
        status, answer = self._exchange("POST", path, body)
        if status in (404, 405):
            raise ServerError(f"the server at {self.url} has no {path}: start vLLM with {needs}")
        self._check(status, path, answer)

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
            raise ServerError(f"{self.url}{path} answers {status}: {answer[:500].decode(errors='replace')}")

    def _exchange(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        connection = self._connection(self._host, self._port, timeout=self.timeout_s)
        try:
            payload = None if body is None else json.dumps(body).encode()
            connection.request(method, path, payload, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        except TimeoutError as error:
            raise ServerError(f"{self.url}{path} gave no answer within {self.timeout_s} s; raise timeout_s") from error
        except (http.client.HTTPException, ConnectionResetError, BrokenPipeError) as error:
            raise ServerError(f"the server at {self.url} broke off {path} ({error}); look at its log") from error
        except OSError as error:
            raise ServerError(
                f"there is no server at {self.url} ({error}); start one: vllm serve MODEL --port {self._port or 8000}"
            ) from error
        finally:
            connection.close()


def _request(model: str, prompt: Prompt, sampling: Sampling, stop_ids: Sequence[int]) -> dict[str, Any]:
    return {
        "model": model,
        "prompt": [int(token) for token in prompt.ids],
        "max_tokens": prompt.max_new_tokens,
        "seed": seed_of(prompt.stream),
        "temperature": 0.0 if sampling.greedy else sampling.temperature,
        "top_k": 0 if sampling.greedy else sampling.top_k,
        "top_p": 1.0 if sampling.greedy else sampling.top_p,
        # What is left out is taken from the model's generation_config.json, which may penalize repetition.
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "ignore_eos": True,  # our own stop tokens alone end a completion
        "stop_token_ids": list(stop_ids),
        "include_stop_str_in_output": True,
        "add_special_tokens": False,
        "logprobs": 0,  # of the sampled token alone
        "return_token_ids": True,
    }
