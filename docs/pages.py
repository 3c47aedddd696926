"""Write a page for each registered environment, and the list of them, from what the code says and does.

python docs/pages.py
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collm.benchmarks.commands.envs import mean_scores
from collm.envs import EnvSpec, make, specs
from collm.envs.checks.exploits import NUM_EPISODES as NUM_EXPLOIT_EPISODES
from collm.envs.checks.exploits import exploit_standings
from collm.envs.core import TextParallelEnv
from collm.envs.registration.registry import accepted_arguments

FOLDER = Path(__file__).resolve().parent / "environments"
NAMESPACE = "collm/"
NUM_EPISODES = 20
MAX_TRANSCRIPT_LINES, MAX_LINE_LENGTH = 60, 160
_IMPROVEMENT = (
    "a turn is paid for what it improves, so that solving at once is the best return, and half of the tests' points "
    "need all of them"
)
_FUNCTIONS = f"{_IMPROVEMENT}, as does cooperation; built-in problems of its own; `variant`, `prompts`, `needs_both`."
_GROUNDED = "all points but the structure's are paid as far as both texts tell what the source tells"
_VERIFIED = (
    "groundedness judges the word order of each sentence; full credit is for sentences of the source, whole or "
    "shortened, and half of it for fluent sentences of other words."
)
_BUILDERS = "minus signs and whole parts of numbers count; two to six builders; `stop_at` needs `shift`."
HISTORY: dict[str, str] = {
    "collm/StrBuild-v2": "the reward falls if a builder has fewer of the set letter cells than its quota "
    "(`needs_both`).",
    "collm/StrBuild-v1": f'pays `reward="iou"` by default, 0 to 1 per turn; {_BUILDERS}',
    "collm/HouseBuild-v2": "a builder may fill no more than an equal part of each block (`needs_both`).",
    "collm/HouseBuild-v1": _BUILDERS,
    "collm/BridgeBuild-v2": "each worker lays planks on the far half, which only its partner sees at first; more false "
    "pillars; `view` 5, `max_steps` 1 and `max_probes` 6 by default; the reference is an honest player that talks.",
    "collm/BridgeBuild-v1": "planks cost, and each worker lays them on its own side, by default; the last object of a "
    "reply counts, JSON or Python.",
    "collm/ResourceGathering-v2": "what a gatherer can take lies, on generated lands, where only its partner sees it; "
    "larger lands; `view` 3 and `reach` 1 by default; the reference is an honest player that talks.",
    "collm/ResourceGathering-v1": "bonuses do not grow with the turns, by default; replies as in BridgeBuild-v1.",
    "collm/HumanEval-v1": _FUNCTIONS,
    "collm/MBPP-v1": _FUNCTIONS,
    "collm/CoopHumanEval-v1": _FUNCTIONS,
    "collm/ClassEval-v1": f"{_IMPROVEMENT}; `variant`, `prompts`, `needs_both`.",
    "collm/TLDR-v2": _VERIFIED,
    "collm/TLDR-v1": f"{_GROUNDED}, and both tell of all of it; `variant`, `prompts`.",
    "collm/ArxivExpansion-v2": _VERIFIED,
    "collm/ArxivExpansion-v1": f"{_GROUNDED}; `variant`, `prompts`.",
    "collm/MiniWriting-v2": "the texts are parsed, and paid for the facts of the post that they state (v1 paid up to "
    "1.0 for a salad that kept one pair of words in three); no fact stands twice in a post; larger teams have longer "
    "posts.",
    "collm/MiniCode-v1": "a test counts only if each programmer computes its part (v0 paid 1.0 for a helper that wrote "
    "the same line in every task); without aux the tests are worth 0.1; `needs_both`.",
    "collm/MiniWriting-v1": f"{_GROUNDED}; a linking word before another one is none; `prompts`.",
}
"""What changed with a version above 0, by its id."""
_SECTION = re.compile(r"^(Args|Returns|Raises):$", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}(\w+): ", re.MULTILINE)


def pages() -> dict[Path, str]:
    """Every generated file with what belongs in it."""
    own = [spec for spec in specs() if spec.id.startswith(NAMESPACE)]
    found = {FOLDER / f"{short_name(spec)}.md": page(spec) for spec in own}
    return found | {FOLDER / "README.md": index(own)}


def short_name(spec: EnvSpec) -> str:
    """The name without namespace and version, which is also the page's."""
    return spec.name.removeprefix(NAMESPACE)


