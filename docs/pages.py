"""Write a page for each registered environment, and the list of pages: `python docs/pages.py`."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collm.agents.scripted import FunctionPolicy
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.algorithms.rollout.protocols import INSTRUCTIONS as PROTOCOLS
from collm.algorithms.rollout.protocols import with_protocol
from collm.benchmarks.commands.envs import agent_scores, means
from collm.envs import EnvSpec, make, specs
from collm.envs.checks.exploits import NUM_EPISODES as NUM_EXPLOIT_EPISODES
from collm.envs.checks.exploits import exploit_standings
from collm.envs.core import TextParallelEnv
from collm.envs.registration.registry import accepted_arguments, with_explanation
from collm.envs.vectors.vector import SyncVector

FOLDER = Path(__file__).resolve().parent / "environments"
NAMESPACE = "collm/"
NUM_EPISODES = 20
MAX_TRANSCRIPT_LINES, MAX_LINE_LENGTH = 10, 100
_TURNS = "the reward of a turn is its improvement over the best earlier turn"
_FUNCTIONS = f"{_TURNS}; half of the points for tests need all tests; new: `variant`, `prompts`, `needs_both`."
_GROUNDED = "all terms except `structure` depend on the groundedness of the texts; new: `variant`, `prompts`."
_VERIFIED = "groundedness depends on the word order of each sentence; sentences of the source have the full credit."
_BUILDERS = "a coordinate must be an integer and may be negative; two to six builders; `stop_at` needs `shift`."
HISTORY: dict[str, str] = {
    "collm/StrBuild-v2": "the reward is lower if a builder has fewer letter cells than its quota (`needs_both`).",
    "collm/StrBuild-v1": f'pays `reward="iou"` by default; {_BUILDERS}',
    "collm/HouseBuild-v2": "a builder may fill only an equal part of each block (`needs_both`).",
    "collm/HouseBuild-v1": _BUILDERS,
    "collm/BridgeBuild-v2": "each worker builds on the half that only its partner sees; more false pillars; the "
    "reference players send messages and use only their observations.",
    "collm/BridgeBuild-v1": "planks cost points; each worker builds on its own half; a reply's last object counts.",
    "collm/ResourceGathering-v2": "at first, only the partner sees a gatherer's resources; larger maps; the reference "
    "players send messages and use only their observations.",
    "collm/ResourceGathering-v1": "bonuses do not grow with the turns; the last JSON object of a reply is read.",
    "collm/HumanEval-v1": _FUNCTIONS,
    "collm/MBPP-v1": _FUNCTIONS,
    "collm/CoopHumanEval-v1": _FUNCTIONS,
    "collm/ClassEval-v1": f"{_TURNS}; new: `variant`, `prompts`, `needs_both`.",
    "collm/TLDR-v2": _VERIFIED,
    "collm/TLDR-v1": f"the texts must cover the source; {_GROUNDED}",
    "collm/ArxivExpansion-v2": _VERIFIED,
    "collm/ArxivExpansion-v1": _GROUNDED,
    "collm/MiniWriting-v2": "texts are parsed, and the reward counts true facts; larger teams have longer posts.",
    "collm/MiniWriting-v1": "the reward depends on the groundedness of the texts; new: `prompts`.",
    "collm/MiniCode-v1": "a test counts only if each programmer computes an operand (`needs_both`).",
}
"""Changes of versions above 0, by id."""
SHARED_ARGUMENTS = ("prompts", "render_mode", "max_action_length", "max_observation_length")
"""Arguments of all environments; the list of pages has them once."""
MIN_EQUAL_ROWS = 3  # a page links to an earlier page that has at least this number of equal arguments
_SECTION = re.compile(r"^(Args|Returns|Raises):$", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}(\w+): ", re.MULTILINE)


def pages() -> dict[Path, str]:
    """Return the text of each generated file."""
    own = [spec for spec in specs() if spec.id.startswith(NAMESPACE)]
    found = {FOLDER / f"{short_name(spec)}.md": page(spec) for spec in own}
    return found | {FOLDER / "README.md": index(own)}


def short_name(spec: EnvSpec) -> str:
    """Return the name without namespace and version, which is also the name of the page."""
    return spec.name.removeprefix(NAMESPACE)


def domain(spec: EnvSpec) -> str:
    """Return the folder of an environment, which is also the name of the page about its domain."""
    return spec.constructor().__module__.split(".")[2]


def page(spec: EnvSpec, has_exploits: bool = True) -> str:
    """Return the page of an environment. `has_exploits=False` omits the slow degenerate players."""
    env = make(spec)
    parts = [
        f"# {short_name(spec)}",
        f"{spec.summary} Rules, rewards and data: [{domain(spec)}]({domain(spec)}.md).",
        prose(spec),
        facts(spec, env),
        "## Scores",
        scores(env),
        *ceilings(env),
        *(["## Degenerate players", exploits(env)] if has_exploits else []),
        "## Execution protocols",
        protocols(env),
        "## Reward terms",
        rewards(env),
        "## Arguments",
        arguments(spec),
        "## Prompts",
        prompts(spec),
        "## Transcript",
        f"The episode of the reference players with seed 0.\n\n```text\n{transcript(env)}\n```",
        "## Versions",
        "\n".join(history(spec)),
    ]
    env.close()
    return "\n\n".join(parts) + "\n"


def prose(spec: EnvSpec) -> str:
    """Return the docstring of the class up to its arguments."""
    return _SECTION.split(inspect.getdoc(spec.constructor()) or "")[0].strip()


def facts(spec: EnvSpec, env: TextParallelEnv) -> str:
    """Return the table at the top of the page."""
    first = env.possible_agents[0]
    env.reset(seed=0)
    moving = "all agents act at once" if env.movers == env.agents else "agents act in turn, and the others wait"
    rows = {
        "Agents": ", ".join(f"`{agent}`" for agent in env.possible_agents),
        "Turns": f"{env.max_turns}; {moving}",
        "Observations": f"`{env.observation_space(first)}`",
        "Actions": f"`{env.action_space(first)}`",
        "State": f"`{env.state_space}`",
        "Hidden state (privileged critics)": truth(env),
        "Splits": ", ".join(f"`{split}`" for split in splits(spec)),
        "Rendering": ", ".join(f"`{mode}`" for mode in env.metadata["render_modes"]),
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items() if value)])


def truth(env: TextParallelEnv) -> str:
    """Return the beginning of the hidden state, or an empty string."""
    env.reset(seed=0)
    return f"`{textwrap.shorten(env.truth(), 60, placeholder=' …')}`" if env.truth() else ""


def splits(spec: EnvSpec) -> tuple[str, ...]:
    """Return the splits of the environment's default data."""
    return tuple(name for name in ("train", "test") if "split" in (accepted_arguments(spec.constructor()) or ()))


