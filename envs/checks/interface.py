"""Rules of `check_env` about the results of `reset` and `step`, for all parallel environments."""

from __future__ import annotations

import contextlib
import io
import math
import re
import warnings
from numbers import Number
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from ..core import TextParallelEnv
from ..players import fixed_player, reference_player
from .play import DoesNotApply, Env, Subject, Violation, as_chooser, play

_ROUNDING = 1e-9
_PARTS = ("observations", "rewards", "terminations", "truncations", "infos")


def metadata(subject: Subject) -> None:
    """Check that `metadata` contains a "name" with a version, such as "writers_v0", and "render_modes"."""
    found = getattr(subject.build(), "metadata", {})
    if not re.fullmatch(r"\w+_v\d+", str(found.get("name"))):
        raise Violation(f"metadata['name'] is {found.get('name')!r}; set it to a name with a version: 'writers_v0'")
    if not isinstance(found.get("render_modes"), (list, tuple)):
        raise Violation("metadata['render_modes'] is missing; set it to a list, which may be empty")


def agent_names(subject: Subject) -> None:
    """Check that `possible_agents` is a list of unique names of the form role_number, such as "writer_0"."""
    env = subject.build()
    if isinstance(env, TextParallelEnv) and "_max_turns" not in vars(env):
        kind = type(env).__name__
        raise Violation(f"{kind}.__init__ does not call its base class; add super().__init__(agents, max_turns)")
    names = list(getattr(env, "possible_agents", []))
    wrong = [name for name in names if not (isinstance(name, str) and re.fullmatch(r"[a-z]+(_[a-z]+)*_[0-9]+", name))]
    if wrong or not names or len(set(names)) < len(names):
        raise Violation(f"possible_agents is {names}; use unique names like 'writer_0'")


def same_spaces(subject: Subject) -> None:
    """Check that `observation_space` and `action_space` return the same object at each call, also after `reset`."""
    env = subject.build()
    for getter in ("observation_space", "action_space"):
        before = {agent: getattr(env, getter)(agent) for agent in env.possible_agents}
        env.reset(seed=0)
        for agent, space in before.items():
            if not isinstance(space, Space):
                raise Violation(f"{getter}({agent!r}) returns {space!r}; return a gymnasium Space")
            if getattr(env, getter)(agent) is not space:
                raise Violation(
                    f"{getter}({agent!r}) returns a new object per call; build the space in the constructor"
                )


def returns(subject: Subject) -> None:
    """Check that `reset` returns two dicts, that `step` returns five dicts, and that legal actions raise no error."""
    for seed in subject.seeds:
        for call in play(subject.build(), seed, subject.choose, subject.max_steps):
            wanted = 2 if call.actions is None else 5
            is_right = isinstance(call.returned, tuple) and len(call.returned) == wanted
            if not is_right or not all(isinstance(part, dict) for part in call.returned):
                raise Violation(f"{call.name} returns {_kind(call.returned)}; return a tuple of {wanted} dicts")
            if missing := [agent for agent in call.agents if agent not in call.returned[0]]:
                raise Violation(f"{call.name} returns no observation for {missing}; return one per live agent")


def keys(subject: Subject) -> None:
    """Check that results of `reset` and `step` have exactly one entry per agent that was live before the call."""
    for call in subject.calls():
        parts = _PARTS if call.actions is not None else ("observations", "infos")
        for part, values in zip(parts, call.returned, strict=True):
            if set(values) != set(call.live):
                raise Violation(
                    f"{part} of {call.name} have the keys {list(values)}; return one entry per agent that was live "
                    f"before the call: {call.live}"
                )


def agents(subject: Subject) -> None:
    """Check that terminated and truncated agents are removed from `agents` until the episode ends."""
    env = subject.build()
    env.reset(seed=subject.seeds[0])
    if env.agents is env.possible_agents:
        raise Violation("agents is the same list object as possible_agents; assign a copy in reset")
    for call in subject.calls():
        if call.actions is None:
            if not call.agents or not set(call.agents) <= set(env.possible_agents):
                raise Violation(f"agents after reset() is {call.agents}; fill it from possible_agents")
            continue
        _, _, terminations, truncations, _ = call.returned
        stay = [agent for agent in call.live if not (terminations[agent] or truncations[agent])]
        if sorted(call.agents) != sorted(stay):
            raise Violation(
                f"agents after {call.name} is {call.agents}; keep the agents that neither terminated nor were "
                f"truncated: {stay}"
            )


def ends(subject: Subject) -> None:
    """Check that episodes end within `max_steps` turns."""
    for seed in subject.seeds:
        if subject.record(seed).calls[-1].agents:
            raise Violation(
                f"the episode of seed {seed} has not ended after {subject.max_steps} turns; terminate the episode, "
                "register the environment with max_turns, or pass a larger max_steps to check_env (environments of "
                "Gymnasium take --env-kwargs max_episode_steps=…)"
            )


def last_turn(subject: Subject) -> None:
    """Check that turn `max_turns` terminates the episode. Only a limit outside the environment may truncate it."""
    limit = getattr(subject.build().unwrapped, "max_turns", None)
    if limit is None:
        raise DoesNotApply
    for seed in subject.seeds:
        calls = subject.record(seed).calls
        if len(calls) - 1 == limit and any(calls[-1].returned[3].values()):
            raise Violation(
                f"turn {limit} of {limit} truncates the episode; terminate it: only an external limit may truncate"
            )


