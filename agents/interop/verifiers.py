"""Text environments in verifiers (v1), with a model, trace and reward per agent.

verifiers loads packages by name. A package contains:

    from collm.agents.interop.verifiers import environment

    MiniBuildTaskset, MiniBuildEnv = environment("collm/MiniBuild-v0", max_turns=3)
    __all__ = ["MiniBuildEnv", "MiniBuildTaskset"]

`vf-eval PACKAGE --env.builder-0.model MODEL ...` evaluates models, and prime-rl trains models in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import count, islice
from typing import Any

import verifiers.v1 as vf
from pydantic import create_model

from ...envs.core import as_chat
from ...envs.registration.registry import make, spec
from ...envs.views import Conversations


class SeedData(vf.TaskData):
    """Data of a task: the seed of its episode."""

    seed: int


class SeedTask(vf.Task[SeedData, vf.State, vf.TaskConfig]):
    """Task of one episode."""


def environment(
    id: str, *, num_tasks: int | None = None, first_seed: int = 0, **kwargs: Any
) -> tuple[type[vf.Taskset[Any, Any]], type[vf.Env[Any]]]:
    """Return the taskset class and the environment class of a package.

    Each agent is a role with the agent's name. Its harness is "null" in a local process. `--env.<agent>.model` sets the
    agent's model. The default is the evaluated model. An agent's trace contains its return as reward "return", and
    the reward terms and metrics of the episode. If a limit or an error ends one agent's run, the episode ends.

    Args:
        id: registered text environment.
        num_tasks: number of tasks. None: infinite.
        first_seed: seed of the first task.
        kwargs: arguments of the environment.
    """
    agents = make(id, **kwargs).possible_agents
    seat = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})
    roles: dict[str, Any] = {agent: (vf.AgentConfig, seat) for agent in agents}
    team_config: Any = create_model(f"{spec(id).name.partition('/')[2]}Config", __base__=vf.EnvConfig, **roles)

    class SeedTaskset(vf.Taskset[SeedTask, vf.TasksetConfig]):
        """Episodes, one per seed."""

        INFINITE = num_tasks is None

        def load(self) -> Iterator[SeedTask]:
            for seed in islice(count(first_seed), num_tasks):
                yield SeedTask(SeedData(name=f"{id}#{seed}", seed=seed), self.config.task)

    class TeamEnv(vf.Env[team_config]):
        """Team whose agents act simultaneously."""

        async def run(self, task: SeedTask, agents: Any) -> None:
            talks = Conversations(make(id, **kwargs))
            news = dict(talks.reset(seed=task.data.seed))
            async with AsyncExitStack() as stack:
                open_talks = {
                    agent: await stack.enter_async_context(getattr(agents, agent).interaction(task)) for agent in news
                }
                while talks.agents:
                    asked = [
                        open_talks[agent].turn(as_chat(news[agent]) or [{"role": "user", "content": ""}])
                        for agent in talks.movers
                    ]
                    segments = await asyncio.gather(*asked)
                    if any(segment.terminated for segment in segments):
                        break  # the agent's trace contains the limit or the error
                    replies = {agent: each.last_reply for agent, each in zip(talks.movers, segments, strict=True)}
                    heard = await asyncio.to_thread(talks.step, replies)
                    for agent, each in heard.items():  # an agent that waits reads all new messages later
                        news[agent] = (() if agent in replies else news[agent]) + each.messages
            for agent, talk in open_talks.items():
                talk.trace.record_reward("return", talks.earned[agent])
                talk.trace.record_metrics(talks.numbers)

    return SeedTaskset, TeamEnv
