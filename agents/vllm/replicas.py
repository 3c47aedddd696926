"""Load balancing over several servers of one model, with retries and probes of failed servers."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from ..._progress import advance, expect
from ..decoding.samples import Prompt
from ..decoding.sampling import seed_of
from .client import NotFound, ServedSample, ServerError, ServerLost, VLLMClient

NUM_CONNECTIONS = 128  # concurrent requests per server
MAX_STALE = 3  # number of responses from other weights after which a prompt fails
PROBE_S = 2.0  # seconds between two probes of a failed server


@dataclass
class Replica:
    """Server of a model and the server's last known state."""

    client: VLLMClient
    name: str = ""  # of the base model in requests
    is_known: bool = False  # True if the state was read from the server and the server has not failed since
    version: str | None = None  # version label of the server's weights; None: unknown
    adapters: set[str] = field(default_factory=set)  # names of the served adapters
    fault: ServerLost | None = None  # last error of a server that is not used at present; None: the server is used
    next_probe: float = 0.0  # time of the next probe, in seconds of `time.monotonic`

    def reset(self) -> None:
        """Mark the state as unknown, because the server may have restarted."""
        self.is_known, self.version, self.adapters = False, None, set()


class Replicas:
    """Load balancer over servers with the same weights. Prompts of a failed server go to another server.

    All turns of an episode go to the same server while it answers, so that its prefix cache is used. Samples do not
    depend on the server, because each request has its own seed.

    Args:
        update: sends the current weights to a replica. Raises `ServerLost` if the server does not answer.
        patience_s: seconds to wait while no server answers.
    """

    def __init__(self, clients: Sequence[VLLMClient], update: Callable[[Replica], None], patience_s: float):
        self.all = [Replica(client) for client in clients]
        self._update = update
        self._patience_s = patience_s

    def make_ready(self) -> None:
        """Send the current weights to all servers that answer. Raise `ServerError` if none answers in time."""
        self._ready(may_wait=True)

    def ask(
        self, prompts: Sequence[Prompt], request: Callable[[Replica, Prompt], ServedSample | None]
    ) -> list[ServedSample]:
        """Return one sample per prompt, in order. `request` returns None if a server's weights are not the current."""
        answers: dict[int, ServedSample] = {}
        waiting = deque(range(len(prompts)))
        num_stale = [0] * len(prompts)
        under_way: dict[Future[ServedSample | None], tuple[int, Replica]] = {}
        expect(len(prompts))
        with ThreadPoolExecutor(min(NUM_CONNECTIONS * len(self.all), len(prompts))) as pool:
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
                        except NotFound as fault:
                            answer, reason = None, str(fault)
                        else:
                            reason = f"the server at {replica.client.url} used other weights than this run sent"
                        if answer is not None:
                            answers[number] = answer
                            advance()
                            continue
                        num_stale[number] += 1
                        if num_stale[number] == MAX_STALE:
                            raise ServerError(f"{reason}, {MAX_STALE} times; check if another run changes its weights")
                        replica.reset()
                        waiting.append(number)
            except BaseException:
                for asked in under_way:
                    asked.cancel()
                raise
        return [answers[number] for number in range(len(prompts))]

    def _ready(self, *, may_wait: bool) -> list[Replica]:
        """Return the servers that answer and have the current weights. With `may_wait`, wait for at least one."""
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
        if was_aside and time.monotonic() < replica.next_probe:
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
            told = f"the server at {replica.client.url} responds again, and is used again"
            warnings.warn(told, RuntimeWarning, stacklevel=2)
        return True

    def _set_aside(self, replica: Replica, fault: ServerLost) -> None:
        replica.reset()
        replica.next_probe = time.monotonic() + PROBE_S
        if replica.fault is None:
            warnings.warn(f"a server is not used until it responds again: {fault}", RuntimeWarning, stacklevel=2)
        replica.fault = fault
