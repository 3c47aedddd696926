"""Untrained policies whose models run on servers with OpenAI's chat completions API."""

from __future__ import annotations

import asyncio
import atexit
import ipaddress
import json
import os
import re
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from gymnasium.spaces import Text

from ..._errors import UserError, nearest
from ..._extras import install_command
from ..._ranges import Checked, Count, CountOrZero, NotNegative, Positive, refuse_password
from ...envs.core import as_chat, messages_of
from ..config import CHAT, MAX_NEW_TOKENS
from ..core import Completion, Policy, Request
from ..decoding.sampling import seed_of
from ..registry import PolicySpec, Seat
from ..vllm.client import ServerError

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletion

OPENAI = "https://api.openai.com/v1"
_NAME = re.compile(r"openai:(?P<model>((?!@https?://)[^\s,])+)(@(?P<url>\S+))?")
_BODY = "body."  # prefix of options that are sent as additional fields of each request
_LITERALS = {"True": True, "False": False, "None": None}


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage totals of a chat model: requests, tokens and cost."""

    requests: int = 0  # number of responses
    retries: int = 0  # number of repeated attempts
    prompt_tokens: int = 0  # number of prompt tokens, as counted by the server
    completion_tokens: int = 0  # number of sampled tokens including reasoning, as counted by the server
    unmetered: int = 0  # number of responses without token counts
    cost: float = 0.0  # cost of the counted tokens, in the currency of the prices

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        shown = f"{self.requests} requests, {self.prompt_tokens} prompt and {self.completion_tokens} completion tokens"
        shown += f", {self.retries} retries" if self.retries else ""
        shown += f", {self.unmetered} responses without token counts" if self.unmetered else ""
        return shown + (f", cost {self.cost:.4g}" if self.cost else "")


@dataclass(frozen=True, kw_only=True)
class ChatOptions(Checked):
    """Options of a chat server in a model's name: openai:MODEL@URL?key=VARIABLE&requests=8."""

    key: str | None = None  # environment variable with the key; None: OPENAI_API_KEY for OpenAI's server, else no key
    requests: Count = 32  # maximum number of concurrent requests
    timeout_s: Positive = 300.0  # timeout per attempt
    retries: CountOrZero = 8  # maximum number of retries per request
    seeds: bool = True  # send a seed with each request; some servers reject seeds
    prompt_price: NotNegative = 0.0  # price per million prompt tokens, in any currency
    completion_price: NotNegative = 0.0  # price per million completion tokens, in any currency


