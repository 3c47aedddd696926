"""If a rank fails, dies or hangs, all ranks exit, and one line reports the cause."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import ranked
import torch

from collm.algorithms.distribution.group import Alone, LostRankError, Ranks, current, member
from collm.algorithms.distribution.launch import joined

PROGRAM = """
import os, signal, sys, time
from collm.algorithms.distribution.launch import joined
from collm._errors import UserError
try:
    with joined(patience_s=4.0) as group:
        group.gather(None)
        if {mode!r} == "die" and group.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if {mode!r} == "hang" and group.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        if {mode!r} == "raise" and group.rank == 1:
            raise UserError("rank 1 alone has no memory left")
        if {mode!r} == "agree":
            raise UserError("all ranks see this")
        group.gather(None)
except UserError as error:
    print(f"error: {{error}}", file=sys.stderr)
    sys.exit(2)
"""


def ended(mode, timeout_s=60):
    port = ranked.free_port()
    begun = time.monotonic()
    processes = []
    for rank in range(2):
        told = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        command = [sys.executable, "-c", textwrap.dedent(PROGRAM.format(mode=mode))]
        processes.append(subprocess.Popen(command, env=os.environ | told, stderr=subprocess.PIPE, text=True))
    try:
        first = processes[0].communicate(timeout=timeout_s)[1]
        if mode == "hang":
            os.kill(processes[1].pid, signal.SIGKILL)
        texts = first + processes[1].communicate(timeout=timeout_s)[1]
    finally:
        for process in processes:
            process.kill()
    lines = [line for line in texts.splitlines() if line.startswith("error")]
    return [process.returncode for process in processes], lines, time.monotonic() - begun


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "statuses", "line"),
    [
        ("die", [[2, -signal.SIGKILL]], "error: rank 0 of 2 lost the connection"),
        ("hang", [[1, -signal.SIGKILL]], "error: no heartbeat from rank 1 for 4 s"),
        ("raise", [[1, 2]], "error: rank 1 alone has no memory left"),
        ("agree", [[1, 2], [2, 1]], "error: all ranks see this"),
    ],
)
def test_the_loss_of_a_rank_ends_all_with_one_line(mode, statuses, line):
    found, lines, seconds = ended(mode)
    assert found in statuses
    assert len(lines) == 1 and lines[0].startswith(line)
    assert seconds < 60


def test_a_rank_that_is_killed_is_missed_by_the_other_one(pair_and_death):
    said, status = pair_and_death[1]
    assert said.startswith("rank 0 of 2 lost the connection") and "\n" not in said
    assert status == -signal.SIGKILL


def test_ranks_share_add_up_and_fail_together(pair):
    first, second = (rank["exchanged"] for rank in pair)
    expected = {"fault": "speaker_0", "agreed": 7, "written": "by 0", "is current": True, "spread": [0.0, 0.0]}
    expected |= {"shares": [["a", "c", "e"], ["b", "d"]], "sums": ([3.0, 6.0], [2.0] * 3)}
    assert first == second == expected | {"union": {0: [3.0, 6.0], 1: [3.0, 6.0]}}


def test_a_process_without_torchrun_is_alone_and_half_of_its_variables_are_refused(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined() as group:
        assert isinstance(group, Alone) and group.is_writer
        assert group.shard([1, 2, 3]) == [1, 2, 3] and group.gather("x") == ["x"]
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match=r"WORLD_SIZE=2 .*RANK"), joined():
        pass
    with member(Alone()) as group:
        assert current() is group
    assert current() is not group


@pytest.mark.parametrize(
    ("error", "kind"), [(torch.OutOfMemoryError, torch.OutOfMemoryError), (RuntimeError, LostRankError)]
)
def test_a_rank_without_memory_is_no_lost_rank(error, kind, monkeypatch):
    def fail(flat):
        raise error("Tried to allocate 2.00 GiB")

    for name, found in (("get_rank", lambda: 0), ("get_world_size", lambda: 2), ("all_reduce", fail)):
        monkeypatch.setattr(torch.distributed, name, found)
    with pytest.raises(kind, match=r"2\.00 GiB"):
        Ranks().add_up([torch.ones(3)])


@pytest.mark.parametrize(("num_gpus", "device"), [(0, None), (1, None), (2, torch.device("cuda", 1))])
def test_nccl_connects_the_gpu_of_the_rank_at_the_start(num_gpus, device, monkeypatch):
    class Begun(Exception):
        pass

    def begin(backend, *, timeout, device_id):
        raise Begun(backend, device_id)

    chosen = []
    variables = {"RANK": 1, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2, "WORLD_SIZE": 2}
    for name, value in {**variables, "MASTER_ADDR": "a", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: num_gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: chosen[-1])
    monkeypatch.setattr(torch.distributed, "init_process_group", begin)
    with pytest.raises(Begun) as begun, joined():
        pass
    assert begun.value.args == ("gloo" if device is None else "cpu:gloo,cuda:nccl", device)
