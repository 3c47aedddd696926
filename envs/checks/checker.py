"""`check_env`: the whole contract of an environment as one call, for authors of new ones."""

from __future__ import annotations

import inspect
import linecache
import logging
import random
import re
import traceback
from collections.abc import Callable, Collection, Mapping
from types import CodeType
from typing import Any

import numpy as np

from ..core import TextParallelEnv
from . import interface, repeatability, text
from .exploits import exploits as degenerate_play
from .play import CheckFailure, Chooser, DoesNotApply, Subject

LOG = logging.getLogger(__name__)
__all__ = ["RULES", "CheckFailure", "check_env"]

RULES: Mapping[str, Callable[[Subject], None]] = {
    rule.__name__: rule
    for rule in (
        interface.metadata,
        interface.agent_names,
        interface.same_spaces,
        interface.returns,
        interface.keys,
        interface.agents,
        interface.flags,
        interface.rewards,
        interface.ranges,
        interface.infos,
        interface.observations,
        interface.state,
        interface.ends,
        interface.last_turn,
        interface.pettingzoo_api,
        interface.rendering,
        repeatability.same_seed,
        repeatability.own_generator,
        repeatability.reset_midway,
        repeatability.options,
        repeatability.deepcopy_branches,
        repeatability.pickle_branches,
        repeatability.shared_objects,
        text.hostile_replies,
        text.missing_reply,
        text.append_only,
        text.own_reply,
        text.private_replies,
        text.reference,
        repeatability.hash_seed,
        degenerate_play,
    )
}
"""The rules by name, in the order they are tried; a rule's docstring says what it demands."""


class PassedRules(list[str]):
    """Names of the rules that an environment keeps; printed as their number."""

    def __repr__(self) -> str:
        return f"all {len(self)} rules that were tried hold"


def check_env(
    env: Any,
    *,
    choose: Chooser | None = None,
    seeds: tuple[int, ...] = (0, 1),
    max_steps: int = 1000,
    hash_seeds: bool | None = None,
    exploits: bool = False,
    skip: Collection[str] = (),
) -> PassedRules:
    """Play episodes and hold the environment to every rule that applies to it.

    Args:
        env: an id, an `EnvSpec`, an environment, or a function that builds one.
        choose: (agent, observation, generator) -> action, to reach more of the game than random replies do.
        seeds: one per episode, at least one.
        max_steps: turns after which an episode counts as endless.
        hash_seeds: whether to play also in two processes of other hash seeds, which takes seconds; None: if another
            process can build it, that is, `env` is an id or a specification that is importable and JSON.
        exploits: whether to measure degenerate teams too, which takes a few hundred episodes.
        skip: names of rules not to try, for environments that are not yours to repair.

    Returns:
        The names of the rules that were tried and passed, a list that prints their number.

    Raises:
        CheckFailure: on the first rule broken, with the rule's name and one sentence: what was seen, and the fix.
    """
    if not seeds:
        raise ValueError("check_env needs at least one seed, got ()")
    if unknown := set(skip) - set(RULES):
        raise ValueError(f"no rules are called {sorted(unknown)}; the rules are {list(RULES)}")
    subject = Subject.of(env, choose, seeds, max_steps)
    env = subject.build()
    if hash_seeds is None and not subject.is_portable and "hash_seed" not in skip:
        LOG.warning(
            "check_env did not try the rule hash_seed, as no other process can build this environment: put its class "
            "into a module, register it, and pass the id (hash_seeds=False says that this is meant)"
        )
    if hash_seeds and not subject.is_portable:
        raise ValueError("hash_seeds=True needs an id or EnvSpec whose entry point and kwargs other processes can load")
    left_out = {*skip, *(() if exploits else ["exploits"]), *(["hash_seed"] if hash_seeds is False else [])}
    passed = PassedRules()
    generators = random.getstate(), np.random.get_state()
    try:
        for name, rule in RULES.items():
            if name in left_out:
                continue
            try:
                rule(subject)
            except DoesNotApply:
                continue
            except CheckFailure as failure:
                if failure.__cause__ is None:
                    raise
                where = blamed(failure.__cause__, env)
                raise (failure if where is None else _placed(failure, where)) from failure.__cause__
            except Exception as error:
                where = blamed(error, env)
                if where is None:
                    raise
                raise CheckFailure(name, f"{type(error).__name__}: {error}; repair {where}") from error
            passed.append(name)
    finally:  # one rule moves them, to see who depends on them
        random.setstate(generators[0])
        np.random.set_state(generators[1])
    return passed


def _placed(failure: CheckFailure, where: str) -> CheckFailure:
    """The failure with the method and the line that it comes from."""
    seen, _, fix = failure.message.rpartition("; ")
    return CheckFailure(failure.rule, f"{seen}; {fix}: {where}")


_HOOKS = ("deal", "play", "truth", "scene", "reference_reply", "__init__", "reset", "step", "state")
"""Methods that an author writes; of those that a base class brings, only its subclass's own."""


def blamed(error: BaseException, env: Any) -> str | None:
    """The method that an error comes from and its place, as "play(), at games/mine.py:37: number = int(reply)".

    An error that was raised in the author's code is placed where it was raised; one that was raised because of what a
    method returned, where that method begins. None where the author's code has no part in it.
    """
    methods = _methods(env)
    files = {code.co_filename for code in methods.values()}
    frames = traceback.extract_tb(error.__traceback__)
    entered = None
    for walked, _ in traceback.walk_tb(error.__traceback__):
        names = [name for name, code in methods.items() if walked.f_code is code]
        entered = names[0] if names else entered
    own = [frame for frame in frames if frame.filename in files and not frame.filename.startswith("<")]
    if entered is not None and own:
        line = f": {own[-1].line}" if own[-1].line else ""
        return f"{entered}(), at {own[-1].filename}:{own[-1].lineno}{line}"
    named = re.match(r"(\w+)\(\)", str(error))
    if named is not None and named[1] in methods:
        return f"{named[1]}(), which begins at {place_of(methods[named[1]])}"
    return None


def place_of(code: CodeType) -> str:
    """File and line where a method begins."""
    first = code.co_firstlineno
    while linecache.getline(code.co_filename, first).lstrip().startswith("@"):
        first += 1
    return f"{code.co_filename}:{first}"


def _methods(env: Any) -> dict[str, CodeType]:
    """Code of the methods that the environment's own class, or one between it and the library's, defines."""
    found: dict[str, CodeType] = {}
    for kind in type(getattr(env, "unwrapped", env)).__mro__:
        if kind is TextParallelEnv or kind.__module__.startswith(("pettingzoo.", "builtins")):
            break
        for name in _HOOKS:
            function = inspect.unwrap(vars(kind)[name]) if callable(vars(kind).get(name)) else None
            if inspect.isfunction(function):
                found.setdefault(name, function.__code__)
    return found
