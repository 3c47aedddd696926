"""ChatPolicy: any model behind a server of OpenAI's chat completions, as a player that does not learn."""

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
from dataclasses import dataclass, fields, replace
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
OPENAI_KEY = "OPENAI_API_KEY"
_NAME = re.compile(r"openai:(?P<model>((?!@https?://)[^\s,])+)(@(?P<url>\S+))?")
_NO_KEY = "none"  # the client wants some text; servers without keys read none
_TOKENS_PER_PRICE = 1_000_000
_BODY = "body."  # begins the names of further fields of requests
_LITERALS = {"True": True, "False": False, "None": None}


@dataclass(frozen=True, slots=True)
class Usage:
    """Totals of a chat model's requests."""

    requests: int = 0
    """Answers that came."""
    retries: int = 0
    """Attempts that failed and were repeated."""
    prompt_tokens: int = 0
    """Tokens read, as the server counts them."""
    completion_tokens: int = 0
    """Tokens written, thoughts included, as the server counts them."""
    unmetered: int = 0
    """Answers whose tokens the server did not count."""
    cost: float = 0.0
    """Cost of the counted tokens, in the currency of the prices."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.requests + other.requests,
            self.retries + other.retries,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.unmetered + other.unmetered,
            self.cost + other.cost,
        )

    def __str__(self) -> str:
        said = f"{self.requests} requests, {self.prompt_tokens} tokens read, {self.completion_tokens} written"
        said += f", {self.retries} retries" if self.retries else ""
        said += f", {self.unmetered} answers without a count of tokens" if self.unmetered else ""
        return said + (f", cost {self.cost:.4g}" if self.cost else "")


@dataclass(frozen=True, kw_only=True)
class ChatOptions(Checked):
    """Options of a chat server, which stand behind its address: openai:MODEL@URL?key=VARIABLE&requests=8."""

    key: str | None = None
    """Environment variable with the key. None: OPENAI_API_KEY at OpenAI's own address, and no key at any other."""
    requests: Count = 32
    """Requests to the server under way at the same time."""
    timeout_s: Positive = 300.0
    """Time limit of one attempt, in seconds."""
    retries: CountOrZero = 8
    """Retries of a request that failed or was refused for now, with exponential back-off or as the server says."""
    seeds: bool = True
    """Send seeds. False: for servers that refuse the field."""
    prompt_price: NotNegative = 0.0
    """Price per million tokens that the model reads, in any currency, for the count of costs."""
    completion_price: NotNegative = 0.0
    """Price per million tokens that the model writes, in any currency, for the count of costs."""


