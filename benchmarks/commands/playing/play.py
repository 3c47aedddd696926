"""`collm play ID`: play one episode and print it. A person can play one agent."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TextIO

from gymnasium.spaces import Text as TextSpace
from rich.console import Console
from rich.panel import Panel
from rich.text import Text
from tyro.conf import Positional

from ...._errors import nearest
from ...._json import read_json
from ...._ownership import FULL, replaced
from ...._ranges import Checked, Count, Needs, Seed
from ...._terminal import print_line, shown, terminal
from ....agents.config import CHAT, ModelConfig
from ....envs.core import TextParallelEnv
from ....envs.games.pictures import write_gif
from ....envs.players import PLAYERS, scripted_player
from ....envs.registration.registry import make, spec, with_explanation
from ....envs.registration.turn_limit import watched_turns
from ....envs.spaces import WAITS, movers_of
from ....envs.vectors.faults import EnvironmentFault
from ....envs.vectors.vector import SyncVector
from ....envs.wrappers import Recorded, Shares
from ....envs.wrappers.recording import FILE
from ...arguments import keyword_arguments, parsed
from ...errors import UserError, check_folder, refusals

END = "."  # line that ends a person's reply


class Person:
    def __init__(self, env: Any, agent: str, lines: TextIO, console: Console):
        if agent not in env.possible_agents:
            raise ValueError(f"--human must be one of {', '.join(env.possible_agents)}, got {agent!r}")
        if not isinstance(env.action_space(agent), TextSpace):
            raise ValueError(f"--human writes texts, but the action space of {agent!r} is {env.action_space(agent)}")
        self.agent = agent
        self._lines = lines
        self._console = console

    def reply(self) -> str:
        """Read lines up to a line with a single dot, or up to the end of the input."""
        asked = shown(f"Your reply as {self.agent}; a line with a single dot ends it:")
        self._console.print(asked, style="bold", markup=False)
        written: list[str] = []
        for line in self._lines:
            if (text := line.rstrip("\r\n")) == END:
                return "\n".join(written)
            written.append(text)
        if not written:
            raise UserError(f"the input ended before the episode ended; a reply of {self.agent} is missing")
        return "\n".join(written)


Decide = Callable[[str, Any], Any]

MODEL = "model"


@dataclass(frozen=True, kw_only=True)
class PlayArguments(Checked):
    """Play one episode and print it."""

    env: Positional[str]
    """Environment: a registered id (`collm envs` lists them) or "module:Class"."""
    env_kwargs: tuple[str, ...] = ()
    """Arguments of the environment as key=value; values may be JSON."""
    policy: str = "reference"
    """Player: "reference", "random", "empty", a run directory of `collm train`, "model" (the model of `--model`), or
    "openai:MODEL@URL" (the model of a chat server)."""
    human: str | None = None
    """Agent that you play: you read its observations and write its replies. None: `--policy` plays all agents."""
    record: Path | None = None
    """Folder of the transcript, which is added as a line to its `episodes.jsonl`. None: runs/played with --human,
    otherwise no transcript is written."""
    seed: Seed = 0
    """Seed of the episode."""
    task: str | None = None
    """Index or id of the task. Generated tasks accept any integer. None: sampled with the seed."""
    max_turns: Count | None = None
    """Number of joint turns after which the episode is stopped. None: the limit of the environment, or 1,000 if the
    environment has no limit."""
    greedy: Annotated[bool, Needs("--policy with a run or a model", lambda call: call.is_model or call.is_run)] = False
    """Generate greedily (most likely token) instead of sampling. Applies to trained teams and models."""
    gif: Path | None = None
    """GIF file for an animation of the episode, in environments that render images. An older GIF is overwritten. None:
    no animation."""
    trust: Annotated[bool, Needs("--policy with a run", lambda call: call.is_run)] = False
    """If `--policy` is a run: allow settings that refer to files and servers outside of its folder. Only for folders
    whose author you trust."""
    model: Annotated[ModelConfig, Needs("--policy model", lambda call: call.is_model)] = field(
        default_factory=ModelConfig
    )

    @property
    def is_model(self) -> bool:
        return self.policy == MODEL or self.policy.startswith(CHAT)

    @property
    def is_run(self) -> bool:
        return self.policy not in PLAYERS and not self.is_model


def run(args: Sequence[str]) -> None:
    arguments = parsed(PlayArguments, "play", args)
    console = terminal()
    with refusals():
        kwargs = keyword_arguments(arguments.env_kwargs)
        explained = with_explanation(arguments.env, kwargs)
        if arguments.policy in PLAYERS or arguments.policy.startswith(CHAT):
            kwargs = explained
        elif arguments.policy == MODEL:
            from ....agents.loading import chat_encoders, chat_lines  # late import: scripted play needs no torch

            encoders = chat_encoders(arguments.model)
            kwargs = explained if encoders else kwargs
            for line in chat_lines(arguments.model, encoders):
                print_line(line, console)
        else:
            kwargs = as_trained([Path(arguments.policy)], arguments.env, kwargs)
        env = make(arguments.env, **kwargs, **rendering(arguments))
        person = None if arguments.human is None else Person(env, arguments.human, sys.stdin, console)
        decide, team = decider(env, arguments)
        folder = arguments.record or (Path("runs") / "played" if person is not None else None)
        policy = arguments.model.model if arguments.policy == MODEL else arguments.policy
        players = {agent: "person" if agent == arguments.human else policy for agent in env.possible_agents}
        seen = watched(env, folder, players)
        task = arguments.task
        if task is not None and not isinstance(env.unwrapped, TextParallelEnv):
            raise UserError(f"--task {task} needs a text environment, and {arguments.env} is not one; remove --task")
        options = None if task is None else {"task": int(task) if task.isdecimal() else task}
        vector = SyncVector(lambda: seen, 1)  # raises EnvironmentFault for errors of the environment
        vector.name = arguments.env
        try:
            observations, infos = vector.reset(0, arguments.seed, options)
        except EnvironmentFault as fault:
            if task is None or not isinstance(fault.__cause__, (ValueError, LookupError)):
                raise
            raise UserError(str(fault.__cause__)) from fault  # unknown task
        if person is not None and kwargs != explained:
            rules = make(arguments.env, **explained).reset(seed=arguments.seed, options=options)[0][person.agent]
            console.print(panel("rules", Text(shown(rules))))
    try:
        frames = play(
            vector,
            seen,
            observations,
            infos,
            decide,
            person,
            console,
            is_drawn=arguments.gif is not None,
            max_turns=watched_turns(vector.turn_limit, arguments.max_turns),
        )
    except EnvironmentFault as fault:
        if folder is not None and isinstance(cause := fault.__cause__, OSError) and cause.errno in FULL:
            raise UserError(f"{folder / FILE} cannot be written: {cause.strerror}") from fault
        raise
    finally:
        vector.close()
        if folder is not None:  # also if the episode was interrupted
            console.print(f"transcript: {shown(folder / FILE)}", markup=False)
    if team:
        from ....agents.language.chat import told_usage  # late import: scripted play needs no torch

        for line in told_usage(team.values()):
            console.print(shown(line), markup=False)
    if arguments.gif is not None:
        with replaced(arguments.gif) as new:
            write_gif(new, frames)
        console.print(f"animation: {shown(arguments.gif)}", markup=False)


def play(
    vector: SyncVector,
    env: Any,
    observations: Mapping[str, Any],
    infos: Mapping[str, Mapping[str, Any]],
    decide: Decide,
    person: Person | None,
    console: Console,
    *,
    is_drawn: bool,
    max_turns: int | None,
) -> list[Any]:
    """Play and print an episode after its reset. Return its frames. A person sees only one agent until the end."""
    open_seats = list(env.agents) if person is None else [person.agent]
    for agent in open_seats:
        console.print(panel(f"{agent} reads", Text(shown(observations[agent]))))
    frames = [env.render()] if is_drawn else []
    total: dict[str, float] = {}
    turn = 0
    while env.agents and turn != max_turns:
        turn += 1
        movers = movers_of(env.agents, infos)
        before = {agent: len(str(observations[agent])) for agent in movers}
        actions = {
            agent: person.reply() if person and agent == person.agent else decide(agent, observations[agent])
            for agent in movers
        }
        observations, rewards, *_, infos = vector.step({0: actions})[0]
        if is_drawn:
            frames.append(env.render())
        for agent, reward in rewards.items():
            total[agent] = total.get(agent, 0.0) + reward
        for agent, action in actions.items():
            if agent not in open_seats:
                continue
            text = Text(shown(action), style="green")
            answer = str(observations[agent])[before[agent] + len(str(action)) :].strip()
            if isinstance(action, str) and answer:
                text.append(f"\n\n{shown(answer)}", style="default")
            console.print(panel(f"turn {turn}: {agent} writes, reward {rewards[agent]:.3f}", text))
        numbers: Mapping[str, float] = next(iter(infos.values()), {})
        if person is None or not env.agents:  # metrics could reveal the partners' actions
            told = "  ".join(f"{name} {value:.3g}" for name, value in numbers.items() if name != WAITS)
            console.print(Text(shown(told), style="dim"))
    if env.agents:
        console.print(f"stopped after {turn:,} joint turns; --max-turns sets another limit", highlight=False)
    scene = getattr(env, "scene", str)()
    if scene:
        console.print(Text(shown(scene)))
    console.print(shown("return: " + ", ".join(f"{agent} {value:.3f}" for agent, value in total.items())), markup=False)
    return frames


def watched(env: Any, folder: Path | None, who: Mapping[str, str]) -> Any:
    """Wrap a text environment, to add the agents' contributions to infos and to store transcripts in `folder`."""
    if not isinstance(env.unwrapped, TextParallelEnv):
        if folder is not None:
            raise UserError("--record needs a text environment; remove --record")
        return env
    shared = Shares(env)
    if folder is None:
        return shared
    check_folder(folder, "--record")
    return Recorded(shared, folder, common={"players": dict(who)})


