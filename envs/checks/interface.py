"""What every call must return: rules on recorded episodes, for any parallel environment."""

from __future__ import annotations

import contextlib
import io
import math
import re
import warnings
from collections.abc import Iterator
from numbers import Number
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from ..core import TextParallelEnv
from ..players import reference_player
from .play import Call, CheckFailure, DoesNotApply, Env, Subject, play

_ROUNDING = 1e-9
_PARTS = ("observations", "rewards", "terminations", "truncations", "infos")


def metadata(subject: Subject) -> None:
    """`metadata` has a "name" ending in a version, and "render_modes"."""
    env = subject.build()
    found = getattr(env, "metadata", {})
    if not re.fullmatch(r"\w+_v\d+", str(found.get("name"))):
        raise CheckFailure(
            "metadata", f"metadata['name'] is {found.get('name')!r}; set it to a name with a version, like 'writers_v0'"
        )
    if not isinstance(found.get("render_modes"), (list, tuple)):
        raise CheckFailure("metadata", "metadata['render_modes'] is missing; set it to a list, empty if there is none")


def agent_names(subject: Subject) -> None:
    """`possible_agents` is a list of different names, each a role and a number."""
    env = subject.build()
    if isinstance(env, TextParallelEnv) and "_max_turns" not in vars(env):
        kind = type(env).__name__
        raise CheckFailure(
            "agent_names", f"{kind}.__init__ has not called its base class; add super().__init__(agents, max_turns)"
        )
    names = list(getattr(env, "possible_agents", []))
    wrong = [name for name in names if not (isinstance(name, str) and re.fullmatch(r"[a-z]+(_[a-z]+)*_[0-9]+", name))]
    if wrong or not names or len(set(names)) < len(names):
        raise CheckFailure("agent_names", f"possible_agents is {names}; use different names like 'writer_0'")


def same_spaces(subject: Subject) -> None:
    """The space getters return the same `Space` object at each call, before and after a reset."""
    env = subject.build()
    for getter in ("observation_space", "action_space"):
        before = {agent: getattr(env, getter)(agent) for agent in env.possible_agents}
        env.reset(seed=0)
        for agent, space in before.items():
            if not isinstance(space, Space):
                raise CheckFailure("same_spaces", f"{getter}({agent!r}) returns {space!r}; return a gymnasium Space")
            if getattr(env, getter)(agent) is not space:
                raise CheckFailure(
                    "same_spaces", f"{getter}({agent!r}) returns a new object at each call; build it in the constructor"
                )


def returns(subject: Subject) -> None:
    """`reset` returns two dicts, `step` five, and neither raises on actions from the space."""
    for seed in subject.seeds:
        env = subject.build()
        try:
            calls = subject.played(env, seed)
            for call in calls:
                wanted = 2 if call.actions is None else 5
                is_right = isinstance(call.returned, tuple) and len(call.returned) == wanted
                if not is_right or not all(isinstance(part, dict) for part in call.returned):
                    raise CheckFailure(
                        "returns", f"{call.name} returns {_kind(call.returned)}; return a tuple of {wanted} dicts"
                    )
                if missing := [agent for agent in call.agents if agent not in call.returned[0]]:
                    raise CheckFailure("keys", f"{call.name} has no observation for {missing}; give each agent one")
        except CheckFailure:
            raise
        except Exception as error:
            raise CheckFailure(
                "returns", f"an episode of legal actions raises {type(error).__name__}: {error}; repair it"
            ) from error


def keys(subject: Subject) -> None:
    """What is returned has one entry for each agent that was live before the call, and no other."""
    for call in subject.calls():
        parts = _PARTS if call.actions is not None else ("observations", "infos")
        for part, values in zip(parts, call.returned, strict=True):
            if set(values) != set(call.movers):
                raise CheckFailure(
                    "keys",
                    f"the {part} of {call.name} are for {list(values)}; return one for each agent that was live "
                    f"before it, {call.movers}",
                )


