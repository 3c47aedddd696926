"""What a worker has of a vector: its copies of the environment, and answers to messages about them."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from ..registration.turn_limit import declared_turn_limit
from .faults import EnvironmentFault, Watch, name_of
from .marks import mark
from .vector import Builder, as_step

What: TypeAlias = Literal["reset", "step", "replay"]
Dumps: TypeAlias = Callable[[Any], bytes]


class Copies:
    """What a worker has: copies that are built once, and answers to messages about them.

    Args:
        build: builds one.
        indices: their numbers.
        sends_state: whether answers have the state.
        dumps: makes bytes of answers.
    """

    def __init__(self, build: Builder, indices: Sequence[int], sends_state: bool, dumps: Dumps = pickle.dumps):
        self._sends_state = sends_state
        self._dumps = dumps
        self._envs = {number: build() for number in indices}
        self._first = self._envs[indices[0]]
        self._watches = {number: Watch(self._first) for number in indices}

    def description(self) -> Any:
        """Describe the environment: name, agents, spaces, turn limit, and its entry in the registry."""
        env = self._first
        names = list(env.possible_agents)
        spaces = (
            {name: env.observation_space(name) for name in names},
            {name: env.action_space(name) for name in names},
        )
        state_space, spec = getattr(env, "state_space", None), getattr(env, "spec", None)
        return name_of(env), names, *spaces, state_space, declared_turn_limit(env), spec

    def reply(self, payload: bytes) -> bytes:
        """The answer to a message."""
        message, what, index, argument = pickle.loads(payload)
        try:
            return self._dumps((message, index, None, self._answer(index, what, argument)))
        except EnvironmentFault as fault:
            return self._dumps((message, index, (fault.problem, fault.agent, traceback.format_exc()), None))
        except Exception as error:  # pickle raises whatever it likes
            problem = f"{what} returned what cannot be sent between processes: {error}"
            return self._dumps((message, index, (problem, None, traceback.format_exc()), None))

    def close(self) -> None:
        """Let go of all copies."""
        for env in self._envs.values():
            env.close()

    def _answer(self, index: int, what: What, argument: Any) -> Any:
        env, watch = self._envs[index], self._watches[index]
        if what == "step":
            result = watch.step(env, argument)
            marks = [mark(result)]
        else:
            seed, options, *played = argument
            result = as_step(watch.reset(env, seed, options))
            marks = [mark(result)]
            for actions in played[0] if played else ():
                result = watch.step(env, actions)
                marks.append(mark(result))
        return list(env.agents), watch.state(env) if self._sends_state else None, result, marks


def built(make: Callable[[], Copies], dumps: Dumps = pickle.dumps) -> tuple[Copies | None, bytes]:
    """A worker's copies and its first answer; without copies, where they could not be built."""
    try:
        copies = make()
        return copies, dumps((None, None, None, copies.description()))
    except (Exception, SystemExit) as error:  # an environment that exits is at fault like one that raises
        problem = f"it could not be built: {type(error).__name__}: {error}"
        return None, dumps((None, None, (problem, None, traceback.format_exc()), None))
