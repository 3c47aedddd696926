"""Exact solutions of the games of talk, by enumeration of the rules, and the reference players that reach them."""

import itertools
import random

import pytest

from collm.envs.games.talk import Advice, MatrixGame, Profile, TinyHanabi
from collm.envs.games.talk.tiny_hanabi import payoffs

PUBLISHED = {"A": 2.25, "B": 1.0, "C": 2.5, "D": 2.5, "E": 10.0, "F": 2 + 1 / 3}
MATRIX_GAMES = ("prisoner", "stag", "chicken", "sexes", "pennies", "coordination")


def returns(env, task, reply=None):
    """The return of each agent in an episode; `reply`: function of the agent, by default the reference reply."""
    env.reset(options={"task": task})
    earned = dict.fromkeys(env.possible_agents, 0.0)
    while env.agents:
        rewards = env.step({agent: (reply or env.reference_reply)(agent) for agent in env.movers})[1]
        earned = {agent: earned[agent] + rewards[agent] for agent in earned}
    return list(earned.values())


def mean_return(env, tasks, reply=None):
    found = [sum(returns(env, task, reply)) / len(env.possible_agents) for task in tasks]
    return sum(found) / len(found)


def hanabi_return(env, first, second):
    """The mean return over all deals of a plan: actions by the own card, and by the own card and the first action."""
    actions = env.options("builder_0")

    def reply(agent):
        mine, theirs = divmod(env.task, int(env.num_tasks**0.5))
        return actions[first[mine] if agent == "builder_0" else second[theirs, actions.index(env.said["builder_0"])]]

    return mean_return(env, range(env.num_tasks), reply)


@pytest.mark.parametrize("game", PUBLISHED)
def test_tiny_hanabi_is_solved_by_all_pairs_of_plans(game):
    pays = payoffs(game)
    cards, actions = range(len(pays)), range(len(pays[0][0]))
    known = list(itertools.product(cards, actions))  # what the second agent knows
    best, winners = {True: 0.0, False: 0.0}, []
    for first in itertools.product(actions, repeat=len(cards)):
        for plan in itertools.product(actions, repeat=len(known)):
            second = dict(zip(known, plan, strict=True))
            total = sum(pays[c][d][first[c]][second[d, first[c]]] for c in cards for d in cards) / len(cards) ** 2
            is_blind = all(second[card, said] == second[card, 0] for card, said in known)
            on_path = tuple(second[card, first[own]] for own, card in itertools.product(cards, cards))
            winners = [*(winners if total <= best[True] else []), *[(first, on_path)] * (total >= best[True])]
            best = {hears: max(best[hears], total if hears or is_blind else 0.0) for hears in best}
    top = max(pay for rows in pays for row in rows for cells in row for pay in cells)
    env = TinyHanabi(game)
    assert best[True] == pytest.approx(PUBLISHED[game])
    ceilings = {"optimum": best[True] / top, "silent": best[False] / top, "strangers": best[True] / top}
    assert env.ceilings() == pytest.approx(ceilings)
    assert len(set(winners)) == 1  # strangers with a best plan need no convention
    assert mean_return(env, range(env.num_tasks)) == pytest.approx(best[True] / top)
    assert mean_return(TinyHanabi(game, channel="silent"), range(env.num_tasks)) == pytest.approx(best[False] / top)
    rng = random.Random(0)
    first, second = [rng.choice(actions) for _ in cards], {each: rng.choice(actions) for each in known}
    total = sum(pays[c][d][first[c]][second[d, first[c]]] for c in cards for d in cards) / len(cards) ** 2
    assert hanabi_return(env, first, second) == pytest.approx(total / top)


