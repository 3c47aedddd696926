"""Text environments as tasks of Inspect AI: a role of its own name for each agent, the return as the score.

A file of Inspect's is three lines, and `inspect eval FILE --model MODEL --model-role builder_0=MODEL` plays it:

    @task
    def mini_build():
        return episodes("collm/MiniBuild-v0", num_samples=20)
"""

from __future__ import annotations

from typing import Any

from inspect_ai import Task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    ModelOutput,
    get_model,
)
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import collect

from ...envs.core import Message
from ...envs.registration.registry import make
from ...envs.views import Conversations

_KINDS: dict[str, type[Any]] = {
    "system": ChatMessageSystem,
    "user": ChatMessageUser,
    "assistant": ChatMessageAssistant,
}


def episodes(id: str, *, num_samples: int = 100, first_seed: int = 0, **kwargs: Any) -> Task:
    """A task whose samples are episodes, played by a whole team.

    Each agent is the role of its name (`--model-role builder_0=...`); roles that are not given are played by the
    evaluated model. A sample's scores are each agent's return and "team", their mean; the sums of the episode's terms
    and metrics stand in the score's metadata. The messages of a sample are the first agent's; those of all agents stand
    in its store under "histories".

    Args:
        id: a registered environment whose agents write.
        num_samples: episodes.
        first_seed: seed of the first one. `collm evaluate` begins at 2**31, with `split="test"`.
        kwargs: arguments of the environment.
    """
    samples = [
        Sample(f"{id}, seed {first_seed + number}", id=first_seed + number, metadata={"seed": first_seed + number})
        for number in range(num_samples)
    ]
    name = id.rpartition("/")[2]
    return Task(MemoryDataset(samples, name=name), solver=team(id, kwargs), scorer=returns(), name=name)


@solver
def team(id: str, kwargs: dict[str, Any]) -> Solver:
    """Plays one episode; all agents are asked at once."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        talks = Conversations(make(id, **kwargs))
        histories: dict[str, list[ChatMessage]] = {
            agent: _spoken(opening) for agent, opening in talks.reset(seed=state.metadata["seed"]).items()
        }
        first = next(iter(histories))
        while talks.agents:
            asked = list(talks.agents)
            outputs: list[ModelOutput] = await collect(
                *(get_model(role=agent).generate(histories[agent]) for agent in asked)
            )
            replies = dict(zip(asked, outputs, strict=True))
            heard = talks.step({agent: output.completion for agent, output in replies.items()})
            for agent, output in replies.items():
                histories[agent] += [output.message, *_spoken(heard[agent].messages)]
            if first in replies:
                state.output = replies[first]
        state.messages = histories[first]
        state.store.set("histories", {agent: _written(history) for agent, history in histories.items()})
        state.store.set("returns", talks.earned)
        state.store.set("numbers", talks.numbers)
        return state

    return solve


@scorer(metrics={"*": [mean(), stderr()]})
def returns() -> Scorer:
    """Each agent's return, and the team's: their mean."""

    async def score(state: TaskState, target: Target) -> Score:
        earned: dict[str, float] = state.store.get("returns")
        value = {"team": sum(earned.values()) / len(earned), **earned}
        return Score(value=value, answer=state.output.completion, metadata=state.store.get("numbers"))

    return score


def _spoken(messages: tuple[Message, ...]) -> list[ChatMessage]:
    return [_KINDS[message.role](content=message.content) for message in messages]


def _written(history: list[ChatMessage]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.text} for message in history]