def scores(env: TextParallelEnv) -> str:
    """Return the table of scripted players with default settings."""
    found = {name: value for name, value in means(agent_scores(env, NUM_EPISODES)).items() if value is not None}
    return "\n".join(
        [
            f"Mean return of scripted teams over {NUM_EPISODES} episodes (seeds 0 to {NUM_EPISODES - 1}).",
            "",
            f"| {' | '.join(found)} |",
            f"|{'---:|' * len(found)}",
            f"| {' | '.join(f'{value:.2f}' for value in found.values())} |",
        ]
    )


def ceilings(env: TextParallelEnv) -> list[str]:
    """Return the table of exact returns of restricted play, if the environment has them."""
    rows = [f"| {lack} | {value:.3f} |" for lack, value in env.ceilings().items()]
    if not rows:
        return []
    title = "Exact mean return of play without errors under a restriction, with default settings."
    return ["\n".join([title, "", "| restriction | return |", "|---|---:|", *rows])]


def exploits(env: TextParallelEnv) -> str:
    """Return the table of teams that do not do the task."""
    standings = exploit_standings(env)
    limit = min(each.limit for each in standings)
    rows = [
        f"| {each.name} | {each.mean_return:.2f} | {each.formatted(each.share)} | {each.reason} |"
        for each in sorted(standings, key=lambda standing: -standing.share)
        if each.share > 0
    ]
    others = ", ".join(each.player for each in standings if each.share <= 0)
    return "\n".join(
        [
            "Mean returns of [degenerate players](../extend/environment.md#exploits) over "
            f"{NUM_EXPLOIT_EPISODES} episodes.",
            "Share: (return - empty) / (reference - empty). "
            f'If a degenerate player except "fail first" has a share above {limit:.0%}, the table gives the reason. '
            f"Shares of 0% or below: {others}.",
            "",
            "| player | return | share | reason |",
            "|---|---:|---:|---|",
            *rows,
        ]
    )


