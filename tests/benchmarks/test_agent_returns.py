"""Returns of each agent in all outputs of a run, if the agents do not have common interests, and only then."""

import io
import json
from functools import partial
from pathlib import Path

import pytest
from interests_worlds import PLAYERS, Dilemma, Pennies
from probes import AGENTS, WORDS, TextProbe, word_policies
from rich.console import Console

import collm
from collm.agents.scripted import FunctionPolicy
from collm.algorithms import IACConfig
from collm.algorithms.runs.api import Run
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.algorithms.runs.loggers.display import TrainingDisplay
from collm.benchmarks.cli import main
from collm.benchmarks.commands.evaluate import Entry, EvaluateArguments, shown_team, welfare_of
from collm.benchmarks.sharing.export import SharedRun
from collm.envs import Outcome

OWN = {"player_0": 5.0, "player_1": 0.0}
MEASURES = {"sum": 5.0, "minimum": 0.0, "nash_product": 0.0, "gini": 0.5}


class Words(TextProbe):
    """The first speaker earns 2 more for "red" than the second, which always earns 1."""

    interests = "mixed"

    def play(self, replies):
        first, second = AGENTS
        return Outcome({first: 1.0 + 2.0 * (WORDS[0] in replies[first]), second: 1.0})


class CommonWords(Words):
    interests = "common"


def team(env):
    policies = dict(zip(PLAYERS, (FunctionPolicy(lambda *_: "keep"), FunctionPolicy(lambda *_: "share")), strict=True))
    return Run(
        Path(), Experiment(algorithm="iac", config=IACConfig(), env=f"interests_worlds:{env.__name__}"), policies
    )


def card_of(run):
    with SharedRun.opened(run.directory, None, None, trust=False) as shared:
        return shared.card("owner/name", library_name="collm")


def test_an_evaluation_has_a_return_per_agent():
    result = team(Dilemma).evaluate(3)
    assert result.team_return.value == 2.5
    assert {agent: each.value for agent, each in result.agent_returns.items()} == OWN
    assert welfare_of(result) == {f"welfare/{name}": value for name, value in MEASURES.items()}
    assert result.metrics["return/player_0"] == 5.0
    pennies = team(Pennies).evaluate(2)
    assert set(pennies.agent_returns) == set(PLAYERS) and welfare_of(pennies) == {}


def test_the_tables_of_an_evaluation_have_a_row_or_column_per_agent(tmp_path):
    run = team(Dilemma)
    result = run.evaluate(2)
    stream = io.StringIO()
    arguments = EvaluateArguments(transcripts=False)
    shown_team(Console(file=stream, width=120), run, {"sampled": result}, arguments, tmp_path / "log")
    lines = [line for line in stream.getvalue().splitlines() if "return of" in line or "welfare" in line]
    assert len(lines) == 2 + len(MEASURES) and "5.000" in lines[0] and "0.500" in next(x for x in lines if "gini" in x)
    entry = Entry("a", {"sampled": result.team_return}, {}, "", (), {"sampled": result.agent_returns}, {})
    assert list(entry.cells) == ["sampled", "sampled, player_0", "sampled, player_1"]
    assert entry.to_json()["agent_returns"]["sampled"]["player_0"]["value"] == 5.0
    assert "welfare" not in entry.to_json()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    def run(env):
        out = tmp_path_factory.mktemp("runs") / env.__name__
        settings = {
            "progress": False,
            "num_updates": 2,
            "rollout_buffer_size": 8,
            "eval_num_samples": 4,
            "num_generations": 4,
        }
        stream = io.StringIO()
        with TrainingDisplay("run", 2, Console(file=stream, width=200)) as display:
            parts = {"out": out, "policies": word_policies(), "loggers": [display]}
            run = collm.train("magrpo", partial(env, "constant"), **parts, **settings)
            display.console.print(display.evaluation_table())
        return run, stream.getvalue()

    return {env: run(env) for env in (Words, CommonWords)}


def test_all_outputs_of_a_run_have_returns_of_agents(trained, tmp_path):
    run, printed = trained[Words]
    for row in run.metrics:
        means = [row[f"return/{agent}"] for agent in AGENTS]
        assert sum(means) / 2 == pytest.approx(row["return"]) and row["welfare/sum"] == pytest.approx(sum(means))
        assert f"{AGENTS[0]} {means[0]:.3f}" in printed
    for row in run.evaluations:
        for end in ("", "_low", "_high"):
            assert 1.0 <= row[f"evaluation/sampled/return/{AGENTS[0]}{end}"] <= 3.0
        assert row["evaluation/greedy/welfare/minimum"] == 1.0
    for row in run.episodes:
        own = {agent: sum(turn["reward"] for turn in track["turns"]) for agent, track in row["agents"].items()}
        assert row["returns"] == own
    rows = [line for line in printed.splitlines() if f"  {AGENTS[1]}" in line and "[" in line]
    assert len(rows) == len(run.evaluations)
    assert f"| 2, {AGENTS[0]} |" in card_of(run)
    assert main(["report", str(run.directory), "--out", str(tmp_path)]) == 0
    tables = (tmp_path / "tables.md").read_text()
    assert "### Returns of agents" in tables and f"{AGENTS[1]} " in tables and "gini" in tables


def test_common_games_have_the_outputs_of_before(trained, tmp_path):
    run, printed = trained[CommonWords]
    for row in [*run.metrics, *run.evaluations]:
        assert not [name for name in row if "return/" in name or "welfare" in name]
    assert not [row for row in run.episodes if "returns" in row]
    assert AGENTS[0] not in printed and f"2, {AGENTS[0]}" not in card_of(run)
    assert main(["report", str(run.directory), "--out", str(tmp_path)]) == 0
    assert "Returns of agents" not in (tmp_path / "tables.md").read_text()


def test_a_log_of_inspect_has_a_score_per_agent(trained, tmp_path):
    inspect_ai = pytest.importorskip("collm.agents.interop.inspect_ai")
    for env, names in ((Words, {"return", *(f"return of {agent}" for agent in AGENTS)}), (CommonWords, {"return"})):
        run, _ = trained[env]
        inspect_ai.write_log(run.episodes, tmp_path / f"{env.__name__}.json")
        log = json.loads((tmp_path / f"{env.__name__}.json").read_text())
        assert {each["name"] for each in log["results"]["scores"]} == names == set(log["samples"][0]["scores"])