def agents(subject: Subject) -> None:
    """Agents that terminated or were truncated leave `agents`, and nobody comes back."""
    env = subject.build()
    env.reset(seed=subject.seeds[0])
    if env.agents is env.possible_agents:
        raise CheckFailure("agents", "agents is the very list possible_agents; assign a copy of it at reset")
    for call in subject.calls():
        if call.actions is None:
            if not call.agents or not set(call.agents) <= set(env.possible_agents):
                raise CheckFailure("agents", f"agents after reset() is {call.agents}; fill it from possible_agents")
            continue
        _, _, terminations, truncations, _ = call.returned
        stay = [agent for agent in call.movers if not (terminations[agent] or truncations[agent])]
        if sorted(call.agents) != sorted(stay):
            raise CheckFailure(
                "agents",
                f"agents after {call.name} is {call.agents}; keep those that neither terminated nor were "
                f"truncated, {stay}",
            )


def ends(subject: Subject) -> None:
    """An episode ends by itself."""
    for seed in subject.seeds:
        if not subject.record(seed).has_ended:
            raise CheckFailure(
                "ends",
                f"no end after {subject.max_steps} turns with seed {seed}; terminate at a last turn, "
                "register it with max_turns, or pass a larger max_steps to check_env (Gymnasium's environments take "
                "--env-kwargs max_episode_steps=…)",
            )


def last_turn(subject: Subject) -> None:
    """The last turn of a game of fixed length terminates; only a limit from outside truncates."""
    limit = getattr(subject.build().unwrapped, "max_turns", None)
    if limit is None:
        raise DoesNotApply
    for seed in subject.seeds:
        calls = subject.record(seed).calls
        if len(calls) - 1 == limit and any(calls[-1].returned[3].values()):
            raise CheckFailure(
                "last_turn",
                f"turn {limit} of {limit} truncates; terminate, as the game is over by its own rules",
            )


def flags(subject: Subject) -> None:
    """Terminations and truncations are Python bools."""
    for call in subject.calls(steps_only=True):
        for part in (2, 3):
            for agent, value in call.returned[part].items():
                if type(value) is not bool:
                    raise CheckFailure(
                        "flags",
                        f"{_PARTS[part]}[{agent!r}] of {call.name} is {value!r} ({type(value).__name__}); "
                        "return bool(...)",
                    )


def rewards(subject: Subject) -> None:
    """Rewards are finite Python numbers."""
    for call in subject.calls(steps_only=True):
        for agent, value in call.returned[1].items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise CheckFailure(
                    "rewards",
                    f"rewards[{agent!r}] of {call.name} is {value!r} ({type(value).__name__}); "
                    "return a finite float(...)",
                )


def ranges(subject: Subject) -> None:
    """Rewards and returns keep within the ranges that the specification declares."""
    spec = subject.spec
    if spec is None or (spec.reward_range is None and spec.return_range is None):
        raise DoesNotApply
    for calls in _paid_episodes(subject):
        returns = dict.fromkeys(calls[0].movers, 0.0)
        for call in calls[1:]:
            for agent, value in call.returned[1].items():
                returns[agent] += value
                _require_within(spec.reward_range, value, "reward_range", f"the reward of {agent!r} in {call.name}")
        for agent, total in returns.items():
            if not calls[-1].agents:
                _require_within(spec.return_range, total, "return_range", f"the return of {agent!r}")


def _paid_episodes(subject: Subject) -> Iterator[list[Call]]:
    """The recorded ones, and one each of agents that say nothing and of the reference, where there are such."""
    for seed in subject.seeds:
        yield subject.record(seed).calls
    if subject.is_text:
        yield list(play(subject.build(), subject.seeds[0], lambda agent, observation, rng: "", subject.max_steps))
        env = subject.build()
        reference = reference_player(env)
        if reference is not None:
            yield list(play(env, subject.seeds[0], lambda agent, seen, rng: reference(agent, seen), subject.max_steps))