@pytest.mark.parametrize(
    ("links", "num_agents", "num_messages"),
    [("all", 2, 1), ("all", 3, 0), ("ring", 5, 1), ("line", 4, 2), ("line", 4, 3), ("star", 4, 1), ("star", 4, 2)],
)
def test_profile_is_solved_by_who_can_know_which_clues(links, num_agents, num_messages):
    """With c clues, an agent is right with probability 1 / (K - c): the other options are equally likely."""
    env = Profile(num_agents=num_agents, num_options=4, num_messages=num_messages, links=links)
    edges = {
        "all": set(itertools.combinations(range(num_agents), 2)),
        "ring": {tuple(sorted((seat, (seat + 1) % num_agents))) for seat in range(num_agents)},
        "line": {(seat, seat + 1) for seat in range(num_agents - 1)},
        "star": {(0, seat) for seat in range(1, num_agents)},
    }[links]
    known = [set(range(seat, 3, num_agents)) for seat in range(num_agents)]
    values = []
    for _ in range(num_messages + 1):
        values.append(sum(1 / (4 - len(clues)) for clues in known) / num_agents)
        pairs = edges | {(other, one) for one, other in edges}
        known = [clues.union(*(known[b] for a, b in pairs if a == seat)) for seat, clues in enumerate(known)]
    assert env.ceilings() == pytest.approx({"optimum": values[-1], "silent": values[0], "strangers": values[-1]})
    for kwargs, value in (({}, values[-1]), ({"channel": "silent"}, values[0])):
        played = Profile(num_agents=num_agents, num_options=4, num_messages=num_messages, links=links, **kwargs)
        assert mean_return(played, range(400)) == pytest.approx(value, abs=0.05 if value < 1 else 1e-9)


def advice_pays(state, action, bias):
    return 1 - (action - state - bias) ** 2 / (7 + bias) ** 2, 1 - (action - state) ** 2 / 49


@pytest.mark.parametrize(
    ("bias", "loss", "num_cells"), [(0, 0, 8), (0.4, 0, 8), (0.6, 0.5, 4), (1, 0.5, 4), (2, 2.5, 2), (3, 5.5, 1)]
)
def test_advice_is_solved_by_all_monotone_equilibria(bias, loss, num_cells):
    """The adviser sends a cell of a partition; neither agent gains by a deviation, and no such pair earns more."""
    states = range(8)
    found = []
    for labels in itertools.product((0, 1), repeat=7):  # 1: a new cell starts
        cell_of = list(itertools.accumulate(labels, initial=0))
        cells = [[state for state in states if cell_of[state] == cell] for cell in range(cell_of[-1] + 1)]
        best = []
        for cell in cells:
            gains = [sum(advice_pays(state, action, bias)[1] for state in cell) for action in states]
            best.append([action for action in states if gains[action] >= max(gains) - 1e-12])
        for actions in itertools.product(*best):
            pays = [[advice_pays(state, action, bias)[0] for action in actions] for state in states]
            if all(pays[state][cell_of[state]] >= max(pays[state]) - 1e-12 for state in states):
                rewards = [advice_pays(state, actions[cell_of[state]], bias) for state in states]
                found.append((sum(map(sum, rewards)) / 16, len(cells), sum(49 * (1 - own) for _, own in rewards) / 8))
    value, count, decider_loss = max(found)
    silent = max(each for each in found if each[1] == 1)[0]
    optimum = sum(max(sum(advice_pays(state, action, bias)) for action in states) for state in states) / 16
    env = Advice(bias)
    assert (count, decider_loss) == (num_cells, pytest.approx(loss)) and len(env._best[True].cells) == num_cells
    assert env.ceilings() == pytest.approx({"optimum": optimum, "equilibrium": value, "silent": silent})
    assert mean_return(env, range(8)) == pytest.approx(value)
    assert mean_return(Advice(bias, channel="silent"), range(8)) == pytest.approx(silent)
    assert env.interests == ("mixed" if bias else "common")
    assert len({round(sum(advice_pays(state, action, bias)), 9) for state in states for action in states}) > 1
    believed = [returns(env, task, env.partners()["honest"]) for task in states]
    assert believed == [pytest.approx(advice_pays(task, task, bias)) for task in states]


