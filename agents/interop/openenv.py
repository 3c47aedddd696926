"""Text environments as OpenEnv servers. The client acts for one agent or for all agents.

    uvicorn.run(server(lambda: SingleAgent(make("collm/MiniBuild-v0"), "builder_0")))

Each session has a separate environment.
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
    """Reply of one agent."""

    text: str


class Reading(Observation):
    """Observation of one agent."""

    messages: list[dict[str, str]] = Field(default_factory=list)  # new messages in OpenAI's format


class Replies(Action):
    """Reply of each agent that acts in this turn."""

    texts: dict[str, str]


class TeamReading(Observation):
    """Observations of all agents. The reward is the mean over agents."""

    messages: dict[str, list[dict[str, str]]] = Field(default_factory=dict)  # new messages of each agent
    rewards: dict[str, float] = Field(default_factory=dict)  # reward of each agent in this turn
    agents: list[str] = Field(default_factory=list)  # agents that act in the next turn


class _TextEnvironment(Environment[Any, Any, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    @property
    def state(self) -> State:
        """Episode id and number of turns so far."""
        return self._state


class LearnerEnvironment(_TextEnvironment):
    """OpenEnv environment in which the client acts for one agent."""

    def __init__(self, env: SingleAgent):
        super().__init__()
        self._talk = Conversation(env)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Reading:
        self._state = State(episode_id=episode_id or str(uuid.uuid4()), step_count=0)
        return Reading(messages=as_chat(self._talk.reset(seed=seed)))

    def step(self, action: Reply, timeout_s: float | None = None, **kwargs: Any) -> Reading:
        heard = self._talk.step(action.text)
        self._state.step_count += 1
        return Reading(
            messages=as_chat(heard.messages), reward=heard.reward, done=heard.is_over, metadata=dict(heard.numbers)
        )


class TeamEnvironment(_TextEnvironment):
    """OpenEnv environment in which the client acts for all agents."""

    def __init__(self, env: ParallelEnv[str, Any, Any]):
        super().__init__()
        self._talks = Conversations(env)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> TeamReading:
        self._state = State(episode_id=episode_id or str(uuid.uuid4()), step_count=0)
        messages = {agent: as_chat(each) for agent, each in self._talks.reset(seed=seed).items()}
        return TeamReading(messages=messages, agents=self._talks.movers)

    def step(self, action: Replies, timeout_s: float | None = None, **kwargs: Any) -> TeamReading:
        heard = self._talks.step(action.texts)
        self._state.step_count += 1
        rewards = {agent: each.reward for agent, each in heard.items()}
        return TeamReading(
            messages={agent: as_chat(each.messages) for agent, each in heard.items()},
            rewards=rewards,
            agents=self._talks.movers,
            reward=sum(rewards.values()) / len(self._talks.earned),
            done=not self._talks.agents,
        )


def server(build: Callable[[], SingleAgent | ParallelEnv[str, Any, Any]], max_sessions: int = 64) -> FastAPI:
    """Return an OpenEnv application.

    Args:
        build: returns a single-agent view, or a parallel environment for a team. It is called for each session.
        max_sessions: maximum number of concurrent sessions.
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