class ChatPolicy(Policy):
    """Asks a server of OpenAI's chat completions for each reply; all requests of a decision are under way at once.

    A history goes out as its messages. The reply is the answer's content, without the thoughts that a server keeps
    apart; an answer without content is the empty reply. Failed requests are repeated by OpenAI's client: connections,
    timeouts and the statuses 408, 409, 429 and 5xx, after 0.5 s, 1 s, 2 s … 8 s, or as the server's Retry-After says.

    Source: https://platform.openai.com/docs/api-reference/chat/create

    Args:
        url: base address, "http://localhost:8000/v1"; without a path "/v1" is added. None: OpenAI's.
        model: the server's name of the model.
        key_variable: environment variable that holds the key. None: OPENAI_API_KEY at OpenAI's own address; no key is
            sent to any other.
        max_requests: requests under way at a time, of all policies that ask this server together.
        timeout_s: seconds that one attempt may take.
        max_retries: repetitions of a request that failed.
        temperature: sampling temperature; greedy play asks for 0.
        top_p: nucleus sampling; 1 is off.
        top_k: top-k sampling, which not every server knows; 0 is off and not sent.
        max_new_tokens: tokens after which the server cuts an answer, thoughts included.
        sends_seed: send each request's own seed (`Request.stream`); what a server makes of it is up to the server.
        prices: per million tokens read and written, in any currency.
        body: further fields of each request, such as {"reasoning_effort": "low"}; they take the place of ours.

    Attributes:
        usage: totals so far.

    Raises:
        UserError: if the key is missing, the address is not one, or the package `openai` is not installed.
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
        self.usage = Usage()
        self._key = _key(self.url, key_variable)
        self._timeout_s, self._max_retries = timeout_s, max_retries
        self._sampling = {"temperature": temperature, "top_p": top_p}
        # OpenAI's newer models refuse the older name, which is the one that every other server knows.
        limit = "max_completion_tokens" if self.url == OPENAI else "max_tokens"
        self._fields: dict[str, Any] = {limit: max_new_tokens}
        self._filters: dict[str, Any] = {"top_k": top_k} if top_k else {}
        self._sends_seed = sends_seed
        self._prices = prices
        self._body = dict(body or {})
        _check_client()

    def act(self, requests: Sequence[Request], *, greedy: bool = False) -> list[Completion]:
        return self.act_together([(self, request) for request in requests], greedy=greedy)

    def batch_key(self) -> object:
        return ChatPolicy

    def act_together(self, requests: Sequence[tuple[Policy, Request]], *, greedy: bool = False) -> list[Completion]:
        """Answers of one or several chat models, whose requests are all under way together."""
        asked = [(policy, request) for policy, request in requests if isinstance(policy, ChatPolicy)]
        completions: list[Completion] = _background.answers(_all_answers(asked, greedy))
        return completions

    def fix_shapes(self) -> None:
        """Refused: a server answers as it pleases."""
        raise UserError(f"deterministic=True needs models that sample in this process; {self.model} is asked by a URL")

    async def _answer(self, request: Request, greedy: bool) -> Completion:
        """One completion, however many attempts it takes."""
        import openai  # here, as it takes seconds to import

        client = _background.client(self.url, self._key, self._timeout_s, self._max_retries)
        try:
            raw = await client.chat.completions.with_raw_response.create(**self._request(request, greedy))
        except openai.APIError as error:
            raise ServerError(self._told(error)) from error
        answer = raw.parse()
        choices = getattr(answer, "choices", None)
        if not choices or choices[0].message is None:
            raise ServerError(f"the server at {self.url} answers without a choice: {raw.text[:200]!r}")
        self.usage += replace(self._metered(answer), retries=raw.retries_taken)
        return Completion(choices[0].message.content or "", is_cut=choices[0].finish_reason == "length")

    def _request(self, request: Request, greedy: bool) -> dict[str, Any]:
        fields = {
            "model": self.model,
            "messages": as_chat(messages_of(request.observation)),
            **self._fields,
            **self._sampling,
        }
        if greedy:
            fields |= {"temperature": 0.0, "top_p": 1.0}
        if self._sends_seed:
            fields["seed"] = seed_of(request.stream)
        return {**fields, "extra_body": {**({} if greedy else self._filters), **self._body}}

    def _metered(self, answer: ChatCompletion) -> Usage:
        told = answer.usage
        if told is None:
            return Usage(requests=1, unmetered=1)
        read, written = told.prompt_tokens, told.completion_tokens
        cost = (read * self._prices[0] + written * self._prices[1]) / _TOKENS_PER_PRICE
        return Usage(requests=1, prompt_tokens=read, completion_tokens=written, cost=cost)

    def _told(self, error: Exception) -> str:
        """The one line about a request that failed for good."""
        import openai

        times = self._max_retries
        if isinstance(error, openai.APITimeoutError):
            return f"the server at {self.url} gave no answer within {self._timeout_s:g} s, {times} retries"
        if isinstance(error, openai.APIConnectionError):
            return f"there is no server at {self.url} ({error.__cause__ or error}), {times} retries"
        if isinstance(error, openai.APIStatusError):
            said = " ".join(error.response.text[:500].split())
            return f"the server at {self.url} answers {error.status_code} to a request for {self.model}: {said}"
        return f"the server at {self.url}: {error}"


def told_usage(policies: Iterable[Policy]) -> list[str]:
    """A line about the requests of each chat model among some policies."""
    found = {id(policy): policy for policy in policies if isinstance(policy, ChatPolicy)}
    totals: dict[str, Usage] = {}
    for policy in found.values():
        totals[policy.model] = totals.get(policy.model, Usage()) + policy.usage
    return [f"openai:{model}: {usage}" for model, usage in totals.items()]


def chat_spec(name: str) -> PolicySpec | None:
    """How the chat model of a name is made; None for a name of another form.

    Args:
        name: "openai:MODEL@URL", or "openai:MODEL" at OpenAI's own address; no spaces or commas. `ChatOptions` may
            follow as "?key=VARIABLE&requests=8", and further fields of requests as "body.reasoning_effort=low".

    Raises:
        UserError: if it begins with "openai:" and has another form, or an option that does not exist.
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
            raise UserError(f"{name} writes texts, but {seat.agent} acts in {seat.action_space}")
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
    """Options of a chat server and further fields of its requests, from the text behind the "?" of its name.

    Raises:
        UserError: if a pair is malformed, an option does not exist, or a value is outside of its range.
    """
    given: dict[str, Any] = {}
    body: dict[str, Any] = {}
    for pair in filter(None, query.split("&")):
        name, equals, text = (unquote(each) for each in pair.partition("="))
        if not equals:
            raise UserError(f"options of a chat server are name=value pairs joined by &, got {pair!r}")
        into = body if name.startswith(_BODY) else given
        try:
            into[name.removeprefix(_BODY)] = _LITERALS[text] if text in _LITERALS else json.loads(text)
        except (ValueError, RecursionError):
            into[name.removeprefix(_BODY)] = text
    known = {each.name for each in fields(ChatOptions)}
    for name in given.keys() - known:
        raise UserError(
            f"a chat server has no option {name!r}; {nearest(name, sorted(known))}; {_BODY}{name} is a field of its "
            "requests"
        )
    return ChatOptions(**given), body