class ChatPolicy(Policy):
    """Policy that requests replies from OpenAI's chat completions API or a compatible server.

    The reply is the content of the response, without reasoning. A response without content is an empty reply. OpenAI's
    client retries after connection errors, timeouts and the statuses 408, 409, 429 and 5xx. The delay grows from 0.5 s
    to 8 s, or is the time in the header Retry-After.

    Source: https://platform.openai.com/docs/api-reference/chat/create

    Args:
        url: base address, such as "http://localhost:8000/v1". The default path is "/v1". None: OpenAI's server.
        model: name of the model on the server.
        key_variable: environment variable with the key. None: OPENAI_API_KEY for OpenAI's server, no key for others.
        max_requests: maximum number of concurrent requests of all policies to the server.
        timeout_s: timeout per attempt, in seconds.
        max_retries: maximum number of retries per request.
        temperature: sampling temperature; 0 for greedy actions.
        top_p: nucleus sampling. 1: off.
        top_k: top-k sampling, which some servers do not support. 0: off, not sent.
        max_new_tokens: maximum number of tokens per response, including reasoning.
        sends_seed: send a seed derived from `Request.stream`.
        prices: prices per million prompt tokens and completion tokens, in any currency.
        body: additional fields of each request, such as {"reasoning_effort": "low"}. They override other fields.

    Raises:
        UserError: if the key is missing, the address is malformed, or the package `openai` is not installed.
    """

    def __init__(
        self,
        url: str | None,
        model: str,
        key_variable: str | None = None,
        *,
        max_requests: int = 32,
        timeout_s: float = 300.0,
        max_retries: int = 8,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        max_new_tokens: int = 256,
        sends_seed: bool = True,
        prices: tuple[float, float] = (0.0, 0.0),
        body: Mapping[str, Any] | None = None,
    ):
        if max_requests < 1:
            raise UserError(f"max_requests must be at least 1, got {max_requests}")
        self.url = address(url)
        self.model = model
        self.max_requests = max_requests
        self.usage = Usage()  # totals of all requests so far
        self._key = _key(self.url, key_variable)
        self._timeout_s, self._max_retries = timeout_s, max_retries
        self._sampling = {"temperature": temperature, "top_p": top_p}
        # OpenAI's newer models reject "max_tokens"; other servers require it.
        limit = "max_completion_tokens" if self.url == OPENAI else "max_tokens"
        self._fields: dict[str, Any] = {limit: max_new_tokens}
        self._filters: dict[str, Any] = {"top_k": top_k} if top_k else {}
        self._sends_seed = sends_seed
        self._prices = prices
        self._body = dict(body or {})
        if find_spec("openai") is None:
            raise UserError(f"chat models need the package openai, which is not installed; {install_command('chat')}")

    def act(self, requests: Sequence[Request], *, greedy: bool = False) -> list[Completion]:
        return self.act_together([(self, request) for request in requests], greedy=greedy)

    def batch_key(self) -> object:
        return ChatPolicy

    def act_together(self, requests: Sequence[tuple[Policy, Request]], *, greedy: bool = False) -> list[Completion]:
        """Send the requests of one or several chat models concurrently."""
        asked = [(policy, request) for policy, request in requests if isinstance(policy, ChatPolicy)]
        completions: list[Completion] = _background.run(_all_answers(asked, greedy))
        return completions

    def fix_shapes(self) -> None:
        raise UserError(f"{self.model} is on a server, but deterministic=True needs a local model; remove the setting")

    async def _answer(self, request: Request, greedy: bool) -> Completion:
        import openai  # not at the top, because the import takes seconds

        client = _background.client(self.url, self._key, self._timeout_s, self._max_retries)
        try:
            raw = await client.chat.completions.with_raw_response.create(**self._request(request, greedy))
        except openai.APIError as error:
            raise ServerError(self._explained(error)) from error
        try:
            answer = raw.parse()
            choice, usage = answer.choices[0], self._metered(answer)
            content = choice.message.content or ""
            if not isinstance(content, str):
                raise TypeError("the content is not text")
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:  # nothing is checked
            raise ServerError(
                f"the response of the server at {self.url} is not a chat completion ({error}): {raw.text[:200]!r}"
            ) from error
        self.usage += replace(usage, retries=raw.retries_taken)
        return Completion(content, is_cut=choice.finish_reason == "length")

    def _request(self, request: Request, greedy: bool) -> dict[str, Any]:
        fields: dict[str, Any] = {"model": self.model, "messages": as_chat(messages_of(request.observation))}
        fields |= {**self._fields, **self._sampling}
        if greedy:
            fields |= {"temperature": 0.0, "top_p": 1.0}
        if self._sends_seed:
            fields["seed"] = seed_of(request.stream)
        return {**fields, "extra_body": {**({} if greedy else self._filters), **self._body}}

    def _metered(self, answer: ChatCompletion) -> Usage:
        usage = answer.usage
        if usage is None:
            return Usage(requests=1, unmetered=1)
        read, written = usage.prompt_tokens, usage.completion_tokens
        if not all(0 <= count < float("inf") for count in (read, written)):
            raise ValueError("the numbers of tokens are negative or not finite")
        cost = (read * self._prices[0] + written * self._prices[1]) / 1_000_000  # prices are per million tokens
        return Usage(requests=1, prompt_tokens=read, completion_tokens=written, cost=cost)

    def _explained(self, error: Exception) -> str:
        """Return a one-line error message for a request that failed after all retries."""
        import openai

        times = self._max_retries
        if isinstance(error, openai.APITimeoutError):
            return f"the server at {self.url} did not respond within {self._timeout_s:g} s, after {times} retries"
        if isinstance(error, openai.APIConnectionError):
            return f"there is no server at {self.url} ({error.__cause__ or error}), after {times} retries"
        if isinstance(error, openai.APIStatusError):
            text = " ".join(error.response.text[:500].split())
            return f"the server at {self.url} returned {error.status_code} for {self.model}: {text}"
        return f"a request to the server at {self.url} failed: {error}"


def told_usage(policies: Iterable[Policy]) -> list[str]:
    """Return one line of text per chat model: the total numbers of requests and tokens, and the cost."""
    found = {id(policy): policy for policy in policies if isinstance(policy, ChatPolicy)}
    totals: dict[str, Usage] = {}
    for policy in found.values():
        totals[policy.model] = totals.get(policy.model, Usage()) + policy.usage
    return [f"openai:{model}: {usage}" for model, usage in totals.items()]


def chat_spec(name: str) -> PolicySpec | None:
    """Return the policy factory for a chat model's name. None: the name has no prefix "openai:".

    Args:
        name: "openai:MODEL@URL", or "openai:MODEL" for OpenAI's server, without spaces or commas. `ChatOptions` may
            follow as "?key=VARIABLE&requests=8", and additional fields of requests as "body.reasoning_effort=low".

    Raises:
        UserError: if the name is malformed, or has an unknown option.
    """
    if not name.startswith(CHAT):
        return None
    refuse_password(name)
    place, _, query = name.partition("?")
    parts = _NAME.fullmatch(place)
    if parts is None:
        raise UserError(f"{name!r} is not of the form openai:MODEL@URL, such as openai:my-model@http://localhost:8000")
    options, body = _options(query)
    url, model = parts["url"], parts["model"]

    def make(seat: Seat) -> ChatPolicy:
        if not isinstance(seat.action_space, Text):
            raise UserError(f"{name} generates text, but the action space of {seat.agent} is {seat.action_space}")
        settings = seat.model
        return ChatPolicy(
            url,
            model,
            options.key,
            max_requests=options.requests,
            timeout_s=options.timeout_s,
            max_retries=options.retries,
            temperature=settings.temperature,
            top_p=settings.top_p,
            top_k=settings.top_k,
            max_new_tokens=settings.max_new_tokens or MAX_NEW_TOKENS,
            sends_seed=options.seeds,
            prices=(options.prompt_price, options.completion_price),
            body=body,
        )

    return PolicySpec(make, check=make)


