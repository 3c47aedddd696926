"""The command line: its output, and one line per error."""

import io
import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer

from collm._settings import settings_of
from collm.agents.config import ModelConfig
from collm.agents.numeric.config import NetworkConfig
from collm.agents.tiny import TINY_DIRECTORY
from collm.algorithms import algorithm_spec, algorithm_specs
from collm.algorithms.learning.trainer import Trainer
from collm.algorithms.runs.loggers import LogConfig, read_lines
from collm.benchmarks.arguments import keyword_arguments
from collm.benchmarks.cli import COMMANDS, main
from collm.benchmarks.commands import envs as envs_command
from collm.benchmarks.commands.train import TrainArguments
from collm.envs import make, register, specs

SMALL = ["--num-updates", "2", "--rollout-buffer-size", "4", "--eval-num-samples", "2", "--max-new-tokens", "12"]

NAMES = [spec.name for spec in algorithm_specs()]


def test_an_id_without_version_is_warned_of_once_and_recorded_with_its_version(tmp_path):
    out = tmp_path / "run"
    call = ["train", "magrpo", "--env", "collm/MiniBuild", "--out", str(out), "--num-generations", "2", *SMALL]
    ended = subprocess.run([sys.executable, "-m", "collm", *call], capture_output=True, text=True)  # pytest keeps ours
    told = [line for line in ended.stderr.splitlines() if "has no version" in line]
    assert told == ["warning: 'collm/MiniBuild' has no version; using the newest, 'collm/MiniBuild-v0'"]
    assert json.loads((out / "config.json").read_text())["env"] == "collm/MiniBuild-v0"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "maac"
    call = ["train", "maac", "--env", "collm/MiniWriting-v2", "--out", str(directory), "--critic-warmup", "1", *SMALL]
    assert main(call) == 0
    return directory


