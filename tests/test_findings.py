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


def test_suites_with_the_same_columns_can_be_taken_together(tmp_path):
    both, first = comparison("tuned+replication"), comparison("tuned")
    own = {run.seed for run in first.runs("MAAC", "both")}
    assert own < {run.seed for run in both.runs("MAAC", "both")}
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / "summaries.jsonl").write_text("")
    assert comparison("tuned", tmp_path) is not None and comparison("tuned+replication", tmp_path) is None


@pytest.mark.slow
def test_the_page_is_what_the_summaries_say():
    page = PAGE.read_text()
    names = [match["name"] for match in BLOCK.finditer(page)]
    assert filled(page, blocks(names)) == page, "python docs/findings.py writes it anew"