def panel(title: str, text: Text) -> Panel:
    # An agent's name in the title could contain markup, so the title is not a string.
    return Panel(text, title=Text(shown(title)), title_align="left")


def rendering(arguments: PlayArguments) -> dict[str, str]:
    if arguments.gif is None:
        return {}
    if "rgb_array" not in getattr(spec(arguments.env).constructor(), "metadata", {}).get("render_modes", ()):
        raise UserError(f"{arguments.env} has no pictures, which --gif needs; remove --gif")
    if arguments.gif.suffix.lower() != ".gif" or arguments.gif.is_dir():
        raise UserError(f"--gif {arguments.gif} is not the name of a GIF file; use for example episode.gif")
    if not arguments.gif.absolute().parent.is_dir():
        raise UserError(
            f"--gif {arguments.gif}: the folder {arguments.gif.absolute().parent} does not exist; create it"
        )
    check_folder(arguments.gif.absolute().parent, "--gif")
    if arguments.gif.is_file() and not arguments.gif.read_bytes().startswith(b"GIF8"):
        raise UserError(f"--gif {arguments.gif} exists and is not a GIF file; give another file name")
    return {"render_mode": "rgb_array"}


def as_trained(runs: Sequence[Path], env: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return an environment's arguments, with explained prompts if a run was trained with them."""
    from ....algorithms.runs.files import settings_file  # late import: help needs no torch

    saved = [read_json(file) for file in map(settings_file, runs) if file.is_file()]
    is_explained = any(config.get("env_kwargs", {}).get("is_explained") for config in saved)
    return with_explanation(env, kwargs) if is_explained else dict(kwargs)


def decider(env: Any, arguments: PlayArguments) -> tuple[Decide, Mapping[str, Any]]:
    """Return a function that chooses the actions of `--policy`, and the policies (empty for scripted players)."""
    if arguments.policy in PLAYERS:
        decide = scripted_player(env, arguments.policy, arguments.seed)
        if decide is None:
            raise UserError(f"{arguments.env} has no {arguments.policy} player; use --policy random")
        return decide, {}
    if arguments.is_model:
        from ....algorithms.runs.assembly.policies import playing_team  # late imports: scripted play needs no torch

        if not all(isinstance(env.action_space(agent), TextSpace) for agent in env.possible_agents):
            raise UserError(
                f"--policy {arguments.policy} writes texts, but {arguments.env} needs other actions; "
                "use --policy random"
            )
        model = arguments.model
        if arguments.policy != MODEL:
            model = replace(model, model=arguments.policy)
        team: Mapping[str, Any] = playing_team(env, model, arguments.seed)
        return _by_policies(env, team, arguments), team
    directory = Path(arguments.policy)
    if not arguments.policy or not directory.is_dir():
        raise UserError(
            f"--policy {arguments.policy!r} is neither a run directory nor one of {', '.join(PLAYERS)}, {MODEL}; "
            f"{nearest(arguments.policy, [*PLAYERS, MODEL])}"
        )
    from ....algorithms.runs.api import load_run

    team = load_run(directory, env=env, trust=arguments.trust).policies
    return _by_policies(env, team, arguments), team


def _by_policies(env: Any, policies: Mapping[str, Any], arguments: PlayArguments) -> Decide:
    from ....agents.core import Completion, Request

    previous: dict[str, Completion] = {}
    turns = dict.fromkeys(env.possible_agents, 0)

    def decide(agent: str, observation: Any) -> Any:
        stream = (arguments.seed, 0, env.possible_agents.index(agent), turns[agent])
        request = Request(agent, observation, stream, previous.get(agent))
        previous[agent] = policies[agent].act([request], greedy=arguments.greedy)[0]
        turns[agent] += 1
        return previous[agent].action

    return decide
