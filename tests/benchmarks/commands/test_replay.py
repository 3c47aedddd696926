import json

import pytest

from collm.benchmarks.cli import main

FEW = "--num-updates 2 --rollout-buffer-size 4 --num-generations 2 --eval-num-samples 2".split()


def train(tmp_path, world, kind, *more):
    kinds = ["--env-kwargs", f"kind={kind}"] if kind else []
    return main(["train", "magrpo", "--env", world, *kinds, *FEW, "--out", str(tmp_path / "run"), *more])


@pytest.mark.parametrize("more", [(), ("--num-workers", "1")])
def test_a_fault_is_one_line_with_a_command_that_shows_it_again(tmp_path, capsys, more):
    world = "faulty_worlds:Numbers"
    assert train(tmp_path, world, "reward nan", *more) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    problem = "the reward of 'b_0' is nan, but must be a finite number"
    seed = 2**31
    place = f"error: {world}, update 0, episode 0, seed {seed}, agent b_0, turn 2: {problem}"
    assert error.startswith(place) and error.endswith(f": collm replay {tmp_path / 'run'} --failure test-0 --trust")
    (kept,) = (tmp_path / "run" / "failures").iterdir()
    assert json.loads(kept.read_text())["seed"] == seed
    assert main(error.split("collm ")[1].split()) == 2
    shown = capsys.readouterr()
    assert "turn 2: b_0 reads" in shown.out
    assert shown.err.strip() == f"error: {world}, seed {seed}, agent b_0, turn 2: {problem}"


def test_a_recorded_episode_is_played_again_and_a_change_is_told(tmp_path, capsys):
    assert train(tmp_path, "faulty_worlds:Numbers", None) == 0
    assert main(["replay", str(tmp_path / "run"), "--trust", "--episode", "5"]) == 0
    assert "return: a_0 2.000, b_0 1.500" in capsys.readouterr().out
    log = tmp_path / "run" / "episodes.jsonl"
    log.write_text(log.read_text().replace('"rewards": [0.5, 0.5', '"rewards": [0.5, 0.25'))
    assert main(["replay", str(tmp_path / "run"), "--trust", "--episode", "5"]) == 2
    shown = capsys.readouterr()
    assert "differs from the record: b_0 got 0.25, now 0.5" in shown.out
    assert "differs from its record in 2 places" in shown.err


def test_segments_of_an_episode_are_played_again_as_one(tmp_path, capsys):
    more = ["--turns-per-update", "3", "--num-envs", "2"]
    arguments = "train ippo --env faulty_worlds:Numbers --num-updates 3 --eval-num-samples 2 --critic-warmup 0".split()
    assert main([*arguments, *more, "--out", str(tmp_path / "run")]) == 0
    assert main(["replay", str(tmp_path / "run"), "--trust", "--episode", "0"]) == 0
    assert "return: a_0 2.000, b_0 1.500" in capsys.readouterr().out
