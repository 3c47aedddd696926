"""Single-model baseline: one agent reads the observations of all agents of a team and writes all replies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pettingzoo import ParallelEnv

from ..core import Message, Outcome, ResetResult, TextParallelEnv

MARKER = "[PARAGRAPH_SPLIT]"
AGENT = "writer_0"


class SingleModel(TextParallelEnv):
    """Replaces a team by a single agent, whose completion contains the replies of all members of the team.

    The replies are in the order of the team's `possible_agents`, separated by `MARKER`. Missing replies are "", and
    surplus replies are ignored. The reward is the mean reward of the members. `make(id, single_model=True)` builds this
    environment.

    Source: the single-model baselines of CoLLM-CC and CoLLM-DC (arXiv:2601.21972), with the same marker.

    Args:
        env: a text environment of at least two agents.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any]):
        world = env.unwrapped
        if not isinstance(world, TextParallelEnv):
            raise ValueError(f"single_model needs a text environment, got {env}")
        if len(env.possible_agents) < 2:
            raise ValueError(f"single_model needs at least two agents, but {env} has one; leave single_model out")
        team = len(env.possible_agents)
        super().__init__(
            [AGENT],
            world.max_turns,
            render_mode=world.render_mode if world.render_mode in ("ansi", "human") else None,
            max_action_length=sum(world.action_space(agent).max_length for agent in env.possible_agents)
            + (team - 1) * len(MARKER),
            max_observation_length=world.state_space.max_length,
        )
        self.metadata = {**world.metadata, "render_modes": ["ansi", "human"]}  # type: ignore[misc]
        self._env = env
        self._world = world
        self._start: tuple[int | None, dict[str, Any] | None] = (None, None)
        self._known: dict[str, tuple[Message, ...]] = {}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        self._start = seed, options
        return super().reset(seed, options)

    def deal(self, task: Any) -> Mapping[str, str]:
        seed, options = self._start
        self._known = {}
        # Without a seed, this environment's generator samples the team's seed, so that episodes are reproducible.
        observations, _ = self._env.reset(self.rng.randrange(2**31) if seed is None else seed, options)
        self.task = self._world.task
        order = f"\n{MARKER}\n".join(f"(reply of {agent})" for agent in self._env.possible_agents)
        ask = f"You write the replies of all of them in every turn, in this form:\n{order}"
        return {AGENT: f"{self._news(observations)}\n{ask}"}

    def play(self, replies: Mapping[str, str]) -> Outcome:
        team = self._env.possible_agents
        parts = [part.strip() for part in replies[AGENT].split(MARKER)]
        written = dict(zip(team, [*parts, *[""] * len(team)], strict=False))
        movers = list(self._env.agents)
        observations, rewards, _, _, infos = self._env.step({agent: written[agent] for agent in movers})
        numbers = infos[movers[0]]
        return Outcome(
            sum(rewards.values()) / len(team),
            feedback={AGENT: self._news(observations)},
            terms=_named("reward/", numbers),
            metrics=_named("metric/", numbers),
            is_over=not self._env.agents,
        )

    def scene(self) -> str:
        return self._world.scene()

    def truth(self) -> str:
        return self._world.truth()

    def reference_reply(self, agent: str) -> str:
        movers = self._world.movers if self._env.agents else []
        return f"\n{MARKER}\n".join(
            self._world.reference_reply(each) if each in movers else "" for each in self._env.possible_agents
        )

    def close(self) -> None:
        self._env.close()

    def _news(self, observations: Mapping[str, Any]) -> str:
        """Join the new messages to all members of the team. If old messages of a history changed, all are new."""
        readers: dict[str, list[str]] = {}
        for agent, observation in observations.items():
            known, messages = self._known.get(agent, ()), observation.messages
            new = messages[len(known) :] if messages[: len(known)] == known else messages
            text = "\n".join(message.content for message in new if message.role != "assistant")
            if text:
                readers.setdefault(text, []).append(agent)
            self._known[agent] = messages
        return "\n".join(f"[{', '.join(agents)} reads] {text}" for text, agents in readers.items())


def _named(prefix: str, numbers: Mapping[str, Any]) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in numbers.items() if name.startswith(prefix)}
