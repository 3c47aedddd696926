"""Scripted texts."""

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
def test_the_reference_passes_the_gate_of_structure_for_any_source(form, source):
    first, second = reference_team(form, source, 2)
    assert num_gates_passed(form, measures(form, source, first, second)) >= 1
