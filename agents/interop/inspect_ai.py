"""Text environments as tasks of Inspect AI, with one model role per agent and the return as score.

`inspect eval FILE --model MODEL --model-role builder_0=MODEL` evaluates a file with this task:

    @task
    def mini_build():
        return episodes("collm/MiniBuild-v0", num_samples=20)

`write_log` writes recorded episodes as a log, which `inspect view` shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import fmean
from typing import Any

from inspect_ai import Task
from inspect_ai import log as logs
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
from ...envs.wrappers.recording import recorded_return, turns_by_time

_KINDS: dict[str, type[Any]] = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}


def episodes(id: str, *, num_samples: int = 100, first_seed: int = 0, **kwargs: Any) -> Task:
    """Build an Inspect AI task whose samples are episodes.

    Each agent has a model role with its name (`--model-role builder_0=...`). The default is the evaluated model.
    The scores of a sample are each agent's return, and the mean return "team". The score's metadata has the sums of
    reward terms and metrics. A sample has the messages of the first agent in `messages`, and the messages of all agents
    in its store under "histories".

    Args:
        id: registered text environment.
        num_samples: number of episodes.
        first_seed: seed of the first episode. `collm evaluate` starts at 2**31, with `split="test"`.
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
    """Solver that plays one episode, with concurrent model requests for all agents."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        talks = Conversations(make(id, **kwargs))
        histories: dict[str, list[ChatMessage]] = {
            agent: _chat_messages(opening) for agent, opening in talks.reset(seed=state.metadata["seed"]).items()
        }
        first = next(iter(histories))
        while talks.agents:
            asked = list(talks.movers)
            outputs: list[ModelOutput] = await collect(
                *(get_model(role=agent).generate(histories[agent]) for agent in asked)
            )
            replies = dict(zip(asked, outputs, strict=True))
            heard = talks.step({agent: output.completion for agent, output in replies.items()})
            for agent, each in heard.items():
                own = [replies[agent].message] if agent in replies else []
                histories[agent] += [*own, *_chat_messages(each.messages)]
            if first in replies:
                state.output = replies[first]
        state.messages = histories[first]
        written = {
            agent: [{"role": message.role, "content": message.text} for message in history]
            for agent, history in histories.items()
        }
        state.store.set("histories", written)
        state.store.set("returns", talks.earned)
        state.store.set("numbers", talks.numbers)
        return state

    return solve


@scorer(metrics={"*": [mean(), stderr()]})
def returns() -> Scorer:
    """Scorer of each agent's return, and of the mean return over agents ("team")."""

    async def score(state: TaskState, target: Target) -> Score:
        earned: dict[str, float] = state.store.get("returns")
        value = {"team": sum(earned.values()) / len(earned), **earned}
        return Score(value=value, answer=state.output.completion, metadata=state.store.get("numbers"))

    return score


def _chat_messages(messages: tuple[Message, ...]) -> list[ChatMessage]:
    return [_KINDS[message.role](content=message.content) for message in messages]


def write_log(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Write recorded text episodes as a log of Inspect AI: one sample per episode, with its return as score.

    The messages of a sample are all texts that agents read and wrote, in time order, with the names of the agents.
    The suffix of the file selects the format: .eval or .json.
    """
    samples = []
    for number, row in enumerate(rows, 1):
        returns = {agent: recorded_return(track) for agent, track in row["agents"].items()}
        sample = logs.EvalSample(id=number, epoch=1, input=f"seed {row['seed']}", target="", messages=_messages_of(row))
        sample.scores = {"return": Score(value=row["return"], metadata=returns)}
        sample.metadata = {name: value for name, value in row.items() if name != "agents"}
        samples.append(sample)
    mean_return = logs.EvalMetric(name="mean", value=fmean(row["return"] for row in rows))
    scored = [logs.EvalScore(name="return", scorer="return", metrics={"mean": mean_return})]
    results = logs.EvalResults(total_samples=len(rows), completed_samples=len(rows), scores=scored)
    name, created = rows[0].get("env", "episodes"), datetime.now(timezone.utc).isoformat()
    dataset = logs.EvalDataset(name=name, samples=len(rows))
    spec = logs.EvalSpec(created=created, task=name, dataset=dataset, model="collm", config=logs.EvalConfig())
    logs.write_eval_log(logs.EvalLog(status="success", eval=spec, results=results, samples=samples), file)


def _messages_of(row: Mapping[str, Any]) -> list[ChatMessage]:
    found: list[ChatMessage] = []
    for time in range(len(row["infos"]) + 1):
        for agent, track in row["agents"].items():
            turns = turns_by_time(track)
            end = max([*turns, *map(int, track.get("waiting", ()))], default=-1) + 1
            if turn := (turns | {end: {"read": track["last_read"]}}).get(time):
                found += [_KINDS[each["role"]](content=f"[{agent} reads] {each['content']}") for each in turn["read"]]
                if "wrote" in turn:
                    told = {"agent": agent, "turn": time + 1, "reward": turn["reward"]}
                    found.append(ChatMessageAssistant(content=f"[{agent} writes] {turn['wrote']}", metadata=told))
    return found
