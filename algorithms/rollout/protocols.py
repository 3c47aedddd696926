"""Execution protocols for teams that are not trained: pipeline and discussion.

In a pipeline, agents reply in order and read the replies before theirs. In a discussion, all agents reply, read all
replies, and reply again; the environment gets the second replies.

Source: the prompted baselines of CoLLM-CC and CoLLM-DC (arXiv:2601.21972, table 1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...agents.config import Protocol
from ...agents.core import Completion, Policy, Processes, Request, act_all
from ...envs.core import Transcript, answer_in, messages_of

INSTRUCTIONS: Mapping[Protocol, str] = {
    "pipeline": "Build on these replies. Do not repeat them.",
    "discussion": "Write your whole reply again, and make it fit with the other replies.",
}
"""Default instructions to agents, used if the environment has no instructions for the protocol."""


def with_protocol(
    policies: Mapping[str, Policy], protocol: Protocol, instructions: Mapping[str, str] | None = None
) -> dict[str, Policy]:
    """Return policies that follow a protocol. These policies cannot be trained.

    Args:
        policies: policy of each agent, in the order in which agents reply in a pipeline.
        protocol: order of the replies in a turn. "parallel" returns the policies unchanged.
        instructions: text for each agent after the other agents' replies. None, or a missing agent: `INSTRUCTIONS`.
    """
    if protocol == "parallel":
        return dict(policies)
    team = _Team(dict(policies), protocol, instructions or {})
    return {agent: _Member(team, agent) for agent in policies}


@dataclass(frozen=True, eq=False)
class _Team:
    policies: Mapping[str, Policy]
    protocol: Protocol
    instructions: Mapping[str, str]

    def act(self, requests: Sequence[Request], greedy: bool) -> list[Completion]:
        """Return a completion for each request. `requests` are those of all agents in one or more joint turns."""
        # A prompt with other agents' replies is not a prefix of the next prompt, so each turn is encoded again.
        requests = [replace(request, previous=None) for request in requests]
        joint_turns: dict[tuple[int, ...], dict[str, int]] = defaultdict(dict)
        turns = [joint_turns[request.stream[:2] + request.stream[3:]] for request in requests]  # without agent
        for number, (request, turn) in enumerate(zip(requests, turns, strict=True)):
            turn[request.agent] = number
        done: dict[int, Completion] = {}

        def told(number: int) -> Request:
            replies = {agent: done[other] for agent, other in turns[number].items() if other in done}
            return self._told(requests[number], replies)

        if self.protocol == "discussion":
            done |= enumerate(act_all(self.policies, requests, greedy=greedy))
            second = act_all(self.policies, [told(number) for number in range(len(requests))], greedy=greedy)
            return [_joined(done[number], completion) for number, completion in enumerate(second)]
        for agent in self.policies:
            numbers = [number for number, request in enumerate(requests) if request.agent == agent]
            completions = act_all(self.policies, [told(number) for number in numbers], greedy=greedy)
            done |= zip(numbers, completions, strict=True)
        return [done[number] for number in range(len(requests))]

    def _told(self, request: Request, replies: Mapping[str, Completion]) -> Request:
        """Add replies and the instruction to a request's last message. A discussion also changes the random stream."""
        if not replies:
            return request
        parts = []
        for agent, completion in replies.items():
            whose = "Your first reply" if agent == request.agent else f"Reply of {agent}"
            parts.append(f"{whose}:\n{answer_in(completion.action).strip()}")
        parts.append(self.instructions.get(request.agent, INSTRUCTIONS[self.protocol]))
        *before, last = messages_of(request.observation)
        told = last._replace(content="\n\n".join([last.content.rstrip(), *parts]))
        stream = (*request.stream, 1) if self.protocol == "discussion" else request.stream
        return replace(request, observation=Transcript([*before, told]), stream=stream)


@dataclass(frozen=True, eq=False)
class _Member(Policy):
    team: _Team
    agent: str

    def batch_key(self) -> object:
        return id(self.team)

    def make_ready(self, processes: Processes) -> None:
        self.team.policies[self.agent].make_ready(processes)

    def act(self, requests: Sequence[Request], *, greedy: bool = False) -> list[Completion]:
        return self.team.act(requests, greedy)


def _joined(first: Completion, second: Completion) -> Completion:
    """Return the second completion, with the numbers of both completions' tokens, so that metrics count all tokens."""
    return replace(
        second,
        logprobs=np.concatenate([first.logprobs, second.logprobs]),
        entropies=np.concatenate([first.entropies, second.entropies]),
        tokens=None,
    )
