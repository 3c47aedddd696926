"""TLDR and ArxivExpansion: writers write about one source in one turn, and their texts are scored together."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import cycle, groupby, islice
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Literal, get_args

from ...core import Message, Outcome, TextParallelEnv
from ...data import Data, OnBadRow, load_tasks
from ...templates import Originals, Prompts, templates
from . import lexicon, rules
from . import prompts as texts
from .grounding import coverage
from .lexicon import OWN
from .reference import reference_team, source_sentences
from .rules import Form

Variant = Literal["ours", "published"]

SAMPLES = Path(__file__).parent / "samples"
PUBLISHED = Path(__file__).parent / "published"


class Writers(TextParallelEnv):
    """Base class of TLDR and ArxivExpansion: all writers read one source, write once, and get one reward as a team.

    Args:
        data: "builtin", a file, a directory, a hub name, a Dataset, a list or iterable of dicts, or one of these per
            split; see `collm.envs.data.load_tasks`.
        split: "train", "test", or another split of the data.
        columns: column name of the data, with the field ("post" or "abstract") as the key: {"post": "source"}.
        test_fraction: fraction of the rows in the test split, for data without splits.
        on_bad_row: treatment of rows with a null or blank text: "error" raises ValueError at construction, "skip"
            leaves these rows out.
        num_agents: writers, 2 to 4.
        variant: "ours", or "published": CoMLRL's prompts in other words, and its terms, which do not depend on the
            source, for two writers.
        prompts: prompt of each writer with the placeholder "{source}", and a "system" prompt: a dict with agents as
            keys, a folder of files such as writer_0.txt, or a copy of the repository LLM_Collab_Writing. None: the
            built-in prompts.
        render_mode: see `TextParallelEnv`.
    """

    form: ClassVar[rules.Form]
    source_field: ClassVar[str]
    published_prompts: ClassVar[Path]
    originals: ClassVar[Originals]
    sample: ClassVar[str]

    def __init__(
        self,
        *,
        data: Data = "builtin",
        split: str = "train",
        columns: Mapping[str, str] | None = None,
        test_fraction: float | None = None,
        on_bad_row: OnBadRow = "error",
        num_agents: int = 2,
        variant: Variant = "ours",
        prompts: Prompts | None = None,
        render_mode: str | None = None,
    ):
        if variant not in get_args(Variant):
            raise ValueError(f"{variant=} must be one of {get_args(Variant)}")
        if isinstance(num_agents, bool) or num_agents not in range(2, rules.MAX_WRITERS + 1):
            raise ValueError(f"num_agents must be 2 to {rules.MAX_WRITERS}, got {num_agents!r}")
        if variant == "published" and num_agents != 2:
            raise ValueError(f"{num_agents=} needs variant='ours'; variant='published' has two writers")
        self._own_prompts = self.own_prompts(num_agents)
        super().__init__(list(self._own_prompts), max_turns=1, render_mode=render_mode)
        self.tasks = load_tasks(
            data,
            split,
            text_fields=[self.source_field],
            builtin=SAMPLES / self.sample,
            columns=columns,
            test_fraction=test_fraction,
            on_bad_row=on_bad_row,
        )
        self._is_published = variant == "published"
        if self._is_published and prompts is None:
            prompts = self.published_prompts
        self._templates = templates(prompts, self.possible_agents, {"source": True}, self.originals)
        self._source = ""

    @staticmethod
    @abstractmethod
    def own_prompts(num_writers: int) -> Mapping[str, str]:
        """Return the built-in prompt template of each agent."""

    def deal(self, task: Any) -> Mapping[str, list[Message]]:
        # `task` is the index or the id of a source.
        chosen = self.tasks.task(self.rng.randrange(len(self.tasks)) if task is None else task)
        self.task = chosen
        self._source = chosen[self.source_field]
        fields = {"source": self._source}
        return {
            agent: self._templates.opening(agent, fields, own.replace("{source}", self._source))
            for agent, own in self._own_prompts.items()
        }

    def play(self, replies: Mapping[str, str]) -> Outcome:
        texts = [replies[agent] for agent in self.possible_agents]
        if self._is_published:
            first, second = texts
            words = lexicon.published()
            pairs = [rules.measures(self.form, self._source, first, second, words, overlap_of_nothing=1.0)]
            points = rules.published_terms(self.form, pairs[0])
        else:
            pairs = [rules.measures(self.form, self._source, texts[0], text) for text in texts[1:]]
            points = rules.team_terms(self.form, self._source, texts, pairs)
        lengths = [pairs[0].num_words[0], *(seen.num_words[1] for seen in pairs)]
        depths = [pairs[0].groundedness[0], *(seen.groundedness[1] for seen in pairs)]
        return Outcome(
            reward=sum(points.values()),
            terms=points,
            metrics={
                **{f"{agent}_words": length for agent, length in zip(self.possible_agents, lengths, strict=True)},
                "length_ratio": fmean(seen.length_ratio for seen in pairs),
                "vocabulary_ratio": fmean(seen.vocabulary_ratio for seen in pairs),
                "overlap": fmean(seen.overlap for seen in pairs),
                "transition_categories": fmean(seen.num_transition_categories for seen in pairs),
                **{f"{agent}_groundedness": depth for agent, depth in zip(self.possible_agents, depths, strict=True)},
                "coverage": coverage(texts, self._source, OWN),
                "gates_passed": fmean(rules.num_gates_passed(self.form, seen) for seen in pairs),
            },
        )

    def reference_reply(self, agent: str) -> str:
        """Return the agent's text of the scripted reference team for the current source."""
        if not self._source:
            raise RuntimeError("no episode is running; call reset() first")
        team = reference_team(self.form, self._source, len(self.possible_agents))
        return team[self.possible_agents.index(agent)]

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        return {name: partial(self._exploit, write) for name, write in EXPLOITS.items()}

    def _exploit(self, write: Callable[[Form, str, int], str], agent: str) -> str:
        return write(self.form, self._source, self.possible_agents.index(agent))


