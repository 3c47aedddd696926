"""Rules of `check_env` that replay episodes: arguments, seed and actions must determine an episode."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import numpy as np

from ..registration.registry import EnvSpec
from .play import Call, DoesNotApply, Env, Record, Subject, Violation, difference, recorded, replay, reset, resume

_OWN_GENERATOR = "use only random numbers of a generator that the environment owns and that reset seeds"


def same_seed(subject: Subject) -> None:
    """Check that the same seed and actions give the same episode, and the same next episode without a seed."""
    for seed in subject.seeds:
        record = subject.record(seed)
        one, other = subject.build(), subject.build()
        random.seed(seed + 1)  # reveals environments that use the global generators
        np.random.seed(seed + 1)
        _compare(record, replay(one, seed, record.actions), _OWN_GENERATOR)
        _compare(record, replay(other, seed, record.actions), _OWN_GENERATOR)
        if found := difference(recorded(iter([reset(one, None)])), recorded(iter([reset(other, None)]))):
            raise Violation(
                f"after two episodes with one seed, reset() without a seed differs in {found}; {_OWN_GENERATOR}"
            )


def own_generator(subject: Subject) -> None:
    """Check that episodes do not change the global generators of `random` and NumPy."""
    before = random.getstate(), np.random.get_state()
    recorded(replay(subject.build(), subject.seeds[0], subject.record(subject.seeds[0]).actions))
    after = random.getstate(), np.random.get_state()
    for name, mine, theirs in zip(("random", "numpy.random"), before, after, strict=True):
        if difference(mine, theirs):
            raise Violation(f"an episode changes the global generator of {name}; {_OWN_GENERATOR}")


def reset_midway(subject: Subject) -> None:
    """Check that a reset in the middle of an episode starts a new episode that does not depend on the old one."""
    for seed in subject.seeds:
        record = subject.record(seed)
        env = subject.build()
        other = subject.record(subject.seeds[-1]).actions
        recorded(replay(env, subject.seeds[-1], other[: max(1, len(other) // 2)]))
        _compare(record, replay(env, seed, record.actions), "in reset, set every attribute that an episode uses")


def options(subject: Subject) -> None:
    """Check that `reset` ignores unknown keys in `options`, because other libraries pass their own keys."""
    seed = subject.seeds[0]
    record = subject.record(seed)
    _compare(record, replay(subject.build(), seed, record.actions, {"unknown key": 1}), "ignore unknown keys")


def deepcopy_branches(subject: Subject) -> None:
    """Check that `copy.deepcopy` during an episode gives an equal, independent copy. Subclasses of EzPickle fail."""
    _compare_branches(subject, deepcopy, "use plain attributes, do not share them, and do not inherit EzPickle")


def pickle_branches(subject: Subject) -> None:
    """Check that `pickle` during an episode gives an equal, independent copy. Subclasses of EzPickle fail."""
    _compare_branches(
        subject,
        lambda env: pickle.loads(pickle.dumps(env)),
        "use no lambdas, generators or open files as attributes, register a class instead of a lambda, and do not "
        "inherit EzPickle",
    )


def _compare_branches(subject: Subject, branch: Callable[[Env], Env], fix: str) -> None:
    for seed in subject.seeds:
        record = subject.record(seed)
        turn = len(record.actions) // 2
        env = subject.build()
        start = recorded(replay(env, seed, record.actions[:turn]))
        try:
            copy = branch(env)
        except Exception as error:
            raise Violation(f"copying after {turn} turns raises {type(error).__name__}: {error}; {fix}") from error
        rest = Record(record.calls[len(start.calls) :])
        _compare(rest, resume(copy, record.actions, turn), fix)
        _compare(rest, resume(env, record.actions, turn), fix)


def shared_objects(subject: Subject) -> None:
    """Check that each call returns new objects for each agent, because callers may change the results."""
    seed = subject.seeds[0]
    owner: dict[int, str] = {}
    kept = []
    for call in replay(subject.build(), seed, subject.record(seed).actions):
        kept.append((call, deepcopy(call.returned)))
        for number, part in enumerate(call.returned):
            for path, thing in _mutable(part, f"part {number} of {call.name}"):
                if id(thing) in owner:
                    raise Violation(f"{path} is the same object as {owner[id(thing)]}; return a new object each time")
                owner[id(thing)] = path
    for call, copy in kept:
        if found := difference(call.returned, copy, f"the results of {call.name}"):
            raise Violation(f"a later call changed {found}; return copies")


def _mutable(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (dict, list, set)) or (isinstance(value, np.ndarray) and value.flags.writeable):
        yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    for key, item in items:
        yield from _mutable(item, f"{path}[{key!r}]")


IS_CHECKED = "COLLM_IS_CHECKED"  # environment variable in the processes that `hash_seed` starts


def hash_seed(subject: Subject) -> None:
    """Check that processes with another `PYTHONHASHSEED`, which changes the order of sets, play the same episode."""
    # The rule must not apply in the processes that it starts: a module that calls `check_env` when it is imported would
    # start an endless chain of processes.
    if subject.spec is None or not subject.is_portable or IS_CHECKED in os.environ:
        raise DoesNotApply
    seed = subject.seeds[0]
    record = subject.record(seed)
    task = pickle.dumps((subject.spec.to_json(), seed, record.actions))
    children = []
    for number in ("1", "2"):
        path = os.pathsep.join(filter(None, sys.path))
        environ = os.environ | {IS_CHECKED: "1", "PYTHONHASHSEED": number, "PYTHONPATH": path}
        command = [sys.executable, "-c", f"from {__name__} import replay_from_stdin; replay_from_stdin()"]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        children.append(subprocess.Popen(command, env=environ, **pipes))
    answers = [child.communicate(task) for child in children]
    for child, (out, err) in zip(children, answers, strict=True):
        if child.returncode:
            last = err.decode(errors="replace").strip().splitlines()[-1]
            raise Violation(f"the episode fails in another process: {last}; make the entry point importable there")
        if found := difference(record, pickle.loads(out)):
            raise Violation(f"another PYTHONHASHSEED changes {found}; sort sets, and do not use hash()")


def replay_from_stdin() -> None:
    """Read an episode from standard input, replay it, and write the record to standard output."""
    text, seed, actions = pickle.load(sys.stdin.buffer)
    with contextlib.redirect_stdout(sys.stderr):  # the environment's own output must not mix with the record
        record = recorded(replay(EnvSpec.from_json(text).make(), seed, actions))
    pickle.dump(record, sys.stdout.buffer)


def _compare(record: Record, calls: Iterator[Call], fix: str) -> None:
    if found := difference(record, recorded(calls)):
        raise Violation(f"the replayed episode differs in {found}; {fix}")
