"""Prompt templates that replace an environment's own prompts, from a user or from a published repository."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter

from .core import Message

Prompts = Mapping[str, str] | str | Path
SYSTEM, ALL, OWN = "system", "prompt", "default"
_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class Originals:
    """Location of the published prompts of an environment."""

    file: str
    """Path of the Python file in the repository."""
    sources: Mapping[str, str]
    """Name of a prompt (an agent, "prompt" or "system") -> name of the function that makes the prompt from an
    f-string, or of the constant with the prompt."""
    places: Mapping[str, str]
    """Name of a value in the published code -> placeholder of this package, such as "{source}"."""
    added: str = ""
    """Text that the published code adds to each prompt of an agent."""
    left_out: tuple[str, ...] = ()
    """Texts. Lines that contain one of them are left out."""


@dataclass(frozen=True)
class Templates:
    """Templates for the first messages of an episode."""

    texts: Mapping[str, str]
    """Agent -> template. The key "prompt" is for all other agents. Without a template, the default prompt is used."""
    system: str = ""
    """System prompt of all agents. Empty: no system prompt."""

    def opening(self, agent: str, fields: Mapping[str, str | int], own: str) -> list[Message]:
        """Return the first messages of an agent.

        Args:
            fields: placeholder -> value. Braces in values are kept unchanged.
            own: the environment's own prompt, which replaces "{default}".
        """
        text = self.texts.get(agent, self.texts.get(ALL))
        known = {**fields, OWN: own}
        filled = own if text is None else _PLACE.sub(lambda place: str(known[place[1]]), text)
        return [*([Message(SYSTEM, self.system)] if self.system else []), Message("user", filled)]


def templates(
    prompts: Prompts | None,
    agents: Sequence[str],
    fields: Mapping[str, bool],
    originals: Originals | None = None,
) -> Templates:
    """Read and check prompt templates.

    Args:
        prompts: a mapping name -> template, or a folder of files `<name>.txt`. A name is an agent, "prompt" (for all
            other agents) or "system" (for the system prompt). Or a copy of the repository with the published prompts
            (`originals`). None: no templates.
        agents: names of the agents.
        fields: placeholder (such as "source" for "{source}") -> True if it describes the task. Each template must
            contain at least one of these, or "{default}", which stands for the environment's own prompt.
        originals: location of the published prompts. None: they are not public.

    Raises:
        FileNotFoundError: if the folder does not exist.
        ValueError: if a name or a placeholder is unknown, or a template has no placeholder that describes the task.
    """
    if prompts is None:
        return Templates({})
    if isinstance(prompts, Mapping):
        texts = dict(prompts)
    elif originals is not None and (Path(prompts).expanduser() / originals.file).is_file():
        texts = original_prompts(Path(prompts).expanduser(), originals)
    else:
        texts = _texts_in(Path(prompts).expanduser())
    names = [*agents, ALL, SYSTEM]
    unknown = sorted(set(texts) - set(names))
    if unknown or not texts:
        raise ValueError(f"prompts must be texts for some of {names}, got {unknown or 'none'}")
    if wrong := [name for name, text in texts.items() if not isinstance(text, str)]:
        raise ValueError(f"the prompt of {wrong[0]!r} must be a text, got {texts[wrong[0]]!r}")
    system = texts.pop(SYSTEM, "")
    fields = {**fields, OWN: True}
    needed = [name for name, is_needed in fields.items() if is_needed]
    for name, text in texts.items():
        places = set(_PLACE.findall(text))
        if strange := sorted(places - set(fields)):
            known = ", ".join(f"{{{field}}}" for field in fields)
            raise ValueError(f"the prompt of {name!r} has an unknown placeholder {{{strange[0]}}}; known are {known}")
        if not places & set(needed):
            missing = " or ".join(f"{{{field}}}" for field in needed)
            raise ValueError(f"the prompt of {name!r} does not contain the task; add {missing}")
    return Templates(texts, system)


def places_of(prompt: str, *needed: str) -> dict[str, bool]:
    """Return the placeholders of a prompt, as a dict: placeholder -> True if it is in `needed`."""
    return {name: name in needed for _, name, _, _ in Formatter().parse(prompt) if name}


def _texts_in(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        raise FileNotFoundError(f"prompts={str(folder)!r} is not a folder; give one with files such as writer_0.txt")
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))}


def original_prompts(repository: Path, originals: Originals) -> dict[str, str]:
    """Read published prompts, as templates with the placeholders of this package. The file is parsed and not run.

    Raises:
        ValueError: if the file does not parse, lacks a prompt, or uses an unknown value.
    """
    path = repository / originals.file
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"prompts: {path} is not a Python file ({error}); give a copy of the repository") from error
    found: dict[str, str] = {}
    for name, source in originals.sources.items():
        text = _function_text(tree, source, originals.places) or _constant_text(tree, source, originals.places)
        if text is None:
            raise ValueError(f"prompts: {path} has no prompt {source!r}; give another version of the repository")
        lines = text.splitlines(keepends=True)
        kept = "".join(line for line in lines if not any(part in line for part in originals.left_out))
        found[name] = kept if name == "system" else kept + originals.added
    return found


def _function_text(tree: ast.Module, name: str, places: Mapping[str, str]) -> str | None:
    """Return the longest f-string of a function, with placeholders."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
    texts = [node for function in functions[:1] for node in ast.walk(function) if isinstance(node, ast.JoinedStr)]
    if not texts:
        return None
    longest = max(texts, key=lambda text: len(ast.unparse(text)))
    return textwrap.dedent("".join(_part(part, places) for part in longest.values))


def _part(part: ast.expr, places: Mapping[str, str]) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    names = [node.id for node in ast.walk(part) if isinstance(node, ast.Name)]
    return _place(names[0] if names else "", places)


def _constant_text(tree: ast.Module, name: str, places: Mapping[str, str]) -> str | None:
    """Return a constant string with placeholders of `str.format`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            text = str(ast.literal_eval(node.value))
            return "".join(
                literal + ("" if field is None else _place(field, places))
                for literal, field, _, _ in Formatter().parse(text)
            )
    return None


def _place(name: str, places: Mapping[str, str]) -> str:
    if name not in places:
        raise ValueError(f"a published prompt uses {name!r}, but known are {sorted(places)}; use your own templates")
    return places[name]