def protocols(env: TextParallelEnv) -> str:
    """Return the table of the reference players' first episode under each execution protocol."""
    rows = []
    last = env.possible_agents[-1]
    read: list[tuple[str, str]] = []

    def reply(agent: str, observation: Any) -> str:
        read.append((agent, str(observation)))
        return env.reference_reply(agent)

    reference = FunctionPolicy(reply)
    for protocol in PROTOCOLS:
        read.clear()
        instructions = env.protocol_instructions.get(protocol)
        team = with_protocol(dict.fromkeys(env.possible_agents, reference), protocol, instructions)
        (episode,) = RolloutCollector(SyncVector(lambda: env, 1), team).collect([Plan(0, group=0)])
        told = next(observation for agent, observation in reversed(read) if agent == last)
        before, _, instruction = told.rstrip().rpartition("\n\n")
        instruction = instruction if before else "none: the others wait"
        rows.append(f"| {protocol} | {episode.team_return:.2f} | {instruction} |")
    return "\n".join(
        [
            "Return of the reference players' first episode under each [protocol](../paper.md), "
            "and the instruction that",
            f"`{last}` reads after the replies of the other agents.",
            "",
            "| protocol | return | instruction |",
            "|---|---:|---|",
            *rows,
        ]
    )


def rewards(env: TextParallelEnv) -> str:
    """Return the table of reward terms in the episode of the transcript."""
    totals: dict[str, float] = {}
    for _, earned, infos in reference_episode(env):
        first = next(iter(infos))
        for name, value in infos[first].items():
            if name.startswith("reward/"):
                totals[name] = totals.get(name, 0.0) + value
        totals["sum"] = totals.get("sum", 0.0) + earned[first]
    terms = [f"| `{name}` | {value:.2f} |" for name, value in totals.items() if name != "sum"]
    total = f"| **return** | **{totals['sum']:.2f}** |"
    return "\n".join(["| term in `infos` | points in the episode below |", "|---|---:|", *terms, total])


def arguments(spec: EnvSpec) -> str:
    """Return the table of arguments, without the rows that an earlier page of the domain has in the same words."""
    rows = argument_rows(spec)
    links = []
    earlier = [each for each in specs() if each.id.startswith(NAMESPACE) and domain(each) == domain(spec)]
    for other in earlier[: [each.id for each in earlier].index(spec.id)]:
        theirs = argument_rows(other)
        same = [name for name, row in rows.items() if theirs.get(name) == row]
        if len(same) >= MIN_EQUAL_ROWS:
            names = ", ".join(f"`{name}`" for name in same)
            links.append(f"[{short_name(other)}]({short_name(other)}.md#arguments) describes {names}.")
            rows = {name: row for name, row in rows.items() if name not in same}
    table = "\n".join(["| argument | default | meaning |", "|---|---|---|", *rows.values()]) if rows else ""
    shared = "All environments also take the [shared arguments](README.md#shared-arguments)."
    return "\n\n".join(part for part in (table, *links, shared) if part)


def argument_rows(spec: EnvSpec) -> dict[str, str]:
    """Return a row of the table per argument, with defaults and meanings from the docstrings."""
    ancestors = [each for each in spec.constructor().__mro__ if "__init__" in vars(each) and each is not object]
    rows: dict[str, str] = {}
    said: dict[str, str] = {}
    for each in spec.constructor().__mro__:  # the most derived docstring that explains an argument counts
        entries = described(inspect.getdoc(each) or "")
        said |= {name: text for name, text in entries.items() if said.get(name, "see ").startswith("see ")}
    for ancestor in ancestors:
        for name, parameter in inspect.signature(ancestor).parameters.items():
            is_free = parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            # The class has set the arguments that its base requires.
            if (
                is_free
                and name not in {*rows, *SHARED_ARGUMENTS}
                and (ancestor is ancestors[0] or parameter.default is not parameter.empty)
            ):
                default = "required" if parameter.default is parameter.empty else f"`{parameter.default!r}`"
                rows[name] = f"| `{name}` | {default} | {said.get(name, '')} |"
        if not any(each.kind is each.VAR_KEYWORD for each in inspect.signature(ancestor).parameters.values()):
            break
    return rows


