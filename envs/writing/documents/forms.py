"""Check of word order: sequences of three word classes that occur in English texts.

Each function word is a class; some similar words share a class ("my", "our"). Other words have a learned class, or a
class by their ending. `tools/learn_forms.py` learns the classes and the sequences and writes `forms.json`.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache, reduce
from pathlib import Path
from typing import TypeAlias

from .lexicon import OWN

Window: TypeAlias = tuple[str, ...]

EDGE = "."  # token before the first and after the last word of a sentence
PAUSE = ","
FORMS_FILE = Path(__file__).parent / "forms.json"
_TOKEN = re.compile(r"\d+(?:[.,]\d+)+|\w+|[.!?:;,]")
_ENDS, _PAUSES = frozenset(".!?"), frozenset(",;:")
_ALIKE = {
    "we": "i he she they you",
    "our": "my your his her its their",
    "them": "me him us",
    "themselves": "myself himself herself itself yourself ourselves",
    "are": "am were re m",
    "is": "was",
    "have": "had ve has",
    "do": "did does",
    "don": "didn doesn isn wasn aren weren hasn haven hadn couldn wouldn shouldn won",
    "can": "could would will may might should must shall ll d cannot",
    "a": "an",
}
"""Function words that share a class, with the class name as the key. Words such as "I" are rare in abstracts."""
_FIRST_OF = {word: first for first, others in _ALIKE.items() for word in others.split()}
_ENDINGS = "ing ed ly tion tions ment ness ity ive al ous ful able ic ss s".split()


def sentences(text: str) -> list[list[str]]:
    """Return the words of each sentence in lower case, with `PAUSE` for each comma, colon or semicolon."""
    found: list[list[str]] = [[]]
    for token in _TOKEN.findall(text.lower()):
        if token in _ENDS:
            found.append([])
        elif token not in _PAUSES:
            found[-1].append(token)
        elif found[-1] and found[-1][-1] != PAUSE:
            found[-1].append(PAUSE)
    return [sentence for sentence in found if sentence]


def windows(sentence: Sequence[str]) -> Iterator[Window]:
    """Yield every three successive tokens of a sentence, with `EDGE` before the first and after the last token."""
    padded = [EDGE, *sentence, EDGE]
    return zip(padded, padded[1:], padded[2:], strict=False)


def is_familiar(window: Window) -> bool:
    """Return True if the sequence of the tokens' classes is in `forms.json`."""
    return number(map(class_of, window)) in _learned()[1]


@lru_cache(maxsize=1 << 16)
def class_of(token: str) -> int:
    numbers = _learned()[0]
    return numbers[token] if token in numbers else numbers[class_name(token)]


def class_name(token: str) -> str:
    """Return the class of a token that is not learned: a function word, "0" for numbers, or "-" and an ending."""
    if token in (EDGE, PAUSE):
        return token
    if token in OWN.fillers:
        return _FIRST_OF.get(token, token)
    if token[0].isdigit():
        return "0"
    return next((f"-{ending}" for ending in _ENDINGS if token.endswith(ending) and len(token) > len(ending) + 1), "-")


def class_names() -> list[str]:
    """Return all classes that are not learned, sorted."""
    fillers = {_FIRST_OF.get(word, word) for word in OWN.fillers}
    return sorted({EDGE, PAUSE, "0", *fillers, "-", *(f"-{ending}" for ending in _ENDINGS)})


def number(classes: Iterable[int]) -> int:
    """Encode a sequence of classes as one integer with 9 bits per class."""
    return reduce(lambda total, each: total * 512 + each, classes, 0)


@cache
def _learned() -> tuple[dict[str, int], frozenset[int]]:
    """Return the class number of each word and class name, and the encoded sequences of `forms.json`."""
    listed = json.loads(FORMS_FILE.read_text(encoding="utf-8"))
    numbers = {name: number for number, name in enumerate(class_names())}
    for number, group in enumerate(listed["classes"], len(numbers)):
        numbers.update(dict.fromkeys(group.split(), number))
    steps = zlib.decompress(base64.b85decode(listed["forms"]))
    return numbers, frozenset(_decoded(steps))


def _decoded(steps: bytes) -> Iterator[int]:
    """Decode ascending integers from their differences, with 7 bits per byte. The last byte of each is below 128."""
    total = step = 0
    for byte in steps:
        step = step * 128 + byte % 128
        if byte < 128:
            total += step
            yield total
            step = 0


def encoded(numbers: Iterable[int]) -> bytes:
    """Encode integers in the format that `_decoded` reads."""
    found, last = bytearray(), 0
    for number in sorted(numbers):
        step, last = number - last, number
        parts = [step % 128]
        while step := step // 128:
            parts.append(128 + step % 128)
        found += bytes(reversed(parts))
    return bytes(found)
