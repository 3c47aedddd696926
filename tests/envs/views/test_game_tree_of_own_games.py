"""Game trees of text environments: equilibria have no gains, and chance after the deal is refused."""

import pytest

from collm._errors import UserError
from collm.envs import make
from collm.envs.games.talk.solutions import best_partition, best_plan
from collm.envs.games.talk.tiny_hanabi import payoffs
from collm.envs.views.game_tree import GameTree


def tree_of(name, **kwargs):
    return GameTree(make(f"collm/{name}", **kwargs))


def uniform(tree):
    return [[1 / len(each.replies)] * len(each.replies) for each in tree.information_sets]


def chosen(tree, choose):
    """Return the policy that plays the reply `choose(information set)`."""
    return [[float(reply == choose(each)) for reply in each.replies] for each in tree.information_sets]


def test_uniform_play_of_matching_pennies_cannot_be_exploited():
    for num_rounds, num_messages in ((1, 0), (2, 0), (1, 1)):
        tree = tree_of(
            "MatrixGame-v0", game="pennies", is_shuffled=False, num_rounds=num_rounds, num_messages=num_messages
        )
        assert tree.values(uniform(tree)) == pytest.approx([0.5, 0.5])
        assert tree.gains(uniform(tree)) == pytest.approx([0, 0], abs=1e-12)
    first = tree.information_sets[0].replies[0]
    gains = tree.gains(chosen(tree, lambda each: first))
    assert gains == pytest.approx([0, 1])


def test_defection_is_the_equilibrium_of_the_prisoners_dilemma():
    tree = tree_of("MatrixGame-v0", game="prisoner", is_shuffled=False, num_rounds=3, num_messages=0)
    cooperate, defect = tree.information_sets[0].replies
    assert tree.gains(chosen(tree, lambda each: defect)) == pytest.approx([0, 0], abs=1e-12)
    assert tree.gains(chosen(tree, lambda each: cooperate)) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("channel", ["open", "silent"])
@pytest.mark.parametrize("game", "ABCDEF")
def test_the_best_plan_of_tiny_hanabi_is_an_equilibrium(game, channel):
    env = make("collm/TinyHanabi-v0", game=game, channel=channel).unwrapped
    tree, plan = GameTree(env), best_plan(payoffs(game), channel == "open")

    def choose(information):
        words = information.prompt.split()
        actions = information.replies
        card = ("wood", "stone", "brick").index(words[2])
        if information.player == 0:
            return actions[plan.first[card]]
        return actions[plan.second[card, actions.index(words[-2]) if channel == "open" else 0]]

    policy = chosen(tree, choose)
    top = env.ceilings()["optimum" if channel == "open" else "silent"]
    assert tree.values(policy) == pytest.approx([top, top])
    assert tree.gains(policy) == pytest.approx([0, 0], abs=1e-12)
    assert sum(tree.gains(uniform(tree))) > 0.1


@pytest.mark.parametrize("bias", [0, 1, 3])
def test_the_partition_equilibrium_of_advice_cannot_be_exploited(bias):
    tree = tree_of("Advice-v0", bias=bias)
    pays = [[(1 - ((a - s - bias) / (7 + bias)) ** 2, 1 - ((a - s) / 7) ** 2) for a in range(8)] for s in range(8)]
    value, cells, actions = best_partition(pays, 8)

    def choose(information):
        words = information.prompt.split()
        number = int(words[-2])  # the state, or the message
        cell, action = next(pair for pair in zip(cells, actions, strict=True) if number in pair[0])
        return str(action if information.player else cell[0])

    policy = chosen(tree, choose)
    assert sum(tree.values(policy)) / 2 == pytest.approx(value)
    assert tree.gains(policy) == pytest.approx([0, 0], abs=1e-12)
    assert sum(tree.gains(uniform(tree))) > 0.1


def test_games_that_cannot_be_enumerated_are_refused():
    with pytest.raises(UserError, match="random numbers"):
        tree_of("Advice-v0", channel="shuffled")
    with pytest.raises(UserError, match="random numbers"):
        tree_of("Advice-v0", channel="noisy")
    with pytest.raises(UserError, match="2147483648 deals"):
        tree_of("Profile-v0")
    with pytest.raises(UserError, match="legal_replies"):
        tree_of("MiniBuild-v0")
