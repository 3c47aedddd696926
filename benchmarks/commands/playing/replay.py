"""`collm replay DIR`: replay an episode of a run, and compare it with its record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text
from tyro.conf import Positional

from ...._ranges import CountOrZero
from ...._terminal import shown, terminal
from ....algorithms.runs.files import read_config
from ....envs.registration.registry import make
from ....envs.vectors.vector import SyncVector
from ....envs.wrappers.recording import new_messages
from ...arguments import TrustArguments, parsed
from ...errors import UserError, refusals
from .play import panel

if TYPE_CHECKING:
    from ....algorithms.runs.records import RecordedEpisode


@dataclass(frozen=True, kw_only=True)
class ReplayArguments(TrustArguments):
    """Replay an episode of a run from its seed and recorded actions, and print the differences from the record."""

    directory: Positional[Path]
    """Run directory of `collm train`."""
    episode: CountOrZero | None = None
    """Training episode to replay: its `index` in episodes.jsonl."""
    failure: str | None = None
    """Failed episode to replay: the name of its file in the run's folder failures/, without ".json"."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(ReplayArguments, "replay", args)
    with refusals():
        read_config(arguments.directory)  # raises before the slow import of torch

    from ....algorithms.runs.assembly.trust import load_experiment  # late imports: help needs no torch
    from ....algorithms.runs.records import failed_episode, recorded_episode

    with refusals():
        if (arguments.episode is None) == (arguments.failure is None):
            raise ValueError("give either --episode INDEX or --failure NAME, and not both")
        experiment = load_experiment(arguments.directory, trust=arguments.trust)
        if arguments.failure is not None:
            recorded = failed_episode(arguments.directory, arguments.failure)
        else:
            assert arguments.episode is not None
            recorded = recorded_episode(arguments.directory, arguments.episode)
        kwargs = experiment.env_kwargs_of(recorded.split)
        vector = SyncVector(lambda: make(experiment.env, **kwargs), 1)
    vector.name = experiment.env
    with vector:
        differing = replay(vector, recorded, terminal())
    if differing:
        raise UserError(
            f"the replay differs from its record in {differing} places: the environment has changed, or depends on "
            "more than the seed and the actions"
        )


def replay(vector: SyncVector, recorded: RecordedEpisode, console: Console) -> int:
    """Replay and print the episode. Return the number of differences from the record."""
    from ....algorithms.runs.records import as_actions

    spaces = {agent: vector.action_space(agent) for agent in vector.possible_agents}
    if recorded.problem is not None:
        console.print(Text(shown(f"recorded failure: {recorded.problem}")))
    observations, _ = vector.reset(0, recorded.seed, recorded.options)
    before: dict[str, Any] = {}
    total: dict[str, float] = {}
    differing = 0
    for number, joint in enumerate(recorded.actions):
        if strangers := sorted(set(joint) - set(spaces)):
            raise UserError(f"the record has an action of {strangers[0]!r}; the agents are {sorted(spaces)}")
        actions = as_actions(joint, spaces)
        texts = {agent: _read(observations[agent], before.get(agent)) for agent in actions}
        for agent, text in texts.items():
            console.print(panel(f"turn {number + 1}: {agent} reads", Text(shown(text))))
            console.print(panel(f"{agent} acts", Text(shown(actions[agent]), style="green")))
        whole = {agent: _read(observations[agent], None) for agent in actions}
        before |= {agent: observations[agent] for agent in actions}
        observations, rewards, *_ = vector.step({0: actions})[0]
        console.print(Text(shown(", ".join(f"{agent}: reward {reward:g}" for agent, reward in rewards.items()))))
        for agent, reward in rewards.items():
            total[agent] = total.get(agent, 0.0) + reward
        if number < len(recorded.rewards):
            read, received, lines = recorded.read[number], recorded.rewards[number], []
            for agent, reward in rewards.items():
                # The first record of each segment has the whole history.
                if read.get(agent) and read[agent] not in (texts[agent], whole[agent]):
                    lines.append(f"{agent}: the recorded text is {read[agent]!r}")
                if agent in received and reward != received[agent]:
                    lines.append(f"{agent} got {received[agent]!r}, now {reward!r}")
            for line in lines:
                console.print(Text(shown(f"differs from the record: {line}"), style="red"))
            differing += len(lines)
    console.print(Text(shown("return: " + ", ".join(f"{agent} {value:.3f}" for agent, value in total.items()))))
    if recorded.problem is not None:
        console.print(Text("the episode did not fail this time"))
    return differing


def _read(observation: Any, before: Any) -> str:
    if not isinstance(observation, str):
        return str(observation)
    return "\n".join(message["content"] for message in new_messages(observation, before)[0])
