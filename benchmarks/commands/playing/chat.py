"""`collm chat RUN`: chat with one trained agent, line by line."""

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
from ...._ranges import Count, Seed
from ...._terminal import shown, terminal
from ....algorithms.runs.files import read_config
from ...arguments import TrustArguments, parsed
from ...errors import UserError, refusals

if TYPE_CHECKING:
    from ....agents.language.policy import LanguagePolicy

EXAMPLES = ("collm chat runs/build --agent builder_1", "echo 'gate stone' | collm chat runs/build --greedy")


@dataclass(frozen=True, kw_only=True)
class ChatArguments(TrustArguments):
    """Chat with an agent of a run. Each line is a message; the agent reads the whole conversation."""

    directory: Positional[Path]
    """Run directory of `collm train`."""
    agent: str | None = None
    """Agent to chat with. None: the first agent."""
    system: str | None = None
    """System prompt before the first message. None: no system prompt."""
    max_new_tokens: Count | None = None
    """Maximum tokens per answer. None: the limit of the training."""
    greedy: bool = False
    """Generate greedily (most likely token) instead of sampling."""
    seed: Seed = 0
    """Seed of the random numbers for sampling."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(ChatArguments, "chat", args, examples=EXAMPLES)
    with refusals():
        read_config(arguments.directory)  # raises before the slow import of torch
        agent, policy = partner(arguments)
    talk(agent, policy, arguments, sys.stdin, terminal())


def partner(arguments: ChatArguments) -> tuple[str, LanguagePolicy]:

    from ....agents.language.policy import LanguagePolicy
    from ....algorithms.runs.api import load_run

    policies = load_run(arguments.directory, trust=arguments.trust).policies
    agent = arguments.agent if arguments.agent is not None else next(iter(policies))
    if agent not in policies:
        raise UserError(f"the run has no agent {agent!r}; {nearest(agent, policies)}")
    policy = policies[agent]
    if not isinstance(policy, LanguagePolicy):
        raise UserError(f"{agent!r} is not a language model; choose another --agent or another run")
    if arguments.max_new_tokens is not None:
        policy.max_new_tokens = arguments.max_new_tokens
    return agent, policy


def talk(agent: str, policy: LanguagePolicy, arguments: ChatArguments, lines: TextIO, console: Console) -> None:
    from ....agents.core import Completion, Request
    from ....envs.core import Message, Transcript

    system = [] if arguments.system is None else [Message("system", arguments.system)]
    history, previous = Transcript(system), None
    if lines.isatty():
        console.print(f"Chat with {shown(agent)}; Ctrl-D ends it.", style="dim", markup=False)
    for number, line in enumerate(lines):
        history = history.extended(Message("user", line.rstrip("\r\n")))
        request = Request(agent, history, (arguments.seed, 0, 0, number), previous)
        previous = policy.act([request], greedy=arguments.greedy)[0]
        assert isinstance(previous, Completion)
        history = history.extended(Message("assistant", str(previous.action), agent))
        console.print(Text(shown(str(previous.action)), style="green"))
