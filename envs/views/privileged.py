"""View whose `state()` contains hidden information, for a privileged critic. Policies do not read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pettingzoo import ParallelEnv

from ..core import Message, ResetResult, TextParallelEnv, Transcript, capped
from ..registration.registry import EnvSpec, make
from ..spaces import OpenText
from ..wrappers import Shares
from .view import View


class PrivilegedState(View):
    """Adds the environment's hidden information, `truth()`, to `state()` after each turn.

    `state()` keeps the hidden information of earlier turns. Observation and action spaces: unchanged.

    Args:
        env: a text environment that defines `truth()`, or a view of such an environment.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any]):
        super().__init__(env)
        world = env.unwrapped
        if not isinstance(world, TextParallelEnv) or type(world).truth is TextParallelEnv.truth:
            raise ValueError(
                f"{world} hides nothing from its agents, so it has no privileged state; use critic_input='joint', or "
                "define the environment's `truth()`"
            )
        self._world = world
        self._joint: tuple[Message, ...] = ()
        self._state = Transcript()
        self.state_space = OpenText(2 * world.state_space.max_length)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        returned = super().reset(seed, options)
        self._joint, self._state = (), Transcript()
        self._extend()
        return returned

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        returned = super().step(actions)
        self._extend()
        return returned

    def state(self) -> Transcript:
        """Return the joint history with the hidden information after each turn, in time order."""
        return capped(self._state, self.state_space.max_length)

    def _extend(self) -> None:
        before, self._joint = self._joint, self._world.state().messages
        if self._joint[: len(before)] != before:  # the joint history was cut at its start
            before, self._state = (), Transcript()
        truth = Message("user", f"[critic reads] {self._world.truth()}")
        self._state = self._state.extended(*self._joint[len(before) :], truth)


def with_truth(env: ParallelEnv[str, Any, Any]) -> ParallelEnv[str, Any, Any]:
    """Wrap a text environment in `PrivilegedState`. Other environments need `state()` and are returned unchanged."""
    if isinstance(env.unwrapped, TextParallelEnv):
        return PrivilegedState(env)
    if getattr(env, "state_space", None) is None:
        raise ValueError(f"{env} has no state(), which a privileged critic needs; use critic_input='joint'")
    return env


def wrapped_env(
    env: EnvSpec, kwargs: Mapping[str, Any], has_truth: bool, has_shares: bool
) -> ParallelEnv[str, Any, Any]:
    """Build an environment, optionally with hidden state (`with_truth`) and difference rewards (`Shares`).

    Worker processes call this function. In this layer they start without torch.
    """
    made = make(env, **kwargs)
    if has_truth:
        made = with_truth(made)
    # Shares replays episodes in a deep copy of the environment, which other environments may not support.
    return Shares(made) if has_shares and isinstance(made.unwrapped, TextParallelEnv) else made
