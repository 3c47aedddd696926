"""Text environments in verifiers (v1): an `Env` with one seat per agent, each with its own model, trace and reward.

verifiers loads a package by its name; such a package is two lines:

    from collm.agents.interop.verifiers import environment

    MiniBuildTaskset, MiniBuildEnv = environment("collm/MiniBuild-v0", max_turns=3)
    __all__ = ["MiniBuildEnv", "MiniBuildTaskset"]

It is evaluated, and by prime-rl trained, like any other: `vf-eval PACKAGE --env.builder-0.model MODEL ...`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import verifiers.v1 as vf
from pydantic import create_model

from ...envs.core import as_chat
from ...envs.registration.registry import make, spec
from ...envs.views import Conversations


class SeedData(vf.TaskData):
    """What a task of the taskset is: the seed of an episode."""

    seed: int


class SeedTask(vf.Task[SeedData, vf.State, vf.TaskConfig]):
    """The episode of one seed."""


def environment(
    id: str, *, num_tasks: int | None = None, first_seed: int = 0, **kwargs: Any
) -> tuple[type[vf.Taskset[Any, Any]], type[vf.Env[Any]]]:
    """A taskset of seeds and an environment for a package of verifiers.

    Each agent is a role of its own name. Roles run verifiers' harness "null" in a local process, as nothing but a chat
    is needed; give each its model by `--env.<agent>.model`, else all have the model under evaluation. An agent's trace
    has its own return as the reward "return", and the episode's terms and metrics as metrics. An agent whose run ends
    early, by a limit or an error, ends the episode for all.

    Args:
        id: a registered environment whose agents write.
        num_tasks: seeds of the taskset. None: without end.
        first_seed: seed of the first task.
        kwargs: arguments of the environment.

    Returns:
        The classes that the package lists in `__all__`.
    """
    agents = make(id, **kwargs).possible_agents
    seat = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})
    roles: dict[str, Any] = {agent: (vf.AgentConfig, seat) for agent in agents}
    team_config: Any = create_model(f"{spec(id).name.partition('/')[2]}Config", __base__=vf.EnvConfig, **roles)

    class SeedTaskset(vf.Taskset[SeedTask, vf.TasksetConfig]):
        """Episodes by seed."""

        INFINITE = num_tasks is None

        def load(self) -> Iterator[SeedTask]:
            number = 0
            while num_tasks is None or number < num_tasks:
                seed = first_seed + number
                yield SeedTask(SeedData(name=f"{id}#{seed}", seed=seed), self.config.task)
                number += 1

    class TeamEnv(vf.Env[team_config]):
        """All agents of the team, who write at the same time."""

        async def run(self, task: SeedTask, agents: Any) -> None:
            talks = Conversations(make(id, **kwargs))
            news = talks.reset(seed=task.data.seed)
            async with AsyncExitStack() as stack:
                open_talks = {
                    agent: await stack.enter_async_context(getattr(agents, agent).interaction(task)) for agent in news
                }
                while talks.agents:
                    asked = [
                        open_talks[agent].turn(as_chat(news[agent]) or [{"role": "user", "content": ""}])
                        for agent in talks.agents
                    ]
                    segments = await asyncio.gather(*asked)
                    if any(segment.terminated for segment in segments):
                        break  # a limit or an error, which stands in that agent's trace
                    replies = {agent: each.last_reply for agent, each in zip(talks.agents, segments, strict=True)}
                    heard = await asyncio.to_thread(talks.step, replies)
                    news = {agent: each.messages for agent, each in heard.items()}
            for agent, talk in open_talks.items():
                talk.trace.record_reward("return", talks.earned[agent])
                talk.trace.record_metrics(talks.numbers)

    return SeedTaskset, TeamEnv
