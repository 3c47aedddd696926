"""TLDR and ArxivExpansion: writers write about one source, at once and once, and are scored together."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Literal, get_args

from ...core import Message, Outcome, TextParallelEnv
from ...data import Data, load_tasks
from ...templates import Prompts, templates
from . import lexicon, rules
from .grounding import coverage
from .lexicon import OWN, TRANSITIONS
from .prompts import arxiv_expansion_prompts, prompt, tldr_prompts
from .reference import reference_team, source_sentences
from .rules import Form

Variant = Literal["ours", "published"]

SAMPLES = Path(__file__).parent / "samples"


class Writers(TextParallelEnv):
    """What the two games share: a source that all writers read, one turn, and a reward of the team."""

    form: ClassVar[rules.Form]
    source_field: ClassVar[str]
    sample: ClassVar[str]

    def __init__(
        self,
        *,
        data: Data = "builtin",
        split: str = "train",
        columns: Mapping[str, str] | None = None,
        test_fraction: float | None = None,
        num_agents: int = 2,
        variant: Variant = "ours",
        prompts: Prompts | None = None,
        render_mode: str | None = None,
    ):
        if variant not in get_args(Variant):
            raise ValueError(f"variant must be one of {get_args(Variant)}, got {variant!r}")
        rules.refuse_team(num_agents)
        if variant == "published" and num_agents != 2:
            raise ValueError(f"variant='published' has two writers; leave out num_agents={num_agents}")
        self._own_prompts = self.own_prompts(num_agents)
        super().__init__(list(self._own_prompts), max_turns=1, render_mode=render_mode)
        self.tasks = load_tasks(
            data,
            split,
            text_fields=[self.source_field],
            builtin=SAMPLES / self.sample,
            columns=columns,
            test_fraction=test_fraction,
        )
        self._is_published = variant == "published"
        self._templates = templates(prompts, self.possible_agents, {"source": True})
        self._source = ""

    @staticmethod
    @abstractmethod
    def own_prompts(num_writers: int) -> Mapping[str, str]:
        """The templates by agent, of a team of so many."""

    def deal(self, task: Any) -> Mapping[str, list[Message]]:
        """A source: drawn, or the one at an index or with an id."""
        chosen = self.tasks.task(self.rng.randrange(len(self.tasks)) if task is None else task)
        self.task = chosen
        self._source = chosen[self.source_field]
        fields = {"source": self._source}
        return {
            agent: self._templates.opening(agent, fields, prompt(self._own_prompts[agent], self._source))
            for agent in self.possible_agents
        }

    def play(self, replies: Mapping[str, str]) -> Outcome:
        texts = [replies[agent] for agent in self.possible_agents]
        if self._is_published:
            first, second = texts
            pairs = [
                rules.measures(self.form, self._source, first, second, lexicon.published(), overlap_of_nothing=1.0)
            ]
            points = rules.published_terms(self.form, pairs[0])
        else:
            pairs = [rules.measures(self.form, self._source, texts[0], text) for text in texts[1:]]
            points = rules.team_terms(self.form, self._source, texts, pairs)
        lengths = [pairs[0].num_words[0], *(seen.num_words[1] for seen in pairs)]
        depths = [pairs[0].groundedness[0], *(seen.groundedness[1] for seen in pairs)]
        return Outcome(
            reward=rules.score(points),
            terms=points,
            metrics={
                **{f"{agent}_words": length for agent, length in zip(self.possible_agents, lengths, strict=True)},
                "length_ratio": fmean(seen.length_ratio for seen in pairs),
                "vocabulary_ratio": fmean(seen.vocabulary_ratio for seen in pairs),
                "overlap": fmean(seen.overlap for seen in pairs),
                "transition_categories": fmean(seen.num_transition_categories for seen in pairs),
                **{f"{agent}_groundedness": depth for agent, depth in zip(self.possible_agents, depths, strict=True)},
                "coverage": coverage(texts, self._source, lexicon.OWN),
                "gates_passed": fmean(rules.num_gates_passed(self.form, seen) for seen in pairs),
            },
        )

    def reference_reply(self, agent: str) -> str:
        """The agent's text of the best team about the current source that a fixed recipe finds."""
        if not self._source:
            raise RuntimeError("no episode is running; call reset() first")
        team = reference_team(self.form, self._source, len(self.possible_agents))
        return team[self.possible_agents.index(agent)]

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        """The degenerate teams of `EXPLOITS`."""
        place = self.possible_agents.index

        def player(write: Callable[[rules.Form, str, int], str]) -> Callable[[str], str]:
            return lambda agent: write(self.form, self._source, place(agent))

        return {name: player(write) for name, write in EXPLOITS.items()}


