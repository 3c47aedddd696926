"""An episode is a function of the arguments, the seed and the actions: rules that play one again and compare."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import numpy as np

from .play import Call, CheckFailure, DoesNotApply, Env, Record, Subject, difference, recorded, replay, reset, resume


def same_seed(subject: Subject) -> None:
    """Two instances with one seed and the same actions give one episode, to its end; and so the next, unseeded."""
    for seed in subject.seeds:
        record = subject.record(seed)
        one, other = subject.build(), subject.build()
        random.seed(seed + 1)  # whoever leans on the global generators finds them elsewhere
        np.random.seed(seed + 1)
        _compare("same_seed", record, replay(one, seed, record.actions), _DRAW_FROM_OWN)
        _compare("same_seed", record, replay(other, seed, record.actions), _DRAW_FROM_OWN)
        if found := difference(recorded(iter([reset(one, None)])), recorded(iter([reset(other, None)]))):
            raise CheckFailure(
                "same_seed", f"the unseeded reset() after a seeded episode differs in {found}; {_DRAW_FROM_OWN}"
            )


def own_generator(subject: Subject) -> None:
    """Nothing draws from the global generators of `random` and numpy, which belong to the user."""
    before = random.getstate(), np.random.get_state()
    recorded(replay(subject.build(), subject.seeds[0], subject.record(subject.seeds[0]).actions))
    after = random.getstate(), np.random.get_state()
    for name, mine, theirs in zip(("random", "numpy.random"), before, after, strict=True):
        if difference(mine, theirs):
            raise CheckFailure("own_generator", f"an episode moves the global generator of {name}; {_DRAW_FROM_OWN}")


def reset_midway(subject: Subject) -> None:
    """A reset in the middle of an episode starts afresh: nothing of the last episode is left."""
    for seed in subject.seeds:
        record = subject.record(seed)
        env = subject.build()
        other = subject.record(subject.seeds[-1]).actions
        recorded(replay(env, subject.seeds[-1], other[: max(1, len(other) // 2)]))
        _compare(
            "reset_midway", record, replay(env, seed, record.actions), "set every attribute of an episode in reset"
        )


def options(subject: Subject) -> None:
    """Unknown keys in `reset(options=...)` are ignored: other libraries pass their own."""
    seed = subject.seeds[0]
    record = subject.record(seed)
    unknown = {"a key that nobody knows": 1}
    _compare("options", record, replay(subject.build(), seed, record.actions, unknown), "ignore keys you do not know")


def deepcopy_branches(subject: Subject) -> None:
    """`copy.deepcopy` in the middle of an episode gives an independent, identical branch."""
    _branches(
        "deepcopy_branches", subject, deepcopy, "keep plain attributes, share nothing, and do not inherit EzPickle"
    )


def pickle_branches(subject: Subject) -> None:
    """`pickle` in the middle of an episode gives an identical branch."""
    _branches(
        "pickle_branches",
        subject,
        lambda env: pickle.loads(pickle.dumps(env)),
        "keep no lambdas, generators or open files as attributes, register a class and no lambda, and do not inherit "
        "EzPickle",
    )


def _branches(rule: str, subject: Subject, branch: Callable[[Env], Env], fix: str) -> None:
    for seed in subject.seeds:
        record = subject.record(seed)
        turn = len(record.actions) // 2
        env = subject.build()
        start = recorded(replay(env, seed, record.actions[:turn]))
        try:
            copy = branch(env)
        except Exception as error:
            raise CheckFailure(
                rule, f"copying after {turn} turns raises {type(error).__name__}: {error}; {fix}"
            ) from error
        rest = Record(record.calls[len(start.calls) :])
        _compare(rule, rest, resume(copy, record.actions, turn), fix)
        _compare(rule, rest, resume(env, record.actions, turn), fix)


def shared_objects(subject: Subject) -> None:
    """What is returned is new at each call and for each agent: users keep it, and may change it."""
    seed = subject.seeds[0]
    record = subject.record(seed)
    owner: dict[int, str] = {}
    kept = []
    for call in replay(subject.build(), seed, record.actions):
        kept.append((call, deepcopy(call.returned)))
        for number, part in enumerate(call.returned):
            for path, thing in _mutable(part, f"part {number} of {call.name}"):
                if id(thing) in owner:
                    raise CheckFailure(
                        "shared_objects", f"{path} is the same object as {owner[id(thing)]}; build a new one"
                    )
                owner[id(thing)] = path
    for call, copy in kept:
        if found := difference(call.returned, copy, f"what {call.name} returned"):
            raise CheckFailure("shared_objects", f"a later call changed {found}; return copies of what you keep")
    _compare(
        "shared_objects",
        record,
        _vandalized(replay(subject.build(), seed, record.actions)),
        "keep no reference to what you returned",
    )


def _vandalized(calls: Iterator[Call]) -> Iterator[Call]:
    """The calls, copied, after which everything mutable in the originals is emptied."""
    for call in calls:
        originals = [thing for _, thing in _mutable(call.returned, "")]
        call.returned = deepcopy(call.returned)
        yield call
        for thing in originals:
            if isinstance(thing, np.ndarray):
                thing[...] = np.zeros_like(thing)
            else:
                thing.clear()


def _mutable(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (dict, list, set)) or (isinstance(value, np.ndarray) and value.flags.writeable):
        yield path, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _mutable(item, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _mutable(item, f"{path}[{number}]")


IS_CHECKED = "COLLM_IS_CHECKED"
"""Environment variable of the processes that `hash_seed` starts."""


def hash_seed(subject: Subject) -> None:
    """An episode is the same in processes with other `PYTHONHASHSEED`s: no order of a set shows.

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
        environ = os.environ | {
            IS_CHECKED: "1",
            "PYTHONHASHSEED": number,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        command = [sys.executable, "-m", "collm.envs.checks.elsewhere"]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        children.append(subprocess.Popen(command, env=environ, **pipes))
    answers = [child.communicate(task) for child in children]
    for child, (out, err) in zip(children, answers, strict=True):
        if child.returncode:
            raise CheckFailure(
                "hash_seed",
                f"the episode fails in another process: {err.decode(errors='replace').strip().splitlines()[-1]}; "
                "make the entry point importable there",
            )
        if found := difference(record, pickle.loads(out)):
            raise CheckFailure(
                "hash_seed", f"another PYTHONHASHSEED changes {found}; sort sets and do not use hash() before drawing"
            )


_DRAW_FROM_OWN = "draw only from a generator of your own, made from the seed in reset"


def _compare(rule: str, record: Record, calls: Iterator[Call], fix: str) -> None:
    try:
        found = difference(record, recorded(calls))
    except Exception as error:
        raise CheckFailure(rule, f"playing an episode again raises {type(error).__name__}: {error}; {fix}") from error
    if found:
        raise CheckFailure(rule, f"playing an episode again differs in {found}; {fix}")
