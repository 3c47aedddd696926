"""On a full or read-only disk a run stops with one line, and can be resumed from its newest checkpoint."""

import subprocess
from contextlib import ExitStack

import pytest
from fakes import OnUpdate
from killed import assert_resumes

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
