"""The `collm` command. Each subcommand is a module of `commands/` that is imported only when it is called."""

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
from .._extras import FOR_TRAINING, require
from .._terminal import shown
from ..agents.config import CHAT
from .errors import line_of

COMMANDS = {
    "envs": ("collm.benchmarks.commands.envs", "list the environments, or the returns of scripted players"),
    "check": ("collm.benchmarks.commands.check", "check that an environment follows collm's rules"),
    "play": ("collm.benchmarks.commands.playing.play", "play one episode and print it"),
    "train": ("collm.benchmarks.commands.train", "train a team: collm train ALGORITHM --env ID"),
    "replay": ("collm.benchmarks.commands.playing.replay", "replay an episode, and compare it with its record"),
    "rescore": ("collm.benchmarks.commands.playing.rescore", "score recorded episodes with other reward functions"),
    "resume": ("collm.benchmarks.commands.resume", "continue a stopped run, or extend a finished one"),
    "evaluate": ("collm.benchmarks.commands.evaluate", "evaluate trained teams or models on held-out tasks"),
    "crossplay": ("collm.benchmarks.commands.playing.crossplay", "evaluate teams of agents from different runs"),
    "exploit": ("collm.benchmarks.commands.playing.exploit", "measure how much each agent gains if it alone deviates"),
    "chat": ("collm.benchmarks.commands.playing.chat", "chat with an agent of a run"),
    "imitate": ("collm.benchmarks.commands.imitate", "train a start checkpoint on scripted demonstrations"),
    "export": ("collm.benchmarks.commands.export", "write a run's models for transformers, with a model card"),
    "push": ("collm.benchmarks.commands.hub.push", "upload a team to the Hugging Face hub"),
    "pull": ("collm.benchmarks.commands.hub.pull", "download a team from the Hugging Face hub"),
    "demo": ("collm.benchmarks.commands.demo", "train two small language models to write together"),
    "doctor": ("collm.benchmarks.commands.machine.doctor", "show this machine, or the memory that a training needs"),
    "benchmark": ("collm.benchmarks.commands.benchmark", "compare algorithms on environments with several seeds"),
    "report": ("collm.benchmarks.commands.report", "write an HTML page about runs: figures, tables, episodes"),
    "throughput": (
        "collm.benchmarks.commands.machine.throughput",
        "measure the speed of rollouts and updates",
    ),
}
_WITHOUT_TRAINING = {"envs", "check", "play", "doctor"}  # commands that also work in an installation without torch
_BY_RANKS = {"train", "resume"}  # commands that support torchrun


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status: 0, or 2 if the call contains a mistake."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    # Set before torch starts threads, because spinning threads make small models many times slower on shared cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if not args or args[0] in ("-h", "--help"):
        print(usage())
        return 0
    if args[0] == "--version":
        from importlib.metadata import version  # late import, because it is slow

        print(f"collm {version('collm')}")
        return 0
    name, *rest = args
    if name not in COMMANDS:
        print(f"error: {shown(repr(name))} is not a command; {nearest(name, COMMANDS)}", file=sys.stderr)
        return 2
    num_ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if num_ranks > 1 and name not in _BY_RANKS:
        if os.environ.get("RANK", "0") == "0":
            print(
                f"error: collm {name} runs in one process, and torchrun has started {num_ranks} processes "
                "(WORLD_SIZE); run it without torchrun, which only collm train and collm resume support",
                file=sys.stderr,
            )
        return 2
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # for the user's environments; last, so that no module shadows a library
    with _interruptions() as interruptions, _plain_warnings():
        try:
            require(*(() if name in _WITHOUT_TRAINING else FOR_TRAINING))
            if any(CHAT in each for each in rest):  # raises before the slow import of torch
                require("openai")
            importlib.import_module(COMMANDS[name][0]).run(rest)
        except BrokenPipeError:  # the reader of the output, such as `head`, has exited
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # output that is flushed at exit
            return 1
        except Exception as error:
            if interruptions:  # a library replaced the KeyboardInterrupt with another error during its import
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
    """Print each warning as one line, without its source line."""

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
    """Record each Ctrl-C in a list. KeyboardInterrupt is still raised."""
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
    lines = [f"  {name:<12}{summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(["usage: collm COMMAND …", "", *lines, "", "`collm COMMAND --help` explains a command's options."])


if __name__ == "__main__":
    sys.exit(main())
