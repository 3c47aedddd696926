"""`collm chat RUN`: a talk with one trained agent, line by line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.text import Text
from tyro.conf import Positional

from ...._errors import nearest
from ...._ranges import Checked, Count, Seed
from ...._terminal import shown, terminal
from ....algorithms.runs.files import read_config
from ...arguments import parsed
from ...errors import UserError, refusals

if TYPE_CHECKING:
    from ....agents.language.policy import LanguagePolicy

EXAMPLES = ("collm chat runs/build --agent builder_1", "echo 'gate stone' | collm chat runs/build --greedy")


@dataclass(frozen=True, kw_only=True)
class ChatArguments(Checked):
    """Talk to an agent of a run: each line is a message, which it answers with all that was said before in mind."""

    directory: Positional[Path]
    """Run directory of `collm train`."""
    agent: str | None = None
    """Agent to talk to. None: the first."""
    system: str | None = None
    """System prompt before the first message. None: no system prompt."""
    max_new_tokens: Count | None = None
    """Tokens after which an answer is cut. None: as in training."""
    greedy: bool = False
    """Take the likeliest tokens in place of sampling."""
    seed: Seed = 0
    """Seed of sampling."""
    trust: bool = False
    """Allow settings of a run that import code, loosen the sandbox, or name files and servers outside of its folder.
    Only for folders whose author you trust."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(ChatArguments, "chat", args, examples=EXAMPLES)
    with refusals():
        read_config(arguments.directory)  # which refuses what is no run, before torch takes its seconds
    with refusals():
        agent, policy = partner(arguments)
    talk(agent, policy, arguments, sys.stdin, terminal())


def partner(arguments: ChatArguments) -> tuple[str, LanguagePolicy]:
    """The agent that was asked for, and its policy.

    Raises:
        UserError: if there is no such agent, or it does not write.
    """
    from transformers.utils import logging as transformers_logging  # here, as help needs no torch

    from ....agents.language.policy import LanguagePolicy
    from ....algorithms.runs.api import load_run

    transformers_logging.disable_progress_bar()
    policies = load_run(arguments.directory, trust=arguments.trust).policies
    agent = arguments.agent if arguments.agent is not None else next(iter(policies))
    if agent not in policies:
        raise UserError(f"the run has no agent {agent!r}; {nearest(agent, policies)}")
    policy = policies[agent]
    if not isinstance(policy, LanguagePolicy):
        raise UserError(f"{agent!r} is no language model, so there is nothing to talk to")
    if arguments.max_new_tokens is not None:
        policy.max_new_tokens = arguments.max_new_tokens
    return agent, policy


def talk(agent: str, policy: LanguagePolicy, arguments: ChatArguments, lines: TextIO, console: Console) -> None:
    """Answer each line, up to the end of the input."""
    from ....agents.core import Completion, Request
    from ....envs.core import Message, Transcript

    system = [] if arguments.system is None else [Message("system", arguments.system)]
    history, previous = Transcript(system), None
    if lines.isatty():
        console.print(f"You talk to {shown(agent)}; Ctrl-D ends it.", style="dim", markup=False)
    for number, line in enumerate(lines):
        history = history.extended(Message("user", line.rstrip("\r\n")))
        request = Request(agent, history, (arguments.seed, 0, 0, number), previous)
        previous = policy.act([request], greedy=arguments.greedy)[0]
        assert isinstance(previous, Completion)
        history = history.extended(Message("assistant", str(previous.action), agent))
        console.print(Text(shown(str(previous.action)), style="green"))
