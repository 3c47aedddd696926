"""The `collm` command: each of its commands is a module of `commands/`, imported when it is called."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from .._errors import nearest
from .._extras import require
from .._terminal import shown
from ..agents.config import CHAT
from .errors import line_of

COMMANDS = {
    "envs": ("collm.benchmarks.commands.envs", "list the environments; with --scores, their floors and ceilings"),
    "check": ("collm.benchmarks.commands.check", "hold an environment to the whole contract"),
    "play": ("collm.benchmarks.commands.playing.play", "play one episode and print it"),
    "train": ("collm.benchmarks.commands.train", "train a team: collm train ALGORITHM --env ID"),
    "replay": ("collm.benchmarks.commands.playing.replay", "play an episode of a run again, turn by turn"),
    "resume": ("collm.benchmarks.commands.resume", "go on with a run that was stopped, or prolong a finished one"),
    "evaluate": ("collm.benchmarks.commands.evaluate", "let trained teams or models play held-out tasks"),
    "crossplay": ("collm.benchmarks.commands.playing.crossplay", "let members of different runs play together"),
    "chat": ("collm.benchmarks.commands.playing.chat", "talk to an agent of a run"),
    "export": ("collm.benchmarks.commands.export", "write a run's models for transformers, with a model card"),
    "demo": ("collm.benchmarks.commands.demo", "watch two small language models learn to write together"),
    "doctor": ("collm.benchmarks.commands.doctor", "what this machine has, and what a training needs of it"),
    "benchmark": ("collm.benchmarks.commands.benchmark", "compare algorithms on environments with several seeds"),
    "report": ("collm.benchmarks.commands.report", "one page about runs: curves, intervals, episodes to read"),
    "throughput": ("collm.benchmarks.commands.throughput", "measure this machine: rollouts, decoding, updates"),
}
_NEEDS = dict.fromkeys(("envs", "check", "play"), ("rich", "tyro"))
"""Packages of the commands that need no torch."""
_BY_RANKS = {"train", "resume"}
"""Commands that several processes of torchrun carry out together."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, or 2 for a mistake in the call."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    # Before torch starts its threads: spinning ones slow a small model down many times where cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if not args or args[0] in ("-h", "--help"):
        print(usage())
        return 0
    if args[0] == "--version":
        from importlib.metadata import version  # here, as reading it takes longer than the rest

        print(f"collm {version('collm')}")
        return 0
    name, *rest = args
    if name not in COMMANDS:
        print(f"error: there is no command {shown(repr(name))}; {nearest(name, COMMANDS)}", file=sys.stderr)
        return 2
    num_ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if num_ranks > 1 and name not in _BY_RANKS:
        if os.environ.get("RANK", "0") == "0":
            print(
                f"error: collm {name} runs in one process, and torchrun has started {num_ranks} (WORLD_SIZE); start it "
                "without torchrun, which is for collm train and collm resume",
                file=sys.stderr,
            )
        return 2
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # where a person's own environments lie; last, so that none shadows a library
    with _interruptions() as interruptions, _plain_warnings():
        try:
            require(*_NEEDS.get(name, ("torch", "transformers")))
            if any(CHAT in each for each in rest):  # else torch is loaded before the model is
                require("openai")
            importlib.import_module(COMMANDS[name][0]).run(rest)
        except BrokenPipeError:  # the reader of our output, such as `head`, has gone
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
            )  # for what is still to be flushed at the exit
            return 1
        except Exception as error:
            if interruptions:  # a library that was being imported made an error of its own of it
                return _interrupted()
            line = line_of(error)
            if line is None:
                raise
            print(f"error: {shown(line)}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            return _interrupted()
    return 0


def _interrupted() -> int:
    print("interrupted", file=sys.stderr)
    return 130


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print each warning as one line; the place that raised it helps only those who call collm from Python."""

    def line(message: Warning | str, *place: object, **line_of_source: object) -> str:
        return f"warning: {shown(message)}\n"

    usual = warnings.formatwarning
    warnings.formatwarning = line
    try:
        yield
    finally:
        warnings.formatwarning = usual


@contextmanager
def _interruptions() -> Iterator[list[int]]:
    """A list that gets an entry for each Ctrl-C, which raises KeyboardInterrupt as it always does."""
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        signal.default_int_handler(number, frame)

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield seen
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def usage() -> str:
    """Text of `collm --help`."""
    lines = [f"  {name:<12}{summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(["usage: collm COMMAND …", "", *lines, "", "`collm COMMAND --help` explains a command's options."])


if __name__ == "__main__":
    sys.exit(main())
