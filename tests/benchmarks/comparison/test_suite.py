"""Suites: the runs that they describe, and the errors that they raise."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from collm.benchmarks.commands.benchmark import BenchmarkArguments, chosen_suite
from collm.benchmarks.comparison.prompted import check_prompted
from collm.benchmarks.comparison.suite import jobs, parse_suite, read_suite

ROOT = Path(__file__).parents[3]
SUITES = sorted((ROOT / "benchmarks" / "suites").glob("*.toml"))
STUDIES = sorted((ROOT / "research" / "suites").glob("*.toml"))
TOKENS = {"generated_tokens": 50}
CONTRAST = {"name": "more", "score": "success", "terms": [[1, "A", "build"], [-1, "magrpo", "build"]]}


@pytest.fixture
def table() -> dict:
    return {
        "name": "two by two",
        "seeds": [0, 1],
        "budget": {"environment_steps": 100},
        "config": {"rollout_buffer_size": 16},
        "environments": [
            {"id": "collm/MiniWriting-v2"},
            {"id": "collm/MiniBuild-v0", "name": "build", "kwargs": {"max_turns": 2}, "budget": TOKENS},
        ],
        "algorithms": [{"name": "magrpo"}, {"algorithm": "maac", "name": "A", "config_in": {"build": {"trace": 0.5}}}],
    }


def test_a_suite_is_a_grid_seed_by_seed_of_the_listed_algorithms(table):
    found = jobs(parse_suite(table))
    assert len(found) == 8
    assert [job.seed for job in found] == [0] * 4 + [1] * 4
    assert {job.label["suite"] for job in found} == {"two by two"}
    assert len({job.directory for job in found}) == 8
    table["environments"][1]["algorithms"] = ["A"]
    found = [(job.environment, job.algorithm) for job in jobs(parse_suite(table)) if job.seed == 1]
    assert found == [("collm/MiniWriting-v2", "magrpo"), ("collm/MiniWriting-v2", "A"), ("build", "A")]


def test_entries_have_their_own_settings_budgets_starts_and_contrasts(table):
    found = jobs(parse_suite(table))
    traces = {job.environment: job.experiment.config.trace for job in found if job.algorithm == "A"}
    assert traces == {"collm/MiniWriting-v2": 0.9, "build": 0.5}
    for job in found:
        config = job.experiment.config
        limits = (None, 50) if job.environment == "build" else (100, None)
        assert config.seed == job.seed
        assert (config.max_environment_steps, config.max_sampled_tokens) == limits
    found = jobs(parse_suite({**table, "seeds": [0, 1, 5], "starts": ["tiny", "elsewhere"], "model": {"top_k": 3}}))
    begun = {job.seed: (job.experiment.model.model, job.experiment.model.top_k) for job in found}
    assert begun == {0: ("tiny", 3), 1: ("elsewhere", 3), 5: ("elsewhere", 3)}
    assert {job.experiment.model.model for job in jobs(parse_suite(table))} == {"tiny"}
    (contrast,) = parse_suite({**table, "contrasts": [{**CONTRAST, "is_primary": True}]}).contrasts
    assert contrast.terms == ((1.0, "A", "build"), (-1.0, "magrpo", "build")) and contrast.is_primary


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": [0, 0]}, "occur twice"),
        ({"budget": {"environment_steps": 0}}, "environment_steps=0"),
        ({"environments": [{"id": "a/B-v0", "algorithms": ["B"]}], "algorithms": [{"name": "iac"}]}, "no 'B'"),
        ({"algorithms": [{"name": "ppo"}]}, "'ppo'"),
        ({"algorithms": [{"name": "iac", "config": {"seed": 3}}]}, "seed"),
        ({"algorithms": [{"name": "iac", "config": {"num_updates": 3}}]}, "num_updates"),
        ({"algorithms": [{"name": "iac", "config_in": {"bild": {}}}]}, "bild"),
        ({"environments": [{"id": "a/B-v0", "model": {"width": 3}}], "algorithms": [{"name": "iac"}]}, "width"),
        ({"algorithms": [{"name": "magrpo", "config": {"trace": 0.5}}]}, "trace"),
        ({"config": {"learning_rate_schedule": "linear"}}, "learning_rate_schedule"),
        ({"contrasts": [{**CONTRAST, "terms": [[1, "B", "build"]]}]}, "contrast 'more' has no 'B'"),
        ({"contrasts": [{**CONTRAST, "terms": [[1, "A", "builds"]]}]}, "contrast 'more' has no 'builds'"),
        ({"contrasts": [{**CONTRAST, "terms": [["A", "build"]]}]}, "term of a contrast"),
        ({"contrasts": [{**CONTRAST, "score": "reward"}]}, "score of a contrast"),
        ({"contrasts": [{**CONTRAST, "weight": 1}]}, "'weight'"),
        ({"contrasts": [{"name": "more", "terms": []}]}, "'score'"),
    ],
)
def test_mistakes_in_a_suite_are_refused(table, change, message):
    with pytest.raises(ValueError, match=message):
        jobs(parse_suite({**table, **change}))


@pytest.mark.filterwarnings("ignore:The old environment creation API")
@pytest.mark.parametrize("path", [*SUITES, *STUDIES], ids=lambda path: path.stem)
def test_the_suites_of_the_repository_can_be_run(path):
    suite = read_suite(path)
    if path.stem == "paper":
        suite = replace(suite, scale=0.01)  # its data is on the hub
    assert all(start == "tiny" or Path(start).is_dir() for start in suite.starts)
    for job in {(job.algorithm, job.environment): job for job in jobs(suite)}.values():
        if foreign := re.match(r"gymnasium/([\w.]+):", job.experiment.env):
            pytest.importorskip(foreign[1])
        if job.experiment.env.startswith("pettingzoo.classic"):
            pytest.importorskip("pygame")
        if job.experiment.env.startswith("open_spiel/"):
            pytest.importorskip("pyspiel")
        experiment = job.experiment
        if "/" in experiment.model.model and not Path(experiment.model.model).exists():  # it is on the hub
            stand_in = {"model": "tiny", "is_chat": False, "template_kwargs": {}, "compute_dtype": "float32"}
            model = replace(experiment.model, **stand_in, max_new_tokens=16)  # a hub model's replies are longer
            experiment = replace(experiment, model=model)
        check_prompted(experiment) if job.is_prompted else experiment.check()


@pytest.mark.parametrize(
    ("here", "suite", "start"),
    [(".", "mine/suite.toml", "mine/team"), ("mine", "suite.toml", "team"), ("a", None, None)],
)
def test_a_start_is_searched_next_to_the_suites_file(tmp_path, monkeypatch, here, suite, start):
    (tmp_path / "mine" / "team").mkdir(parents=True)
    (tmp_path / "a").mkdir()
    lines = ("seeds = [0]", 'starts = ["team", "tiny"]', "budget = {environment_steps = 64}")
    lines += ("[[environments]]", 'id = "collm/MiniBuild-v0"', "[[algorithms]]", 'name = "iac"')
    (tmp_path / "mine" / "suite.toml").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path / here)
    found = read_suite(Path(suite or tmp_path / "mine" / "suite.toml")).starts
    assert found == (start or str(tmp_path / "mine" / "team"), "tiny")


def test_the_decisive_suite_has_ten_seeds_on_each_of_three_starts_and_says_what_it_is_for():
    suite = read_suite(next(path for path in STUDIES if path.stem == "shift"))
    both = [job for job in jobs(suite) if (job.algorithm, job.environment) == ("MAGRPO", "both")]
    starts = [job.experiment.model.model for job in both]
    assert len(set(starts)) == 3 and all(starts.count(start) == 10 for start in starts)
    assert sum(each.is_primary for each in suite.contrasts) == 3
    assert all(abs(sum(weight for weight, *_ in each.terms)) < 1e-9 for each in suite.contrasts)


def test_the_command_line_gives_or_narrows_down_a_suite():
    given = {"algorithms": ("iac", "maac"), "envs": ("collm/MiniCode-v1",), "seeds": (3,), "generated_tokens": 99}
    suite = chosen_suite(BenchmarkArguments(**given))
    assert [job.experiment.config.max_sampled_tokens for job in jobs(suite)] == [99, 99]
    smoke = next(path for path in SUITES if path.stem == "smoke")
    narrow = {"algorithms": ("IAC",), "envs": ("writing",), "seeds": (7,), "config": ("IAC.critic_warmup=3",)}
    (job,) = jobs(chosen_suite(BenchmarkArguments(suite=smoke, **narrow)))
    assert (job.algorithm, job.environment, job.seed) == ("IAC", "writing", 7)
    assert job.experiment.config.critic_warmup == 3
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


def test_settings_of_models_override_the_suite_s_in_every_environment():
    given = ("model=tiny", "is_chat=false", "template_kwargs={}")
    chosen = BenchmarkArguments(suite=Path("published"), model_config=given, max_new_tokens=16)
    models = {job.environment: job.experiment.model for job in jobs(chosen_suite(chosen))}
    teams = {"StrBuild", "HouseBuild", "HumanEval"}
    assert set(models) == teams | {f"{name}, single model" for name in teams}
    for model in models.values():
        assert (model.model, model.is_chat, model.template_kwargs, model.max_new_tokens) == ("tiny", False, {}, 16)
        assert model.weights == "adapters" and model.top_p == 0.6  # the rest is the suite's


def test_suites_that_ship_are_found_by_name(monkeypatch, tmp_path, root):
    monkeypatch.chdir(tmp_path)
    assert read_suite(Path("smoke")).name == "smoke"
    with pytest.raises(FileNotFoundError, match="did you mean 'smoke'"):
        read_suite(Path("smok"))
    with pytest.raises(FileNotFoundError, match=r"one of ablations, claim, .*, replication, rware, smoke, teams"):
        read_suite(Path("xyzzy"))
    text = (root / "benchmarks" / "commands" / "benchmark.py").read_text()
    named = re.search(r"the name of one that ships \(([^)]*)\)", text)
    assert named is not None and sorted(re.findall(r"\w+", named[1])) == sorted(path.stem for path in SUITES)