def address(url: str | None) -> str:
    """The base address that requests go to.

    Raises:
        UserError: if the text is no address.
    """
    if url is None:
        return OPENAI
    refuse_password(url)
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:  # a port that is no number, or too great
        raise UserError(f"the server's address {url!r} is not of the form http://host:port/v1: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UserError(f"the server's address {url!r} is not of the form http://host:port/v1")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/v1'}"


def _key(url: str, variable: str | None) -> str:
    """The key of a server, out of the environment."""
    if variable is None and url != OPENAI:
        return _NO_KEY
    name = variable or OPENAI_KEY
    if not os.environ.get(name):
        raise UserError(f"the environment variable {name} is not set; it holds the key of {url}")
    if not _is_protected(url):
        warnings.warn(f"the key in {name} is sent to {url} without encryption; use https", UserWarning, stacklevel=3)
    return os.environ[name]


def _is_protected(url: str) -> bool:
    """Return True if messages to the address are encrypted or stay on this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a host name
        return False


def _check_client() -> None:
    from importlib.util import find_spec

    if find_spec("openai") is None:
        raise UserError(f"chat models need the package openai, which is not installed; {install_command('chat')}")


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
        for task in tasks:  # where one failed, or the whole was given up
            task.cancel()


class _Background:
    """An event loop in a thread of its own, so that whoever runs one already may ask too, and its connections."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread()
        self._clients: dict[tuple[str, str, float, int], AsyncOpenAI] = {}

    def answers(self, asking: Any) -> Any:
        """What a coroutine returns; an interrupt cancels it."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=[self._loop], name="collm-chat", daemon=True)
                self._thread.start()
                atexit.register(self.close)
        future = asyncio.run_coroutine_threadsafe(asking, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def client(self, url: str, key: str, timeout_s: float, max_retries: int) -> AsyncOpenAI:
        """The connections to a server; called from the loop."""
        from openai import AsyncOpenAI

        asked = (url, key, timeout_s, max_retries)
        if asked not in self._clients:
            self._clients[asked] = AsyncOpenAI(base_url=url, api_key=key, timeout=timeout_s, max_retries=max_retries)
        return self._clients[asked]

    def close(self) -> None:
        """Close all connections and end the thread."""
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
    """A forked process has neither the thread nor a right to its connections."""
    global _background
    _background = _Background()


os.register_at_fork(after_in_child=_after_fork)
