"""`collm push`, `collm pull` and `collm evaluate` of a team on a hub that is a folder."""

import inspect
import io
import json
import re
import shutil
import sys
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import datasets
import huggingface_hub
import pytest
from huggingface_hub import HfApi, ModelCard
from huggingface_hub.errors import OfflineModeIsEnabled, RepositoryNotFoundError

import collm
from collm.agents.tiny import TINY_DIRECTORY
from collm.benchmarks.cli import main
from collm.benchmarks.sharing.hub import SHARED_FILES, downloaded
from collm.envs.core import Message, Transcript

ID = "collm/MiniBuild-v0"
REPO = "me/team"


class Hub:
    """Stand-in of the hub: each repository is a folder."""

    def __init__(self, root: Path):
        self.root, self.private, self.types = root, {}, {}

    def create_repo(self, repo_id, *, repo_type=None, private=None, exist_ok=False):
        (self.root / repo_id).mkdir(parents=True, exist_ok=exist_ok)
        self.types[repo_id] = repo_type
        self.private.setdefault(repo_id, bool(private))
        return f"https://huggingface.co/{repo_id}"

    def repo_info(self, repo_id, *, repo_type=None):
        assert self.types[repo_id] == repo_type
        return SimpleNamespace(private=self.private[repo_id])

    def upload_folder(self, *, repo_id, folder_path, commit_message=None, repo_type=None, allow_patterns=None):
        assert self.types[repo_id] == repo_type
        copy(Path(folder_path), self.root / repo_id, allow_patterns)

    def snapshot_download(self, repo_id, *, allow_patterns=None):
        if not (self.root / repo_id).is_dir():
            raise RepositoryNotFoundError("404", response=SimpleNamespace(headers={}, request=None, status_code=404))
        target = self.root / "cache" / repo_id
        copy(self.root / repo_id, target, allow_patterns)
        return str(target)


def copy(source, target, patterns):
    for path in source.rglob("*"):
        name = str(path.relative_to(source))
        if path.is_file() and (patterns is None or any(fnmatch(name, pattern) for pattern in patterns)):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / name)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    hub = Hub(tmp_path / "hub")
    for name in ("create_repo", "repo_info", "upload_folder"):
        monkeypatch.setattr(HfApi, name, staticmethod(getattr(hub, name)))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.snapshot_download)
    monkeypatch.chdir(tmp_path)
    downloaded.cache_clear()
    yield hub
    downloaded.cache_clear()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "run"
    settings = {"num_updates": 1, "rollout_buffer_size": 2, "eval_num_samples": 2, "num_generations": 2}
    kwargs = {"env_kwargs": {"max_turns": 1}, "progress": False}
    return collm.train("magrpo", ID, out=out, weights="adapters", lora_rank=2, **kwargs, **settings).directory


@pytest.mark.parametrize("name", ["create_repo", "repo_info", "upload_folder", "snapshot_download"])
def test_the_stand_in_has_the_parameters_of_the_hub(name):
    real = huggingface_hub.snapshot_download if name == "snapshot_download" else getattr(HfApi, name)
    known = inspect.signature(real).parameters
    own = inspect.signature(getattr(Hub, name)).parameters
    assert all(each in known and own[each].kind == known[each].kind for each in own if each != "self")


def test_a_pushed_team_plays_as_the_run_does(hub, trained, tmp_path, capsys):
    assert main(["push", str(trained), REPO, "--license", "mit"]) == 0
    assert f"https://huggingface.co/{REPO}" in capsys.readouterr().out
    assert "episodes.jsonl" not in {path.name for path in (hub.root / REPO).iterdir()}
    assert main(["pull", REPO, "--out", "pulled"]) == 0
    expected = [episode.team_return for episode in collm.evaluate(trained, 4, greedy=True).episodes]
    assert [episode.team_return for episode in collm.evaluate("pulled", 4, greedy=True).episodes] == expected
    assert set(collm.load_team("pulled")) == set(collm.load_team(trained))
    capsys.readouterr()
    call = ["evaluate", REPO, "--episodes", "2", "--json", "--out", "results"]
    assert main(call) == 0
    assert json.loads(capsys.readouterr().out)["entries"][0]["team"] == REPO
    assert main([*call, "--env", ID, "--env-kwargs", "max_turns=2"]) == 0
    assert json.loads(capsys.readouterr().out)["env_kwargs"] == {"max_turns": 2}
    assert main(["pull", REPO, "--out", "pulled"]) == 2  # the folder has files


