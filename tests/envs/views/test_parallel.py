"""PettingZoo's number of cycles: the game's own number of turns, or a limit from outside."""

from __future__ import annotations

from collm.envs.views import TurnLimit
from collm.envs.views.aec import make_parallel


def test_a_game_of_fixed_length_is_cut_short_by_pettingzoos_max_cycles():
    env = make_parallel("collm/MiniWriting-v2", max_cycles=4)
    assert isinstance(env, TurnLimit) and env.turn_limit == 4


def test_a_game_that_takes_a_number_of_turns_gets_pettingzoos_max_cycles():
    env = make_parallel("collm/MiniBuild-v0", max_cycles=3)
    assert env.max_turns == 3
