"""`python docs/tree.py` writes docs/tree.md: the tree of the source, a phrase per file from its own docstring."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("envs", "agents", "algorithms", "benchmarks")
PAGE = Path(__file__).with_name("tree.md")
WIDTH = 140


def phrase(file: Path) -> str:
    """The first sentence of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
    first = re.split(r"(?<=[a-z)`\]])\.(?:\s|$)", " ".join(docstring.split("\n\n")[0].split()))[0]
    return first.strip().rstrip(".")


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
    """The page."""
    rows = [row.split("|", 1) for layer in LAYERS for row in lines(ROOT / layer)]
    rows += [
        ["src/collm/", "The front door: what `import collm` offers; the four folders are linked from it"],
        ["research/", "Studies behind the findings: scripts, suites and results, outside of the package"],
        ["tools/", "Scripts that made files of the package: the embedded model, the forms of English"],
        ["tests/", "They mirror the tree; `interop/` runs other libraries' trainings"],
        ["docs/", "Pages: environments, extending, speed, sandbox, use with other libraries"],
        ["examples/", "Short scripts, one per library"],
    ]
    width = max(len(name) for name, _ in rows) + 2
    shown = [f"{name:<{width}}{text}" for name, text in rows]
    cut = [line if len(line) <= WIDTH else line[: WIDTH - 1].rsplit(" ", 1)[0] + " …" for line in shown]
    return "\n".join(
        [
            "# The tree",
            "",
            "A phrase per file, from its docstring (`python docs/tree.py`).",
            "",
            "```text",
            *cut,
            "```",
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(tree())
