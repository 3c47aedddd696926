"""Wrong calls of the command line: each prints one line (or a box of the parser), and leaves no files."""

import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar
from unittest.mock import Mock

import pytest
import torch
from chat_server import ChatServer
from faulty_worlds import Texts
from pettingzoo import ParallelEnv
from safetensors.torch import load_file, save_file

from collm._errors import UserError
from collm._ownership import write_text
from collm.agents.tiny import TINY_DIRECTORY
from collm.algorithms.config import IACConfig
from collm.algorithms.runs import run as running
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.benchmarks.cli import main
from collm.benchmarks.errors import line_of
from collm.envs import register
from collm.envs.spaces import OpenText


def table(name: str) -> dict[str, list[tuple[str, str]]]:
    """Rows (call, answer) of a file, with the titles of its sections as keys."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for line in (Path(__file__).parent / name).read_text().splitlines():
        if line.startswith("# "):
            rows = sections.setdefault(line.removeprefix("# "), [])
        elif line:
            call, _, answer = line.partition(" | ")
            rows.append((call.strip(), answer.strip()))
    return {title: rows for title, rows in sections.items() if rows}


TABLE = [row for rows in table("mistakes.txt").values() for row in rows]
SECTIONS = table("wrong_calls.txt")
QUICK = {"Options without effect", "Lists with an item twice"}  # the others build many parsers and environments
ODD = [call for call, _ in table("odd_calls.txt")["Odd calls that are valid"]]
RANGES = [call for call, answer in TABLE if re.search(r"must be a (whole|finite) number", answer)]
SLOW = {call for number, call in enumerate(RANGES) if number % 4}
"""Most ranges: they are one rule, which tests/test_ranges.py holds without the argument parser."""
CALLS = {"TEXT": "train iac --env collm/MiniWriting-v2 --out OUT", "VECTORS": "train ippo --env CartPole-v1 --out OUT"}
ENVIRONMENT = '[[environments]]\nid = "collm/MiniWriting-v2"\n'
ALGORITHM = '[[algorithms]]\nname = "iac"\n'
CONTRAST = '[[contrasts]]\nname = "a"\nscore = "return"\nterms = [[1, "iac", "collm/MiniWriting-v2"]]\n'
BUDGET = "seeds = [0]\nbudget = {environment_steps = 320}\n"
MAX_S = 120  # of wall time per call, on a machine that does much else


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, Path]:
    """What the capitals of the table stand for."""
    folder = tmp_path_factory.mktemp("mistakes")
    made = {name: folder / name.lower() for name in ("DATA", "FILE", "MODELS", "RUNS", "SETTINGS", "SUITES")}
    made["FILE"].write_text("neither JSON nor anything else\n")
    write_data(made["DATA"])
    write_models(made["MODELS"])
    write_runs(made["RUNS"])
    write_suites(made["SUITES"])
    write_settings(made["SETTINGS"])
    return made | {"OUT": folder / "out"}


def write_models(folder: Path) -> None:
    """Copies of the embedded model, each with one fault."""

    def copy(name: str) -> Path:
        ignored = shutil.ignore_patterns("*.py", "__pycache__", "README.md")
        return Path(shutil.copytree(TINY_DIRECTORY, folder / name, ignore=ignored))

    def with_settings(name: str, file: str = "config.json", **changes: object) -> None:
        path = copy(name) / file
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    copy("whole")
    bare = copy("no-tokenizer")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (bare / file).unlink()
    (copy("empty-tokenizer") / "tokenizer.json").write_text("")
    (copy("broken-tokenizer") / "tokenizer.json").write_text('{"version": "1.0", "model": {"type": "BPE"}}')
    (copy("no-weights") / "model.safetensors").unlink()
    cut = copy("cut-weights") / "model.safetensors"
    cut.write_bytes(cut.read_bytes()[:100_000])
    (copy("empty-weights") / "model.safetensors").write_bytes(b"")
    (copy("bad-config") / "config.json").write_text('{\n"model_type": llama}')
    (copy("empty-config") / "config.json").write_text("")
    with_settings("encoder", model_type="bert", architectures=["BertModel"])
    with_settings("encoder-decoder", model_type="t5", architectures=["T5Model"], is_encoder_decoder=True)
    with_settings("unknown-kind", model_type="no-such-architecture")
    with_settings("no-eos", "tokenizer_config.json", eos_token=None)
    with_settings("short", max_position_embeddings=8)
    with_settings("few-words", vocab_size=200)
    with_settings("two-labels", architectures=["LlamaForSequenceClassification"], id2label={"0": "a", "1": "b"})
    adapter = copy("adapter-of-nothing")
    (adapter / "config.json").unlink()
    (adapter / "adapter_config.json").write_text("{}")


def write_runs(folder: Path) -> None:
    settings = Experiment(algorithm="iac", config=IACConfig(), env="collm/MiniWriting-v2").to_json()

    def run(name: str, content: str, metrics: str = "") -> None:
        (folder / name).mkdir(parents=True)
        write_text(folder / name, "config.json", content)
        (folder / name / "metrics.jsonl").write_text(metrics)

    whole = json.dumps(settings, indent=2)
    run("other", json.dumps(settings | {"config": settings["config"] | {"seed": 1}}), '{"update": 1}\n')
    run("no-agents", whole)
    run("bad-metrics", whole, '{"update": 1}\n{"update": \n')
    run("slim-episodes", whole)
    (folder / "slim-episodes" / "episodes.jsonl").write_text('{"seed": 1}\n')
    run("empty-config", "")
    run("half-config", "\n".join(whole.splitlines()[:3]) + '\n"broken')
    run("list-config", "[1, 2]")
    run("no-algorithm", json.dumps({name: value for name, value in settings.items() if name != "algorithm"}))
    run("no-env", json.dumps({name: value for name, value in settings.items() if name != "env"}))
    run("unknown-algorithm", json.dumps(settings | {"algorithm": "iacx"}))
    run("newer", json.dumps(settings | {"config": settings["config"] | {"from_the_future": 1}}))
    run("trusting", json.dumps(settings | {"env": "os:system", "env_kwargs": {"command": "touch OUT"}}))
    run("trusting-judge", json.dumps(settings | {"env_kwargs": {"reward_funcs": ["own", "antigravity:fly"]}}))
    run("trusting-gymnasium", json.dumps(settings | {"env": "gymnasium/antigravity:X-v0"}))
    run("nan-model", whole)
    copied = shutil.copytree(TINY_DIRECTORY, folder / "nan-model" / "agents" / "writer_0")
    weights = load_file(copied / "model.safetensors")
    weights["model.norm.weight"][0] = float("nan")
    save_file(weights, copied / "model.safetensors", {"format": "pt"})
    policy = {"is_chat": False, "template_kwargs": {}, "max_new_tokens": 8}
    (copied / "collm_policy.json").write_text(json.dumps(policy))
    run("failed", whole)
    write_failures(folder / "failed" / "failures")
    run("out-of-range", json.dumps(settings | {"config": settings["config"] | {"max_grad_norm": -1.0}}))


def write_failures(folder: Path) -> None:
    folder.mkdir()
    whole = {"seed": 1, "options": None, "actions": [], "split": "train", "problem": "it failed"}
    for name, text in {
        "broken": '{"seed": ',
        "list": "[1]",
        "lacking": '{"seed": 1}',
        "text-actions": json.dumps(whole | {"actions": "none"}),
        "stranger": json.dumps(whole | {"actions": [{"nobody": "hello"}]}),
    }.items():
        (folder / f"{name}.json").write_text(text)


def write_data(folder: Path) -> None:
    folder.mkdir()
    good, blank = '{"post": "One. Two."}\n', '{"post": " "}\n'
    for name, text in {
        "good.jsonl": good * 4,
        "good.txt": good,
        "blank.jsonl": good + blank,
        "all-blank.jsonl": blank * 2,
        "null.csv": 'post,id\nOne.,a\n"",b\n',
        "other-column.jsonl": '{"text": "One."}\n',
        "number.jsonl": '{"post": 3}\n',
        "list.jsonl": "[1]\n",
        "broken.jsonl": good + '{"post": \n',
        "broken.json": "[{",
        "empty.jsonl": "",
        "not.jsonl.gz": good,
        "not.parquet": good,
        "same-id.jsonl": '{"post": "One.", "id": "a"}\n{"post": "Two.", "id": "a"}\n',
    }.items():
        (folder / name).write_text(text)
    (folder / "latin.jsonl").write_bytes('{"post": "déjà"}\n'.encode("latin-1"))


def write_suites(folder: Path) -> None:
    folder.mkdir()
    whole = BUDGET + ENVIRONMENT + ALGORITHM
    for name, text in {
        "broken": "seeds = [0",
        "unknown-key": "seed = [0]\n" + whole.replace("seeds = [0]\n", ""),
        "no-seeds": whole.replace("seeds = [0]", "seeds = []"),
        "text-seeds": whole.replace("[0]", '"many"'),
        "negative-seed": whole.replace("[0]", "[-1]"),
        "no-budget": "seeds = [0]\n" + ENVIRONMENT + ALGORITHM,
        "true-budget": whole.replace("{environment_steps = 320}", "true"),
        "bad-unit": whole.replace("environment_steps", "hours"),
        "number-name": "name = 5\n" + whole,
        "dots-name": BUDGET + ENVIRONMENT + 'name = ".."\n' + ALGORITHM,
        "text-config": 'config = "fast"\n' + whole,
        "text-kwargs": BUDGET + ENVIRONMENT + 'kwargs = "x"\n' + ALGORITHM,
        "text-environments": BUDGET + 'environments = ["collm/MiniWriting-v2"]\n' + ALGORITHM,
        "number-algorithms": BUDGET + "algorithms = 3\n" + ENVIRONMENT,
        "model-name": 'model = "tiny"\n' + whole,
        "model-key": 'model = {modl = "tiny"}\n' + whole,
        "threshold": BUDGET + ENVIRONMENT + 'threshold = "high"\n' + ALGORITHM,
        "size": "config = {rollout_buffer_size = 0}\n" + whole,
        "foreign": "config = {batch_size = 8}\n" + whole,
        "twice": whole + ALGORITHM,
        "empty": "",
        "number-name-env": BUDGET + ENVIRONMENT + "name = 3\n" + ALGORITHM,
        "float-seed": whole.replace("[0]", "[0.5]"),
        "list-budget": whole.replace("{environment_steps = 320}", "[320]"),
        "zero-budget": whole.replace("320", "0"),
        "no-id": BUDGET + "[[environments]]\n" + ALGORITHM,
        "no-algorithm-name": BUDGET + ENVIRONMENT + "[[algorithms]]\n",
        "list-config-in": whole + "config_in = [1]\n",
        "stranger-config-in": whole + "config_in = {nowhere = {discount = 1}}\n",
        "contrast-without-terms": whole + '[[contrasts]]\nname = "a"\nscore = "return"\n',
        "contrast": whole + CONTRAST,
        "contrast-stranger": whole + CONTRAST.replace('"iac"', '"nobody"'),
        "contrast-score": whole + CONTRAST.replace('"return"', '"best"'),
        "network-key": "network = {hidden = [8]}\n" + whole,
        "text-starts": 'starts = "tiny"\n' + whole,
        "kwargs-typo": BUDGET + ENVIRONMENT + "kwargs = {max_turn = 3}\n" + ALGORITHM,
    }.items():
        (folder / f"{name}.toml").write_text(text)


def write_settings(folder: Path) -> None:
    folder.mkdir()
    whole = 'algorithm = "maac"\nenv = "collm/MiniWriting-v2"\n'
    for name, text in {
        "typo": whole + "num_updats = 3",
        "alias-typo": whole + "learning_rat = 3",
        "foreign": whole + "batch_size = 8",
        "other-algorithm": whole.replace("maac", "maacc"),
        "no-algorithm": "num_updates = 3",
        "whole": whole,
        "out-of-range": whole + 'num_updates = "many"',
        "twice": whole + "agent_learning_rate = 1e-4\nlearning_rate = 1e-4",
        "kwargs": whole + "env_kwargs = 3",
        "code": whole.replace("collm/MiniWriting-v2", "os:getcwd"),
        "alias-and-name": whole + "lr = 1e-4\nagent_learning_rate = 1e-4",
        "part-and-whole": whole + "adam = [0.9, 0.9, 1e-8]\nadam_beta1 = 0.8",
        "version": whole + "version = 1",
        "float-updates": whole + "num_updates = 1.5",
        "true-updates": whole + "num_updates = true",
        "huge-updates": whole + f"num_updates = 1{'0' * 23}",
        "number-out": whole + "out = 3",
        "empty-out": whole + 'out = ""',
        "text-dry-run": whole + 'dry_run = "yes"',
        "number-dims": whole + "hidden_dims = 3",
        "text-dims": whole + 'hidden_dims = ["wide"]',
        "text-reward-funcs": whole + 'reward_funcs = "own"',
        "text-partner": whole + 'partner = "writer_0=random"',
        "number-partner": whole + "partner = [3]",
        "number-prompts": whole + "prompts = 3",
        "text-threads": whole + 'threads = "many"',
        "number-options": whole + "collector_options = 3",
        "text-log": whole + 'log = "wandb"',
        "unknown-log": whole + 'log = ["paper"]',
        "list-kwargs": whole + "env_kwargs = [1]",
        "date-seed": whole + "seed = 2026-01-01",
        "number-algorithm": "algorithm = 3",
        "number-env": 'algorithm = "maac"\nenv = 3',
        "list-env": 'algorithm = "maac"\nenv = ["a"]',
        "high-beta": whole + "adam_beta1 = 2",
        "unknown-weights": whole + 'weights = "none"',
        "config-in-config": whole + 'config = "x.toml"',
        "two-tables": whole + "[config]\nnum_updates = 3\n[model]\nnum_updates = 3",
        "two-keys": whole + "seed = 1\nseed = 2",
        "help": whole + "help = true",
        "infinite": whole + "temperature = inf",
        "text-rate": whole + 'learning_rate = "1e-4"',
        "list-model": whole + 'model = ["tiny", "tiny"]',
        "resume-nothing": whole + "resume = true",
        "critic-setting": whole + "critic_steps = 3",
    }.items():
        (folder / f"{name}.toml").write_text(text)
    named = {"algorithm": "maac", "env": "collm/MiniWriting-v2"}
    for name, value in {"config": 3, "network": 3, "settings": 3}.items():
        (folder / f"{name}-number.json").write_text(json.dumps(named | {name: value}))
    (folder / "logging-table.json").write_text(json.dumps(named | {"logging": {"log": ["wandb"]}}))


def filled(text: str, places: dict[str, Path]) -> str:
    for name, value in {**CALLS, **{name: str(path) for name, path in places.items()}}.items():
        text = re.sub(rf"\b{name}\b", lambda _, value=value: value, text)
    return text


def snapshot(places: dict[str, Path]) -> set[str]:
    return {str(path) for path in places["OUT"].parent.rglob("*")}


@contextmanager
def no_longer_than(seconds: float, call: str):
    def too_late(number, frame):
        pytest.fail(f"after {seconds:g} s there is still no answer to: collm {call}")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    "title", [pytest.param(title, marks=[] if title in QUICK else [pytest.mark.slow]) for title in SECTIONS]
)
def test_wrong_calls_of_every_command_cost_one_line_each(title, places, capfd, monkeypatch):
    """Every section of the table runs in one test, because building the parser is most of the time of a call."""
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.chdir(places["RUNS"].parent)
    monkeypatch.setattr(running._TrainingLoop, "train", Mock(side_effect=AssertionError("the training began")))
    before, faults = snapshot(places), []
    for call, answer in SECTIONS[title]:
        with warnings.catch_warnings(), no_longer_than(MAX_S, call):
            warnings.simplefilter("ignore")
            try:
                status = main(shlex.split(filled(filled(call, places), places)))
            except SystemExit as end:
                status = end.code
        printed = capfd.readouterr()
        text = re.sub(r"[\s│|]+", " ", printed.err + printed.out)
        is_box = "╭" in text or "-----" in text
        is_line = printed.err.startswith("error: ") and printed.err.count("\n") == 1
        new = snapshot(places) - before
        if status != 2 or not (is_box or is_line) or "Traceback" in text or filled(answer, places) not in text or new:
            faults.append((call, answer, status, sorted(new), text))
    assert not faults, "\n".join(map(str, faults))


@pytest.mark.slow
def test_odd_calls_that_are_valid_are_accepted(places, capfd, monkeypatch):
    """The training is left before its first episode."""

    def left(run):
        run.trainer.close()
        raise UserError("far enough")

    monkeypatch.setattr(running._TrainingLoop, "train", left)
    monkeypatch.chdir(places["RUNS"].parent)
    faults = []
    for call in ODD:
        status = main(shlex.split(filled(filled(call, places), places)))
        shutil.rmtree(places["OUT"], ignore_errors=True)
        last = (capfd.readouterr().err.strip().splitlines() or [""])[-1]
        if (status, last) != (2, "error: far enough") and status != 0:
            faults.append((call, status, last))
    assert not faults, "\n".join(map(str, faults))


def rows(*, warned: bool):
    chosen = [(call, answer) for call, answer in TABLE if answer.startswith("warns: ") == warned]
    return [pytest.param(*row, id=row[0], marks=[pytest.mark.slow] if row[0] in SLOW else []) for row in chosen]


@pytest.mark.parametrize(("call", "answer"), rows(warned=False))
def test_a_wrong_call_costs_one_line_that_says_what_is_wrong(call, answer, places, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")  # boxes then wrap no name
    monkeypatch.chdir(places["RUNS"].parent)
    before = snapshot(places)
    arguments = shlex.split(filled(filled(call, places), places))
    with warnings.catch_warnings(), no_longer_than(MAX_S, call):
        warnings.simplefilter("ignore")  # of libraries that read broken files
        try:
            status = main(arguments)
        except SystemExit as end:
            status = end.code
    printed = capfd.readouterr()
    text = printed.err + printed.out
    assert status == 2, text
    assert "Traceback" not in text
    is_box = "╭" in text or "---" in text
    lines = printed.err.strip().splitlines()
    assert is_box or (len(lines) == 1 and lines[0].startswith("error: ")), text
    assert filled(answer, places) in re.sub(r"[\s│|]+", " ", text)
    assert snapshot(places) == before


@pytest.mark.parametrize(("call", "answer"), rows(warned=True))
def test_a_harmless_call_is_warned_about_in_one_line(call, answer, places, capfd, monkeypatch):
    """The run is left before models are loaded, or else before an episode is played."""

    def left(run):
        run.trainer.close()
        raise UserError("far enough")

    monkeypatch.setattr(running._TrainingLoop, "train", left)
    if "effect" in answer or "is more than" in answer:
        monkeypatch.setattr(Experiment, "make_trainer", Mock(side_effect=UserError("far enough")))
    monkeypatch.chdir(places["RUNS"].parent)
    with no_longer_than(MAX_S, call):
        assert main(shlex.split(filled(filled(call, places), places))) == 2
    shutil.rmtree(places["OUT"], ignore_errors=True)
    printed = capfd.readouterr()
    assert printed.err.strip().splitlines()[-1] == "error: far enough"
    (line,) = printed.out.strip().splitlines()
    assert answer.removeprefix("warns: ") in line


def test_a_server_of_another_kind_costs_one_line(places, capfd):
    with ChatServer() as server:
        url = server.url.removesuffix("/v1")
        assert main([*shlex.split(filled("TEXT --weights shared --server", places)), url]) == 2
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert line.startswith("error: ") and url in line
    assert not places["OUT"].exists()


class Hostile(ParallelEnv):
    """Two agents whose names and texts a terminal, a markup language or a file system would obey."""

    metadata: ClassVar = {"name": "hostile"}

    def __init__(self, names=("[/red]", "\x1b]0;pwned\x07"), text="\x1b[2J\x9b2J[/bold]"):
        self.possible_agents = list(names)
        self.text = text

    def observation_space(self, agent):
        return OpenText(1000)

    action_space = observation_space

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return dict.fromkeys(self.agents, self.text), {agent: {} for agent in self.agents}

    def step(self, actions):
        agents, self.agents = self.agents, []
        ended, texts = dict.fromkeys(agents, True), dict.fromkeys(agents, self.text * 3)
        infos = {agent: {"metric/[/x]\x1b": 1.0} for agent in agents}
        return texts, dict.fromkeys(agents, 0.0), ended, dict.fromkeys(agents, False), infos

    def scene(self):
        return self.text


@pytest.fixture
def hostile(clean_registry) -> str:
    return register("tests/Hostile-v0", Hostile).id


@pytest.mark.parametrize("policy", ["random", "empty"])
def test_play_obeys_no_text_of_an_environment(hostile, policy, capfd):
    assert main(["play", hostile, "--policy", policy]) == 0
    printed = capfd.readouterr().out
    assert not set("\x1b\x9b\x07") & set(printed)
    assert "\\x1b[2J\\x9b2J[/bold]" in printed
    assert "[/red]" in printed


@pytest.mark.parametrize("name", ["../../../escaped", "a/b", "..", "", "\x1b[2J", "[/red]", "a\\b", "a\nb", "x" * 200])
def test_an_agent_whose_name_leads_elsewhere_is_refused_before_anything_is_written(name, hostile, tmp_path, capfd):
    given = json.dumps([name, "other"])
    out = tmp_path / "deep" / "down" / "run"
    assert main(["train", "iac", "--env", hostile, "--env-kwargs", f"names={given}", "--out", str(out)]) == 2
    printed = capfd.readouterr().err
    assert "the agent name " in printed
    assert "\x1b" not in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.3, 0.6, 1.0, 1.5, 2.5])
def test_ctrl_c_at_any_time_of_the_start_costs_one_word(seconds, tmp_path):
    code = "import sys; print('up', flush=True); from collm.benchmarks.cli import main; sys.exit(main())"
    call = ["train", "iac", "--env", "collm/MiniWriting-v2", "--out", str(tmp_path / "run")]
    process = subprocess.Popen([sys.executable, "-c", code, *call], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"up\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert errors == b"interrupted\n"


def test_ctrl_c_that_a_library_turns_into_an_error_of_its_own_costs_one_word(monkeypatch, capsys):
    def swallowed(*arguments, **options):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt:
            raise ValueError("are this object's requirements defined correctly?") from None

    monkeypatch.setattr("collm.benchmarks.commands.envs.run", swallowed)
    assert main(["envs"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_fault_of_the_program_shows_its_traceback(monkeypatch):
    monkeypatch.setattr("collm.benchmarks.commands.envs.specs", Mock(side_effect=KeyError("no such key")))
    with pytest.raises(KeyError, match="no such key"):
        main(["envs"])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_takes_nothing_costs_one_line(number, monkeypatch, capsys):
    full = OSError(number, "there is no room", "runs/x/metrics.jsonl")
    monkeypatch.setattr("collm.benchmarks.commands.envs.specs", Mock(side_effect=full))
    assert main(["envs"]) == 2
    assert "runs/x/metrics.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["nan", "lacking"])
def test_a_model_with_weights_that_cannot_be_used_is_refused(damage, places, tmp_path, capfd):
    folder = shutil.copytree(places["MODELS"] / "whole", tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    if damage == "nan":
        weights[name][0, 0] = float("nan")
    else:
        del weights[name]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    call = ["train", "iac", "--env", "collm/MiniWriting-v2", "--model", str(folder), "--out", str(tmp_path / "run")]
    assert main(call) == 2
    last = capfd.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("error: ") and repr(str(folder)) in last and name in last


@pytest.mark.parametrize("kind", ["step raises", "reward nan", "step exits", "four values", "reset raises"])
def test_play_names_a_faulty_environment_in_one_line(kind, clean_registry, capfd):
    id = register("tests/Texts-v0", Texts).id
    assert main(["play", id, "--policy", "random", "--env-kwargs", f"kind={kind}"]) == 2
    printed = capfd.readouterr().err
    assert printed.count("\n") == 1 and printed.startswith(f"error: {id}, seed 0"), printed


def test_replay_obeys_no_text_of_a_run(hostile, tmp_path, capfd):
    settings = Experiment(algorithm="iac", config=IACConfig(), env=hostile).to_json()
    settings["env_kwargs"] = {"names": ["a", "b"]}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "failures").mkdir()
    actions = [dict.fromkeys("ab", "\x1b[2J[/red]")]
    row = {"seed": 1, "options": None, "actions": actions, "split": "train", "problem": "\x1b]0;pwned\x07"}
    (tmp_path / "failures" / "train-0.json").write_text(json.dumps(row))
    assert main(["replay", str(tmp_path), "--failure", "train-0"]) == 0
    printed = capfd.readouterr().out
    assert not set("\x1b\x9b\x07") & set(printed)
    assert "\\x1b[2J[/red]" in printed


def test_an_exhausted_gpu_ends_with_a_line_that_names_the_settings_to_lower():
    said = (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.19 GiB of which\n1 is free."
    )
    line = line_of(torch.OutOfMemoryError(said))
    assert "Tried to allocate 2.00 GiB" in line and "--max-batch-tokens" in line and "\n" not in line
    assert line_of(RuntimeError(said)) is None