def stage_equilibria(table):
    """Nash equilibria of a 2x2 game, found on a grid of mixed strategies that contains all of them."""
    chances = [numerator / 60 for numerator in range(61)]
    for row, column in itertools.product(chances, repeat=2):
        weights = {(a, b): (row, 1 - row)[a] * (column, 1 - column)[b] for a in (0, 1) for b in (0, 1)}
        mean = [sum(weight * table[cell][seat] for cell, weight in weights.items()) for seat in (0, 1)]
        own = [sum((column, 1 - column)[b] * table[a, b][0] for b in (0, 1)) for a in (0, 1)]
        other = [sum((row, 1 - row)[a] * table[a, b][1] for a in (0, 1)) for b in (0, 1)]
        if mean[0] >= max(own) - 1e-9 and mean[1] >= max(other) - 1e-9:
            yield sum(mean) / 2


@pytest.mark.parametrize("game", MATRIX_GAMES)
def test_matrix_games_are_solved_on_a_grid_of_strategies(game):
    env = MatrixGame(game, num_rounds=2)
    top = max(max(pays) for pays in env._table.values())
    best = max(sum(pays) for pays in env._table.values()) / 2 / top
    value = max(stage_equilibria(env._table)) / top
    assert env.ceilings() == pytest.approx({"optimum": best, "equilibrium of one round": value, "silent": best})
    assert mean_return(env, range(20)) == pytest.approx(best)
    interests = {"coordination": "common", "pennies": "opposed"}.get(game, "mixed")
    assert env.interests == interests
    if interests == "opposed":
        assert all(sum(returns(env, task)) == pytest.approx(1) for task in range(20))


@pytest.mark.parametrize(
    ("env", "num_tasks"), [(TinyHanabi(game), 36) for game in PUBLISHED] + [(Advice(1), 8), (MatrixGame("sexes"), 50)]
)
def test_empty_replies_earn_the_exact_return_of_random_actions(env, num_tasks):
    if isinstance(env, TinyHanabi):
        cells = [pay for rows in env._payoffs for row in rows for pairs in row for pay in pairs]
        exact, tasks = sum(cells) / len(cells) / env._top, range(env.num_tasks)
    elif isinstance(env, Advice):
        exact, tasks = sum(sum(advice_pays(s, a, 1)) for s in range(8) for a in range(8)) / 128, range(8)
    else:
        exact, tasks = sum(map(sum, env._table.values())) / 8 / 3, range(50)
    env.reset(seed=0)
    found = [mean_return(env, tasks, lambda agent: "") for _ in range(8000 // len(tasks) // env.max_turns)]
    assert sum(found) / len(found) == pytest.approx(exact, abs=0.03)


@pytest.mark.parametrize("channel", ["open", "silent"])
@pytest.mark.parametrize("env", [TinyHanabi, Profile, Advice, MatrixGame])
def test_teams_of_strangers_play_legal_actions(env, channel):
    env = env(channel=channel)
    names = env.partners()
    assert any(name.endswith("-held-out") for name in names) and any(not name.endswith("-held-out") for name in names)
    for name, seed in itertools.product(names, range(4)):
        env.reset(seed=seed)
        while env.agents:
            infos = env.step({agent: env.partners()[name](agent) for agent in env.movers})[4]
        assert infos[env.possible_agents[0]]["metric/bad"] == 0


def test_strangers_of_the_matrix_games_answer_a_deviation():
    """In the prisoner's dilemma, builder_1 defects in round 1 only."""
    env = MatrixGame("prisoner", num_rounds=3, num_messages=0)
    found = {}
    for name, reply in env.partners().items():
        env.reset(seed=0)
        for number in range(3):
            env.step({"builder_0": reply("builder_0"), "builder_1": env.options("builder_1")[number == 0]})
        found[name] = [own for own, _ in env._played]
    assert found == {"agreeable": [0, 0, 0], "safe": [1, 1, 1], "grim": [0, 1, 1], "forgiving-held-out": [0, 1, 0]}


def test_strangers_of_profile_send_their_clues_in_another_order_or_only_one():
    env = Profile(num_options=7)
    env.reset(seed=0)
    said = {name: reply("builder_0").split() for name, reply in env.partners().items()}
    first, second = env.known("builder_0")
    assert said == {"all": ["no", first, second], "brief": ["no", second], "reversed-held-out": ["no", second, first]}
