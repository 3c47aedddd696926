"""A state that tells what no agent sees, for a critic that is needed in training only."""

from __future__ import annotations

from typing import Any

from pettingzoo import ParallelEnv

from ..core import Message, TextParallelEnv, Transcript, capped
from ..spaces import OpenText
from .view import View


class PrivilegedState(View):
    """`state()` is the joint history with the environment's `truth()` after each turn. Both spaces: unchanged.

    What the agents read, and what the environment itself says of its state, is the same as without it. The truth of
    earlier turns stays, so that the state still only grows at its end.

    Args:
        env: a text environment that has a truth to tell, or a view of one.

    Raises:
        ValueError: if it has none.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any]):
        super().__init__(env)
        world = env.unwrapped
        if not isinstance(world, TextParallelEnv) or type(world).truth is TextParallelEnv.truth:
            raise ValueError(
                f"{world} hides nothing that it could tell a privileged critic; let the critic read the joint history "
                "(critic_input='joint'), or write the environment's `truth()`"
            )
        self._world = world
        self._joint: tuple[Message, ...] = ()
        self._told = Transcript()
        self.state_space = OpenText(2 * world.state_space.max_length)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        returned = super().reset(seed, options)
        self._joint, self._told = (), Transcript()
        self._tell()
        return returned

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        returned = super().step(actions)
        self._tell()
        return returned

    def state(self) -> Transcript:
        """The joint history and the truth, in order of time."""
        return capped(self._told, self.state_space.max_length)

    def _tell(self) -> None:
        before, self._joint = self._joint, self._world.state().messages
        if self._joint[: len(before)] != before:  # it gave way at its beginning to what came at its end
            before, self._told = (), Transcript()
        # Named as a reader, as agents are in the joint history.
        truth = Message("user", f"[critic reads] {self._world.truth()}")
        self._told = self._told.extended(*self._joint[len(before) :], truth)


def with_truth(env: ParallelEnv[str, Any, Any]) -> ParallelEnv[str, Any, Any]:
    """The environment with a state that tells what is hidden; where agents act by vectors its own state does already.

    Raises:
        ValueError: if there is nothing to tell.
    """
    if isinstance(env.unwrapped, TextParallelEnv):
        return PrivilegedState(env)
    if getattr(env, "state_space", None) is None:
        raise ValueError(
            f"{env} has no state() that could tell a privileged critic more than the agents observe; use "
            "critic_input='joint'"
        )
    return env