def domain(spec: EnvSpec) -> str:
    """The folder an environment lives in; a page of the same name explains all of them."""
    return spec.constructor().__module__.split(".")[2]


def page(spec: EnvSpec, has_exploits: bool = True) -> str:
    """An environment's page; without the degenerate players, whose episodes take long, where they are not asked for."""
    env = make(spec)
    parts = [
        f"# {short_name(spec)}",
        f"{spec.summary} Rules, formulas of the rewards, data: [{domain(spec)}]({domain(spec)}.md).",
        prose(spec),
        facts(spec, env),
        "## Scores",
        scores(env),
        *ceilings(env),
        *(["## Degenerate players", exploits(env)] if has_exploits else []),
        "## Rewards of the reference players",
        rewards(env),
        "## Arguments",
        arguments(spec),
        "## A transcript",
        f"The reference players with seed 0.\n\n```text\n{transcript(env)}\n```",
        "## Versions",
        "\n".join(history(spec)),
    ]
    env.close()
    return "\n\n".join(parts) + "\n"


def prose(spec: EnvSpec) -> str:
    """The docstring of the class up to its arguments."""
    return _SECTION.split(inspect.getdoc(spec.constructor()) or "")[0].strip()


def facts(spec: EnvSpec, env: TextParallelEnv) -> str:
    """The table at the head of the page."""
    first = env.possible_agents[0]
    rows = {
        "Creation": f'`collm.envs.make("{spec.id}")`',
        "Agents": ", ".join(f"`{agent}`" for agent in env.possible_agents),
        "Turns": f"{env.max_turns}; all agents act at once",
        "Observations": f"`{env.observation_space(first)}`",
        "Actions": f"`{env.action_space(first)}`",
        "State": f"`{env.state_space}`",
        "Told to a privileged critic alone": truth(env),
        "Splits": ", ".join(f"`{split}`" for split in splits(spec)),
        "Rendering": ", ".join(f"`{mode}`" for mode in env.metadata["render_modes"]),
        "Single agent": f'`gymnasium.make("{spec.id}", agent="{first}")`',
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items() if value)])


def truth(env: TextParallelEnv) -> str:
    """How what the agents do not see begins; empty where nothing is hidden."""
    env.reset(seed=0)
    return f"`{textwrap.shorten(env.truth(), 60, placeholder=' …')}`" if env.truth() else ""


def splits(spec: EnvSpec) -> tuple[str, ...]:
    """The splits that the environment's data has by default."""
    return tuple(name for name in ("train", "test") if "split" in (accepted_arguments(spec.constructor()) or ()))


def scores(env: TextParallelEnv) -> str:
    """What scripted players reach with default settings."""
    found = {name: value for name, value in mean_scores(env, NUM_EPISODES).items() if value is not None}
    return "\n".join(
        [
            f"Mean return of a team of scripted players over {NUM_EPISODES} episodes (seeds from 0 up).",
            "",
            f"| {' | '.join(found)} |",
            f"|{'---:|' * len(found)}",
            f"| {' | '.join(f'{value:.2f}' for value in found.values())} |",
        ]
    )


def ceilings(env: TextParallelEnv) -> list[str]:
    """What errorless play reaches that lacks something; nothing where the environment does not know it."""
    rows = [f"| {lack} | {value:.3f} |" for lack, value in env.ceilings().items()]
    if not rows:
        return []
    title = "Mean return of errorless play that lacks something, computed exactly, with the default settings."
    return ["\n".join([title, "", "| what it lacks | return |", "|---|---:|", *rows])]


def exploits(env: TextParallelEnv) -> str:
    """How far teams come that do not do the task."""
    standings = exploit_standings(env)
    limit = min(each.limit for each in standings)
    rows = [
        f"| {each.player} | {each.mean_return:.2f} | {each.share:.0%} | {each.reason} |"
        for each in sorted(standings, key=lambda standing: -standing.share)
    ]
    return "\n".join(
        [
            f"Mean return over {NUM_EXPLOIT_EPISODES} episodes (seeds from 0 up), and the share of the way from a team "
            "that says nothing to the reference.",
            f"More than {limit:.0%} counts as a fault of the reward, unless a reason is given; a team that fails first "
            "may come as far as the reference.",
            "Players: [exploits](../extend/environment.md#exploits).",
            "",
            "| player | return | share of the way | why it may |",
            "|---|---:|---:|---|",
            *rows,
        ]
    )


