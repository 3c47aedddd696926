import json
from itertools import count

import pytest
from fakes import language_policy
from rich.console import Console
from waiting_worlds import NumberTurns, TurnGame

from collm.agents.scripted import RandomPolicy, reference_policy
from collm.algorithms.config import C3Config
from collm.algorithms.rollout.branching import BranchingCollector
from collm.algorithms.rollout.collector import RolloutCollector
from collm.algorithms.rollout.plays import Plan
from collm.algorithms.runs.records import episode_records, recorded_episode
from collm.benchmarks.cli import main
from collm.benchmarks.commands.playing.replay import replay
from collm.envs import make, specs
from collm.envs.vectors.vector import SyncVector
from collm.envs.views import TurnBased
from collm.envs.views.aec import to_aec

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
    assert error.startswith(place) and error.endswith(f": collm replay {tmp_path / 'run'} --failure test-0")
    (kept,) = (tmp_path / "run" / "failures").iterdir()
    assert json.loads(kept.read_text())["seed"] == seed
    assert main(error.split("collm ")[1].split()) == 2
    shown = capsys.readouterr()
    assert "turn 2: b_0 reads" in shown.out
    assert shown.err.strip() == f"error: {world}, seed {seed}, agent b_0, turn 2: {problem}"


def test_a_recorded_episode_is_played_again_and_a_change_is_told(tmp_path, capsys):
    assert train(tmp_path, "faulty_worlds:Numbers", None) == 0
    assert main(["replay", str(tmp_path / "run"), "--episode", "5"]) == 0
    assert "return: a_0 2.000, b_0 1.500" in capsys.readouterr().out
    log = tmp_path / "run" / "episodes.jsonl"
    log.write_text(log.read_text().replace('"rewards": [0.5, 0.5', '"rewards": [0.5, 0.25'))
    assert main(["replay", str(tmp_path / "run"), "--episode", "5"]) == 2
    shown = capsys.readouterr()
    assert "differs from the record: b_0 got 0.25, now 0.5" in shown.out
    assert "differs from its record in 2 places" in shown.err


def test_segments_of_an_episode_are_played_again_as_one(tmp_path, capsys):
    more = ["--turns-per-update", "3", "--num-envs", "2"]
    arguments = "train ippo --env faulty_worlds:Numbers --num-updates 3 --eval-num-samples 2 --critic-warmup 0".split()
    assert main([*arguments, *more, "--out", str(tmp_path / "run")]) == 0
    assert main(["replay", str(tmp_path / "run"), "--episode", "0"]) == 0
    assert "return: a_0 2.000, b_0 1.500" in capsys.readouterr().out


def check_replays(vector, episodes, folder):
    """Check that every recorded episode is replayed without a difference, and that a changed reward is a difference."""
    rows = [json.loads(json.dumps(row)) for row in episode_records(episodes)]
    log = folder / "episodes.jsonl"
    console = Console(quiet=True)

    def num_differing(index):
        log.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return replay(vector, recorded_episode(folder, index), console)

    indices = sorted({row["index"] for row in rows})
    assert [num_differing(index) for index in indices] == [0] * len(indices)
    waited = [track["waiting"] for track in rows[0]["agents"].values() if track.get("waiting")]
    if waited:
        waited[0].update({time: reward + 1.0 for time, reward in waited[0].items()})
        assert num_differing(indices[0]) == len(waited[0])


@pytest.mark.parametrize("id", [spec.id for spec in specs() if spec.id.startswith("collm/")])
def test_an_episode_of_each_environment_is_replayed(id, tmp_path):
    vector = SyncVector(id, 1)
    policy = reference_policy(vector.envs[0])
    collector = RolloutCollector(vector, dict.fromkeys(vector.possible_agents, policy))
    check_replays(vector, collector.collect([Plan(3), Plan(4)]), tmp_path)


@pytest.mark.parametrize("world", [TurnGame, lambda: TurnBased(to_aec(TurnGame())), NumberTurns])
def test_an_episode_with_waiting_agents_is_replayed(world, tmp_path):
    vector = SyncVector(world, 1)
    spaces = {agent: vector.action_space(agent) for agent in vector.possible_agents}
    collector = RolloutCollector(vector, dict.fromkeys(spaces, RandomPolicy(spaces)))
    check_replays(vector, collector.collect([Plan(3)]), tmp_path)


@pytest.mark.parametrize("world", [TurnGame, lambda: make("collm/TinyHanabi-v0"), lambda: make("collm/MiniShift-v0")])
@pytest.mark.parametrize("kind", ["segments", "branches"])
def test_segments_and_branches_are_replayed(kind, world, tmp_path):
    vector = SyncVector(world, 2)
    policies = dict.fromkeys(vector.possible_agents, language_policy(max_new_tokens=3))
    if kind == "segments":
        collector = RolloutCollector(vector, policies)
        episodes = [each for _ in range(3) for each in collector.collect_turns(2, count())]
    else:
        episodes = BranchingCollector(vector, policies, C3Config(num_alternatives=2)).collect([Plan(3)])
    check_replays(vector, episodes, tmp_path)
