"""`python docs/tree.py` writes the tree of the source into README.md: a phrase a file, from its own docstring."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("envs", "agents", "algorithms", "benchmarks")
MARKS = ("<!-- tree -->", "<!-- end of tree -->")
WIDTH = 118


def phrase(file: Path) -> str:
    """The first sentence of a module's docstring, without what names the module itself."""
    docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
    first = re.split(r"(?<=[a-z)`\]])[.:](?:\s|$)", " ".join(docstring.split("\n\n")[0].split()))
    text = first[1] if len(first) > 1 and len(first[0].split()) <= 2 and first[1] else first[0]
    return text.strip().rstrip(".")


def lines(folder: Path, depth: int = 0) -> list[str]:
    """A folder with its modules, then its sub-folders."""
    indent = "  " * depth
    found = [f"{indent}{folder.name}/|{phrase(folder / '__init__.py')}"]
    files = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    found += [f"{indent}  {path.name}|{phrase(path)}" for path in files]
    for path in sorted(path for path in folder.iterdir() if (path / "__init__.py").is_file()):
        found += lines(path, depth + 1)
    return found


def tree() -> str:
    """The block that stands in the README."""
    rows = [row.split("|", 1) for layer in LAYERS for row in lines(ROOT / layer)]
    rows += [
        ["tests/", "mirror the tree"],
        ["docs/", "pages: environments, speed, sandbox, use with other libraries"],
        ["examples/", "short scripts, one a library"],
    ]
    width = max(len(name) for name, _ in rows) + 2
    shown = [f"{name:<{width}}{text}" for name, text in rows]
    cut = [line if len(line) <= WIDTH else line[: WIDTH - 1].rsplit(" ", 1)[0] + " …" for line in shown]
    return "\n".join([MARKS[0], "```text", *cut, "```", MARKS[1]])


def updated(readme: str) -> str:
    """The README with the tree as it is now."""
    start, end = readme.index(MARKS[0]), readme.index(MARKS[1]) + len(MARKS[1])
    return readme[:start] + tree() + readme[end:]


if __name__ == "__main__":
    file = ROOT / "README.md"
    file.write_text(updated(file.read_text()))
