"""Command lines about a run, as messages print them."""

from __future__ import annotations

import shlex
from pathlib import Path

from ...._errors import UserError
from ...._json import explained_content
from ..files import read_config
from .trust import needs_trust

_TRUSTING = ("resume", "evaluate", "chat", "replay")
"""Commands that take `--trust`."""


def run_command(name: str, directory: Path, *options: str, env: str | None = None) -> str:
    """A command line about a run, with `--trust` if the run's settings need it.

    Args:
        name: command of `collm`, such as resume.
        directory: folder of the run.
        options: further words of the command line.
        env: environment of an episode that is replayed alone, without the run's other settings. None: those count.
    """
    words = ["collm", name, str(directory), *options]
    if name in _TRUSTING and _needs_trust(directory, env):
        words.append("--trust")
    return shlex.join(words)


def next_commands(directory: Path) -> str:
    """Suggested follow-up commands of a finished run."""
    commands = [run_command(name, directory) for name in ("report", "evaluate", "chat")]
    return ", ".join([*commands, run_command("export", directory, "OUT")])


def _needs_trust(directory: Path, env: str | None) -> bool:
    try:
        with explained_content(directory):
            saved = read_config(directory) if env is None else {"env": env}
            return needs_trust(saved, directory) is not None
    except (FileNotFoundError, UserError):  # the command itself says what is wrong with the settings
        return False