@pytest.mark.parametrize(("rank", "num_lines"), [("0", 1), ("1", 0)])
def test_torchrun_is_for_training_alone_and_is_told_so_once(rank, num_lines, capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", rank)
    for name in ("demo", "benchmark", "evaluate"):
        assert main([name]) == 2
        assert [f"collm {name}" in line for line in capsys.readouterr().err.splitlines()] == [True] * num_lines


def test_help_names_every_command_and_keyword_arguments_are_parsed(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in COMMANDS)
    pairs = ["a=4", "b=test", 'c={"post": "source"}', "d=true", "e=True", "f=None", "g=a=b"]
    values = [4, "test", {"post": "source"}, True, True, None, "a=b"]
    assert keyword_arguments(pairs) == dict(zip("abcdefg", values, strict=True))


@pytest.mark.parametrize("algorithm", NAMES)
def test_the_help_of_an_algorithm_has_every_field_and_the_usual_help_leaves_out_advanced_ones(algorithm, capsys):
    config = algorithm_spec(algorithm).config
    kinds = (TrainArguments, LogConfig, ModelConfig, NetworkConfig, config)
    settings = {name: each for kind in kinds for name, each in settings_of(kind).items()}

    def shown(option):
        with pytest.raises(SystemExit):
            main(["train", algorithm, option])
        text = capsys.readouterr().out
        return {name for name in settings if re.search(rf"--{name.replace('_', '-')}[ ,\n]", text)}

    everything = shown("--help-all")
    assert set(config.__dataclass_fields__) <= everything
    assert shown("--help") == {name for name in everything if not settings[name].is_advanced}
    assert len(shown("--help")) <= 36 and len(everything) <= 113


@pytest.mark.parametrize("scores", [[], ["--scores", "--episodes", "1"]])
def test_envs_shows_whole_ids_turns_and_ranges_in_pipes_and_narrow_terminals(scores, capsys, monkeypatch):
    own = [spec for spec in specs() if spec.id.startswith("collm/Mini") or "Gathering" in spec.id]
    monkeypatch.setattr(envs_command, "specs", lambda: own)
    turns = {"MiniBuild-v0": "6", "MiniShift-v0": "8", "MiniCode-v1": "1", "MiniWriting-v2": "1"}
    expected = {f"collm/{name}": [count, "0..1", "0..1"] for name, count in turns.items()}
    expected |= {"collm/ResourceGathering-v2": ["4", "-3.2..17.2", "-3.2..17.2"]}
    for terminal in (envs_command.terminal, partial(Console, force_terminal=True, no_color=True, width=80)):
        monkeypatch.setattr(envs_command, "terminal", terminal)
        assert main(["envs", *scores]) == 0
        table, _, ideal = capsys.readouterr().out.partition("ideal teams:\n")
        rows = {line.split()[0]: line.split()[1:4] for line in table.splitlines() if "collm/" in line}
        assert rows == expected
        assert ("collm/MiniBuild-v0: no memory" in ideal) == bool(scores) and "no memory" not in table


def test_envs_shows_an_environment_that_cannot_be_made_among_the_others(capsys, monkeypatch, clean_registry):
    broken = register("test/Broken-v0", "nowhere.at_all:Thing")
    limited = register("test/Limited-v0", "collm.envs.games.mini_build.env:MiniBuild", max_turns=2)
    monkeypatch.setattr(envs_command, "specs", lambda: [broken, limited])
    assert main(["envs"]) == 0
    printed = capsys.readouterr()
    rows = [line.split()[:4] for line in printed.out.splitlines()[1:]]
    assert rows == [["test/Broken-v0", "?", "?", "?"], ["test/Limited-v0", "2", "-", "-"]]
    assert "test/Broken-v0" in printed.err


def test_check_passes_and_shows_how_far_degenerate_teams_come(capsys):
    assert main(["check", "collm/MiniCode-v1"]) == 0
    assert "passes all" in capsys.readouterr().out
    assert main(["check", "collm/MiniCode-v1", "--exploits", "--episodes", "2"]) == 0
    rows = {line.rsplit(maxsplit=3)[0].strip(): line.split()[-3:] for line in capsys.readouterr().out.splitlines()}
    assert rows["reference"] == ["1.000", "100%", "100%"]
    assert rows["empty"] == ["0.000", "0%", "60%"]
    assert {"keyword salad", "one does all", "flood"} <= rows.keys()


@pytest.mark.parametrize("policy", ["reference", "random", "empty", "RUN"])
def test_play_prints_an_episode(policy, trained, capsys):
    assert main(["play", "collm/MiniWriting-v2", "--policy", str(trained) if policy == "RUN" else policy]) == 0
    text = capsys.readouterr().out
    assert all(each in text for each in ("writer_0 reads", "turn 1: writer_1 writes", "return: "))
    assert policy != "reference" or "metric/share/writer_0" in " ".join(text.split())


@pytest.fixture
def typed(monkeypatch, tmp_path):
    """Plays with a person who types this, in an empty folder; returns the exit status and the records."""
    monkeypatch.chdir(tmp_path)

    def run(text, *args):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        status = main(["play", *args])
        files = list(tmp_path.rglob("episodes.jsonl"))
        return status, [json.loads(line) for file in files for line in file.read_text().splitlines()]

    return run


def test_a_person_plays_one_seat_with_replies_of_several_lines(typed, capsys):
    env = make("collm/MiniWriting-v2")
    env.reset(seed=0)
    reply = env.reference_reply("writer_0").replace(" ", "\n", 1)  # what earns nothing has no shares
    status, (record,) = typed(f"{reply}\n.\n", "collm/MiniWriting-v2", "--human", "writer_0")
    assert status == 0
    assert record["players"] == {"writer_0": "person", "writer_1": "reference"}
    assert record["agents"]["writer_0"]["turns"][0]["wrote"] == reply
    assert record["agents"]["writer_1"]["turns"][0]["wrote"].startswith("first the ")
    text = capsys.readouterr().out
    assert "writer_0 reads" in text and "writer_1 reads" not in text and "writer_1 writes" not in text
    assert "transcript: runs/played/episodes.jsonl" in text and "metric/share/writer_1" in text


def test_people_read_the_rules_of_a_game_also_beside_a_model_that_was_trained_without_them(typed, capsys):
    for options, num_readers in (([], 2), (["--human", "builder_0", "--policy", "model"], 1)):
        typed("wall wood\n.\n" * 2, "collm/MiniBuild-v0", "--env-kwargs", "max_turns=2", *options)
        assert capsys.readouterr().out.count("There are 2 turns") == num_readers


def test_a_person_plays_several_turns_beside_a_model(typed):
    turns = "wall wood\n.\n" * 6
    call = ["collm/MiniBuild-v0", "--human", "builder_1", "--policy", "model", "--max-new-tokens", "3"]
    status, (record,) = typed(turns, *call, "--record", "kept")
    assert (status, record["is_complete"], record["env"]) == (0, True, "collm/MiniBuild-v0")
    assert [turn["wrote"] for turn in record["agents"]["builder_1"]["turns"]] == ["wall wood"] * 6
    assert record["players"] == {"builder_0": "tiny", "builder_1": "person"}


def test_an_episode_that_a_person_leaves_is_kept(typed, capsys):
    status, (record,) = typed("wall wood\n.\nroof", "collm/MiniBuild-v0", "--human", "builder_0")
    assert (status, record["is_complete"]) == (2, False)
    assert [turn["wrote"] for turn in record["agents"]["builder_0"]["turns"]] == ["wall wood", "roof"]
    assert "the input ended before the episode" in capsys.readouterr().err


def test_training_leaves_a_run_directory_that_others_can_read(trained):
    metrics = read_lines(trained / "metrics.jsonl")
    assert [row["update"] for row in metrics] == [1, 2]
    wanted = {"return", "entropy", "completion_tokens", "explained_variance", "tokens_per_second", "reward/links"}
    assert wanted <= metrics[-1].keys()
    assert {"kl_to_sampler", "logprob_error", "grad_norm", "seconds/learning", "seconds/decoding"} <= metrics[-1].keys()
    assert metrics[-1]["logprob_error"] < 1e-4
    episodes = read_lines(trained / "episodes.jsonl")
    assert len(episodes) == 8
    turn = episodes[0]["agents"]["writer_0"]["turns"][0]
    assert turn["read"][0]["content"].startswith("post:")
    assert turn["completion_ids"] and turn["prompt_ids"]
    assert AutoModelForCausalLM.from_pretrained(trained / "agents" / "writer_0").config.model_type == "llama"
    assert (trained / "critics" / "joint" / "model.safetensors").is_file()
    assert json.loads((trained / "config.json").read_text())["algorithm"] == "maac"


def test_evaluate_reports_held_out_play(trained, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["evaluate", str(trained), "--episodes", "3"]) == 0
    text = capsys.readouterr().out
    for wanted in ("split test, 3 episodes", "greedy", "best sampled", "worst sampled", "metric/share/writer_0"):
        assert wanted in text
    assert len(read_lines(trained / "evaluation-test.jsonl")) == 6
    while_training = read_lines(trained / "evaluation.jsonl")[-1]
    told = [while_training[f"evaluation/sampled/metric/share/{agent}"] for agent in ("writer_0", "writer_1")]
    assert sum(told) == pytest.approx(1)


def test_a_team_trains_on_real_texts_and_is_judged_on_others_which_must_exist(tmp_path, root, capsys):
    (tmp_path / "posts.jsonl").write_text('{"post": "a post"}\n')
    call = ["train", "iac", "--env", "collm/TLDR-v2", "--env-kwargs", f"data={tmp_path / 'posts.jsonl'}"]
    assert main(call) == 2
    text = capsys.readouterr().err
    assert text.startswith("error: ") and "test_fraction" in text

    data = root.parent / "shared" / "data" / "scitldr"
    if not data.is_dir():
        pytest.skip(f"the abstracts of SciTLDR are not at {data}")
    model = tmp_path / "model"
    AutoModelForCausalLM.from_pretrained(TINY_DIRECTORY, max_position_embeddings=16_384).save_pretrained(model)
    AutoTokenizer.from_pretrained(TINY_DIRECTORY).save_pretrained(model)
    files = json.dumps({"train": str(data / "train.jsonl"), "test": str(data / "dev.jsonl")})
    kwargs = ["--env-kwargs", f"data={files}", 'columns={"post": "source", "id": "paper_id"}']
    call = ["train", "maac", "--env", "collm/TLDR-v2", *kwargs, "--model", str(model), "--critic-warmup", "1"]
    assert main([*call, "--out", str(tmp_path / "run"), *SMALL]) == 0
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "2"]) == 0
    assert "collm/TLDR-v2, split test, 2 episodes" in capsys.readouterr().out
    files = [read_lines(tmp_path / "run" / name) for name in ("episodes.jsonl", "evaluation-test.jsonl")]
    trained, judged = ({row["agents"]["writer_0"]["turns"][0]["read"][0]["content"] for row in rows} for rows in files)
    assert trained.isdisjoint(judged)


