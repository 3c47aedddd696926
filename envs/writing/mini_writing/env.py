"""MiniWriting: writers divide the facts of a post, in short and at length, in a vocabulary of about 140 words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, ClassVar, get_args

from ...core import Message, Outcome, TextParallelEnv
from ...templates import Prompts, templates
from . import exploits, rules
from . import prompts as texts


class MiniWriting(TextParallelEnv):
    """Writers divide the facts of a generated post; one turn, reward 0 to 1.

    All writers read a post of short sentences, each a fact: "the dusty goat fed the barn.". `writer_0` states the main
    point, which is the first fact, and nothing more. `writer_1` states the other three, each behind a different linking
    word. In a larger team the post has more facts: a third writer states one of them behind a linking word, a fourth
    one three without. No writer sees another's text, and a fact counts once over the team. The reward compares the
    facts that each text states with its role (`rules.terms`): true sentences earn it, and sentences that do not parse,
    are false, repeat a fact or are too many lower it.

    Args:
        split: "train" or "test"; the posts of the two do not overlap.
        num_agents: writers, 2 to 4.
        prompts: what each writer reads, with the places "{post}" and "{task}" (the own prompt's last line), and a
            "system" prompt: a mapping by agent, or a folder of files such as writer_0.txt; None for the package's own.
        render_mode: see `TextParallelEnv`.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "mini_writing_v2"}
    truth_metric: ClassVar[str | None] = "fact_f1"

    def __init__(
        self,
        *,
        split: rules.Split = "train",
        num_agents: int = 2,
        prompts: Prompts | None = None,
        render_mode: str | None = None,
    ):
        rules.refuse_team(num_agents)
        if split not in get_args(rules.Split):
            raise ValueError(f"split must be 'train' or 'test', got {split!r}")
        super().__init__(texts.WRITERS[:num_agents], max_turns=1, render_mode=render_mode)
        self._templates = templates(prompts, self.possible_agents, texts.PLACES)
        self._split = split
        self._post: rules.Post | None = None

    def deal(self, task: Any) -> Mapping[str, list[Message]]:
        """A post: drawn, or where the task is a whole number from 0 up, that post of the split."""
        if task is not None and (isinstance(task, bool) or not isinstance(task, int) or task < 0):
            raise ValueError(f"a task of {self} is a whole number from 0 up, the seed of its post; got {task!r}")
        rng = self.rng if task is None else Random(task)
        post = rules.generated_post(rng, self._split, len(self.possible_agents))
        self.task = self._post = post
        return {
            agent: self._templates.opening(agent, texts.fields(post, agent), texts.prompt(post, agent))
            for agent in self.possible_agents
        }

    def play(self, replies: Mapping[str, str]) -> Outcome:
        texts = [replies[agent] for agent in self.possible_agents]
        parts = rules.terms(self._dealt(), *texts)
        words = {f"{agent}_words": len(replies[agent].split()) for agent in self.possible_agents}
        return Outcome(sum(parts.values()), terms=parts, metrics=rules.truth(self._dealt(), *texts) | words)

    def reference_reply(self, agent: str) -> str:
        """The agent's text of a team about the current post that scores 1."""
        return texts.reference_reply(self._dealt(), agent)

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        """Teams that write salads, lies, copies or too much (`exploits.PLAYERS`)."""
        return {name: partial(self._written, writer) for name, writer in exploits.PLAYERS.items()}

    def _written(self, writer: Callable[[rules.Post, str], str], agent: str) -> str:
        return writer(self._dealt(), agent)

    def _dealt(self) -> rules.Post:
        if self._post is None:
            raise RuntimeError("no episode is running; call reset() first")
        return self._post