def _options(query: str) -> tuple[ChatOptions, dict[str, Any]]:
    """Parse the options of a server and additional fields of requests, such as "key=VARIABLE&body.top_k=5"."""
    given: dict[str, Any] = {}
    body: dict[str, Any] = {}
    for pair in filter(None, query.split("&")):
        name, equals, text = (unquote(each) for each in pair.partition("="))
        if not equals:
            raise UserError(f"the option {pair!r} of a chat server must have the form name=value")
        into = body if name.startswith(_BODY) else given
        try:
            into[name.removeprefix(_BODY)] = _LITERALS[text] if text in _LITERALS else json.loads(text)
        except (ValueError, RecursionError):
            into[name.removeprefix(_BODY)] = text
    known = {each.name for each in fields(ChatOptions)}
    for name in given.keys() - known:
        raise UserError(
            f"a chat server has no option {name!r}; {nearest(name, sorted(known))}; write {_BODY}{name} to add a "
            "field to requests"
        )
    return ChatOptions(**given), body


def address(url: str | None) -> str:
    """Return a server's base address, with the default path "/v1". Raise `UserError` if the address is malformed."""
    if url is None:
        return OPENAI
    refuse_password(url)
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:  # invalid port
        raise UserError(f"the server's address {url!r} is not of the form http://host:port/v1: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UserError(f"the server's address {url!r} is not of the form http://host:port/v1")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/v1'}"


def _key(url: str, variable: str | None) -> str:
    if variable is None and url != OPENAI:
        return "none"  # the client requires a key; servers without keys ignore it
    name = variable or "OPENAI_API_KEY"
    if not os.environ.get(name):
        raise UserError(f"the environment variable {name} is not set; set it to the key of {url}")
    if not _is_protected(url):
        warnings.warn(f"the key in {name} is sent to {url} without encryption; use https", UserWarning, stacklevel=3)
    return os.environ[name]


def _is_protected(url: str) -> bool:
    """Return True if the connection is encrypted or local."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a host name
        return False


async def _all_answers(asked: Sequence[tuple[ChatPolicy, Request]], greedy: bool) -> list[Completion]:
    most: dict[str, int] = {}
    for policy, _ in asked:
        most[policy.url] = min(policy.max_requests, most.get(policy.url, policy.max_requests))
    limits = {url: asyncio.Semaphore(number) for url, number in most.items()}

    async def answer(policy: ChatPolicy, request: Request) -> Completion:
        async with limits[policy.url]:
            return await policy._answer(request, greedy)

    tasks = [asyncio.ensure_future(answer(policy, request)) for policy, request in asked]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:  # some still run after an error or an interrupt
            task.cancel()


class _Background:
    """Event loop and server connections in a separate thread, because callers may already run an event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread()
        self._clients: dict[tuple[str, str, float, int], AsyncOpenAI] = {}

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine in the thread and return its result. An interrupt cancels the coroutine."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=[self._loop], name="collm-chat", daemon=True)
                self._thread.start()
                atexit.register(self.close)
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def client(self, url: str, key: str, timeout_s: float, max_retries: int) -> AsyncOpenAI:
        """Return the cached OpenAI client of a server. Must be called in the event loop."""
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        httpx: Any = import_module("httpx2" if find_spec("httpx2") else "httpx")  # httpx2 since openai 3

        class Limited(DefaultAsyncHttpxClient):
            async def send(self, *args: Any, **options: Any) -> Any:
                try:  # the client's own timeout is that of one read, and a server may send single bytes
                    return await asyncio.wait_for(super().send(*args, **options), timeout_s)
                except asyncio.TimeoutError as error:
                    raise httpx.ReadTimeout(f"no complete response within {timeout_s:g} s") from error

        settings = (url, key, timeout_s, max_retries)
        if settings not in self._clients:
            self._clients[settings] = AsyncOpenAI(
                base_url=url, api_key=key, timeout=timeout_s, max_retries=max_retries, http_client=Limited()
            )
        return self._clients[settings]

    def close(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
            if loop is None:
                return
            for client in self._clients.values():
                asyncio.run_coroutine_threadsafe(client.close(), loop).result()
            self._clients = {}
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


_background = _Background()


def _after_fork() -> None:
    global _background  # a forked process lacks the background thread, and must not use the parent's connections
    _background = _Background()


os.register_at_fork(after_in_child=_after_fork)