class TLDR(Writers):
    """Sum up a post: `writer_0` in short, `writer_1` at length, in more varied words and with transition words.

    In a larger team the later writers each tell a part of the post at length. Each is scored in a pair with the first;
    the reward is the mean, and sinks where two of them tell the same.

    Args:
        data: "builtin", a file, a directory, a hub name, a Dataset, a list or iterable of dicts, or one of these per
            split; see `collm.envs.data.load_tasks`. The field is "post".
        split: "train", "test", or another that the data has.
        columns: the data's name of the field, such as {"post": "source"}.
        test_fraction: share of the rows that make up the test split, for data without splits.
        num_agents: writers, 2 to 4.
        variant: "ours" or "published": CoMLRL's terms, which know nothing of the source, for two writers.
        prompts: what each writer reads, with a place "{source}", and a "system" prompt: a mapping by agent, or a folder
            of files such as writer_0.txt; None for the package's own.
        render_mode: see `TextParallelEnv`.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "tldr_v2"}
    form = rules.TLDR
    source_field = "post"
    sample = "posts_{split}.jsonl"
    own_prompts = staticmethod(tldr_prompts)


class ArxivExpansion(Writers):
    """Expand an abstract: `writer_0` to background and motivation, `writer_1` to method and implications.

    In a larger team the later writers divide method, findings and implications, and are scored as in `TLDR`.

    Args:
        data: "builtin", a file, a directory, a hub name, a Dataset, a list or iterable of dicts, or one of these per
            split; see `collm.envs.data.load_tasks`. The field is "abstract".
        split: "train", "test", or another that the data has.
        columns: the data's name of the field, such as {"abstract": "source"}.
        test_fraction: share of the rows that make up the test split, for data without splits.
        num_agents: writers, 2 to 4.
        variant: "ours" or "published": CoMLRL's terms, which know nothing of the source, for two writers.
        prompts: what each writer reads, with a place "{source}", and a "system" prompt: a mapping by agent, or a folder
            of files such as writer_0.txt; None for the package's own.
        render_mode: see `TextParallelEnv`.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "arxiv_expansion_v2"}
    form = rules.ARXIV_EXPANSION
    source_field = "abstract"
    sample = "abstracts_{split}.jsonl"
    own_prompts = staticmethod(arxiv_expansion_prompts)


_LINKS = [next(phrase for phrase in group if " " not in phrase) for group in TRANSITIONS.values()]
_FILLERS = [*_LINKS, *"it is so and we are of the this that they were in a an for to by at on".split()]
_OPENERS = (
    "First,",
    "Moreover,",
    "For example,",
    "However,",
    "In fact,",
    "Meanwhile,",
    "Therefore,",
    "Similarly,",
    "Overall,",
)
_FRAMES = (
    "In addition, it is important to note that",
    "However, it has recently been shown that",
    "In particular, it has been shown that",
    "As a result, we find that",
)
_ABOUT = (
    "the problem of the {} has been studied for a long time",
    "it is important to note that the {} is an important problem in practice",
    "a small change in the {} can have a large effect on the outcome",
    "it has been shown that the {} can be useful for a wide range of applications",
    "in particular, the {} is an important step towards a better understanding",
    "it takes a long time to find a good solution for the {}",
)


