"""The `collm` command: each of its commands is a module of this folder, imported when it is called."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

COMMANDS = {
    "envs": ("collm.benchmarks.listing", "list the environments; with --scores, their floors and ceilings"),
    "check": ("collm.benchmarks.checking", "hold an environment to the whole contract"),
    "play": ("collm.benchmarks.playing", "play one episode and print it"),
    "train": ("collm.benchmarks.training", "train a team: collm train ALGORITHM --env ID"),
    "evaluate": ("collm.benchmarks.evaluating", "let a trained team play held-out tasks"),
    "demo": ("collm.benchmarks.demo", "watch two small language models learn to write together"),
    "benchmark": ("collm.benchmarks.benchmark", "compare algorithms on environments with several seeds"),
    "report": ("collm.benchmarks.reporting", "one page about runs: curves, intervals, episodes to read"),
    "throughput": ("collm.benchmarks.throughput", "measure this machine: rollouts, updates, sandbox"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, or 2 for a mistake in the call."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    # Before torch starts its threads: spinning ones slow a small model down many times where cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if not args or args[0] in ("-h", "--help"):
        print(usage())
        return 0
    name, *rest = args
    if name not in COMMANDS:
        print(f"error: there is no command {name!r}\n\n{usage()}", file=sys.stderr)
        return 2
    module = importlib.import_module(COMMANDS[name][0])
    try:
        module.run(rest)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def usage() -> str:
    """What `collm --help` prints."""
    lines = [f"  {name:<12}{summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(["usage: collm COMMAND …", "", *lines, "", "`collm COMMAND --help` explains a command's options."])


class UserError(Exception):
    """A mistake in the call: its message is all that is shown."""


@contextmanager
def refusals() -> Iterator[None]:
    """Show what is refused inside as one clear line, not as a traceback: for checks of what a person typed."""
    try:
        yield
    except (ValueError, TypeError, LookupError, OSError, ImportError) as error:
        # A KeyError shows its message in quotation marks.
        raise UserError(str(error.args[0]) if isinstance(error, KeyError) else str(error)) from error


if __name__ == "__main__":
    sys.exit(main())
