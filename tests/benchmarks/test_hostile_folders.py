"""Run folders made by somebody else are only read, as docs/threat_model.md lists; every fault is one line."""

import gc
import json
import random
import shutil
import socket
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hostile import Guard, called, digest, mutate, sign

import collm
from collm.agents.tiny import TINY_DIRECTORY
from collm.benchmarks.cli import main

NUM_QUICK, NUM_SLOW = 200, 10_000
MAX_S = 300.0
SMALL = {"num_updates": 1, "rollout_buffer_size": 2, "eval_num_samples": 2, "progress": False, "eval_on_start": False}


@dataclass
class Place:
    """Folders of the test: three runs as they were made, a copy that is changed, and what lies outside."""

    runs: dict[str, Path]
    copy: Path
    out: Path
    victim: Path
    guard: Guard
    mark: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("hostile")
    made, victim, package, mark = root / "made", root / "victim", root / "cwd" / "hostile_package", root / "cwd" / "RAN"
    victim.mkdir()
    (victim / "secret.jsonl").write_text('{"id": "a", "post": "secret", "document": "secret", "update": 1}\n')
    package.mkdir(parents=True)
    for name in ("__init__", "env"):
        (package / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    games = {"env": "collm/MiniBuild-v0", "env_kwargs": {"max_turns": 2}, "num_generations": 2, "max_new_tokens": 4}
    collm.train("magrpo", out=made / "texts", **games, **SMALL)
    collm.train("magrpo", out=made / "adapters", weights="adapters", lora_rank=2, **games, **SMALL)
    collm.train("ippo", env="CartPole-v1", out=made / "vectors", hidden_dims=(4,), critic_warmup=0, **SMALL)
    # A template of a chat, as others may write one, with the run's own tokenizer.
    for file in (made / "texts").glob("agents/*/tokenizer_config.json"):
        template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": template}))
        settings = file.with_name("collm_policy.json")
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"is_chat": True}))
    failure = {"split": "train", "seed": 1, "options": None, "problem": "it failed"}
    failure["actions"] = [{"builder_0": "stone", "builder_1": "wood"}]
    for run in made.iterdir():
        (run / "failures").mkdir()
        (run / "failures" / "train-0.json").write_text(json.dumps(failure))
    guard = Guard((root / "copy", root / "out"), victim, "hostile_package")
    yield Place({run.name: run for run in made.iterdir()}, root / "copy", root / "out", victim, guard, mark)
    gc.unfreeze()


def commands(name: str, file: Path, place: Place, rng: random.Random) -> list[list[str]]:
    """Commands that read a file of a run; the resumed one learns once more."""
    run, out = str(place.copy), str(place.out / "made")
    evaluate = ["evaluate", run, "--episodes", "1", "--played", "greedy", "--out", out]
    reading = [evaluate]
    if name == "texts":
        reading = [["chat", run, "--max-new-tokens", "2"], ["export", run, out]]
    elif name == "adapters":
        reading += [["export", run, out, "--merge"]]
    replay, report = ["replay", run, "--episode", "0"], ["report", run, "--out", out]
    resume = ["resume", run, "--num-updates", "2"]
    if file.name == "config.json" and file.parent == place.copy:
        return [*reading, replay, report, ["replay", run, "--failure", "train-0"]]
    if file.name == "episodes.jsonl":
        return [replay, report]
    if file.name in ("metrics.jsonl", "evaluation.jsonl"):
        return [report, resume] if name == "vectors" else [report, ["export", run, out]]
    if file.parent.name == "failures":
        return [["replay", run, "--failure", "train-0"]]
    if "checkpoints" in file.parts:
        shutil.rmtree(place.copy / "agents", ignore_errors=True)  # so that the models are those of the checkpoint
        return [resume, evaluate]
    return reading