def test_a_run_resumes_to_the_same_end_as_one_that_never_stopped(tmp_path, monkeypatch):
    call = "train magrpo --env collm/MiniWriting-v2 --num-generations 2 --save-interval 1".split() + SMALL
    assert main([*call, "--out", str(tmp_path / "whole")]) == 0
    step = Trainer.step

    def dies_in_the_second_update(self, *record):
        if self.progress.update == 1:
            raise KeyboardInterrupt
        return step(self, *record)

    monkeypatch.setattr(Trainer, "step", dies_in_the_second_update)
    assert main([*call, "--out", str(tmp_path / "broken")]) == 130
    monkeypatch.setattr(Trainer, "step", step)
    assert main([*call, "--out", str(tmp_path / "broken"), "--resume"]) == 0
    file = "agents/writer_1/model.safetensors"
    assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "broken" / file).read_bytes()
    whole, broken = (read_lines(tmp_path / name / "episodes.jsonl") for name in ("whole", "broken"))
    assert whole == broken


@pytest.mark.parametrize(
    ("package", "extra", "call"),
    [
        ("openai", "chat", "evaluate --env collm/MiniBuild-v0 --model openai:m@http://127.0.0.1:9"),
        ("openai", "chat", "train magrpo --env collm/MiniBuild-v0 --partner builder_1=openai:m@http://127.0.0.1:9"),
        ("openai", "chat", "play collm/MiniBuild-v0 --policy openai:m@http://127.0.0.1:9"),
        ("openai", "chat", "train magrpo --config run.toml"),
        ("wandb", "wandb", "train maac --env collm/MiniBuild-v0 --report-to wandb"),
        ("tensorboard", "tensorboard", "resume run --log tensorboard"),
        ("ray", "ray", "train maac --env collm/MiniBuild-v0 --collectors ray"),
        ("ray", "ray", "benchmark smoke --on ray"),
        ("peft", "train", "train maac --env collm/MiniBuild-v0 --weights adapters"),
    ],
)
def test_a_missing_package_is_reported_before_torch_is_loaded(package, extra, call, tmp_path):
    (tmp_path / "run.toml").write_text('env = "collm/MiniBuild-v0"\nmodel = "openai:m@http://127.0.0.1:9"')
    code = f"import sys; sys.modules[{package!r}] = None; from collm.benchmarks.cli import main; "
    code += f"print(main({call.split()!r}), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.stdout.split() == ["2", "False"]
    assert package in done.stderr and f"[{extra}]" in done.stderr


