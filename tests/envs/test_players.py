"""Scripted players."""

import pickle
from copy import deepcopy

import pytest
from heard import Heard
from replies import begun

from collm.envs import OpenText, Outcome, make
from collm.envs.players import PLAYERS, RandomPlayer, played, reference_player, scripted_player
from collm.envs.views import DictObservations


@pytest.mark.parametrize("view", [lambda env: env, DictObservations])
def test_the_reference_player_reaches_the_maximum_under_a_view_too(view):
    env = view(make("collm/MiniBuild-v0"))
    assert played(env, reference_player(env), seed=0)[0] == 1.0


def test_players_that_an_environment_does_not_have():
    for env in (Heard(), make("gymnasium/CartPole-v1")):
        assert reference_player(env) is scripted_player(env, "reference") is None
    assert scripted_player(make("gymnasium/CartPole-v1"), "empty") is None
    assert scripted_player(make("collm/MiniBuild-v0"), "empty")("builder_0", None) == ""
    with pytest.raises(ValueError, match=f"'clever'.*{', '.join(PLAYERS)}"):
        scripted_player(Heard(), "clever")


def test_random_actions_are_the_seeds_and_leave_the_spaces_alone():
    spaces = {"a_0": OpenText(30, seed=7), "a_1": OpenText(30)}
    first, again = (RandomPlayer(spaces, seed=3) for _ in range(2))
    drawn = [(first("a_0", None), first("a_1", None)) for _ in range(5)]
    assert [(again("a_0", None), again("a_1", None)) for _ in range(5)] == drawn
    assert len(set(drawn)) == 5
    assert spaces["a_0"].sample() == OpenText(30, seed=7).sample()


def test_an_episode_has_the_mean_return_of_the_agents_and_the_infos_of_each_turn():
    class Counting(Heard):
        def play(self, replies):
            return Outcome({agent: float(len(text)) for agent, text in replies.items()}, metrics={"turn": self.turn})

    player = {"a_0": "x", "b_0": "xxx"}
    team_return, infos = played(Counting(["a_0", "b_0"], 2), lambda agent, observation: player[agent], seed=0)
    assert team_return == (2 * 1 + 2 * 3) / 2
    assert [info["metric/turn"] for info in infos] == [0, 1]


def test_an_exploit_is_a_player_in_the_very_copy_and_every_scripted_player_can_be_pickled():
    env = make("collm/MiniShift-v0", max_turns=2)
    copy = deepcopy(env)
    player = scripted_player(copy, "first of the list")
    for each in (env, copy):
        each.reset(seed=5)
    copy.step(dict.fromkeys(copy.agents, ""))
    offers = [" ".join(each.unwrapped.offer.pairs[0]) for each in (env, copy)]
    assert player("builder_1", None) == offers[1] != offers[0]
    env = begun(make("collm/MiniShift-v0"), seed=5)
    for name in (*PLAYERS, "first of the list"):
        player = scripted_player(env, name)
        again = pickle.loads(pickle.dumps(player))
        assert again("builder_1", None) == player("builder_1", None)
