"""Words of English that the writing scores look for: function words, and transition words in twelve categories."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

FUNCTION_WORDS = frozenset(
    """
    a about again all also am an and another any anyone anything are aren as at be because been being both but by can
    cannot could couldn d did didn do does doesn doing don done each either else even ever every few for from get gets
    getting go goes going got had hadn has hasn have haven having he her here hers herself him himself his how i if in
    into is isn it its itself just ll m made make makes many may maybe me might mine more most much must my myself
    neither no nor not now of off on once one only or other our ours out over own quite re really s same shall she
    should shouldn so some such t than that the their theirs them themselves then there these they thing things this
    those through to too two under until up upon us ve very via was wasn we were weren what when where which while who
    whom whose why will with within without won would wouldn yes yet you your yours
    """.split()
)

# A phrase may stand in two categories: "meanwhile" orders and dates.
TRANSITIONS: dict[str, tuple[str, ...]] = {
    "elaboration": ("also", "additionally", "besides", "furthermore", "moreover", "in addition", "what is more",
                    "along with", "as well as", "not only"),
    "example": ("for example", "for instance", "such as", "including", "namely", "notably", "particularly",
                "in particular", "especially", "to illustrate"),
    "explanation": ("in other words", "that is", "that means", "in fact", "actually", "essentially", "basically",
                    "put simply", "more precisely", "to clarify"),
    "cause": ("therefore", "thus", "hence", "consequently", "as a result", "because of this", "for this reason", "so",
              "accordingly", "thereby"),
    "contrast": ("however", "but", "yet", "whereas", "instead", "nevertheless", "nonetheless", "on the other hand",
                 "by contrast", "in contrast", "conversely", "otherwise", "rather"),
    "sequence": ("first", "firstly", "second", "secondly", "third", "next", "then", "finally", "lastly",
                 "to begin with", "after that", "subsequently", "meanwhile"),
    "emphasis": ("indeed", "certainly", "clearly", "obviously", "of course", "definitely", "undoubtedly", "above all",
                 "surely", "significantly"),
    "summary": ("in short", "in summary", "in conclusion", "to sum up", "to summarize", "overall", "all in all",
                "on the whole", "in brief", "ultimately", "in the end"),
    "comparison": ("similarly", "likewise", "in the same way", "just as", "just like", "in comparison", "equally",
                   "compared to", "compared with", "by analogy"),
    "concession": ("although", "though", "even though", "despite", "in spite of", "admittedly", "granted", "still",
                   "regardless", "even so", "while"),
    "condition": ("if", "unless", "provided that", "as long as", "assuming that", "given that", "in case", "even if",
                  "only if", "otherwise"),
    "time": ("when", "while", "as", "after", "before", "until", "since", "during", "later", "meanwhile", "eventually",
             "recently", "currently", "previously", "at the same time", "once"),
}  # fmt: skip

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """The words of a text in lower case, in order; punctuation separates them."""
    return _WORD.findall(text.lower())


@dataclass(frozen=True, eq=False)
class Lexicon:
    """The words that a score looks for."""

    function_words: frozenset[str]
    """Words that carry no meaning of their own."""
    transitions: Mapping[str, tuple[str, ...]]
    """Phrases by category."""
    is_whole: bool
    """Whether phrases are found as whole words, rather than inside words too: "so" in "person"."""

    def content_words(self, text: str) -> frozenset[str]:
        """The different words of a text that are not function words."""
        return frozenset(words(text)) - self.function_words

    def subject_words(self, text: str) -> list[str]:
        """The words that say what a text is about, in order: neither function words nor transition words."""
        return [word for word in words(text) if word not in self.fillers]

    def transition_categories(self, text: str) -> frozenset[str]:
        """The categories of which the text has a phrase."""
        read = f" {' '.join(words(text))} " if self.is_whole else text.lower()
        edge = " " if self.is_whole else ""
        return frozenset(
            name
            for name, phrases in self.transitions.items()
            if any(f"{edge}{phrase}{edge}" in read for phrase in phrases)
        )

    @cached_property
    def fillers(self) -> frozenset[str]:
        """Function words, and transition words that are single words."""
        single = {phrase for group in self.transitions.values() for phrase in group if " " not in phrase}
        return self.function_words | single


OWN = Lexicon(FUNCTION_WORDS, TRANSITIONS, is_whole=True)


@lru_cache(maxsize=1)
def published() -> Lexicon:
    """The words that the published scorer counts, inside other words too; the file says where they are from."""
    listed = json.loads((Path(__file__).parent / "published_words.json").read_text(encoding="utf-8"))
    transitions = {name: tuple(phrases) for name, phrases in listed["transitions"].items()}
    return Lexicon(frozenset(listed["function_words"]), transitions, is_whole=False)