def described(docstring: str) -> dict[str, str]:
    """Return the entries under "Args:" of a docstring, each on one line."""
    parts = _SECTION.split(docstring)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    entries = _ENTRY.split(sections.get("Args", ""))
    return {
        name: " ".join(text.split("\n    *")[0].split()).replace("|", "\\|")
        for name, text in zip(entries[1::2], entries[2::2], strict=True)
    }


def reference_episode(env: TextParallelEnv) -> Iterator[tuple[Any, dict[str, float], dict[str, dict[str, Any]]]]:
    """Yield observations, rewards and infos of each turn of the reference players' first episode."""
    env.reset(seed=0)
    while env.agents:
        observations, earned, _, _, infos = env.step({agent: env.reference_reply(agent) for agent in env.movers})
        yield observations, earned, infos


def prompts(spec: EnvSpec) -> str:
    """Return the whole first observation of each agent, as chat models read it. Equal texts are shown once."""
    env = make(spec, **with_explanation(spec.id, {}))
    observations, _ = env.reset(seed=0)
    env.close()
    readers: dict[str, list[str]] = {}
    for agent, text in observations.items():
        readers.setdefault(str(text).rstrip().replace("```", "'''"), []).append(f"`{agent}`")
    texts = [f"{' and '.join(agents)}:\n\n```text\n{text}\n```" for text, agents in readers.items()]
    return "\n\n".join(["What chat models read at the start of the episode with seed 0.", *texts])


def transcript(env: TextParallelEnv) -> str:
    """Return the joint history of the reference players' first episode, shortened."""
    for _ in reference_episode(env):
        pass
    lines = [
        textwrap.shorten(line, MAX_LINE_LENGTH, placeholder=" …") if len(line) > MAX_LINE_LENGTH else line
        for line in str(env.state()).rstrip().splitlines()
    ]
    shown = lines[:MAX_TRANSCRIPT_LINES]
    if len(lines) > len(shown):
        shown.append(f"… {len(lines) - len(shown)} more lines")
    return "\n".join(line.rstrip().replace("```", "'''") for line in shown)


def history(spec: EnvSpec) -> list[str]:
    """Return the changes by version, newest first."""
    lines = []
    for version in range(spec.version, 0, -1):
        id = f"{spec.name}-v{version}"
        if id not in HISTORY:
            raise ValueError(f"{id} is missing in HISTORY of docs/pages.py; add its changes")
        lines.append(f"* v{version}: {HISTORY[id]}")
    return [*lines, "* v0: first version."]


def index(own: list[EnvSpec]) -> str:
    """Return the list of all pages, with the shared arguments."""
    rows = []
    for spec in own:
        env = make(spec)
        rows.append(
            f"| [{short_name(spec)}]({short_name(spec)}.md) | {spec.summary} | {env.max_turns} | {domain(spec)} |"
        )
        env.close()
    return "\n".join(
        [
            "# Environments",
            "",
            "Each environment has its own page. Three pages describe the rules, rewards and data of a domain:",
            "[writing](writing.md), [building](games.md), [coding](coding.md). `collm play ID` prints an episode.",
            "",
            "| name | | turns | domain |",
            "|---|---|---:|---|",
            *rows,
            "",
            "## Shared arguments",
            "",
            "| argument | default | meaning |",
            "|---|---|---|",
            "| `prompts` | `None` | templates that replace the prompts ([form](games.md)) |",
            '| `render_mode` | `None` | "ansi" (`render` returns the joint history), "human" (prints it), or '
            '"rgb_array" in games |',
            "| `max_action_length` | `16384` | maximum length of a reply; longer replies are cut and counted in "
            "`metric/cut_replies` |",
            "| `max_observation_length` | `1048576` | maximum length of a history; the oldest messages after the first "
            "are dropped and counted in `metric/dropped_messages` |",
            "",
        ]
    )


if __name__ == "__main__":
    for file, text in pages().items():
        file.write_text(text)
