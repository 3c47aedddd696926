"""Evaluations as loggers show them: returns, transcripts, and a moving picture of the best episode's world."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...._ownership import replaced
from ....envs.core import TextParallelEnv
from ....envs.games.pictures import write_gif
from ...rollout.episode import Episode
from .sinks import Evaluated

NUM_SHOWN = 4
"""Episodes per way of playing in the table of transcripts: the best, the worst, and the first others."""


def evaluated(
    metrics: Mapping[str, float], episodes: Mapping[str, Sequence[Episode]], make_env: Callable[[], Any], picture: Path
) -> Evaluated:
    """An evaluation, with pictures where the environment draws them.

    Args:
        metrics: means and intervals.
        episodes: by the way of playing, "sampled" or "greedy".
        make_env: makes the environment that was played, for pictures.
        picture: file for the moving picture.
    """
    returns = {name: [episode.team_return for episode in played] for name, played in episodes.items()}
    rows = [row for name, played in episodes.items() for episode in _shown(played) for row in _rows(name, episode)]
    best = max(episodes["sampled"], key=lambda episode: episode.team_return)
    return Evaluated(metrics, returns, rows, animation(best, make_env, picture))


def animation(episode: Episode, make_env: Callable[[], Any], path: Path) -> Path | None:
    """A GIF of an episode's world, which is played again from its seed and actions; None where it draws no pictures."""
    env = make_env()
    try:
        world = env.unwrapped
        if not isinstance(world, TextParallelEnv) or "rgb_array" not in world.metadata["render_modes"]:
            return None
        world.render_mode = "rgb_array"
        env.reset(seed=episode.seed)
        frames = [env.render()]
        for time in range(episode.num_turns):
            turns = {agent: turn for agent, track in episode.tracks.items() for turn in track if turn.time == time}
            env.step({agent: turn.completion.action for agent, turn in turns.items()})
            frames.append(env.render())
    finally:
        env.close()
    path.parent.mkdir(exist_ok=True)
    with replaced(path) as new:
        write_gif(new, frames)
    return path


def _shown(episodes: Sequence[Episode]) -> list[Episode]:
    ranked = sorted(episodes, key=lambda episode: episode.team_return)
    ends = [ranked[-1], ranked[0]] if len(ranked) > 1 else ranked
    return ends + [episode for episode in episodes if all(episode is not end for end in ends)][: NUM_SHOWN - len(ends)]


def _rows(name: str, episode: Episode) -> list[tuple[str, int, float, str, str]]:
    finals = {agent: text for agent, text in episode.finals.items() if isinstance(text, str)}
    return [(name, episode.seed, episode.team_return, agent, str(text)) for agent, text in finals.items()]
