"""On a full or read-only disk a run stops with one line, and can be resumed from its newest checkpoint."""

import subprocess
from contextlib import ExitStack

import pytest
from fakes import OnUpdate
from killed import assert_resumes

import collm
from collm.algorithms.runs.files import RunFolderError
from collm.algorithms.runs.run import run_experiment
from collm.benchmarks.cli import main

pytestmark = pytest.mark.slow


@pytest.fixture
def mount():
    """Function that calls mount(8) with given arguments; unmounted after the test."""
    with ExitStack() as stack:

        def mounted(*arguments):
            call = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True, check=False)
            if call.returncode:
                pytest.skip(f"nothing can be mounted here: {call.stderr.strip()}")
            stack.callback(subprocess.run, ["umount", "-q", str(arguments[-1])], check=False)

        yield mounted


@pytest.fixture
def experiment(short_experiment):
    return short_experiment(num_updates=3, rollout_buffer_size=4)


def fill(file, room):
    with file.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(4096))
        except OSError:
            pass
        stream.truncate(max(0, stream.tell() - room))


@pytest.mark.parametrize("room", [0, 4096, 12_288, 24_576])
def test_a_disk_that_fills_up_stops_the_run_in_one_line_and_loses_nothing(tmp_path, experiment, mount, room):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount("-t", "tmpfs", "-o", "size=2m", "tmpfs", disk)
    run_experiment(experiment, tmp_path / "whole")
    filler = OnUpdate(lambda update, _: fill(disk / "filler", room) if update == 2 else None)
    with pytest.raises(RunFolderError) as found:
        run_experiment(experiment, disk / "r", loggers=[filler])
    words = str(found.value)
    assert "No space left on device; the checkpoint of update " in words and " is intact" in words
    assert "\n" not in words
    assert main(["resume", str(disk / "r")]) == 2  # the disk is still full
    (disk / "filler").unlink()
    assert_resumes(experiment, disk / "r", tmp_path / "whole")
    files = [sorted(path.name for path in place.rglob("*")) for place in (disk / "r", tmp_path / "whole")]
    assert files[0] == files[1]


def test_a_new_run_on_a_full_disk_is_refused_and_starts_once_there_is_room(tmp_path, experiment, mount, capsys):
    mount("-t", "tmpfs", "-o", "size=2m", "tmpfs", tmp_path)
    fill(tmp_path / "filler", 4096)
    with pytest.raises(RunFolderError, match="No space left on device; the run has no checkpoint yet"):
        run_experiment(experiment, tmp_path / "r")
    (tmp_path / "filler").unlink()
    run_experiment(experiment, tmp_path / "r")


def test_a_folder_that_becomes_read_only_is_one_line_for_every_command(tmp_path, experiment, mount, capsys):
    directory = tmp_path / "r"

    def seal(update, metrics):
        if update == 2:
            mount("--bind", directory, directory)
            mount("-o", "remount,ro,bind", directory)

    run_experiment(experiment, tmp_path / "whole")
    with pytest.raises(RunFolderError, match="Read-only file system; the checkpoint of update 1 is intact") as found:
        run_experiment(experiment, directory, loggers=[OnUpdate(seal)])
    assert "\n" not in str(found.value)
    for call in (["resume"], ["evaluate", "--episodes", "2"], ["report"]):
        assert main([call[0], str(directory), *call[1:]]) == 2
        printed = capsys.readouterr().err
        assert printed.count("\n") == 1 and printed.startswith("error: "), printed
    subprocess.run(["umount", str(directory)], check=True)
    assert_resumes(experiment, directory, tmp_path / "whole")


COMMANDS = {
    "export": "export {run} {disk}/out",
    "merge": "export {run} {disk}/out --merge",
    "imitate": "imitate collm.envs.games.mini_shift:demonstration {disk}/out --num-updates 1 --batch-size 1",
    "rescore": "rescore {run} --reward-funcs own --out {disk}/out.jsonl",
    "evaluate": "evaluate {run} --episodes 2 --no-transcripts --out {disk}/out",
    "report": "report {run} --out {disk}/out",
    "crossplay": "crossplay {run} {run}-2 --episodes 2 --out {disk}/out",
    "gif": "play collm/MiniBuild-v0 --gif {disk}/out.gif",
    "record": "play collm/MiniBuild-v0 --record {disk}/out",
}


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    few = {"num_updates": 1, "rollout_buffer_size": 2, "eval_num_samples": 2, "num_generations": 2, "lora_rank": 2}
    kwargs = {"env_kwargs": {"max_turns": 1}, "weights": "adapters", "max_new_tokens": 4, "progress": False}
    folder = tmp_path_factory.mktemp("team")
    collm.train("magrpo", "collm/MiniBuild-v0", out=folder / "run-2", seed=2, **few, **kwargs)
    return collm.train("magrpo", "collm/MiniBuild-v0", out=folder / "run", **few, **kwargs)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_on_a_full_disk_names_its_file_and_leaves_nothing_that_blocks_it(tmp_path, team, mount, capsys, name):
    mount("-t", "tmpfs", "-o", "size=16m", "tmpfs", tmp_path)
    fill(tmp_path / "filler", 0)
    call = COMMANDS[name].format(run=team.directory, disk=tmp_path).split()
    assert main(call) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert told.startswith("error: ") and f"{tmp_path}/out" in told and "No space left on device" in told
    assert not list(tmp_path.rglob(".collm-*"))
    (tmp_path / "filler").unlink()
    assert main(call) == 0