def test_the_episodes_of_a_run_are_a_dataset(hub, trained, tmp_path, monkeypatch):
    assert main(["push", str(trained), REPO, "--license", "mit", "--private"]) == 0
    name = f"{REPO}-episodes"
    assert hub.types == {REPO: "model", name: "dataset"} and hub.private == {REPO: True, name: True}
    assert ModelCard.load(hub.root / REPO / "README.md").data.datasets == [name]
    folder = hub.root / name
    assert {path.name for path in folder.iterdir()} == {"README.md", "episodes.jsonl"}
    monkeypatch.chdir(hub.root)  # the name in the example is then a folder
    found = {}
    example = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)[1]
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    exec(example, found)
    rows = [json.loads(line) for line in (trained / "episodes.jsonl").read_text().splitlines()]
    assert found["episodes"]["return"] == [row["return"] for row in rows]


def test_the_episodes_of_a_private_team_are_private(hub, trained):
    hub.create_repo(REPO, private=True)
    assert main(["push", str(trained), REPO]) == 0
    assert hub.private[f"{REPO}-episodes"]


def test_a_run_without_episodes_has_no_dataset(hub, trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "episodes.jsonl").write_text("")
    assert main(["push", str(run), REPO]) == 0
    assert list(hub.types) == [REPO]


