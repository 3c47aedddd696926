"""Wrong calls of the command line: each costs one line (or a box of the argument parser), and leaves nothing behind."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import warnings
from pathlib import Path

import pytest

from collm.agents.tiny import TINY_DIRECTORY
from collm.algorithms.config import IACConfig
from collm.algorithms.runs.experiment import Experiment
from collm.benchmarks.cli import main

TABLE = [
    tuple(part.strip() for part in line.split(" | ", 1))
    for line in (Path(__file__).parent / "mistakes.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
CALLS = {
    "TEXT": "train iac --env collm/MiniWriting-v0 --out OUT",
    "VECTORS": "train ippo --env CartPole-v1 --out OUT",
}
ENVIRONMENT = '[[environments]]\nid = "collm/MiniWriting-v0"\n'
ALGORITHM = '[[algorithms]]\nname = "iac"\n'
BUDGET = "seeds = [0]\nbudget = {environment_steps = 320}\n"


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, Path]:
    """What the capitals of the table stand for."""
    folder = tmp_path_factory.mktemp("mistakes")
    made = {name: folder / name.lower() for name in ("FILE", "MODELS", "RUNS", "SUITES")}
    made["FILE"].write_text("neither JSON nor anything else\n")
    write_models(made["MODELS"])
    write_runs(made["RUNS"])
    write_suites(made["SUITES"])
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
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (copy("no-tokenizer") if file == "tokenizer.json" else folder / "no-tokenizer").joinpath(file).unlink()
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
    """Folders of runs, whole but for what their names say."""
    settings = Experiment(algorithm="iac", config=IACConfig(), env="collm/MiniWriting-v0").to_json()

    def run(name: str, content: str, metrics: str = "") -> None:
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(content)
        (folder / name / "metrics.jsonl").write_text(metrics)

    whole = json.dumps(settings, indent=2)
    run("other", whole)
    run("no-agents", whole)
    run("bad-metrics", whole, '{"update": 1}\n{"update": \n')
    run("empty-config", "")
    run("half-config", "\n".join(whole.splitlines()[:3]) + '\n"broken')
    run("list-config", "[1, 2]")
    run("no-algorithm", json.dumps({name: value for name, value in settings.items() if name != "algorithm"}))
    run("unknown-algorithm", json.dumps(settings | {"algorithm": "iacx"}))
    run("newer", json.dumps(settings | {"config": settings["config"] | {"from_the_future": 1}}))
    run("out-of-range", json.dumps(settings | {"config": settings["config"] | {"max_grad_norm": -1.0}}))


def write_suites(folder: Path) -> None:
    """Files of comparisons, each with one fault."""
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
        "text-environments": BUDGET + 'environments = ["collm/MiniWriting-v0"]\n' + ALGORITHM,
        "number-algorithms": BUDGET + "algorithms = 3\n" + ENVIRONMENT,
        "model-name": 'model = "tiny"\n' + whole,
        "model-key": 'model = {modl = "tiny"}\n' + whole,
        "threshold": BUDGET + ENVIRONMENT + 'threshold = "high"\n' + ALGORITHM,
        "size": "config = {rollout_buffer_size = 0}\n" + whole,
        "twice": whole + ALGORITHM,
    }.items():
        (folder / f"{name}.toml").write_text(text)


def filled(text: str, places: dict[str, Path]) -> str:
    for name, value in {**CALLS, **{name: str(path) for name, path in places.items()}}.items():
        text = re.sub(rf"\b{name}\b", lambda _, value=value: value, text)
    return text


def snapshot(places: dict[str, Path]) -> set[str]:
    return {str(path) for path in places["OUT"].parent.rglob("*")}


def test_the_table_holds_what_it_claims_to():
    assert len(TABLE) >= 200
    assert len({call for call, _ in TABLE}) == len(TABLE)
    assert all(len(row) == 2 and len(row[1]) > 2 for row in TABLE)


@pytest.mark.parametrize(("call", "answer"), TABLE, ids=[call for call, _ in TABLE])
def test_a_wrong_call_costs_one_line_that_says_what_is_wrong(call, answer, places, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")  # boxes then wrap no name
    monkeypatch.chdir(places["RUNS"].parent)
    before = snapshot(places)
    arguments = shlex.split(filled(filled(call, places), places))
    with warnings.catch_warnings():
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
