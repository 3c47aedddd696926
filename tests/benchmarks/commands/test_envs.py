"""Scripted players as floors and ceilings."""

from collm.benchmarks.commands.envs import mean_scores
from collm.envs import make
from collm.envs.players import played, scripted_player


def test_scores_of_the_scripted_players():
    scores = mean_scores(make("collm/MiniBuild-v0"), num_episodes=3)
    assert scores["reference"] == 1.0
    assert scores["empty"] == 0.0
    assert 0.0 <= scores["random"] < 1.0


def test_an_episode_of_a_player_repeats():
    env = make("collm/MiniBuild-v0")
    first, second = (played(env, scripted_player(env, "random"), seed=1)[0] for _ in range(2))
    assert first == second


def test_an_environment_without_a_reference_player_has_no_ceiling():
    env = make("gymnasium/CartPole-v1")
    assert scripted_player(env, "reference") is None


def test_scores_have_the_honest_players_of_an_environment_that_has_them():
    assert mean_scores(make("collm/MiniBuild-v0"), num_episodes=1)["talking"] is None
    scores = mean_scores(make("collm/ResourceGathering-v2"), num_episodes=3)
    assert 0 <= scores["silent"] < scores["talking"] == scores["reference"]
