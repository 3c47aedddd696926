"""A file of settings says what the command line would, and the command line goes before it."""

import json
from dataclasses import replace

import pytest

from collm.algorithms.config import MAACConfig, ReinforceConfig
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.benchmarks.cli import main
from collm.benchmarks.commands import train

FLAT = """
algorithm = "maac"
env = "collm/MiniBuild-v0"
learning_rate = 2e-4
num_updates = 8
lora_target_modules = ["q_proj"]
out = "runs/somewhere"
log = ["tensorboard"]
[env_kwargs]
max_turns = 2
reward = "often"
"""


@pytest.fixture
def started(monkeypatch):
    """Function that returns (experiment, folder, options) of the run that a call would begin."""

    def run(*call):
        found = []
        begin = "collm.algorithms.runs.api.train_experiment"
        monkeypatch.setattr(begin, lambda *args, **options: found.append((*args, options)))
        monkeypatch.setattr("collm.algorithms.runs.run.prepare_run", lambda *args, **options: None)
        assert main(["train", *call]) == 0
        return found[0]

    return run


def test_a_file_says_all_and_flags_override_it(tmp_path, started):
    file = tmp_path / "run.toml"
    file.write_text(FLAT)
    call = ["--config", str(file), "--num-updates", "3", "--env-kwargs", "reward=end", "--out", str(tmp_path / "run")]
    experiment, folder, options = started(*call)
    assert (experiment.algorithm, experiment.env) == ("maac", "collm/MiniBuild-v0")
    assert experiment.env_kwargs == {"max_turns": 2, "reward": "end"}
    assert (experiment.config.agent_learning_rate, experiment.config.num_updates) == (2e-4, 3)
    assert experiment.model.lora_target_modules == ("q_proj",)
    assert folder == tmp_path / "run" and options["log"].log == ("tensorboard",)
    file.write_text('algorithm = "maac"\nenv = "collm/MiniBuild-v0"\ntrace = 0.5')
    experiment, *_ = started("ippo", "--config", str(file), "--out", str(tmp_path / "run"))
    assert (experiment.algorithm, experiment.config.trace) == ("ippo", 0.5)


def test_settings_of_runs_start_the_same_run_again(tmp_path, started):
    config = MAACConfig(num_updates=7, agent_learning_rates={"builder_1": 0.0}, critic_warmup=1)
    again = Experiment(algorithm="maac", config=config, env="collm/MiniBuild-v0", env_kwargs={"max_turns": 2})
    file = tmp_path / "config.json"
    file.write_text(json.dumps(again.to_json()))
    experiment, *_ = started("--config", str(file), "--out", str(tmp_path / "run"))
    assert experiment.to_json() == again.to_json()