def flags(subject: Subject) -> None:
    """Check that terminations and truncations are Python bools."""
    for call in subject.steps():
        for part in (2, 3):
            for agent, value in call.returned[part].items():
                if type(value) is not bool:
                    name = f"{_PARTS[part]}[{agent!r}] of {call.name}"
                    raise Violation(f"{name} is {value!r} of type {type(value).__name__}; return a bool")


def rewards(subject: Subject) -> None:
    """Check that rewards are finite Python numbers."""
    for call in subject.steps():
        for agent, value in call.returned[1].items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                name = f"rewards[{agent!r}] of {call.name}"
                raise Violation(f"{name} is {value!r} of type {type(value).__name__}; return a finite float")


def ranges(subject: Subject) -> None:
    """Check that rewards and returns are within `reward_range` and `return_range` of the specification."""
    spec = subject.spec
    if spec is None or (spec.reward_range is None and spec.return_range is None):
        raise DoesNotApply
    episodes = [subject.record(seed).calls for seed in subject.seeds]
    if subject.is_text:
        env = subject.build()
        for player in (fixed_player(""), reference_player(env)):
            if player is not None:
                episodes.append(list(play(env, subject.seeds[0], as_chooser(player), subject.max_steps)))
    for calls in episodes:
        returns = dict.fromkeys(calls[0].live, 0.0)
        for call in calls[1:]:
            for agent, value in call.returned[1].items():
                returns[agent] += value
                _require_within(spec.reward_range, value, "reward_range", f"the reward of {agent!r} in {call.name}")
        for agent, total in returns.items():
            if not calls[-1].agents:
                _require_within(spec.return_range, total, "return_range", f"the return of {agent!r}")


def _require_within(declared: tuple[float, float] | None, value: float, name: str, what: str) -> None:
    if declared is not None and not declared[0] - _ROUNDING <= value <= declared[1] + _ROUNDING:
        raise Violation(f"{what} is {value:.6g}, outside of {name} {declared}; correct the range or the reward")


def infos(subject: Subject) -> None:
    """Check that infos map strings to numbers, because other libraries stack infos into arrays."""
    for call in subject.calls():
        for agent, info in call.returned[-1].items():
            if not isinstance(info, dict):
                raise Violation(f"infos[{agent!r}] of {call.name} is {info!r}; return a dict")
            for key, value in info.items():
                is_array = isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and not subject.is_text
                if not isinstance(key, str) or not (isinstance(value, (Number, np.bool_)) or is_array):
                    name = f"infos[{agent!r}][{key!r}] of {call.name}"
                    raise Violation(f"{name} is {value!r}; return only numbers in infos, and text in the observation")


def observations(subject: Subject) -> None:
    """Check that observations are in the observation space."""
    env = subject.build()
    for call in subject.calls():
        for agent, value in call.returned[0].items():
            space = env.observation_space(agent)
            if not space.contains(value):
                name = f"observations[{agent!r}] of {call.name}"
                raise Violation(f"{name}, {_kind(value)}, is not in {space}; correct the observation or the space")


def state(subject: Subject) -> None:
    """Check that `state()` returns a value in `state_space`, and that text environments define a state."""
    space = getattr(subject.build(), "state_space", None)
    for call in subject.calls():
        if call.state is None:
            if subject.is_text:
                raise Violation("state() is missing; define it to return the joint history, for centralized critics")
            raise DoesNotApply
        if space is None:
            raise Violation("state() returns a value, but state_space is missing; declare state_space")
        if not space.contains(call.state):
            raise Violation(
                f"state() after {call.name}, {_kind(call.state)}, is not in {space}; correct state() or state_space"
            )


def pettingzoo_api(subject: Subject) -> None:
    """Check that PettingZoo's `parallel_api_test` passes."""
    env = subject.build()
    for number, agent in enumerate(env.possible_agents):
        env.action_space(agent).seed(number)  # the test samples actions; seeds make its result reproducible
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the test warns about faults that other rules report, and about extra keys
        from pettingzoo.test import parallel_api_test  # imports example games, which warn

        parallel_api_test(env, num_cycles=20)


def rendering(subject: Subject) -> None:
    """Check that `render()` returns a string in the render mode "ansi", and None in the render mode "human"."""
    if subject.spec is None:
        raise DoesNotApply
    for mode, wanted in (("ansi", str), ("human", type(None))):
        if mode not in subject.build().metadata["render_modes"] or (mode == "human" and not subject.is_text):
            continue  # in mode "human", other environments would open a window
        env: Env = subject.spec.make(render_mode=mode)
        with contextlib.redirect_stdout(io.StringIO()):
            env.reset(seed=0)
            drawn = env.render()
        if not isinstance(drawn, wanted):
            raise Violation(f"render() in mode {mode!r} returns {_kind(drawn)}; return a {wanted.__name__}")


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(type(part).__name__ for part in value)})"
    return f"a {type(value).__name__} of length {len(value)}" if isinstance(value, str) else repr(value)
