"""A game of TextArena as an environment here."""

from __future__ import annotations

import random
import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("textarena")

from collm.envs import check_env, make
from collm.envs.views.textarena import TextArena

NUMBER = "GuessTheNumber-v0-raw"
DILEMMA = "IteratedPrisonersDilemma-v0-raw"


def halving(env, seed):
    """The return of whoever halves the range."""
    low, high = 1, 20
    observations, _ = env.reset(seed=seed)
    earned = 0.0
    while env.agents:
        guess = (low + high) // 2
        observations, rewards, *_ = env.step({"player_0": f"[{guess}]"})
        earned += rewards["player_0"]
        told = observations["player_0"].messages[-1].content
        low, high = (guess + 1, high) if "higher" in told else (low, guess - 1)
    return earned


def test_a_game_of_one_player_is_won_by_playing_well():
    env = TextArena(NUMBER)
    assert [halving(env, seed) for seed in range(5)] == [1.0] * 5


def test_an_episode_is_a_function_of_its_seed_and_leaves_the_global_generator_alone():
    random.seed(5)
    before = random.getstate()
    assert "same_seed" in check_env(lambda: TextArena(NUMBER, max_turns=4))
    env = TextArena(NUMBER)
    random.setstate(before)
    halving(env, 3)
    assert random.getstate() == before


def test_the_other_seats_are_played_by_partners():
    read = []

    def partner(agent, observation, rng):
        read.append((agent, str(observation)))
        return "[Defect]"

    env = TextArena(DILEMMA, num_players=2, seat=0, partners=partner)
    env.reset(seed=0)
    rewards = []
    while env.agents:
        rewards.append(env.step({"player_0": "[Cooperate]"})[1]["player_0"])
    assert rewards[-1] == -1.0 and not any(rewards[:-1])
    assert read[0][0] == "player_1" and "[player_0] [Cooperate]" in read[0][1]


def test_a_game_of_several_players_needs_partners():
    with pytest.raises(ValueError, match="2 players"):
        TextArena(DILEMMA, num_players=2)
    with pytest.raises(ValueError, match=r"seat.*got 1"):
        TextArena(NUMBER, seat=1)


def test_it_is_made_by_its_class():
    assert make("collm.envs.views.textarena:TextArena", game=NUMBER).possible_agents == ["player_0"]
