"""Worker process of `ProcessVector`, which resets and steps environment copies when the main process requests it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from multiprocessing.connection import Connection
from typing import Any, Literal, TypeAlias

import numpy as np

from ..core import StepResult, declared_interests
from ..registration.turn_limit import declared_turn_limit
from .faults import EnvironmentFault, FaultWatch, name_of
from .vector import Builder, as_step

What: TypeAlias = Literal["reset", "step", "replay"]
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Copies:
    """Environment copies of one worker process. Replies to the main process contain the state if `sends_state`."""

    def __init__(self, build: Builder, indices: Sequence[int], sends_state: bool):
        self._sends_state = sends_state
        self._envs = {number: build() for number in indices}
        self._watches = {number: FaultWatch(env) for number, env in self._envs.items()}

    def description(self) -> Any:
        env = next(iter(self._envs.values()))
        names = list(env.possible_agents)
        spaces = [{name: of(name) for name in names} for of in (env.observation_space, env.action_space)]
        registered = getattr(env, "state_space", None), getattr(env, "spec", None)
        return name_of(env), names, *spaces, *registered, declared_turn_limit(env), declared_interests(env)

    def reply(self, payload: bytes) -> bytes:
        message, what, index, argument = pickle.loads(payload)
        try:
            return pickle.dumps((message, index, None, self._answer(index, what, argument)))
        except EnvironmentFault as fault:
            return pickle.dumps((message, index, (fault.problem, fault.agent, traceback.format_exc()), None))
        except Exception as error:  # pickle raises many types of errors
            problem = f"{what} returned a value that cannot be pickled: {error}"
            return pickle.dumps((message, index, (problem, None, traceback.format_exc()), None))

    def close(self) -> None:
        for env in self._envs.values():
            env.close()

    def _answer(self, index: int, what: What, argument: Any) -> Any:
        env, watch = self._envs[index], self._watches[index]
        if what == "step":
            result = watch.step(argument)
            digests = [digest_of(result)]
        else:
            seed, options, *played = argument
            result = as_step(watch.reset(seed, options))
            digests = [digest_of(result)]
            for actions in played[0] if played else ():
                result = watch.step(actions)
                digests.append(digest_of(result))
        return list(env.agents), watch.state() if self._sends_state else None, result, digests


def work(pipe: Connection, payload: bytes, indices: list[int], sends_state: bool) -> None:
    """Run a worker process: build the copies, then answer messages until the pipe is closed."""
    for each in STOP_SIGNALS:
        signal.signal(each, lambda *_: None)  # not SIG_IGN, which child processes of an environment would inherit
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    # An environment in an endless loop does not notice that the pipe is closed.
    threading.Thread(target=_end_with_main_process, daemon=True).start()
    copies, first = built(lambda: Copies(pickle.loads(payload), indices, sends_state))
    try:
        pipe.send_bytes(first)
        while copies is not None:
            pipe.send_bytes(copies.reply(pipe.recv_bytes()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the main process has closed the pipe
    finally:
        if copies is not None:
            copies.close()


def built(make: Callable[[], Copies]) -> tuple[Copies | None, bytes]:
    """Build a worker's copies. Returns (copies or None, pickled description of the environment or of the error)."""
    try:
        copies = make()
        return copies, pickle.dumps((None, None, None, copies.description()))
    except (Exception, SystemExit) as error:
        problem = f"the environment could not be built: {type(error).__name__}: {error}"
        return None, pickle.dumps((None, None, (problem, None, traceback.format_exc()), None))


def _end_with_main_process() -> None:
    main = multiprocessing.parent_process()
    assert main is not None
    main.join()
    os._exit(1)


def digest_of(result: StepResult) -> bytes:
    """Return a hash of observations, rewards, terminations and truncations. A replay must reproduce the hash.

    Infos are not included, because infos of a replay may differ.
    """
    digest = blake2b(digest_size=8)
    for part in result[:4]:
        _feed(digest, part)
    return digest.digest()


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, str):
        _feed_bytes(digest, "text", value.encode(errors="surrogatepass"))
    elif isinstance(value, Mapping):  # sorted: the iteration order of a set of strings differs between processes
        digest.update(f"mapping {len(value)} ".encode())
        for key in sorted(value, key=repr):
            _feed(digest, key)
            _feed(digest, value[key])
    elif isinstance(value, (tuple, list)):
        digest.update(f"row {len(value)} ".encode())
        for each in value:
            _feed(digest, each)
    elif (array := np.asarray(value)).dtype.kind != "O":
        _feed_bytes(digest, f"{array.dtype.str} {array.shape}", array.tobytes())
    else:
        _feed_bytes(digest, "object", pickle.dumps(value))


def _feed_bytes(digest: Any, kind: str, content: bytes) -> None:
    digest.update(f"{kind} {len(content)} ".encode())
    digest.update(content)