def test_a_dry_run_prints_a_file_that_starts_the_same_run(tmp_path, started, capsys, monkeypatch):
    words = "collm-cc --env collm/MiniBuild --env-kwargs max_turns=3 render_mode=None --importance-cap None --top-k 5"
    words += " --critic-warmup None --agent-learning-rates builder_0 0.1 --partner builder_1=reference --adam-beta1 0.8"
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="v0"):
        assert main(["train", *words.split(), "--template-kwargs", "a.b", 'é"\\\n\x7f', "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "# memory plan: it fits" in text and "# GiB on cpu" in text
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "run.toml").write_text(text)
    with pytest.warns(UserWarning, match="v0"):
        direct, *_ = started(*words.split(), "--template-kwargs", "a.b", 'é"\\\n\x7f')
    experiment, *_ = started("collm-cc", "--config", "run.toml")
    assert experiment == direct.resolved()
    assert (experiment.config.importance_cap, experiment.env_kwargs["render_mode"]) == (None, None)
    monkeypatch.setattr("collm.algorithms.memory.devices.capacity", lambda device: 2**20)
    monkeypatch.setattr("collm.algorithms.runs.assembly.experiment.capacity", lambda device: 2**20)
    with pytest.raises(SystemExit, match="2"):
        main(["train", "--config", "run.toml", "--dry-run"])
    assert "# memory plan: the training needs" in capsys.readouterr().out


def test_large_models_are_evaluated_on_fewer_episodes_by_default_and_the_work_is_said(monkeypatch):
    config = ReinforceConfig
    made = Experiment(algorithm="magrpo", config=config(), env="collm/MiniBuild-v0", env_kwargs={"max_turns": 2})
    assert made.resolved().config.eval_num_samples == 64 and made.resolved().notices() == []
    monkeypatch.setattr("collm.algorithms.runs.assembly.experiment.LARGE", 1000)
    assert made.resolved().config.eval_num_samples == 8
    (line,) = made.resolved().notices()
    assert "2 x 8 episodes" in line and "32 episodes" in line and "4 replies of 8 tokens" in line
    assert "before update 1" in line and "--no-eval-on-start" in line
    few = replace(made, config=config(eval_num_samples=5, eval_on_start=False)).resolved()
    assert few.config.eval_num_samples == 5
    assert not any(words in few.notices()[0] for words in ("before update 1", "--no-eval-on-start"))


def test_code_that_a_file_names_runs_where_the_command_line_names_it_too(tmp_path, started, capsys):
    file = tmp_path / "run.toml"
    file.write_text('algorithm = "iac"\nenv = "collm/MiniBuild-v0"\nreward_funcs = ["tests.judges:brevity"]')
    call = ["--config", str(file), "--out", str(tmp_path / "run")]
    assert main(["train", *call]) == 2
    assert "--reward-funcs tests.judges:brevity" in capsys.readouterr().err
    experiment, *_ = started(*call, "--reward-funcs", "own", "tests.judges:brevity")
    assert experiment.env_kwargs == {"reward_funcs": ["own", "tests.judges:brevity"]}


def test_partners_and_names_of_other_libraries_lead_to_the_settings(tmp_path, started):
    call = ["iac", "--env", "collm/MiniBuild-v0", "--out", str(tmp_path / "run")]
    scripted, *_ = started(*call, "--partner", "builder_1=reference")
    assert scripted.env_kwargs == {"partners": {"builder_1": "reference"}}
    frozen, *_ = started(*call, "--partner", "builder_0=tiny", "--model", "tiny,tiny")
    assert frozen.config.agent_learning_rates == {"builder_0": 0.0} and frozen.model.model == "tiny"
    call = "--gamma 0.9 --lr 1e-4 --beta 0.1 --epsilon 0.2 --gae-lambda 0.5 --num-iterations 2 --max-steps 7 --n-step 4"
    call += " --advantage-estimator td --loss-unit token --max-off-policy-steps 1"
    experiment, *_ = started("maac", "--env", "collm/MiniBuild-v0", "--out", str(tmp_path / "run"), *call.split())
    config = experiment.config
    assert (config.discount, config.agent_learning_rate, config.reference_kl_coef) == (0.9, 1e-4, 0.1)
    assert (config.clip_range, config.trace, config.ppo_epochs, config.num_updates) == (0.2, 0.5, 2, 7)
    assert (config.num_steps, config.estimator, config.credit, config.max_staleness) == (4, "td", "token", 1)


def test_flags_take_true_and_false_as_sweeps_write_them(tmp_path, started):
    call = ["iac", "--env", "collm/MiniBuild-v0", "--out", str(tmp_path / "run"), "--use_separate_critic=False"]
    experiment, *_ = started(*call, "--value-normalization=true", "--fsdp=False", "--recomputes_activations=True")
    config = experiment.config
    assert (config.use_separate_critic, config.value_normalization, config.fsdp) == (False, True, False)
    assert experiment.model.recomputes_activations is True


@pytest.mark.parametrize(
    "words, recomputes",
    [
        ([], None),
        (["--recomputes-activations"], True),
        (["--no-recomputes-activations"], False),
        (["--recomputes-activations", "True"], True),
        (["--recomputes-activations=false"], False),
        (["--recomputes_activations", "None"], None),
        (["--recomputes-activations", "--num-updates", "2"], True),
    ],
)
def test_a_flag_that_can_be_none_takes_a_value_or_none(tmp_path, started, words, recomputes):
    experiment, *_ = started("iac", "--env", "collm/MiniBuild-v0", *words, "--out", str(tmp_path / "run"))
    assert experiment.model.recomputes_activations is recomputes


@pytest.mark.parametrize(
    "words", [["--hidden_dims=[64, 32]"], ["--hidden-dims", "[64,32]"], ["--hidden-dims", "64", "32"]]
)
def test_tuples_take_lists_as_sweeps_write_them(tmp_path, started, words):
    call = ["iac", "--env", "collm/MiniBuild-v0", "--out", str(tmp_path / "run"), "--adam=[0.8, 0.9, 1e-6]"]
    experiment, *_ = started(*call, *words, "--log=['tensorboard']")
    assert experiment.network.hidden_dims == (64, 32) and experiment.config.adam == (0.8, 0.9, 1e-6)


def test_a_list_that_cannot_be_read_is_refused(capsys):
    assert main(["train", "iac", "--env", "collm/MiniBuild-v0", "--hidden_dims=[64"]) == 2
    assert "--hidden_dims takes a list" in capsys.readouterr().err


def test_the_ten_settings_that_matter_come_first(capsys):
    with pytest.raises(SystemExit):
        main(["train", "maac", "--help"])
    text = capsys.readouterr().out
    places = [text.index(f" --{name.replace('_', '-')}") for name in train.LEADING]
    assert max(places) < text.index("--env-kwargs [") and "collm train maac --config" in text
    assert "--config PATH" in text and "(default: none)" in text
    assert not any(noise in text for noise in ("{None}", "(default: )"))