def attack(place: Place, rng: random.Random) -> tuple[str, list[str]]:
    """Change one file of a run and read it; returns what was done, and what went wrong."""
    name = rng.choice(["texts", "adapters", *["vectors"] * 4])
    for folder in (place.copy, place.out):
        shutil.rmtree(folder, ignore_errors=True)
    place.out.mkdir()
    shutil.copytree(place.runs[name], place.copy, copy_function=_linked)
    files = sorted(path for path in place.copy.rglob("*") if path.is_file() and path.name != ".lock")
    files = [path for path in files if "critics" not in path.parts]  # which nothing reads
    records = [path for path in files if path.parent == place.copy or path.parent.name == "failures"]
    file = rng.choice(records if rng.random() < 0.6 else files)
    shutil.copy(file, file.with_name("own copy"))  # not the file of the run itself
    file.with_name("own copy").replace(file)
    call = rng.choice(commands(name, file, place, rng))
    kind = mutate(rng, file, [each for each in files if each.is_file()], place.victim, has_links=call[0] != "resume")
    is_signed = "checkpoints" in file.parts and rng.random() < 0.7
    if is_signed:
        sums = file.parent / "SHA256SUMS"
        if sums.is_file() and not sums.is_symlink():
            text = sums.read_bytes()
            sums.unlink()
            sums.write_bytes(text)
            sign(file.parent)
    faults, status = called(place.guard, lambda: main(call), max_s=MAX_S)
    if is_signed:  # values of a wrong type with sums that fit may fail in the first update, which harms nobody
        faults = [each for each in faults if each in place.guard.seen or "TimeoutError" in each]
    told = f"{name}/{file.relative_to(place.copy)} {kind}: collm {' '.join(call)}"
    if place.mark.exists():
        place.mark.unlink()
        faults.append("code of the folder ran")
    return f"{told} -> {status}", faults


def _linked(source: str, target: str) -> None:
    """A second name of a large file, which no command changes in its place; a copy of a small one."""
    path = Path(source)
    if path.suffix == ".safetensors":
        Path(target).hardlink_to(path)
    else:
        shutil.copy(source, target)


def hold(place: Place, count: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> Counter[int | None]:
    monkeypatch.chdir(place.mark.parent)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in ("svg", "write_png"):  # which take seconds
        monkeypatch.setattr(f"collm.benchmarks.report.figures.{name}", lambda *arguments: "")
    before = digest(place.victim), {name: digest(run) for name, run in place.runs.items()}
    wrong: list[str] = []
    ends: Counter[str] = Counter()
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            told, faults = attack(place, rng)
        ends[told.rpartition(" ")[2]] += 1
        wrong += [f"{number}: {told}: {fault}" for fault in faults]
    after = digest(place.victim), {name: digest(run) for name, run in place.runs.items()}
    assert wrong == [], "\n".join([f"{len(wrong)} faults in {count}, {dict(ends)}", *wrong])
    assert after == before
    assert ends["0"] and ends["2"], ends  # some files can be read all the same, others not
    return ends


def test_the_guard_sees_what_it_is_to_see(place, monkeypatch):
    monkeypatch.chdir(place.mark.parent)
    monkeypatch.syspath_prepend(place.mark.parent)

    def imports():
        import hostile_package.env  # noqa: F401

    def connects():
        with socket.socket() as each:
            each.connect_ex(("127.0.0.1", 9))

    wrong = {
        "import": imports,
        "subprocess.Popen": lambda: subprocess.run(["true"], check=True),
        "socket.connect": connects,
        "builtins.input": input,
        "open": lambda: (place.victim / "secret.jsonl").read_text(),
        "os.remove": lambda: (place.victim / "missing").unlink(missing_ok=True),
        "KeyError": lambda: {}["missing"],
    }
    for event, call in wrong.items():
        assert any(event in fault for fault in called(place.guard, call, max_s=5.0)[0]), event
    place.mark.unlink()
    assert called(place.guard, lambda: (place.copy / "missing").unlink(missing_ok=True), max_s=5.0)[0] == []


def test_a_hostile_folder_is_only_read(place, monkeypatch):
    hold(place, NUM_QUICK, 0, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))  # in parts, which parallel workers share
def test_ten_thousand_hostile_folders_are_only_read(place, monkeypatch, seed):
    print(hold(place, NUM_SLOW // 4, seed, monkeypatch))


def test_the_embedded_model_is_no_place_elsewhere(place, monkeypatch):
    shutil.rmtree(place.copy, ignore_errors=True)
    shutil.copytree(place.runs["adapters"], place.copy)
    (file,) = place.copy.glob("agents/builder_0/adapter_config.json")
    assert Path(json.loads(file.read_text())["base_model_name_or_path"]).resolve() == TINY_DIRECTORY.resolve()
    assert main(["evaluate", str(place.copy), "--episodes", "1", "--out", str(place.out)]) == 0
