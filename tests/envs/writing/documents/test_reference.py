"""The scripted pair of texts."""

import pytest

from collm.envs.writing.documents.reference import reference_team
from collm.envs.writing.documents.rules import ARXIV_EXPANSION, TLDR, measures, num_gates_passed


@pytest.mark.parametrize("form", [TLDR, ARXIV_EXPANSION])
@pytest.mark.parametrize(
    "source",
    [
        "Short.",
        "One two three four five.",
        "word " * 400,
        "Cats, dogs; mice. " * 9 + "{source}",
        "数 学 は 楽しい です。",
    ],
    ids=["one word", "five words", "one word again and again", "few words", "another script"],
)
def test_the_reference_passes_the_gate_of_structure_whatever_the_source(form, source):
    first, second = reference_team(form, source, 2)
    assert num_gates_passed(form, measures(form, source, first, second)) >= 1


def test_the_reference_is_the_same_each_time():
    source = "A dog found a bone in the garden and buried it behind the old shed before anyone could see it."
    pair = reference_team(TLDR, source, 2)
    reference_team.cache_clear()
    assert reference_team(TLDR, source, 2) == pair
