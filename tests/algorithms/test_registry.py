"""Algorithms by name: of the package, of users, and of other distributions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass

import pytest
from distributions import install

from collm import _plugins as plugins
from collm import algorithms
from collm.algorithms.runs.checkpoint import newest_checkpoint
from collm.algorithms.runs.loggers import read_lines

METHOD = '''
"""Return above a running mean per agent."""

from dataclasses import dataclass

from collm import register_algorithm
from collm.algorithms import Algorithm, TrainConfig
from collm.algorithms.functions.advantages import monte_carlo_returns


@dataclass(frozen=True, kw_only=True)
class RoleConfig(TrainConfig):
    """Settings."""

    decay: float = 0.9
    """Decay of the running mean of returns per update, 0..1."""


class Role(Algorithm[RoleConfig]):
    """Returns above a running mean per agent."""

    def __init__(self, config):
        super().__init__(config)
        self.baselines = {}

    def advantages(self, grid):
        returns = monte_carlo_returns(grid.rewards, grid.is_real, self.config.discount)
        mean = float(returns[:, 0].mean())
        baseline = self.baselines.get(grid.agent, 0.0)
        self.baselines[grid.agent] = self.config.decay * baseline + (1 - self.config.decay) * mean
        return (returns - baseline) * grid.is_real

    def state_dict(self):
        return {"baselines": dict(self.baselines)}

    def load_state_dict(self, state):
        self.baselines = dict(state["baselines"])


register_algorithm("role-baseline", Role, RoleConfig)
'''


@dataclass(frozen=True, kw_only=True)
class OwnConfig(algorithms.TrainConfig):
    """Settings of a user's own."""


class Own(algorithms.Algorithm[OwnConfig]):
    """Raw rewards.

    And more text.
    """

    def advantages(self, grid):
        return grid.rewards


class OwnCritic(Own):
    critic_reads = "own"


@pytest.fixture
def clean_algorithms(monkeypatch):
    monkeypatch.setattr(algorithms.registry, "_registry", dict(algorithms.registry._registry))
    monkeypatch.setattr(plugins, "_seen", set())
    monkeypatch.setattr(plugins, "_failures", {})


@pytest.mark.parametrize("spec", algorithms.algorithm_specs(), ids=lambda spec: spec.name)
def test_every_algorithm_of_the_package_can_be_made_and_says_what_it_is(spec):
    assert spec.make().config == spec.config()
    assert len(spec.summary) > 10


def test_classes_are_registered_by_object_or_by_path(clean_algorithms):
    algorithms.registry.register_algorithm("own", Own, OwnConfig)
    assert algorithms.registry.register_algorithm("own", Own, OwnConfig) is not None  # twice does nothing
    assert algorithms.algorithm_spec("own").summary == "Raw rewards."
    assert isinstance(algorithms.algorithm_spec("own").make(), Own)
    assert algorithms.algorithm_specs()[-1].name == "own"
    algorithms.registry.register_algorithm("named", "collm.algorithms.reinforce:MAGRPO", algorithms.ReinforceConfig)
    assert type(algorithms.algorithm_spec("named").make()).__name__ == "MAGRPO"
    algorithms.registry.register_algorithm("gone", "collm.algorithms.nowhere:MAGRPO", algorithms.ReinforceConfig)
    with pytest.raises(ImportError, match="the algorithm 'gone'"):
        algorithms.algorithm_spec("gone").make()


@pytest.mark.parametrize(
    ("given", "error", "reason"),
    [
        (("Own", Own, OwnConfig), ValueError, "must look like 'my-method', got 'Own'"),
        (("--env", Own, OwnConfig), ValueError, "must look like"),
        (("maac", Own, OwnConfig), ValueError, "'maac' is already registered"),
        (("own", "nowhere", OwnConfig), ValueError, "a class or 'package.module:Class', got 'nowhere'"),
        (("own", OwnConfig, OwnConfig), TypeError, "a class derived from collm.algorithms.Algorithm"),
        (("own", Own, dict), TypeError, "a dataclass derived from TrainConfig"),
    ],
)
def test_what_is_no_algorithm_is_not_registered(given, error, reason, clean_algorithms):
    with pytest.raises(error, match=re.escape(reason)):
        algorithms.registry.register_algorithm(*given)