def test_play_writes_an_animation_of_a_game(tmp_path):
    file = tmp_path / "houses.gif"
    assert main(["play", "collm/HouseBuild-v2", "--gif", str(file)]) == 0
    with Image.open(file) as picture:
        assert picture.n_frames == 2  # nothing stands, then the house, which later turns leave as it is


def test_modules_of_the_working_folder_are_found_and_shadow_nothing(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_worlds_of_a_test.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.toy_text import FrozenLakeEnv\n"
        "from collm.envs import make\n"
        "def pair():\n    return make('collm/MiniWriting-v2')\n"
        "gymnasium.register('MyLakeOfATest-v0', FrozenLakeEnv, max_episode_steps=3)\n"
    )
    (tmp_path / "json.py").write_text("raise RuntimeError('not this one')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    assert main(["play", "my_worlds_of_a_test:pair", "--policy", "empty"]) == 0
    assert "writer_1 writes" in capsys.readouterr().out
    assert main(["play", "gymnasium/my_worlds_of_a_test:MyLakeOfATest-v0", "--policy", "random"]) == 0
    assert "return: " in capsys.readouterr().out
    assert sys.path[-1] == str(tmp_path)


@pytest.mark.slow
def test_workers_find_modules_of_the_working_folder(tmp_path):
    text = "from collm.envs import make\ndef pair():\n    return make('collm/MiniWriting-v2')\n"
    (tmp_path / "my_worlds_of_a_test.py").write_text(text)
    call = ["train", "magrpo", "--env", "my_worlds_of_a_test:pair", "--num-workers", "1", *SMALL, "--out", "run"]
    command = Path(sys.executable).parent / "collm"  # whose folder, not the working one, leads the path
    ended = subprocess.run([command, *call, "--num-generations", "2"], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) >= 2


ENDLESS = "gymnasium/CliffWalking-v1"  # which declares no time limit


@pytest.mark.parametrize(("options", "num_turns"), [([], 1000), (["--max-turns", "3"], 3)])
def test_play_stops_an_episode_without_a_limit(options, num_turns, capsys):
    assert main(["play", ENDLESS, "--policy", "random", *options]) == 0
    assert f"stopped after {num_turns:,} joint turns; --max-turns" in capsys.readouterr().out


def test_evaluate_and_check_report_episodes_without_a_limit(tmp_path, capsys):
    run = tmp_path / "run"
    sizes = ["--num-updates", "1", "--rollout-buffer-size", "2", "--critic-warmup", "0", "--ppo-epochs", "1"]
    ends = ["--turns-per-update", "2", "--eval-num-samples", "2", "--eval-max-turns", "4", "--out", str(run)]
    assert main(["train", "ippo", "--env", ENDLESS, *sizes, *ends]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{ENDLESS} declares no limit" in printed and "2 of 2 episodes were truncated after 4" in printed
    for options, limit in (([], 4), (["--eval-max-turns", "3"], 3)):
        assert main(["evaluate", str(run), "--episodes", "2", "--json", *options]) == 0
        printed = capsys.readouterr()
        assert json.loads(printed.out)
        lines = [line for line in printed.err.splitlines() if f"truncated after {limit} joint turns" in line]
        assert len(lines) == 2
    assert main(["check", ENDLESS]) == 2
    assert "with max_turns" in capsys.readouterr().err
