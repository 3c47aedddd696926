"""Function `check_env`, which plays an environment and tests the rules that every environment must follow."""

from __future__ import annotations

import inspect
import logging
import random
import re
import sys
import traceback
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from ..core import TextParallelEnv
from . import interface, repeatability, text
from .exploits import exploits as degenerate_teams
from .play import CheckFailure, Chooser, DoesNotApply, Subject, Violation

LOG = logging.getLogger(__name__)
__all__ = ["RULES", "CheckFailure", "check_env"]

_TEXT_RULES = (text.hostile_replies, text.missing_reply, text.waiting, text.append_only, text.own_reply, text.reference)
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
        *_TEXT_RULES,
        repeatability.hash_seed,
        degenerate_teams,
    )
}
"""All rules in the order of testing, as a dict: name -> function. The function's docstring states the rule."""


class PassedRules(list[str]):
    """Names of the rules that an environment follows, as a list. Printed as a line."""

    def __repr__(self) -> str:
        return f"all {len(self)} tested rules hold"


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
    """Check that an environment follows PettingZoo's API and the rules of collm (`RULES`), by playing episodes.

    Args:
        env: an id, an `EnvSpec`, an environment, or a function that builds one.
        choose: function (agent, observation, random generator) -> action. None: random actions, which reach fewer
            states.
        seeds: seeds of the episodes, at least one.
        max_steps: maximum number of turns. Longer episodes break the rule `ends`.
        hash_seeds: also replay an episode in two processes with other values of PYTHONHASHSEED, which takes seconds.
            None: only if another process can build the environment from its id or specification.
        exploits: also test, in a few hundred episodes, that players that do not do the task get no high return.
        skip: names of rules that are not tested.

    Returns:
        The names of the rules that were tested, as a list that is printed as "all 28 tested rules hold".

    Raises:
        CheckFailure: if the environment breaks a rule. The message contains the rule, the fault and the fix.
        ValueError: if there are no seeds, `skip` has an unknown name, or `hash_seeds` cannot be tested.
    """
    if not seeds:
        raise ValueError("check_env needs at least one seed, got ()")
    if unknown := set(skip) - set(RULES):
        raise ValueError(f"skip={sorted(unknown)} are unknown rules; the rules are {list(RULES)}")
    subject = Subject.of(env, choose, seeds, max_steps)
    env = subject.build()
    if hash_seeds is None and not subject.is_portable and "hash_seed" not in skip:
        LOG.warning(
            "check_env does not test the rule hash_seed, because no other process can build this environment: put its "
            "class into a module, register it, and pass the id; or pass hash_seeds=False"
        )
    if hash_seeds and not subject.is_portable:
        raise ValueError("hash_seeds=True needs an id or EnvSpec whose entry point and kwargs other processes can load")
    left_out = {*skip, *(() if exploits else ["exploits"]), *(["hash_seed"] if hash_seeds is False else [])}
    passed = PassedRules()
    generators = random.getstate(), np.random.get_state()
    try:
        for name, rule in RULES.items():
            if name in left_out or (rule in _TEXT_RULES and not subject.is_text):
                continue
            try:
                rule(subject)
            except DoesNotApply:
                continue
            except CheckFailure:
                raise
            except Violation as fault:
                raise CheckFailure(name, f"{fault}{_place(fault.__cause__, env)}") from fault.__cause__
            except Exception as error:
                rule_text = (rule.__doc__ or "").splitlines()[0]
                message = f"{type(error).__name__}: {error}{_place(error, env)}; rule: {rule_text}"
                raise CheckFailure(name, message) from error
            passed.append(name)
    finally:  # restores the global generators, which the rule same_seed seeds
        random.setstate(generators[0])
        np.random.set_state(generators[1])
    return passed


def _place(error: BaseException | None, env: Any) -> str:
    """Return file and line of a fault in the environment, from the traceback or the method in the error message."""
    if error is None:
        return ""
    kinds = []
    for kind in type(getattr(env, "unwrapped", env)).__mro__:
        if kind is TextParallelEnv or kind.__module__.startswith(("pettingzoo.", "builtins")):
            break
        kinds.append(kind)
    files = {getattr(sys.modules.get(kind.__module__), "__file__", None) for kind in kinds}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in files:
            return f" (at {frame.filename}:{frame.lineno}: {frame.line})"
    method = re.match(r"(\w+)\(\)", str(error))
    for kind in kinds:
        function = vars(kind).get(method[1]) if method else None
        if inspect.isfunction(function):
            code = inspect.unwrap(function).__code__
            return f" (at {code.co_filename}:{code.co_firstlineno})"
    return ""
