"""Commands that are killed at random moments end, when they are repeated, with the files of an undisturbed command.

pytest -s -m slow tests/benchmarks/test_killed_commands.py     # prints a line with the kills of each command
"""

import json
import random
import re
import shutil
import signal
from collections import Counter

import pytest
from hub_server import HubServer
from killed import EVENT, REQUEST, Kill, command_life, remains

GAME = "collm/MiniBuild-v0 --env-kwargs max_turns=1 --max-new-tokens 4 --num-generations 2 --rollout-buffer-size 2"
FEW = "--num-updates 3 --eval-num-samples 2 --save-interval 1 --weights adapters --lora-rank 2"
RUN = f"train magrpo --env {GAME} {FEW} --out run"
COMMANDS = {
    "train": (RUN, 10),
    "rescore": ("rescore run --reward-funcs own --out out/scores.jsonl", 5),
    "export": ("export run out", 5),
    "export --merge": ("export run out --merge", 5),
    "push": ("push run me/team --license mit", 5),
    "pull": ("pull me/team --out out", 5),
    "imitate": ("imitate collm.envs.games.mini_shift:demonstration out --num-updates 2 --batch-size 2", 3),
    "evaluate": ("evaluate run --episodes 2 --no-transcripts", 3),
    "report": ("report run --out out", 3),
}
"""Each command, and its number of kills."""
KILLED = (-signal.SIGKILL, -signal.SIGTERM, 130, 128 + signal.SIGTERM)  # 130: the command line after SIGINT
KILLS_PER_TRIAL = 3


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with HubServer(tmp_path_factory.mktemp("hub")) as server:
        yield server


@pytest.fixture(scope="module")
def made(tmp_path_factory, server):
    """Folder with a run, and with a hub that has its team."""
    folder = tmp_path_factory.mktemp("made") / "made"
    folder.mkdir()
    for call in (RUN, COMMANDS["push"][0]):
        assert command_life(call.split(), folder, None, server) == 0, folder.with_suffix(".log").read_text()
    return folder


def contents(directory):
    """Contents of all files that a command wrote, without temporary files, caches, times and paths of this test."""
    if not (directory / "out").exists() and not (directory / "hub").exists():
        return remains(directory / "run")
    files = [path for name in ("out", "hub", "run") for path in sorted((directory / name).rglob("*"))]
    texts = {str(path.relative_to(directory)): path.read_bytes() for path in files if path.is_file()}
    return {
        name: re.sub(rb"20\d\d-\d\d-\d\d[ T][\d:]+|tokens_per_second[^,}]+", b"", text) for name, text in texts.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_is_repeated_with_the_same_result(tmp_path, made, server, name):
    call, num_kills = COMMANDS[name]
    rng = random.Random(name)
    peace, moments, num_trials, num_temporary = tmp_path / "peace", Counter(), 0, 0
    prepare(made, peace, name)
    assert command_life(call.split(), peace, None, server) == 0, peace.with_suffix(".log").read_text()
    facts = {**json.loads(peace.with_suffix(".facts").read_text()), REQUEST: server.num_requests}
    expected = contents(peace)
    while sum(moments.values()) < num_kills:
        directory = tmp_path / f"trial{num_trials}"
        prepare(made, directory, name)
        num_trials += 1
        code = None
        for number in range(KILLS_PER_TRIAL + 1):
            kill = drawn(rng, facts) if number < KILLS_PER_TRIAL else None
            is_resumed = name == "train" and any((directory / "run" / "checkpoints").glob("[0-9]*"))
            code = command_life((["resume", "run"] if is_resumed else call.split()), directory, kill, server)
            log = directory.with_suffix(".log").read_text()
            where = f"{name}, trial {num_trials}, after {dict(moments)}, at {kill}: {log}"
            is_complete = code == 2 and "exists" in log.splitlines()[-1]  # killed after its last file was written
            if code == 0 or is_complete:
                break
            assert kill is not None and code in KILLED, f"status {code}: {where}"
            moments[f"{kill.moment} {kill.signal.name}"] += 1
        assert contents(directory) == expected, where
        num_temporary += sum(1 for _ in (directory / "tmp").glob("*"))
        files = [path.relative_to(directory) for path in directory.rglob(".collm-*")]
        assert not [path for path in files if path.parts[0] != "tmp"], where
    print(
        f"\n| {name} | {sum(moments.values())} kills | {num_trials} of {num_trials} results equal | 0 blocked | "
        f"{num_temporary} leftovers in the system's temporary folder | {dict(sorted(moments.items()))} |"
    )


def prepare(made, directory, name):
    directory.mkdir()
    if name != "train":
        shutil.copytree(made / "run", directory / "run")
    if name == "pull":
        shutil.copytree(made / "hub", directory / "hub")


def drawn(rng, facts):
    moment = rng.choice([EVENT, EVENT, "time", *([REQUEST] * 2 if facts[REQUEST] else [])])
    latest = {EVENT: facts["seen"].get(EVENT, 1), REQUEST: facts[REQUEST]}
    number = rng.uniform(0, facts["seconds"]) if moment == "time" else rng.randint(1, latest[moment])
    how = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
    return Kill(moment, number, how, False)
