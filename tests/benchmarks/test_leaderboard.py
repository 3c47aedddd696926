import json
import re

from collm.algorithms.rollout.intervals import Interval
from collm.benchmarks.leaderboard import LEADERBOARD_FILES, Entry, Leaderboard

USAGE = ("3 requests",)
ENTRIES = [
    Entry("runs/a", {"sampled": Interval(0.25, 0.0, 0.5), "greedy": Interval(0.9, 0.8, 1.0)}, {}, "a.jsonl"),
    Entry("<b|c>", {"sampled": Interval(0.75, 0.5, 1.0), "greedy": Interval(0.1, 0.0, 0.2)}, {}, "b.jsonl", USAGE),
]
BOARD = Leaderboard("collm/X-v0", {"max_turns": 2}, "test", 10, ENTRIES)


def test_the_best_by_the_first_way_of_playing_stands_first(tmp_path):
    BOARD.write(tmp_path / "new")
    assert {file.name for file in (tmp_path / "new").iterdir()} == {".collm", *LEADERBOARD_FILES}
    found = json.loads((tmp_path / "new" / "leaderboard.json").read_text())
    assert [entry["team"] for entry in found["entries"]] == ["<b|c>", "runs/a"]
    assert found["entries"][0]["returns"]["sampled"] == {"value": 0.75, "low": 0.5, "high": 1.0}
    assert (found["env_kwargs"], found["num_episodes"]) == ({"max_turns": 2}, 10)
    assert found["entries"][0]["usage"] == ["3 requests"]


def test_markdown_keeps_names_as_text():
    rows = [line for line in BOARD.markdown().splitlines() if line.startswith("|")]
    assert rows[2] == "| 1 | `<b\\|c>` | 0.750 [0.500, 1.000] | 0.100 [0.000, 0.200] |"
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}
