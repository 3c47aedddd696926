"""Prompt templates that replace an environment's own prompts."""

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
    """Location of a paper's prompts in the code repository of this paper."""

    file: str  # path of the Python file in the repository
    sources: Mapping[str, str]  # agent, "prompt" or "system" -> function or constant of the file with the prompt
    places: Mapping[str, str]  # variable of the file -> placeholder of the template, such as "{source}"
    added: str = ""  # text that is appended to each prompt of an agent
    left_out: tuple[str, ...] = ()  # lines of a prompt that contain one of these texts are left out


@dataclass(frozen=True)
class Templates:
    """Templates of the prompts with which an episode starts."""

    texts: Mapping[str, str]
    """Agent -> template. Key "prompt": all other agents. Agents without template get the environment's own prompt."""
    system: str = ""  # system prompt of all agents; empty: no system prompt

    def opening(self, agent: str, fields: Mapping[str, str | int], own: str) -> list[Message]:
        """Return the first messages of an agent: the system prompt (unless it is "") and the filled template.

        Args:
            fields: placeholder -> value. Braces in values are kept.
            own: the environment's own prompt, which is the value of the placeholder "{default}".
        """
        text = self.texts.get(agent, self.texts.get(ALL))
        known = {**fields, OWN: own}
        filled = own if text is None else _PLACE.sub(lambda place: str(known[place[1]]), text)
        return [*([Message(SYSTEM, self.system)] if self.system else []), Message("user", filled)]


def templates(
    prompts: Prompts | None, agents: Sequence[str], fields: Mapping[str, bool], originals: Originals | None = None
) -> Templates:
    """Read and check prompt templates.

    Args:
        prompts: a mapping name -> template, or a folder of files `<name>.txt`. Names: the agents, "prompt" (for all
            other agents) and "system" (system prompt). Or the folder of the repository that `originals` describes.
            None: no templates.
        agents: names of the agents.
        fields: placeholder (such as "source" for "{source}") -> True if its value describes the task. Each template
            must contain one of these placeholders or "{default}" (the environment's own prompt).
        originals: location of the paper's prompts. None: they are not public.

    Raises:
        FileNotFoundError: if the folder does not exist.
        ValueError: if a name or placeholder is unknown, or if a template has no placeholder that describes the task.
    """
    if prompts is None:
        return Templates({})
    if isinstance(prompts, Mapping):
        texts = dict(prompts)
    elif originals is not None and (Path(prompts).expanduser() / originals.file).is_file():
        texts = original_prompts(Path(prompts).expanduser(), originals)
    else:
        folder = Path(prompts).expanduser()
        if not folder.is_dir():
            raise FileNotFoundError(
                f"prompts={str(folder)!r} is not a folder; give a folder with files like writer_0.txt"
            )
        texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))}
    names = [*agents, ALL, SYSTEM]
    unknown = sorted(set(texts) - set(names))
    if unknown or not texts:
        raise ValueError(f"prompts must be templates for some of {names}, got {unknown or 'none'}")
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
            raise ValueError(f"the prompt of {name!r} has no placeholder for the task; add {missing}")
    return Templates(texts, system)


def places_of(prompt: str, *needed: str) -> dict[str, bool]:
    """Return a dict: placeholder in `prompt` -> True if `needed` contains the placeholder."""
    return {name: name in needed for _, name, _, _ in Formatter().parse(prompt) if name}


def original_prompts(repository: Path, originals: Originals) -> dict[str, str]:
    """Read the prompts of a paper's repository as templates. The Python file is parsed, but not run.

    Raises:
        ValueError: if the file cannot be parsed, a prompt is missing, or a variable has no placeholder.
    """
    path = repository / originals.file
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise ValueError(
            f"prompts: {path} is not a Python file ({error}); give a copy of the paper's repository"
        ) from error
    found: dict[str, str] = {}
    for name, source in originals.sources.items():
        text = _function_text(tree, source, originals.places) or _constant_text(tree, source, originals.places)
        if text is None:
            raise ValueError(f"prompts: {path} defines no prompt {source!r}; give another version of the repository")
        lines = text.splitlines(keepends=True)
        kept = "".join(line for line in lines if not any(part in line for part in originals.left_out))
        found[name] = kept if name == "system" else kept + originals.added
    return found


def _function_text(tree: ast.Module, name: str, places: Mapping[str, str]) -> str | None:
    """Convert the longest f-string of the function `name` to a template. None: the function has no f-string."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
    texts = [node for function in functions[:1] for node in ast.walk(function) if isinstance(node, ast.JoinedStr)]
    if not texts:
        return None
    longest = max(texts, key=lambda text: len(ast.unparse(text)))
    parts = []
    for part in longest.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
        else:
            names = [node.id for node in ast.walk(part) if isinstance(node, ast.Name)]
            parts.append(_place(names[0] if names else "", places))
    return textwrap.dedent("".join(parts))


def _constant_text(tree: ast.Module, name: str, places: Mapping[str, str]) -> str | None:
    """Convert the string that is assigned to the variable `name` to a template. None: the variable does not exist."""
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
        raise ValueError(f"the paper's prompt has {name!r}, which is not in {sorted(places)}; write your own templates")
    return places[name]