def test_a_card_has_the_metadata_of_the_hub_and_an_example_that_runs(hub, trained, tmp_path, monkeypatch, capsys):
    main(["push", str(trained), REPO, "--license", "mit"])
    card = ModelCard.load(hub.root / REPO / "README.md")
    data = card.data
    assert (data.license, data.library_name, data.pipeline_tag) == ("mit", "collm", "text-generation")
    assert data.base_model is None  # the embedded model is not on the hub
    row = json.loads((trained / "evaluation.jsonl").read_text().splitlines()[-1])
    values = [result.metric_value for result in data.eval_results]
    assert values == [row["evaluation/sampled/return"], row["evaluation/greedy/return"]]
    capsys.readouterr()
    exec(re.search(r"```python\n(.*?)```", card.text, re.DOTALL)[1], {})
    assert "'builder_1': " in capsys.readouterr().out


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Folder with a team that was trained from a local model on own data, and was stopped after the first update."""
    folder = tmp_path_factory.mktemp("own")
    shutil.copytree(TINY_DIRECTORY, folder / "model", ignore=shutil.ignore_patterns("*.py", "starts", "__pycache__"))
    posts = [{"id": number, "selftext": f"The smith sold {number} red lamps."} for number in range(20)]
    (folder / "posts.jsonl").write_text("".join(json.dumps(post) + "\n" for post in posts))
    settings = {"num_updates": 1, "rollout_buffer_size": 2, "eval_num_samples": 2, "num_generations": 2}
    data = {"data": "posts.jsonl", "columns": {"post": "selftext"}, "test_fraction": 0.2}
    adapters = {"model": "model", "weights": "adapters", "lora_rank": 2, "max_new_tokens": 6, "progress": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        collm.train("magrpo", "collm/TLDR-v2", out="run", env_kwargs=data, **adapters, **settings)
        shutil.rmtree("run/agents")  # as if the run had been stopped before its end
    return folder


def example_of(card):
    return re.search(r"```python\n(.*?)```", Path(card).read_text(), re.DOTALL)[1]


@pytest.mark.parametrize("is_chat", [False, True])
def test_the_example_of_an_exported_model_has_the_prompt_of_the_environment(is_chat, trained, tmp_path, monkeypatch):
    run = shutil.copytree(trained, tmp_path / "run")
    folder = run / "agents" / "builder_0"
    settings = folder / "collm_policy.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"is_chat": is_chat}))
    (folder / "chat_template.jinja").write_text("{% for message in messages %}{{ message.content }}\n{% endfor %}")
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(run), "model", "--agent", "builder_0"]) == 0
    example, found = example_of("model/README.md"), {}
    assert "collm" not in example
    exec(example, found)
    observation = Transcript([Message(**message) for message in found["messages"]])
    policy = collm.load_team(run)["builder_0"]
    expected, _ = policy.language_model.encoder.prompt(observation)
    assert found["inputs"]["input_ids"][0].tolist() == expected.tolist()


def test_an_export_of_a_stopped_run_on_own_data_is_a_team(own, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(own)
    out = tmp_path / "team"
    assert main(["export", "run", str(out), "--merge"]) == 0
    exec(example_of(out / "writer_1" / "README.md"), {})
    assert "| base model | `a local model` |" in (out / "writer_1" / "README.md").read_text()
    runs, teams = (collm.load_team(each).evaluate(num_episodes=4, greedy=True) for each in ("run", out))
    assert [each.team_return for each in runs.episodes] == [each.team_return for each in teams.episodes]
    calls = (
        *("evaluate {} --episodes 2 --played greedy", "chat {} --max-new-tokens 2"),
        *("play collm/TLDR-v2 --policy {}", "crossplay {} run --num-episodes 2 --out crossplay"),
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n"))
    for call in calls:
        assert main(call.format(out).split()) == 0, capsys.readouterr().err
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # of another user
    assert main(["evaluate", str(out)]) == 2
    assert "collm_team.json has the environment argument data='posts.jsonl'" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "base"), [([], None), (["--base-model", "you/model"], "you/model")])
def test_a_team_with_a_local_base_is_pushed_merged_or_with_the_name_of_the_base(own, hub, monkeypatch, options, base):
    monkeypatch.chdir(own)
    assert main(["push", "run", REPO, "--license", "mit", *options]) == 0
    folder = hub.root / REPO
    assert ModelCard.load(folder / "README.md").data.base_model == base
    adapters = [json.loads(file.read_text()) for file in folder.rglob("adapter_config.json")]
    assert [adapter["base_model_name_or_path"] for adapter in adapters] == ([] if base is None else [base] * 2)
    assert "posts.jsonl" not in "".join(file.read_text() for file in folder.glob("*.*"))
    script = example_of(folder / "README.md").replace("snapshot_download('me/team')", repr(str(folder)))
    if base is None:
        exec(script.replace("from huggingface_hub import snapshot_download\n", ""), {})


def test_a_dry_run_shows_the_card_and_the_files_and_sends_nothing(own, hub, monkeypatch, capsys):
    monkeypatch.chdir(own)
    assert main(["push", "run", REPO, "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert f"# {REPO}, trained by magrpo on collm/TLDR-v2\n" in told
    assert f"model {REPO}: agents/writer_0/model.safetensors\n" in told
    assert f"dataset {REPO}-episodes: episodes.jsonl\n" in told
    assert not hub.root.exists()


def test_a_repository_contains_no_local_path_and_no_code(hub, trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    config["model"]["model"] = f"{tmp_path}/a,{tmp_path}/b"
    (run / "config.json").write_text(json.dumps(config))
    for name in ("own.py", "optimizer.bin", "weights.pt"):
        (run / "agents" / "builder_0" / name).write_text("code")
    assert main(["push", str(run), REPO]) == 0
    files = [path for path in (hub.root / "me").rglob("*") if path.is_file()]
    assert all(str(tmp_path) not in path.read_text() for path in files if path.suffix != ".safetensors")
    assert {path.suffix for path in files} <= {pattern[1:] for pattern in SHARED_FILES}
    assert set(collm.load_team(hub.root / REPO)) == {"builder_0", "builder_1"}


def test_unsafe_files_of_a_repository_are_not_downloaded(hub, trained):
    main(["push", str(trained), REPO])
    for name in ("own.py", "agents/builder_0/pytorch_model.bin"):
        (hub.root / REPO / name).write_text("code")
    assert main(["pull", REPO]) == 0
    assert list(Path("runs/team").rglob("*.py")) == list(Path("runs/team").rglob("*.bin")) == []


def test_settings_of_a_repository_that_need_trust_are_refused(hub, trained, capsys):
    main(["push", str(trained), REPO])
    file = hub.root / REPO / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"env": "os:getcwd"}))
    assert main(["evaluate", REPO]) == 2
    assert "os:getcwd" in capsys.readouterr().err
    assert main(["evaluate", REPO, "--trust"]) == 2
    assert "--trust" in capsys.readouterr().err


def test_a_public_repository_gets_no_private_team(hub, trained, capsys):
    main(["push", str(trained), REPO])
    before = (hub.root / REPO / "README.md").stat().st_mtime_ns
    assert main(["push", str(trained), REPO, "--private"]) == 2
    assert "--private" in capsys.readouterr().err
    assert (hub.root / REPO / "README.md").stat().st_mtime_ns == before


def test_errors_of_the_hub_are_one_line(hub, trained, monkeypatch, capsys):
    def offline(*args, **options):
        raise OfflineModeIsEnabled("offline")

    for call in (["evaluate", "me/nothing"], ["pull", "me/nothing"], ["push", str(trained), "a/b/c"]):
        assert main(call) == 2
        assert call[-1] in (told := capsys.readouterr().err) and told.count("\n") == 1
    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    assert main(["evaluate", "me/other"]) == 2
    assert "HF_HUB_OFFLINE" in capsys.readouterr().err
