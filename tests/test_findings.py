"""The page of findings shows what the committed summaries say; `python docs/findings.py` writes it anew."""

from __future__ import annotations

import pytest

from docs.findings import BLOCK, PAGE, blocks, comparison, draw, filled


def test_only_what_stands_between_the_marks_changes():
    page = "by hand\n<!-- table: shift contrasts -->\nold\n<!-- end -->\nby hand too\n"
    made = filled(page, {"shift contrasts": "| new |\n"})
    assert made == "by hand\n<!-- table: shift contrasts -->\n\n| new |\n\n<!-- end -->\nby hand too\n"
    assert filled(made, {"shift contrasts": "| new |\n"}) == made
    with pytest.raises(KeyError, match="'shift contrasts'; there are other"):
        filled(page, {"other": ""})


def test_a_suite_without_committed_runs_says_so(tmp_path):
    assert comparison("shift", tmp_path) is None and draw(tmp_path, tmp_path) == []
    assert blocks(["shift contrasts"], tmp_path) == {
        "shift contrasts": "No runs of the suite `shift` are committed yet."
    }


@pytest.mark.slow
def test_the_page_is_what_the_summaries_say():
    page = PAGE.read_text()
    names = [match["name"] for match in BLOCK.finditer(page)]
    assert filled(page, blocks(names)) == page, "python docs/findings.py writes it anew"
