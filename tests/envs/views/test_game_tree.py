"""Exact values of policies in games that are small enough to enumerate, compared with OpenSpiel."""

import random

import pytest

from collm._errors import UserError
from collm.envs import make
from collm.envs.views.game_tree import GameTree

pyspiel = pytest.importorskip("pyspiel")
GAMES = (
    *("kuhn_poker", "kuhn_poker(players=3)", "liars_dice(numdice=1,dice_sides=3)", "tiny_hanabi", "lewis_signaling"),
    *("leduc_poker", "matrix_pd", "goofspiel(players=2,num_cards=3)", "matching_pennies_3p"),
)


def tree_of(game, **kwargs):
    return GameTree(make(f"open_spiel/{game}"), **kwargs)


def uniform(tree):
    return [[1 / len(each.replies)] * len(each.replies) for each in tree.information_sets]


def test_the_uniform_policy_in_kuhn_poker_has_its_known_values():
    tree = tree_of("kuhn_poker")
    assert len(tree.information_sets) == 12
    assert tree.values(uniform(tree)) == pytest.approx([0.125, -0.125])
    assert sum(tree.gains(uniform(tree))) == pytest.approx(11 / 12)
    first = tree.information_sets[0]
    assert first.prompt.startswith("kuhn_poker, player_0") and first.replies == ("Pass", "Bet")


def test_an_equilibrium_of_kuhn_poker_cannot_be_exploited():
    tree, bets = tree_of("kuhn_poker"), {"0": 1 / 3, "0pb": 0, "1": 0, "1pb": 2 / 3, "2": 1, "2pb": 1}
    bets |= {"0b": 0, "0p": 1 / 3, "1b": 1 / 3, "1p": 0, "2b": 1, "2p": 1}
    policy = [(1 - bets[each.key], bets[each.key]) for each in tree.information_sets]
    assert tree.values(policy) == pytest.approx([-1 / 18, 1 / 18])
    assert tree.gains(policy) == pytest.approx([0, 0], abs=1e-12)


@pytest.mark.parametrize("game", GAMES)
def test_gains_equal_those_of_open_spiel(game):
    exploitability = pytest.importorskip("open_spiel.python.algorithms.exploitability")
    policies = pytest.importorskip("open_spiel.python.policy")
    rng, tree = random.Random(0), tree_of(game)
    loaded = pyspiel.load_game_as_turn_based(game)
    is_simultaneous = loaded.get_type().short_name != game.partition("(")[0]
    table = policies.TabularPolicy(loaded)
    indices = {(each.player, each.key): number for number, each in enumerate(tree.information_sets)}
    rows = []  # information set in the tree of each state in OpenSpiel's table
    for state in table.states:
        key = state.information_state_string()
        rows.append(indices[state.current_player(), key.split("\n", 1)[1] if is_simultaneous else key])
    assert sorted(rows) == list(range(len(tree.information_sets)))
    for _ in range(2 if game == "leduc_poker" else 20):
        policy = []
        for each in tree.information_sets:
            weights = [rng.expovariate(1) * (rng.random() < 0.8) + 1e-9 for _ in each.replies]
            policy.append([weight / sum(weights) for weight in weights])
        for state, row, number in zip(table.states, table.action_probability_array, rows, strict=True):
            row[:] = 0
            row[state.legal_actions()] = policy[number]
        theirs = exploitability.nash_conv(loaded, table, return_only_nash_conv=False)
        assert tree.gains(policy) == pytest.approx(list(theirs.player_improvements), abs=1e-9)


def test_trees_that_are_too_large_or_have_no_information_states_are_refused():
    with pytest.raises(UserError, match="too large"):
        tree_of("leduc_poker", max_nodes=100)
    with pytest.raises(UserError, match="too large"):
        tree_of("oshi_zumo(coins=3,size=1)")  # it ends after up to 1,000 turns
    with pytest.raises(UserError, match="imperfect recall"):
        tree_of("liars_dice_ir(numdice=1,dice_sides=3,recall_length=1)")
    with pytest.raises(UserError, match="no information states"):
        tree_of("pig")
