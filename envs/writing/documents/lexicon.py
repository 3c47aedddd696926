"""Word lists for the scores of writing: English function words, and transition words in twelve categories."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Word lists with which texts are scored."""

    function_words: frozenset[str]
    transitions: Mapping[str, tuple[str, ...]]  # transition phrases of each category
    is_whole: bool  # True: match whole words only. False: also match "so" in "person".

    def content_words(self, text: str) -> frozenset[str]:
        return frozenset(words(text)) - self.function_words

    def subject_words(self, text: str) -> list[str]:
        """Return the words of a text in order, without function words and transition words."""
        return [word for word in words(text) if word not in self.fillers]

    def transition_categories(self, text: str) -> frozenset[str]:
        """Return the transition categories of which the text contains a phrase."""
        read = f" {' '.join(words(text))} " if self.is_whole else text.lower()
        edge = " " if self.is_whole else ""
        return frozenset(
            name
            for name, phrases in self.transitions.items()
            if any(f"{edge}{phrase}{edge}" in read for phrase in phrases)
        )

    @cached_property
    def fillers(self) -> frozenset[str]:
        """Function words, and transition phrases that are a single word."""
        single = {phrase for group in self.transitions.values() for phrase in group if " " not in phrase}
        return self.function_words | single


def _loaded(name: str, *, is_whole: bool) -> Lexicon:
    listed = json.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))
    transitions = {category: tuple(phrases) for category, phrases in listed["transitions"].items()}
    return Lexicon(frozenset(listed["function_words"]), transitions, is_whole)


OWN = _loaded("words.json", is_whole=True)


@lru_cache(maxsize=1)
def published() -> Lexicon:
    """Load the word lists of CoMLRL's scorer, which also finds transition words inside of other words."""
    return _loaded("published_words.json", is_whole=False)
