"""Suites: what they run, and what they refuse."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from collm.benchmarks.commands.benchmark import BenchmarkArguments, chosen_suite
from collm.benchmarks.comparison.suite import jobs, parse_suite, read_suite

ROOT = Path(__file__).parents[3]
SUITES = sorted((ROOT / "benchmarks" / "suites").glob("*.toml"))
STUDIES = sorted((ROOT / "research" / "suites").glob("*.toml"))


@pytest.fixture
def table() -> dict:
    return {
        "name": "two by two",
        "seeds": [0, 1],
        "budget": {"environment_steps": 100},
        "config": {"rollout_buffer_size": 16},
        "environments": [
            {"id": "collm/MiniWriting-v2"},
            {
                "id": "collm/MiniBuild-v0",
                "name": "build",
                "kwargs": {"max_turns": 2},
                "budget": {"generated_tokens": 50},
            },
        ],
        "algorithms": [{"name": "magrpo"}, {"algorithm": "maac", "name": "A", "config_in": {"build": {"trace": 0.5}}}],
    }


def test_a_suite_is_a_grid_seed_by_seed(table):
    found = jobs(parse_suite(table))
    assert len(found) == 8
    assert [job.seed for job in found] == [0] * 4 + [1] * 4
    assert len({job.directory for job in found}) == 8


def test_an_environment_may_be_for_some_algorithms_alone(table):
    table["environments"][1]["algorithms"] = ["A"]
    assert {(job.environment, job.algorithm) for job in jobs(parse_suite(table)) if job.seed == 1} == {
        ("collm/MiniWriting-v2", "magrpo"),
        ("collm/MiniWriting-v2", "A"),
        ("build", "A"),
    }


def test_settings_of_one_environment_stay_there(table):
    traces = {job.environment: job.experiment.config.trace for job in jobs(parse_suite(table)) if job.algorithm == "A"}
    assert traces == {"collm/MiniWriting-v2": 0.9, "build": 0.5}


def test_all_methods_get_the_same_budget_and_the_same_seeds(table):
    for job in jobs(parse_suite(table)):
        config = job.experiment.config
        assert config.seed == job.seed
        assert (config.max_environment_steps, config.max_sampled_tokens) == (
            (None, 50) if job.environment == "build" else (100, None)
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": []}, "needs seeds"),
        ({"seeds": [0, 0]}, "occur twice"),
        ({"budget": {"hours": 3}}, "budget"),
        ({"budget": {"environment_steps": 0}}, "at least 1"),
        ({"colour": "red"}, "colour"),
        (
            {"environments": [{"id": "a/B-v0", "algorithms": ["B"]}], "algorithms": [{"name": "iac"}]},
            "algorithms of .* has no 'B'",
        ),
        ({"algorithms": [{"name": "ppo"}]}, "there is no algorithm 'ppo'"),
        ({"algorithms": [{"name": "iac", "config": {"seed": 3}}]}, "same for all"),
        ({"algorithms": [{"name": "iac", "config": {"num_updates": 3}}]}, "same for all"),
        ({"algorithms": [{"name": "iac", "config_in": {"bild": {}}}]}, "bild"),
        (
            {
                "environments": [{"id": "collm/MiniWriting-v2", "model": {"width": 3}}],
                "algorithms": [{"name": "iac"}],
            },
            "width",
        ),
    ],
)
def test_mistakes_in_a_suite_are_refused_with_what_is_wrong(table, change, message):
    with pytest.raises(ValueError, match=message):
        parse_suite({**table, **change})


def test_settings_that_an_algorithm_does_not_have_are_refused(table):
    table["algorithms"] = [{"name": "magrpo", "config": {"trace": 0.5}}]
    with pytest.raises(ValueError, match="trace"):
        jobs(parse_suite(table))


def test_schedules_are_refused_where_the_budget_ends_a_run(table):
    table["config"]["learning_rate_schedule"] = "linear"
    with pytest.raises(ValueError, match="constant"):
        jobs(parse_suite(table))


def is_on_the_hub(name):
    return "/" in name and not Path(name).exists()


@pytest.mark.filterwarnings("ignore:The old environment creation API")
@pytest.mark.parametrize("path", [*SUITES, *STUDIES], ids=lambda path: path.stem)
def test_the_suites_of_the_repository_can_be_run(path):
    suite = read_suite(path)
    assert all(start == "tiny" or Path(start).is_dir() for start in suite.starts)
    for job in {(job.algorithm, job.environment): job for job in jobs(suite)}.values():
        if foreign := re.match(r"gymnasium/([\w.]+):", job.experiment.env):
            pytest.importorskip(foreign[1])
        if job.experiment.env.startswith("pettingzoo.classic"):
            pytest.importorskip("pygame")
        experiment = job.experiment
        if is_on_the_hub(experiment.model.model):
            stand_in = {"model": "tiny", "is_chat": False, "template_kwargs": {}, "compute_dtype": "float32"}
            model = replace(experiment.model, **stand_in, max_new_tokens=16)  # a hub model's replies are longer
            experiment = replace(experiment, model=model)
        experiment.check()


def test_the_claim_suite_has_all_methods_and_five_seeds():
    suite = read_suite(next(path for path in SUITES if path.stem == "claim"))
    assert {"magrpo", "marloo", "mareinforce", "iac", "maac", "ippo", "mappo"} <= {
        e.algorithm for e in suite.algorithms
    }
    assert len(suite.seeds) >= 5


def test_seeds_begin_with_the_starts_by_turns(table):
    found = jobs(parse_suite({**table, "seeds": [0, 1, 5], "starts": ["tiny", "elsewhere"], "model": {"top_k": 3}}))
    begun = {job.seed: (job.experiment.model.model, job.experiment.model.top_k) for job in found}
    assert begun == {0: ("tiny", 3), 1: ("elsewhere", 3), 5: ("elsewhere", 3)}
    assert {job.experiment.model.model for job in jobs(parse_suite(table))} == {"tiny"}


CONTRAST = {"name": "more", "score": "success", "terms": [[1, "A", "build"], [-1, "magrpo", "build"]]}


def test_contrasts_are_read_as_they_are_stated(table):
    (contrast,) = parse_suite({**table, "contrasts": [{**CONTRAST, "is_primary": True}]}).contrasts
    assert contrast.terms == ((1.0, "A", "build"), (-1.0, "magrpo", "build")) and contrast.is_primary


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"terms": [[1, "B", "build"]]}, "contrast 'more' has no 'B'"),
        ({"terms": [[1, "A", "builds"]]}, "contrast 'more' has no 'builds'"),
        ({"terms": [["A", "build"]]}, "term of a contrast is"),
        ({"score": "reward"}, "score of a contrast is one of"),
        ({"weight": 1}, "a contrast has no 'weight'"),
    ],
)
def test_a_contrast_of_what_is_not_there_is_refused(table, change, message):
    with pytest.raises(ValueError, match=message):
        parse_suite({**table, "contrasts": [{**CONTRAST, **change}]})
    with pytest.raises(ValueError, match="needs 'score'"):
        parse_suite({**table, "contrasts": [{name: CONTRAST[name] for name in ("name", "terms")}]})


def test_a_start_is_found_beside_the_suite_s_file_wherever_one_stands(tmp_path, monkeypatch):
    (tmp_path / "mine" / "team").mkdir(parents=True)
    lines = ("seeds = [0]", 'starts = ["team", "tiny"]', "budget = {environment_steps = 64}")
    lines += ("[[environments]]", 'id = "collm/MiniBuild-v0"', "[[algorithms]]", 'name = "iac"')
    (tmp_path / "mine" / "suite.toml").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    assert read_suite(Path("mine/suite.toml")).starts == (str(Path("mine", "team")), "tiny")
    monkeypatch.chdir(tmp_path / "mine")
    assert read_suite(Path("suite.toml")).starts == ("team", "tiny")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert read_suite(tmp_path / "mine" / "suite.toml").starts == (str(tmp_path / "mine" / "team"), "tiny")


def test_the_decisive_suite_has_ten_seeds_on_each_of_three_starts_and_says_what_it_is_for():
    suite = read_suite(next(path for path in STUDIES if path.stem == "shift"))
    starts = [
        job.experiment.model.model for job in jobs(suite) if (job.algorithm, job.environment) == ("MAGRPO", "both")
    ]
    assert len(set(starts)) == 3 and all(starts.count(start) == 10 for start in starts)
    assert sum(each.is_primary for each in suite.contrasts) == 3
    assert all(abs(sum(weight for weight, *_ in each.terms)) < 1e-9 for each in suite.contrasts)


def test_a_comparison_can_be_given_without_a_file():
    suite = chosen_suite(
        BenchmarkArguments(algorithms=("iac", "maac"), envs=("collm/MiniCode-v1",), seeds=(3,), generated_tokens=99)
    )
    assert [job.experiment.config.max_sampled_tokens for job in jobs(suite)] == [99, 99]


def test_the_command_line_narrows_a_suite_down():
    smoke = next(path for path in SUITES if path.stem == "smoke")
    suite = chosen_suite(BenchmarkArguments(suite=smoke, algorithms=("IAC",), envs=("writing",), seeds=(7,)))
    assert [(job.algorithm, job.environment, job.seed) for job in jobs(suite)] == [("IAC", "writing", 7)]
    with pytest.raises(ValueError, match="no algorithm 'PPO'"):
        chosen_suite(BenchmarkArguments(suite=smoke, algorithms=("PPO",)))


def test_a_setting_of_one_algorithm_is_given_by_its_name():
    given = ("critic_warmup=0", "discount=0.5", "magrpo.num_generations=8")
    both = BenchmarkArguments(algorithms=("iac", "magrpo"), envs=("collm/MiniCode-v1",), seeds=(3,), config=given)
    advice = r"'critic_warmup', which magrpo does not have.* --config iac\.critic_warmup=0"
    with pytest.raises(ValueError, match=advice):
        jobs(chosen_suite(both))
    iac, magrpo = jobs(chosen_suite(replace(both, config=("iac.critic_warmup=0", *given[1:]))))
    assert iac.experiment.config.critic_warmup == 0 and magrpo.experiment.config.num_generations == 8
    assert iac.experiment.config.discount == magrpo.experiment.config.discount == 0.5
    with pytest.raises(ValueError, match=r"'iax'.*'iac'"):
        chosen_suite(replace(both, config=("iax.critic_warmup=0",)))


def test_a_setting_by_an_algorithm_s_name_goes_before_the_suite_s_own():
    smoke = next(path for path in SUITES if path.stem == "smoke")
    suite = chosen_suite(BenchmarkArguments(suite=smoke, seeds=(0,), config=("IAC.critic_warmup=3",)))
    found = {job.experiment.config.critic_warmup for job in jobs(suite) if job.algorithm == "IAC"}
    assert found == {3}
    others = [job for job in jobs(suite) if job.algorithm != "IAC"]
    assert others and all(getattr(job.experiment.config, "critic_warmup", 0) != 3 for job in others)


def test_settings_of_models_override_the_suite_s_in_every_environment():
    given = ("model=tiny", "is_chat=false", "template_kwargs={}")
    chosen = BenchmarkArguments(suite=Path("published"), model_config=given, max_new_tokens=16)
    models = {job.environment: job.experiment.model for job in jobs(chosen_suite(chosen))}
    teams = {"StrBuild", "HouseBuild", "HumanEval"}
    assert set(models) == teams | {f"{name}, single model" for name in teams}
    for model in models.values():
        assert (model.model, model.is_chat, model.template_kwargs, model.max_new_tokens) == ("tiny", False, {}, 16)
        assert model.weights == "adapters" and model.top_p == 0.6, "the rest is the suite's"


def test_suites_that_ship_are_found_by_name(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert read_suite(Path("smoke")).name == "smoke"
    with pytest.raises(FileNotFoundError, match="did you mean 'smoke'"):
        read_suite(Path("smok"))
    with pytest.raises(FileNotFoundError, match=r"one of ablations, claim, .*, replication, rware, smoke, teams"):
        read_suite(Path("xyzzy"))


def test_the_command_names_all_suites_that_ship(root):
    text = (root / "benchmarks" / "commands" / "benchmark.py").read_text()
    named = re.search(r"the name of one that ships \(([^)]*)\)", text)
    assert named is not None and sorted(re.findall(r"\w+", named[1])) == sorted(path.stem for path in SUITES)
