"""TLDR and ArxivExpansion: two writers write about one source, at once and once, and are scored as a pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from ...core import Message, Outcome, TextParallelEnv
from ...data import Data, load_tasks
from ...templates import Prompts, templates
from . import exploits, lexicon, rules
from .prompts import AGENTS, ARXIV_EXPANSION_PROMPTS, TLDR_PROMPTS, prompt
from .reference import reference_pair

Variant = Literal["own", "published"]

SAMPLES = Path(__file__).parent / "samples"


class TwoWriters(TextParallelEnv):
    """What the two games share: a source that both writers read, one turn, and a reward of the pair."""

    form: ClassVar[rules.Form]
    source_field: ClassVar[str]
    sample: ClassVar[str]
    own_prompts: ClassVar[Mapping[str, str]]

    def __init__(
        self,
        *,
        data: Data = "builtin",
        split: str = "train",
        columns: Mapping[str, str] | None = None,
        test_fraction: float | None = None,
        variant: Variant = "own",
        prompts: Prompts | None = None,
        render_mode: str | None = None,
    ):
        if variant not in get_args(Variant):
            raise ValueError(f"variant must be one of {get_args(Variant)}, got {variant!r}")
        super().__init__(AGENTS, max_turns=1, render_mode=render_mode)
        self.tasks = load_tasks(
            data,
            split,
            text_fields=[self.source_field],
            builtin=SAMPLES / self.sample,
            columns=columns,
            test_fraction=test_fraction,
        )
        self._is_published = variant == "published"
        self._templates = templates(prompts, AGENTS, {"source": True})
        self._source = ""

    def deal(self, task: Any) -> Mapping[str, list[Message]]:
        """A source: drawn, or the one at an index or with an id."""
        chosen = self.tasks.task(self.rng.randrange(len(self.tasks)) if task is None else task)
        self.task = chosen
        self._source = chosen[self.source_field]
        fields = {"source": self._source}
        return {
            agent: self._templates.opening(agent, fields, prompt(self.own_prompts[agent], self._source))
            for agent in self.possible_agents
        }

    def play(self, replies: Mapping[str, str]) -> Outcome:
        first, second = (replies[agent] for agent in self.possible_agents)
        if self._is_published:
            seen = rules.measures(self.form, self._source, first, second, lexicon.published(), overlap_of_nothing=1.0)
            points = rules.published_terms(self.form, seen)
        else:
            seen = rules.measures(self.form, self._source, first, second)
            points = rules.terms(self.form, seen)
        return Outcome(
            reward=rules.score(points),
            terms=points,
            metrics={
                "writer_0_words": seen.num_words[0],
                "writer_1_words": seen.num_words[1],
                "length_ratio": seen.length_ratio,
                "vocabulary_ratio": seen.vocabulary_ratio,
                "overlap": seen.overlap,
                "transition_categories": seen.num_transition_categories,
                "writer_0_groundedness": seen.groundedness[0],
                "writer_1_groundedness": seen.groundedness[1],
                "gates_passed": rules.num_gates_passed(self.form, seen),
            },
        )

    def reference_reply(self, agent: str) -> str:
        """The agent's text of the best pair about the current source that a fixed recipe finds."""
        if not self._source:
            raise RuntimeError("no episode is running; call reset() first")
        return reference_pair(self.form, self._source)[self.possible_agents.index(agent)]

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        """Teams that write around one word of the source, and that copy its beginning."""
        place = self.possible_agents.index
        return {
            "one word": lambda agent: exploits.one_word(self.form, self._source, place(agent)),
            "first words": lambda agent: exploits.first_words(self.form, self._source, place(agent)),
        }


class TLDR(TwoWriters):
    """Sum up a post: `writer_0` in short, `writer_1` at length, in more varied words and with transition words.

    Args:
        data: "builtin", a file, a directory, a hub name, a Dataset, a list or iterable of dicts, or one of these per
            split; see `collm.envs.data.load_tasks`. The field is "post".
        split: "train", "test", or another that the data has.
        columns: the data's name of the field, such as {"post": "source"}.
        test_fraction: share of the rows that make up the test split, for data without splits.
        variant: "own" or "published": CoMLRL's terms, which know nothing of the source.
        prompts: what each writer reads, with a place "{source}", and a "system" prompt: a mapping by agent, or a folder
            of files such as writer_0.txt; None for the package's own.
        render_mode: see `TextParallelEnv`.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "tldr_v1"}
    allowed_exploits: ClassVar[Mapping[str, str]] = {
        "first words": "an extract is a summary here, as the reference is one: no term asks for words of one's own"
    }
    form = rules.TLDR
    source_field = "post"
    sample = "posts_{split}.jsonl"
    own_prompts = TLDR_PROMPTS


class ArxivExpansion(TwoWriters):
    """Expand an abstract: `writer_0` to background and motivation, `writer_1` to method and implications.

    Args:
        data, split, test_fraction, variant, prompts, render_mode: as of `TLDR`.
        columns: the data's name of the field "abstract", such as {"abstract": "source"}.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "arxiv_expansion_v1"}
    form = rules.ARXIV_EXPANSION
    source_field = "abstract"
    sample = "abstracts_{split}.jsonl"
    own_prompts = ARXIV_EXPANSION_PROMPTS
