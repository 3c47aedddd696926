"""Scripted texts."""

import pytest

from collm.envs.writing.documents.reference import reference_team
from collm.envs.writing.documents.rules import ARXIV_EXPANSION, TLDR, measures, num_gates_passed


@pytest.mark.parametrize("form", [TLDR, ARXIV_EXPANSION])
def test_the_reference_passes_the_gate_of_structure_for_any_source(form):
    few_words = "Cats, dogs; mice. " * 9 + "{source}"
    for source in ("Short.", "One two three four five.", "word " * 400, few_words, "数 学 は 楽しい です。"):
        first, second = reference_team(form, source, 2)
        assert num_gates_passed(form, measures(form, source, first, second)) >= 1, source
