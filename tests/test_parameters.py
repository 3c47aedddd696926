"""The table of parameters names existing settings, and every parameter of CoMLRL."""

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from collm.agents.config import ModelConfig
from collm.algorithms import IACConfig, ReinforceConfig, TrainConfig
from collm.algorithms.config import ActorCriticConfig
from collm.algorithms.learning.trainer import Trainer
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.algorithms.runs.loggers import LogConfig
from collm.algorithms.runs.run import run_prepared
from collm.benchmarks.commands.train import TrainArguments
from collm.envs.core import Outcome, TextParallelEnv

CONFIGS = (TrainConfig, ActorCriticConfig, IACConfig, ReinforceConfig, ModelConfig, LogConfig)
SETTINGS = (*CONFIGS, Experiment, TrainArguments, Outcome)
CALLABLES = {"Trainer": Trainer.__init__, "run_prepared": run_prepared}


@pytest.fixture
def page(root):
    return (root / "docs" / "parameters.md").read_text()


def test_everything_that_the_table_points_to_exists(page):
    names = {f"{each.__name__}.{field.name}" for each in SETTINGS for field in dataclasses.fields(each)}
    names |= {f"{name}.{each}" for name, call in CALLABLES.items() for each in inspect.signature(call).parameters}
    names |= {f"TextParallelEnv.{name}" for name in vars(TextParallelEnv)}
    pointed = re.findall(r"`(\w+\.\w+)`", page)
    assert [name for name in pointed if name not in names] == []
    assert len(pointed) > 50


# Parameters of IAC and MAAC that are not in the list of IPPO.
OTHERS = """
    discount early_termination_threshold eval_interval eval_num_samples external_transition pad_token_id
    num_return_sequences critic_model_name_or_path reward_processor metrics_callback wandb_config model_config
""".split()


def test_no_parameter_is_left_out(page, root):
    rows = [line.strip("|").partition("|")[0] for line in page.splitlines() if line[:3] == "| `"]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert set(OTHERS) <= listed
    seeds = Path(root, "..", "shared", "reference", "seeds")
    if not seeds.is_dir():
        pytest.skip("the lists of parameters are not beside the repository")
    lines = [line for file in seeds.glob("*.txt") for line in file.read_text().splitlines() if line[:3] == "- `"]
    named = {name for line in lines for name in re.findall(r"`(\w+)`", line.partition(":")[0])}
    assert len(named) > 30
    assert named - listed == set()
