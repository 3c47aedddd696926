from collm.benchmarks.commands.envs import mean_scores
from collm.envs import make


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