def one_word(form: Form, source: str, writer: int) -> str:
    """One word of the source among linking words; another word for each writer."""
    found = OWN.subject_words(source) or [""]
    return _words([found[max(0, writer - 1) % len(found)], *_LINKS], form, writer)


def first_words(form: Form, source: str, writer: int) -> str:
    """The beginning of the source; later writers copy more, and put a linking word behind every third word."""
    found = source.split()
    if writer:
        links = cycle(_LINKS)
        found = [
            word for place, copied in enumerate(found) for word in ([copied] if place % 3 else [copied, next(links)])
        ]
    return _words(found, form, writer)


def keywords(form: Form, source: str, writer: int) -> str:
    """Fourteen subject words in their order, then function and linking words."""
    return _words([*list(dict.fromkeys(OWN.subject_words(source)))[4 * writer :][:14], *_FILLERS], form, writer)


def halves(form: Form, source: str, writer: int) -> str:
    """The first half of each sentence with the second half of the next one."""
    told = [sentence.split() for sentence in source_sentences(source)]
    crossed = [
        " ".join([*one[: len(one) // 2], *other[len(other) // 2 :]])
        for one, other in zip(told, [*told[1:], told[0]], strict=True)
    ]
    return _told(crossed, _FRAMES, form, writer)


def clippings(form: Form, source: str, writer: int) -> str:
    """Eight words from each quarter of the source, cut anywhere, behind linking words."""
    found = source.split()
    places = [len(found) * quarter // 4 + 8 * round for round in range(1 + writer) for quarter in range(4)]
    clipped = [" ".join(found[place : place + 8]).rstrip(".,") for place in places]
    return _told([each for each in clipped if each], _OPENERS, form, writer)


def negated(form: Form, source: str, writer: int) -> str:
    """The sentences of the source with "not" before the middle word of each."""
    told = [sentence.split() for sentence in source_sentences(source)]
    denied = [" ".join([*each[: len(each) // 2], "not", *each[len(each) // 2 :]]) for each in told]
    return _told(denied, _OPENERS, form, writer)


def phrases(form: Form, source: str, writer: int) -> str:
    """Fixed sentences about phrases of the source, which say nothing of what the source says of them."""
    found = re.findall(r"\w+(?: \w+)*", source.lower())
    runs = [run for part in found for run in _subject_runs(part.split()) if len(run) > 1] or [["subject"]]
    told = [about.format(" ".join(run[-3:])) for about, run in zip(cycle(_ABOUT), runs, strict=False)]
    return _told(told, [""], form, writer)


EXPLOITS: Mapping[str, Callable[[Form, str, int], str]] = {
    "one word": one_word,
    "first words": first_words,
    "keywords": keywords,
    "halves of sentences": halves,
    "clippings": clippings,
    "negated sentences": negated,
    "fixed sentences about phrases": phrases,
}


def _length(form: Form, writer: int) -> int:
    """Words of a text, of the length that earns most."""
    if form.transitions_of == "both":
        return form.min_words + 4 if writer == 0 else round(1.45 * form.min_words)
    return 5 * form.min_words if writer == 0 else 14 * form.min_words


def _words(found: Sequence[str], form: Form, writer: int) -> str:
    return " ".join(islice(cycle(found), _length(form, writer)))


def _told(sentences: Sequence[str], frames: Sequence[str], form: Form, writer: int) -> str:
    """Sentences behind frames, up to the length; later writers begin elsewhere."""
    text: list[str] = []
    told = cycle([*sentences[writer:], *sentences[:writer]] or [""])
    for frame, sentence in zip(cycle(frames), told, strict=False):
        text += f"{frame} {sentence}.".split()
        if len(text) >= _length(form, writer):
            return " ".join(text)
    return ""


def _subject_runs(found: Sequence[str]) -> list[list[str]]:
    runs: list[list[str]] = [[]]
    for word in found:
        if word in OWN.fillers:
            runs.append([])
        else:
            runs[-1].append(word)
    return runs