def _require_within(declared: tuple[float, float] | None, value: float, name: str, what: str) -> None:
    if declared is not None and not declared[0] - _ROUNDING <= value <= declared[1] + _ROUNDING:
        raise CheckFailure(
            "ranges", f"{what} is {value:.6g}, outside of {name} {declared}; declare what it pays, or pay less"
        )


def infos(subject: Subject) -> None:
    """Infos hold numbers only, under string keys: other libraries stack them into arrays."""
    for call in subject.calls():
        for agent, info in call.returned[-1].items():
            if not isinstance(info, dict):
                raise CheckFailure("infos", f"infos[{agent!r}] of {call.name} is {info!r}; return a dict")
            for key, value in info.items():
                is_array = isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and not subject.is_text
                if not isinstance(key, str) or not (isinstance(value, (Number, np.bool_)) or is_array):
                    raise CheckFailure(
                        "infos",
                        f"infos[{agent!r}][{key!r}] of {call.name} is {value!r}; keep numbers only, and show text in "
                        "the observation",
                    )


def observations(subject: Subject) -> None:
    """Every observation lies in its space."""
    env = subject.build()
    for call in subject.calls():
        for agent, value in call.returned[0].items():
            if not env.observation_space(agent).contains(value):
                raise CheckFailure(
                    "observations",
                    f"observations[{agent!r}] of {call.name}, {_kind(value)}, is not in "
                    f"{env.observation_space(agent)}; "
                    "return what the space declares, or declare what is returned",
                )


def state(subject: Subject) -> None:
    """`state()`, where there is one, lies in `state_space`; a text environment has one."""
    space = getattr(subject.build(), "state_space", None)
    for call in subject.calls():
        if call.state is None:
            if subject.is_text:
                raise CheckFailure(
                    "state", "state() is missing; return the joint history, which centralized critics read"
                )
            raise DoesNotApply
        if space is None:
            raise CheckFailure("state", "state() returns something but there is no state_space; declare one")
        if not space.contains(call.state):
            raise CheckFailure(
                "state", f"state() after {call.name}, {_kind(call.state)}, is not in {space}; correct either"
            )


def pettingzoo_api(subject: Subject) -> None:
    """PettingZoo's own parallel API test passes."""
    env = subject.build()
    for number, agent in enumerate(env.possible_agents):
        env.action_space(agent).seed(number)  # the test samples, and a verdict must not depend on luck
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of what our own rules decide, and of custom keys, which are allowed
        from pettingzoo.test import parallel_api_test  # with its example games, which warn as they are imported

        try:
            parallel_api_test(env, num_cycles=20)
        except Exception as error:
            raise CheckFailure(
                "pettingzoo_api",
                f"PettingZoo's parallel_api_test fails with {type(error).__name__}: {error}; follow it",
            ) from error


def rendering(subject: Subject) -> None:
    """In mode "ansi" `render()` returns a string, in mode "human" None."""
    if subject.spec is None:
        raise DoesNotApply
    for mode, wanted in (("ansi", str), ("human", type(None))):
        if mode not in subject.build().metadata["render_modes"] or (mode == "human" and not subject.is_text):
            continue  # what is no text would open a window
        try:
            env: Env = subject.spec.make(render_mode=mode)
        except TypeError as error:
            raise CheckFailure(
                "rendering",
                f"metadata lists the render mode {mode!r}, but {error}; take **kwargs and pass them on to the base",
            ) from error
        with contextlib.redirect_stdout(io.StringIO()):
            env.reset(seed=0)
            drawn = env.render()
        if not isinstance(drawn, wanted):
            raise CheckFailure(
                "rendering", f"render() in mode {mode!r} returns {_kind(drawn)}; return a {wanted.__name__}"
            )


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(type(part).__name__ for part in value)})"
    return f"a {type(value).__name__} of length {len(value)}" if isinstance(value, str) else repr(value)
