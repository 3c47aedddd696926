"""MkDocs hooks: pages that are generated from the code, and links from pages to files of the repository."""

from __future__ import annotations

import ast
import inspect
import io
import posixpath
import re
import textwrap
from contextlib import redirect_stdout
from dataclasses import MISSING, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"(\]\()(?!https?://|mailto:|#|/)([^)\s#]+)(#[^)\s]*)?(\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages: settings, the command, the changelog."""
    made = {
        "reference/settings.md": settings_page(),
        "reference/command.md": command_page(),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
    }
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to files that are no pages to the repository, and remove the mark "run" of Python blocks."""
    markdown = re.sub(r"(?m)^(```python) run( slow)?$", r"\1", markdown)
    folder = "" if page.file.src_uri == "changelog.md" else posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[2]))
        if target == "README.md":
            return f"{match[1]}{_relative(page, 'index.md')}{match[4]}"
        if target == "CHANGELOG.md":
            return f"{match[1]}{_relative(page, 'changelog.md')}{match[4]}"
        if target.startswith("docs/") and files.get_file_from_path(target.removeprefix("docs/")):
            return f"{match[1]}{_relative(page, target.removeprefix('docs/'))}{match[3] or ''}{match[4]}"
        if (ROOT / target).exists():
            return f"{match[1]}{config.repo_url}/blob/main/{target}{match[3] or ''}{match[4]}"
        return match[0]

    return _LINK.sub(link, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point a notebook's links to pages of the site. MkDocs converts only the links of Markdown pages."""
    if not page.file.src_uri.endswith(".ipynb"):
        return html

    def link(match: re.Match[str]) -> str:
        target = files.get_file_from_path(
            posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), match[1]))
        )
        if target is None:
            raise PluginError(f"{page.file.src_uri} links to {match[1]}, which is no page")
        return f'href="{get_relative_url(target.url, page.url)}{match[2] or ""}"'

    return re.sub(r'href="(?!https?:|[#/])([^"#]+\.(?:md|ipynb))(#[^"]*)?"', link, html)


def _relative(page: Page, target: str) -> str:
    return posixpath.relpath(target, posixpath.dirname(page.file.src_uri) or ".")


def settings_page() -> str:
    """Return the page of all settings of `collm train`, with types, defaults and docstrings of the dataclasses."""
    from collm.agents.config import ModelConfig
    from collm.agents.numeric.config import NetworkConfig
    from collm.algorithms import config as settings
    from collm.algorithms.registry import algorithm_specs
    from collm.benchmarks.commands.train import TrainArguments

    parts = [
        "# Settings\n\nThis page lists the settings of `collm train ALGORITHM`, of `collm.train(ALGORITHM, …)` and of "
        "suites. On the command line, `num_updates` is `--num-updates`. The settings class of an algorithm also has "
        "the settings of its base classes; the page lists an inherited setting again if its default differs.\n"
    ]
    classes: list[type[Any]] = [TrainArguments, ModelConfig, NetworkConfig, settings.TrainConfig]
    for spec in algorithm_specs():
        lineage = [each for each in reversed(spec.config.__mro__) if issubclass(each, settings.TrainConfig)]
        classes += [each for each in lineage if each not in classes]
    for each in classes:
        parts.append(_class_of_settings(each))
    return "\n".join(parts)


def _class_of_settings(kind: type[Any]) -> str:
    bases = [base for base in kind.__mro__[1:] if getattr(base, "__dataclass_fields__", None)]
    inherited = {field.name: field.default for base in bases for field in fields(base)}
    about = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    parts = [f"## {kind.__name__}\n\n{about}\n"]
    if bases:
        parts.append(f"The class has all settings of [{bases[0].__name__}](#{bases[0].__name__.lower()}).\n")
    meanings = _meanings(kind)
    for field in fields(kind):
        default = field.default if field.default is not MISSING else field.default_factory
        if field.name in inherited and inherited[field.name] == default:
            continue
        if default is MISSING:
            shown = "required"
        else:
            shown = f"default `{(default() if field.default is MISSING and callable(default) else default)!r}`"
        annotation = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
        meaning = meanings.get(field.name, "See the base class; the default differs.").replace("<", "&lt;")
        parts.append(f"`{field.name}` · `{annotation}` · {shown}\n:   {meaning}\n")
    return "\n".join(parts)


def _meanings(kind: type[Any]) -> dict[str, str]:
    """Return the docstring of each field of a dataclass."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body
    return {
        field.target.id: " ".join(ast.literal_eval(text.value).split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def command_page() -> str:
    """Return the page with the output of `collm --help` and of each command's `--help`."""
    from collm.benchmarks.cli import COMMANDS, main, usage

    parts = ["# The command\n", f"```text\n{usage()}\n```\n"]
    for name in COMMANDS:
        if name == "train":  # the page of settings has its options
            continue
        out = io.StringIO()
        with redirect_stdout(out):
            try:
                main([name, "--help"])
            except SystemExit:  # as `--help` ends
                pass
        parts.append(f"## collm {name}\n\n```text\n{_plain(out.getvalue())}\n```\n")
    return "\n".join(parts)


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip()
