import re

from collm.benchmarks.cli import main
from collm.benchmarks.commands.demo import SHARES


def test_the_demo_shows_an_episode_and_the_share_of_true_sentences_before_and_after(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["demo", "--updates", "3", "--out", str(folder)]) == 0
    text = capsys.readouterr().out
    for label in ("return, at most 1", *SHARES.values()):
        row = next(line for line in text.splitlines() if line.startswith(f"│ {label} "))
        assert len(re.findall(r"\d\.\d+ \[", row)) == 2, row
    found = re.findall(r"(before|after) training: (writer_\d), return \d\.\d+, seed (\d+)", text)
    assert [each[:2] for each in found] == [(time, f"writer_{seat}") for time in ("before", "after") for seat in (0, 1)]
    assert len({seed for *_, seed in found}) == 1  # the same post
    assert (folder / "learning_curve.png").is_file()
