"""`collm play ID`: one episode, printed turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.text import Text
from tyro.conf import Positional

from ..._errors import nearest
from ..._ranges import Checked, Seed
from ..._terminal import shown
from ...envs.games.pictures import write_gif
from ...envs.players import PLAYERS, scripted_player
from ...envs.registration.registry import make, spec
from ...envs.vectors.faults import EnvironmentFault
from ...envs.vectors.vector import SyncVector
from ..arguments import keyword_arguments, parsed
from ..errors import UserError, check_folder, refusals

Decide = Callable[[str, Any], Any]


@dataclass(frozen=True, kw_only=True)
class PlayArguments(Checked):
    """Play one episode and print it."""

    env: Positional[str]
    """Id of a registered environment."""
    env_kwargs: tuple[str, ...] = ()
    """Arguments of the environment as key=value; values may be JSON."""
    policy: str = "reference"
    """Player: "reference", "random", "empty", or a run directory of `collm train`."""
    seed: Seed = 0
    """Seed of the episode."""
    task: str | None = None
    """Task by number or id. None: drawn from the seed."""
    greedy: bool = False
    """Take the likeliest tokens in place of sampling, where a trained team plays."""
    gif: Path | None = None
    """File for an animation of the episode, where the environment draws pictures. None: no animation."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(PlayArguments, "play", args)
    console = Console()
    with refusals():
        env = make(arguments.env, **keyword_arguments(arguments.env_kwargs), **rendering(arguments))
        decide = decider(env, arguments)
        task = arguments.task
        options = None if task is None else {"task": int(task) if task.isdecimal() else task}
        vector = SyncVector(lambda: env, 1)  # which names what an environment does wrong
        vector.name = arguments.env
        try:
            observations, _ = vector.reset(0, arguments.seed, options)
        except EnvironmentFault as fault:
            if task is None or not isinstance(fault.__cause__, (ValueError, LookupError)):
                raise
            raise UserError(str(fault.__cause__)) from fault  # there is no such task
    for agent in env.agents:
        console.print(panel(f"{agent} reads", Text(shown(observations[agent]))))
    frames = [] if arguments.gif is None else [env.render()]
    total: dict[str, float] = {}
    turn = 0
    while env.agents:
        turn += 1
        before = {agent: len(str(observations[agent])) for agent in env.agents}
        actions = {agent: decide(agent, observations[agent]) for agent in env.agents}
        observations, rewards, *_, infos = vector.step({0: actions})[0]
        if arguments.gif is not None:
            frames.append(env.render())
        for agent, action in actions.items():
            total[agent] = total.get(agent, 0.0) + rewards[agent]
            text = Text(shown(action), style="green")
            answer = str(observations[agent])[before[agent] + len(str(action)) :].strip()
            if isinstance(action, str) and answer:
                text.append(f"\n\n{shown(answer)}", style="default")
            console.print(panel(f"turn {turn}: {agent} writes, reward {rewards[agent]:.3f}", text))
        numbers: dict[str, float] = next(iter(infos.values()), {})
        console.print(Text(shown("  ".join(f"{name} {value:.3g}" for name, value in numbers.items())), style="dim"))
    scene = getattr(env, "scene", str)()
    if scene:
        console.print(Text(shown(scene)))
    console.print(shown("return: " + ", ".join(f"{agent} {value:.3f}" for agent, value in total.items())), markup=False)
    if arguments.gif is not None:
        write_gif(arguments.gif, frames)
        console.print(f"animation: {shown(arguments.gif)}", markup=False)
    vector.close()


def panel(title: str, text: Text) -> Panel:
    """Text in a frame; its title, which names an agent, is no markup."""
    return Panel(text, title=Text(shown(title)), title_align="left")


def rendering(arguments: PlayArguments) -> dict[str, str]:
    """Render mode that the call needs, as arguments of `make`."""
    if arguments.gif is None:
        return {}
    if "rgb_array" not in getattr(spec(arguments.env).constructor(), "metadata", {}).get("render_modes", ()):
        raise UserError(f"{arguments.env} draws no pictures, so there is nothing for --gif to show; leave it out")
    if arguments.gif.suffix.lower() != ".gif" or arguments.gif.is_dir():
        raise UserError(f"--gif {arguments.gif} is no name of a GIF file; give for example episode.gif")
    if not arguments.gif.absolute().parent.is_dir():
        raise UserError(f"--gif {arguments.gif}: there is no folder {arguments.gif.absolute().parent}")
    check_folder(arguments.gif.absolute().parent, "--gif")
    return {"render_mode": "rgb_array"}


def decider(env: Any, arguments: PlayArguments) -> Decide:
    """Actions of the player that was asked for: a scripted one, or a trained team."""
    if arguments.policy in PLAYERS:
        decide = scripted_player(env, arguments.policy, arguments.seed)
        if decide is None:
            raise UserError(f"{arguments.env} has no reference player; try --policy random")
        return decide
    directory = Path(arguments.policy)
    if not directory.is_dir():
        raise UserError(
            f"--policy takes a run directory or {', '.join(PLAYERS)}; there is no {arguments.policy!r}; "
            f"{nearest(arguments.policy, PLAYERS)}"
        )
    return _trained(env, directory, arguments)


def _trained(env: Any, directory: Path, arguments: PlayArguments) -> Decide:
    from ...agents.core import Completion, Request  # here, so that scripted play needs no torch
    from ...algorithms.runs.api import load_run

    policies = load_run(directory, env=env).policies
    previous: dict[str, Completion] = {}
    turns = dict.fromkeys(env.possible_agents, 0)

    def decide(agent: str, observation: Any) -> Any:
        stream = (arguments.seed, 0, env.possible_agents.index(agent), turns[agent])
        request = Request(agent, observation, stream, previous.get(agent))
        previous[agent] = policies[agent].act([request], greedy=arguments.greedy)[0]
        turns[agent] += 1
        return previous[agent].action

    return decide
