"""Several servers of one model: who gets which prompt, who is set aside, and when it is asked again."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from ..decoding.samples import Prompt
from ..decoding.sampling import seed_of
from .client import NotThere, ServedSample, ServerError, ServerLost, VLLMClient

MAX_STALE = 3
"""Answers of other weights than were sent after which a prompt is given up."""
PROBE_S = 2.0
"""Seconds between two looks at a server that is set aside."""


@dataclass
class Replica:
    """One server, and what it is known to hold."""

    client: VLLMClient
    name: str = ""
    """What it calls the model."""
    is_known: bool = False
    """It was asked what it holds. False again when it may have been started anew."""
    version: str | None = None
    """Label of its weights, where it is known."""
    adapters: set[str] = field(default_factory=set)
    """Names of the adapters that it serves."""
    fault: ServerLost | None = None
    """Why it is set aside; None while it answers."""
    next_look: float = 0.0
    """When it is looked at again, on the monotonic clock."""

    def doubt(self) -> None:
        """Know nothing of what it holds."""
        self.is_known, self.version, self.adapters = False, None, set()


class Replicas:
    """Asks servers that hold the same weights; a prompt that one of them loses is another's.

    The turns of an episode go to one server as long as it answers, which then has their beginning in its cache. Samples
    do not depend on who gives them: every request names its own seed.

    Args:
        clients: the servers.
        update: brings a replica to the present weights, asking what it holds where that is not known; raises
            `ServerLost` where it does not answer.
        num_connections: requests per server under way at the same time.
        patience_s: seconds to wait while no server answers.
    """

    def __init__(
        self,
        clients: Sequence[VLLMClient],
        update: Callable[[Replica], None],
        *,
        num_connections: int = 128,
        patience_s: float = 60.0,
    ):
        self.all = [Replica(client) for client in clients]
        self._update = update
        self._num_connections = num_connections
        self._patience_s = patience_s

    def make_ready(self) -> None:
        """Let those that answer have the present weights.

        Raises:
            ServerError: if no server answers for `patience_s`.
        """
        self._ready(may_wait=True)

    def ask(
        self, prompts: Sequence[Prompt], request: Callable[[Replica, Prompt], ServedSample | None]
    ) -> list[ServedSample]:
        """An answer for each prompt, in their order.

        Args:
            request: asks one replica; None where it answered with other weights than it should have.

        Raises:
            ServerError: if no server answers for `patience_s`, or if one refuses what it is asked.
        """
        answers: dict[int, ServedSample] = {}
        waiting = deque(range(len(prompts)))
        num_stale = [0] * len(prompts)
        under_way: dict[Future[ServedSample | None], tuple[int, Replica]] = {}
        with ThreadPoolExecutor(min(self._num_connections * len(self.all), len(prompts))) as pool:
            try:
                while len(answers) < len(prompts):
                    if waiting:
                        ready = self._ready(may_wait=not under_way)
                        while waiting and ready:
                            number = waiting.popleft()
                            replica = ready[seed_of(prompts[number].stream[:-1]) % len(ready)]
                            under_way[pool.submit(request, replica, prompts[number])] = number, replica
                    for done in wait(under_way, return_when=FIRST_COMPLETED).done:
                        number, replica = under_way.pop(done)
                        try:
                            answer = done.result()
                        except ServerLost as fault:
                            self._set_aside(replica, fault)
                            waiting.append(number)
                            continue
                        except NotThere as fault:
                            answer, reason = None, str(fault)
                        else:
                            reason = f"the server at {replica.client.url} answers with other weights than it was sent"
                        if answer is not None:
                            answers[number] = answer
                            continue
                        num_stale[number] += 1
                        if num_stale[number] == MAX_STALE:
                            raise ServerError(f"{reason}, {MAX_STALE} times; does somebody else change its weights?")
                        replica.doubt()
                        waiting.append(number)
            except BaseException:
                for asked in under_way:
                    asked.cancel()
                raise
        return [answers[number] for number in range(len(prompts))]

    def _ready(self, *, may_wait: bool) -> list[Replica]:
        """Those that answer, with the present weights.

        Args:
            may_wait: wait until there is one. False: there may be none.
        """
        deadline = time.monotonic() + self._patience_s
        while True:
            ready = [replica for replica in self.all if self._is_ready(replica)]
            if ready or not may_wait:
                return ready
            if time.monotonic() >= deadline:
                faults = "; ".join(dict.fromkeys(str(replica.fault) for replica in self.all))
                raise ServerError(f"no server answered for {self._patience_s:g} s: {faults}")
            time.sleep(min(PROBE_S, max(0.0, deadline - time.monotonic())))

    def _is_ready(self, replica: Replica) -> bool:
        was_aside = replica.fault is not None
        if was_aside and time.monotonic() < replica.next_look:
            return False
        try:
            if was_aside:
                replica.client.check_health()
            self._update(replica)
        except ServerLost as fault:
            self._set_aside(replica, fault)
            return False
        if was_aside:
            replica.fault = None
            warnings.warn(
                f"the server at {replica.client.url} answers again, has the present weights, and is asked again",
                RuntimeWarning,
                stacklevel=2,
            )
        return True

    def _set_aside(self, replica: Replica, fault: ServerLost) -> None:
        replica.doubt()
        replica.next_look = time.monotonic() + PROBE_S
        if replica.fault is None:
            warnings.warn(f"set aside: {fault}", RuntimeWarning, stacklevel=2)
        replica.fault = fault