class TLDR(Writers):
    """Summarize a post: `writer_0` briefly, `writer_1` at length, with more varied words and with transition words.

    In a larger team, each later writer summarizes a part of the post at length. The reward is the mean over the pairs
    of the first text with each later text. It is lower if the later texts are similar to each other. The data needs the
    field "post". `Writers` explains the arguments.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "tldr_v2"}
    form = rules.TLDR
    source_field = "post"
    published_prompts = PUBLISHED / "tldr"
    originals = texts.ORIGINAL_TLDR
    protocol_instructions = texts.TLDR_PROTOCOLS
    sample = "posts_{split}.jsonl"
    own_prompts = staticmethod(texts.tldr_prompts)


class ArxivExpansion(Writers):
    """Expand an abstract: `writer_0` to background and motivation, `writer_1` to method and implications.

    In a larger team, the later writers divide method, findings and implications, and are scored as in `TLDR`. The data
    needs the field "abstract". `Writers` explains the arguments.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "arxiv_expansion_v2"}
    form = rules.ARXIV_EXPANSION
    source_field = "abstract"
    published_prompts = PUBLISHED / "arxiv_expansion"
    originals = texts.ORIGINAL_ARXIV_EXPANSION
    protocol_instructions = texts.ARXIV_EXPANSION_PROTOCOLS
    sample = "abstracts_{split}.jsonl"
    own_prompts = staticmethod(texts.arxiv_expansion_prompts)


_LINKS = [next(phrase for phrase in group if " " not in phrase) for group in OWN.transitions.values()]
_FILLERS = [*_LINKS, *"it is so and we are of the this that they were in a an for to by at on".split()]
_OPENERS = "First,/Moreover,/For example,/However,/In fact,/Meanwhile,/Therefore,/Similarly,/Overall,".split("/")
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
    """Exploit: write one word of the source, which differs between writers, and transition words."""
    found = OWN.subject_words(source) or [""]
    return _words([found[max(0, writer - 1) % len(found)], *_LINKS], form, writer)


def first_words(form: Form, source: str, writer: int) -> str:
    """Exploit: copy the beginning of the source; later writers add a transition word after every third word."""
    found = source.split()
    if writer:
        links = cycle(_LINKS)
        found = [
            word for place, copied in enumerate(found) for word in ([copied] if place % 3 else [copied, next(links)])
        ]
    return _words(found, form, writer)


def keywords(form: Form, source: str, writer: int) -> str:
    """Exploit: write fourteen subject words of the source in order, then function and transition words."""
    return _words([*list(dict.fromkeys(OWN.subject_words(source)))[4 * writer :][:14], *_FILLERS], form, writer)


def halves(form: Form, source: str, writer: int) -> str:
    """Exploit: join the first half of each sentence to the second half of the next sentence."""
    split = [sentence.split() for sentence in source_sentences(source)]
    crossed = [
        " ".join([*one[: len(one) // 2], *other[len(other) // 2 :]])
        for one, other in zip(split, [*split[1:], split[0]], strict=True)
    ]
    return _joined(crossed, _FRAMES, form, writer)


def clippings(form: Form, source: str, writer: int) -> str:
    """Exploit: copy eight words from each quarter of the source, after transition words."""
    found = source.split()
    places = [len(found) * quarter // 4 + 8 * round for round in range(1 + writer) for quarter in range(4)]
    clipped = [" ".join(found[place : place + 8]).rstrip(".,") for place in places]
    return _joined([each for each in clipped if each], _OPENERS, form, writer)


def negated(form: Form, source: str, writer: int) -> str:
    """Exploit: copy the sentences of the source, with "not" before the middle word of each sentence."""
    split = [sentence.split() for sentence in source_sentences(source)]
    denied = [" ".join([*each[: len(each) // 2], "not", *each[len(each) // 2 :]]) for each in split]
    return _joined(denied, _OPENERS, form, writer)


def phrases(form: Form, source: str, writer: int) -> str:
    """Exploit: write fixed sentences that contain phrases of the source but not its statements."""
    found = re.findall(r"\w+(?: \w+)*", source.lower())
    grouped = (groupby(part.split(), OWN.fillers.__contains__) for part in found)
    runs = [run for part in grouped for is_filler, words in part if not is_filler and len(run := list(words)) > 1]
    runs = runs or [["subject"]]
    filled = [about.format(" ".join(run[-3:])) for about, run in zip(cycle(_ABOUT), runs, strict=False)]
    return _joined(filled, [""], form, writer)


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
    """Return the number of words with which a writer of an exploit gets the highest reward."""
    if form.transitions_of == "both":
        return form.min_words + 4 if writer == 0 else round(1.45 * form.min_words)
    return 5 * form.min_words if writer == 0 else 14 * form.min_words


def _words(found: Sequence[str], form: Form, writer: int) -> str:
    return " ".join(islice(cycle(found), _length(form, writer)))


def _joined(sentences: Sequence[str], frames: Sequence[str], form: Form, writer: int) -> str:
    """Join sentences, each after one of the phrases `frames`. Each writer begins at another sentence."""
    text: list[str] = []
    rotated = cycle([*sentences[writer:], *sentences[:writer]] or [""])
    for frame, sentence in zip(cycle(frames), rotated, strict=False):
        text += f"{frame} {sentence}.".split()
        if len(text) >= _length(form, writer):
            return " ".join(text)
    return ""