def rewards(env: TextParallelEnv) -> str:
    """The terms of the reward and what they came to in the episode of the transcript."""
    totals: dict[str, float] = {}
    for _, earned, infos in reference_episode(env):
        first = next(iter(infos))
        for name, value in infos[first].items():
            if name.startswith("reward/"):
                totals[name] = totals.get(name, 0.0) + value
        totals["sum"] = totals.get("sum", 0.0) + earned[first]
    terms = [f"| `{name}` | {value:.2f} |" for name, value in totals.items() if name != "sum"]
    total = f"| **return** | **{totals['sum']:.2f}** |"
    return "\n".join(["| term, in `infos` | points in the episode below |", "|---|---:|", *terms, total])


def arguments(spec: EnvSpec) -> str:
    """Every argument with its default and what the docstrings say of it."""
    ancestors = [each for each in spec.constructor().__mro__ if "__init__" in vars(each) and each is not object]
    rows: dict[str, str] = {}
    said: dict[str, str] = {}
    for each in spec.constructor().__mro__:  # a class says what arguments mean that its base takes, too
        entries = described(inspect.getdoc(each) or "")
        said |= {name: text for name, text in entries.items() if said.get(name, "see ").startswith("see ")}
    for ancestor in ancestors:
        for name, parameter in inspect.signature(ancestor).parameters.items():
            is_free = parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            # What the base class cannot do without, the class has given it.
            if is_free and name not in rows and (ancestor is ancestors[0] or parameter.default is not parameter.empty):
                default = "required" if parameter.default is parameter.empty else f"`{parameter.default!r}`"
                rows[name] = f"| `{name}` | {default} | {said.get(name, '')} |"
        if not any(each.kind is each.VAR_KEYWORD for each in inspect.signature(ancestor).parameters.values()):
            break
    return "\n".join(["| argument | default | meaning |", "|---|---|---|", *rows.values()])


def described(docstring: str) -> dict[str, str]:
    """The entries under "Args:" of a docstring, each on one line."""
    parts = _SECTION.split(docstring)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    entries = _ENTRY.split(sections.get("Args", ""))
    return {
        name: " ".join(text.split("\n    *")[0].split()).replace("|", "\\|")
        for name, text in zip(entries[1::2], entries[2::2], strict=True)
    }


def reference_episode(env: TextParallelEnv) -> Iterator[tuple[Any, dict[str, float], dict[str, dict[str, Any]]]]:
    """Observations, rewards and infos of each turn of the reference players' first episode."""
    env.reset(seed=0)
    while env.agents:
        observations, earned, _, _, infos = env.step({agent: env.reference_reply(agent) for agent in env.agents})
        yield observations, earned, infos


def transcript(env: TextParallelEnv) -> str:
    """The joint history of that episode, cut where it is long."""
    for _ in reference_episode(env):
        pass
    lines = [
        textwrap.shorten(line, MAX_LINE_LENGTH, placeholder=" …") if len(line) > MAX_LINE_LENGTH else line
        for line in str(env.state()).rstrip().splitlines()
    ]
    shown = lines[:MAX_TRANSCRIPT_LINES]
    if len(lines) > len(shown):
        shown.append(f"… and {len(lines) - len(shown)} lines more")
    return "\n".join(line.rstrip().replace("```", "'''") for line in shown)


def history(spec: EnvSpec) -> list[str]:
    """What changed, newest first."""
    lines = []
    for version in range(spec.version, 0, -1):
        id = f"{spec.name}-v{version}"
        if id not in HISTORY:
            raise ValueError(f"{id} is new; say in HISTORY of docs/pages.py what changed")
        lines.append(f"* v{version}: {HISTORY[id]}")
    return [*lines, "* v0: first version."]


def index(own: list[EnvSpec]) -> str:
    """The list of all pages."""
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
            "A page each, and one a domain with rules, rewards, data and comparisons: [writing](writing.md),",
            "[building](games.md), [coding](coding.md).",
            "",
            "| name | | turns | domain |",
            "|---|---|---:|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    for file, text in pages().items():
        file.write_text(text)