def test_unknown_names_and_configs_of_other_classes_are_refused(tmp_path):
    with pytest.raises(algorithms.UnknownAlgorithmError, match=r"'mappo'"):
        algorithms.algorithm_spec("mapo")

    with pytest.raises(ValueError, match=r"MAACConfig.*IACConfig"):
        algorithms.Experiment(
            algorithm="maac", config=algorithms.IACConfig(), env="collm/MiniWriting-v2"
        ).make_algorithm()
    with pytest.raises(ValueError, match="ActorCriticConfig"):
        OwnCritic(OwnConfig())
    assert OwnCritic(algorithms.IACConfig()).critic_reads == "own"


def test_a_broken_plugin_is_named_where_an_unknown_algorithm_is_sought(tmp_path, monkeypatch, clean_algorithms):
    target = install(tmp_path, "collm_method_broken", "raise OSError('no such planet')", "collm.algorithms")
    monkeypatch.syspath_prepend(target)
    with pytest.raises(algorithms.UnknownAlgorithmError, match=r"the plugin 'collm_method_broken' .* no such planet"):
        algorithms.algorithm_spec("broken")
    with pytest.warns(RuntimeWarning, match="no such planet"):
        assert "maac" in [spec.name for spec in algorithms.algorithm_specs()]


def collm(site, folder, *words) -> subprocess.CompletedProcess:
    """The command, in a process that sees the distribution."""
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"}
    call = [sys.executable, "-c", "import sys; from collm.benchmarks.cli import main; sys.exit(main())", *words]
    return subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


@pytest.mark.slow
def test_a_method_of_another_distribution_is_trained_resumed_evaluated_benchmarked_and_reported(tmp_path):
    site = install(tmp_path, "collm_method_role", METHOD, "collm.algorithms")
    small = ["--max-new-tokens", "16", "--rollout-buffer-size", "4", "--eval-num-samples", "4", "--save-interval", "2"]
    train = ["train", "role-baseline", "--env", "collm/MiniWriting-v2", *small, "--decay", "0.5"]
    listed = collm(site, tmp_path, "train")
    assert "role-baseline  Returns above a running mean per agent." in listed.stdout, listed.stderr

    done = collm(site, tmp_path, *train, "--num-updates", "4", "--out", "whole")
    assert done.returncode == 0, done.stderr
    state = newest_checkpoint(tmp_path / "whole").trainer
    assert set(state["algorithm"]["baselines"]) == {"writer_0", "writer_1"}

    # Broken off after two updates, it goes on as if never stopped: the memory of the method came along.
    assert collm(site, tmp_path, *train, "--num-updates", "2", "--out", "half").returncode == 0
    done = collm(site, tmp_path, "resume", "half", "--num-updates", "4")
    assert done.returncode == 0, done.stderr
    whole, half = (read_lines(tmp_path / name / "metrics.jsonl") for name in ("whole", "half"))
    kept = ("return", "policy_loss", "grad_norm")
    assert [[row[name] for name in kept] for row in whole] == [[row[name] for name in kept] for row in half]

    done = collm(site, tmp_path, "evaluate", "whole", "--episodes", "4", "--no-transcripts")
    assert done.returncode == 0 and "return" in done.stdout, done.stderr

    suite = """
seeds = [0, 1]
budget = { environment_steps = 8 }
config = { rollout_buffer_size = 4, eval_num_samples = 4 }
model = { max_new_tokens = 16 }
[[environments]]
id = "collm/MiniWriting-v2"
[[algorithms]]
algorithm = "role-baseline"
[[algorithms]]
algorithm = "mareinforce"
config = { num_generations = 1 }
"""
    (tmp_path / "suite.toml").write_text(suite)
    done = collm(site, tmp_path, "benchmark", "suite.toml", "--out", "comparison")
    assert done.returncode == 0, done.stderr + done.stdout
    done = collm(site, tmp_path, "report", "comparison")
    assert done.returncode == 0, done.stderr
    assert "role-baseline" in (tmp_path / "comparison" / "tables.md").read_text()

    without = collm(tmp_path / "nothing", tmp_path, "evaluate", "whole")
    assert without.returncode == 2
    assert without.stderr.startswith("error: there is no algorithm 'role-baseline'")
    assert collm(tmp_path / "nothing", tmp_path, "report", "comparison").returncode == 0  # it reads, and trains nothing
