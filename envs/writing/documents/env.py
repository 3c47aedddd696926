"""TLDR and ArxivExpansion: two writers write about one source, at once and once, and are scored as a pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, get_args

from ...core import Outcome, TextParallelEnv
from ...data import load_tasks
from . import exploits, prompts, rules
from .lexicon import TransitionMatch
from .reference import reference_pair

SAMPLES = Path(__file__).parent / "samples"


class TwoWriters(TextParallelEnv):
    """What the two games share: a source that both writers read, one turn, and a reward of the pair."""

    form: ClassVar[rules.Form]
    source_field: ClassVar[str]
    sample: ClassVar[str]
    templates: ClassVar[Mapping[str, str]]

    def __init__(
        self,
        *,
        data: str | Mapping[str, str] = "builtin",
        split: str = "train",
        columns: Mapping[str, str] | None = None,
        test_fraction: float | None = None,
        groundedness_weight: float = 0.5,
        transition_match: TransitionMatch = "word",
        render_mode: str | None = None,
    ):
        if groundedness_weight < 0:
            raise ValueError(
                f"groundedness_weight must be at least 0 (0 leaves the term out), got {groundedness_weight}"
            )
        if transition_match not in get_args(TransitionMatch):
            raise ValueError(f"transition_match must be one of {get_args(TransitionMatch)}, got {transition_match!r}")
        super().__init__(prompts.AGENTS, max_turns=1, render_mode=render_mode)
        self.tasks = load_tasks(
            data,
            split,
            text_fields=[self.source_field],
            builtin=SAMPLES / self.sample,
            columns=columns,
            test_fraction=test_fraction,
        )
        self._groundedness_weight = groundedness_weight
        self._transition_match: TransitionMatch = transition_match
        self._source = ""

    def deal(self, task: Any) -> Mapping[str, str]:
        """A source: drawn, or the one at an index or with an id."""
        chosen = self.tasks.task(self.rng.randrange(len(self.tasks)) if task is None else task)
        self.task = chosen
        self._source = chosen[self.source_field]
        return {agent: prompts.prompt(self.templates[agent], self._source) for agent in self.possible_agents}

    def play(self, replies: Mapping[str, str]) -> Outcome:
        first, second = (replies[agent] for agent in self.possible_agents)
        seen = rules.measures(self.form, self._source, first, second, self._transition_match)
        points = rules.terms(self.form, seen, self._groundedness_weight)
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
        data: "builtin", a file, a directory, a hub name, or one of these per split; see `collm.envs.data.load_tasks`.
            The field is "post".
        split: "train", "test", or another that the data has.
        columns: the data's name of the field, such as {"post": "source"}.
        test_fraction: share of the rows that make up the test split, for data without splits.
        groundedness_weight: points for staying with the source, at least 0; 0 reproduces the reference, which has none.
        transition_match: "word" finds transition words as whole words; "substring" inside words too, as the reference.
        render_mode: see `TextParallelEnv`.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "tldr_v0"}
    form = rules.TLDR
    source_field = "post"
    sample = "posts_{split}.jsonl"
    templates = prompts.TLDR_PROMPTS


class ArxivExpansion(TwoWriters):
    """Expand an abstract: `writer_0` to background and motivation, `writer_1` to method and implications.

    Args:
        data, split, test_fraction, groundedness_weight, transition_match, render_mode: as of `TLDR`.
        columns: the data's name of the field "abstract", such as {"abstract": "source"}.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "arxiv_expansion_v0"}
    form = rules.ARXIV_EXPANSION
    source_field = "abstract"
    sample = "abstracts_{split}.jsonl"
    templates = prompts.ARXIV_EXPANSION_PROMPTS
