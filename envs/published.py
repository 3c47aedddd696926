"""Prompts from a user's copy of a published repository. Its Python files are parsed and never run."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter


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


def original_prompts(repository: Path, originals: Originals) -> dict[str, str]:
    """Read published prompts, as templates with the placeholders of this package.

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
