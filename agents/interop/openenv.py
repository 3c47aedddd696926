"""Text environments as servers of OpenEnv: one learner among given partners, or all seats of a team.

    uvicorn.run(server(lambda: SingleAgent(make("collm/MiniBuild-v0"), "builder_0")))

OpenEnv's clients, and the trainers that speak to them, play over the network. Each session has a copy of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pettingzoo import ParallelEnv
from pydantic import Field

from ...envs.core import as_chat
from ...envs.views import Conversation, Conversations, SingleAgent


class Reply(Action):
    """What the learner writes."""

    text: str


class Reading(Observation):
    """What the learner reads next."""

    messages: list[dict[str, str]] = Field(default_factory=list)
    """New messages in OpenAI's format; all of them at a reset."""


class Replies(Action):
    """What each agent writes whose reply is awaited."""

    texts: dict[str, str]


class TeamReading(Observation):
    """What all agents read next; the reward is their mean reward."""

    messages: dict[str, list[dict[str, str]]] = Field(default_factory=dict)
    """New messages by agent."""
    rewards: dict[str, float] = Field(default_factory=dict)
    """Reward of the turn by agent."""
    agents: list[str] = Field(default_factory=list)
    """Agents whose reply is awaited."""


class LearnerEnvironment(Environment[Reply, Reading, State]):
    """One agent's episodes.

    Args:
        env: the agent's view of its team.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, env: SingleAgent):
        super().__init__()
        self._talk = Conversation(env)
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Reading:
        """Open an episode."""
        self._state = State(episode_id=episode_id or str(uuid.uuid4()), step_count=0)
        return Reading(messages=as_chat(self._talk.reset(seed=seed)))

    def step(self, action: Reply, timeout_s: float | None = None, **kwargs: Any) -> Reading:
        """Play a turn with the learner's reply."""
        heard = self._talk.step(action.text)
        self._state.step_count += 1
        return Reading(
            messages=as_chat(heard.messages), reward=heard.reward, done=heard.is_over, metadata=dict(heard.numbers)
        )

    @property
    def state(self) -> State:
        """The episode's id, and how many turns were played."""
        return self._state


class TeamEnvironment(Environment[Replies, TeamReading, State]):
    """A team's episodes, all of whose agents are played by the client.

    Args:
        env: a parallel environment whose agents write.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, env: ParallelEnv[str, Any, Any]):
        super().__init__()
        self._talks = Conversations(env)
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> TeamReading:
        """Open an episode."""
        self._state = State(episode_id=episode_id or str(uuid.uuid4()), step_count=0)
        opening = self._talks.reset(seed=seed)
        messages = {agent: as_chat(each) for agent, each in opening.items()}
        return TeamReading(messages=messages, agents=self._talks.agents)

    def step(self, action: Replies, timeout_s: float | None = None, **kwargs: Any) -> TeamReading:
        """Play a joint turn."""
        heard = self._talks.step(action.texts)
        self._state.step_count += 1
        rewards = {agent: each.reward for agent, each in heard.items()}
        return TeamReading(
            messages={agent: as_chat(each.messages) for agent, each in heard.items()},
            rewards=rewards,
            agents=self._talks.agents,
            reward=sum(rewards.values()) / len(self._talks.earned),
            done=not self._talks.agents,
        )

    @property
    def state(self) -> State:
        """The episode's id, and how many turns were played."""
        return self._state


def server(build: Callable[[], SingleAgent | ParallelEnv[str, Any, Any]], max_sessions: int = 64) -> FastAPI:
    """An OpenEnv application.

    Args:
        build: makes the learner's view of its team, or a team that the client plays as a whole; called per session.
        max_sessions: sessions at a time.
    """
    sample = build()
    name = str(sample.metadata.get("name", "collm"))
    is_single = isinstance(sample, SingleAgent)
    sample.close()

    def environment() -> Environment[Any, Any, Any]:
        env = build()
        return LearnerEnvironment(env) if isinstance(env, SingleAgent) else TeamEnvironment(env)

    action, reading = (Reply, Reading) if is_single else (Replies, TeamReading)
    app: FastAPI = create_app(environment, action, reading, env_name=name, max_concurrent_envs=max_sessions)
    return app
