"""The English of code and documentation stays plain: limits for the rates that tests/plain_words.py measures."""

from collections import Counter
from pathlib import Path

import pytest
from plain_words import faults, read

ROOT = Path(__file__).resolve().parent.parent
CODE = [ROOT / layer for layer in ("envs", "agents", "algorithms", "benchmarks", "src/collm")]
PAGES = [ROOT / "docs", *ROOT.glob("*.md")]
MIN_SENTENCES = 20  # files with fewer sentences have no limit of their own


@pytest.mark.parametrize(("paths", "limit"), [(CODE, 100), (PAGES, 150)], ids=["code", "pages"])
def test_sentences_are_plain(paths, limit):
    """At most `limit` of 1,000 sentences have a hit. For a single file, the limit is 250."""
    sizes, hits = Counter(), Counter()
    for sentence, (file, is_first) in read(paths).items():
        sizes[file] += 1
        hits[file] += bool(faults(sentence, is_first))
    rates = {file: 1000 * hits[file] / size for file, size in sizes.items() if size >= MIN_SENTENCES}
    assert {file: rate for file, rate in rates.items() if rate > 250} == {}
    assert 1000 * hits.total() / sizes.total() <= limit


def test_a_sentence_without_a_term_is_found():
    assert faults("What one does with all that is left of it in the end.", is_first=True)
    assert not faults("Return the log-probabilities of the sampled tokens.", is_first=True)
