"""Rules that replay episodes: an episode is a function of the arguments, the seed and the actions."""

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

_OWN_GENERATOR = "draw only from a generator of the environment that reset seeds"


def same_seed(subject: Subject) -> None:
    """Instances with the same seed and actions play the same episode, and the same next episode without a seed."""
    for seed in subject.seeds:
        record = subject.record(seed)
        one, other = subject.build(), subject.build()
        random.seed(seed + 1)  # reveals environments that use the global generators
        np.random.seed(seed + 1)
        _compare(record, replay(one, seed, record.actions), _OWN_GENERATOR)
        _compare(record, replay(other, seed, record.actions), _OWN_GENERATOR)
        if found := difference(recorded(iter([reset(one, None)])), recorded(iter([reset(other, None)]))):
            raise Violation(f"reset() without a seed, after a seeded episode, differs in {found}; {_OWN_GENERATOR}")


def own_generator(subject: Subject) -> None:
    """Episodes leave the global generators of `random` and NumPy unchanged."""
    before = random.getstate(), np.random.get_state()
    recorded(replay(subject.build(), subject.seeds[0], subject.record(subject.seeds[0]).actions))
    after = random.getstate(), np.random.get_state()
    for name, mine, theirs in zip(("random", "numpy.random"), before, after, strict=True):
        if difference(mine, theirs):
            raise Violation(f"an episode changes the global generator of {name}; {_OWN_GENERATOR}")


def reset_midway(subject: Subject) -> None:
    """A reset in the middle of an episode starts a new episode that does not depend on the old one."""
    for seed in subject.seeds:
        record = subject.record(seed)
        env = subject.build()
        other = subject.record(subject.seeds[-1]).actions
        recorded(replay(env, subject.seeds[-1], other[: max(1, len(other) // 2)]))
        _compare(record, replay(env, seed, record.actions), "set every attribute of an episode in reset")


def options(subject: Subject) -> None:
    """`reset` ignores unknown keys in `options`, because other libraries pass their own."""
    seed = subject.seeds[0]
    record = subject.record(seed)
    _compare(record, replay(subject.build(), seed, record.actions, {"unknown key": 1}), "ignore unknown keys")


def deepcopy_branches(subject: Subject) -> None:
    """`copy.deepcopy` in the middle of an episode gives an independent, identical environment; EzPickle does not."""
    _compare_branches(subject, deepcopy, "keep plain attributes, share none, and do not inherit EzPickle")


def pickle_branches(subject: Subject) -> None:
    """`pickle` in the middle of an episode gives an identical environment; EzPickle does not."""
    _compare_branches(
        subject,
        lambda env: pickle.loads(pickle.dumps(env)),
        "keep no lambdas, generators or open files as attributes, register a class and no lambda, and do not inherit "
        "EzPickle",
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
    """Every call returns new objects, for each agent different ones, because users keep and change them."""
    seed = subject.seeds[0]
    owner: dict[int, str] = {}
    kept = []
    for call in replay(subject.build(), seed, subject.record(seed).actions):
        kept.append((call, deepcopy(call.returned)))
        for number, part in enumerate(call.returned):
            for path, thing in _mutable(part, f"part {number} of {call.name}"):
                if id(thing) in owner:
                    raise Violation(f"{path} is the same object as {owner[id(thing)]}; build a new one")
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


IS_CHECKED = "COLLM_IS_CHECKED"
"""Environment variable of the processes that `hash_seed` starts."""


def hash_seed(subject: Subject) -> None:
    """Processes with other `PYTHONHASHSEED`s play the same episode; it must not depend on the order of sets.

    The rule does not apply in the processes that it starts. Otherwise a module that calls `check_env` when it is
    imported would start processes without end.
    """
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
            raise Violation(f"another PYTHONHASHSEED changes {found}; sort sets and do not use hash() before drawing")


def replay_from_stdin() -> None:
    """Play the episode that standard input describes, and write its record to standard output."""
    text, seed, actions = pickle.load(sys.stdin.buffer)
    with contextlib.redirect_stdout(sys.stderr):  # the environment's own output must not mix with the record
        record = recorded(replay(EnvSpec.from_json(text).make(), seed, actions))
    pickle.dump(record, sys.stdout.buffer)


def _compare(record: Record, calls: Iterator[Call], fix: str) -> None:
    if found := difference(record, recorded(calls)):
        raise Violation(f"the replayed episode differs in {found}; {fix}")
