import pytest
from interests_worlds import Dilemma

from collm.benchmarks.commands.envs import agent_scores, ceilings_text, described, means, score_cells
from collm.envs import make, register
from collm.envs.registration.registry import registry


def mean_scores(env, num_episodes):
    return means(agent_scores(env, num_episodes))


def test_scores_of_the_scripted_players():
    env = make("collm/MiniBuild-v0")
    scores = mean_scores(env, num_episodes=3)
    assert scores == mean_scores(env, num_episodes=3)
    assert scores["reference"] == 1.0
    assert scores["empty"] == 0.0
    assert 0.0 <= scores["random"] < 1.0
    assert mean_scores(make("collm/MiniBuild-v0"), num_episodes=1)["talking"] is None
    assert mean_scores(make("gymnasium/CartPole-v1"), num_episodes=1)["reference"] is None
    scores = mean_scores(make("collm/ResourceGathering-v2"), num_episodes=3)
    assert 0 <= scores["silent"] < scores["talking"] == scores["reference"]


def test_scores_per_agent_and_known_returns_of_ideal_teams():
    spec = register("tests/Dilemma-v0", Dilemma, replace=True)
    row = described(spec, 2)
    assert row["agent_scores"]["reference"] == {"player_0": 3.0, "player_1": 2.0} and row["scores"]["reference"] == 2.5
    assert row["ceilings"] == {"optimum": 2.5, "equilibrium": 1.0}
    cells = score_cells(row)
    assert (cells[0], cells[2], cells[3]) == ("3.000/2.000", "0.000/0.000", "-")
    assert ceilings_text(row) == "optimum 2.500, equilibrium 1.000"
    common = described(make("collm/MiniShift-v0").spec, 1)
    assert "agent_scores" not in common and score_cells(common)[0] == f"{common['scores']['reference']:.3f}"


def test_an_environment_without_a_summary_is_described_by_its_docstring():
    class Garden(Dilemma):
        """Two gardeners share water.

        They do not talk."""

    assert described(register("tests/Garden-v0", Garden, replace=True), None)["summary"] == "Two gardeners share water."
    spec = register("tests/Garden-v1", Garden, replace=True, summary="A garden.")
    assert described(spec, None)["summary"] == "A garden."


@pytest.fixture(autouse=True)
def _unregistered():
    yield
    registry.pop("tests/Dilemma-v0", None)
