"""TinyHanabi and MatrixGame pay as the games of OpenSpiel do."""

import random

import pytest

from collm.envs.games.talk import MatrixGame, TinyHanabi

pyspiel = pytest.importorskip("pyspiel")
NUM_PLAYTHROUGHS = 10_000
NAMES = {
    "prisoner": "pd",
    "stag": "sh",
    "chicken": "cd",
    "sexes": "bos",
    "pennies": "mp",
    "coordination": "coordination",
}


@pytest.mark.slow
@pytest.mark.parametrize("game", "ABCDEF")
def test_tiny_hanabi_pays_as_open_spiel(game):
    env = TinyHanabi(game)
    num_cards, actions = int(env.num_tasks**0.5), env.options("builder_0")
    parameters = {"num_chance": num_cards, "num_actions": len(actions)}
    if game != "E":  # the default of OpenSpiel
        cells = [pay for rows in env._payoffs for row in rows for pairs in row for pay in pairs]
        parameters["payoff"] = ";".join(map(str, cells))
    theirs, rng = pyspiel.load_game("tiny_hanabi", parameters), random.Random(0)
    for _ in range(NUM_PLAYTHROUGHS):
        history = [rng.randrange(num_cards), rng.randrange(num_cards), *rng.choices(range(len(actions)), k=2)]
        state = theirs.new_initial_state()
        for action in history:
            state.apply_action(action)
        env.reset(options={"task": history[0] * num_cards + history[1]})
        env.step({"builder_0": actions[history[2]]})
        rewards = env.step({"builder_1": actions[history[3]]})[1]
        assert [pay * env._top for pay in rewards.values()] == pytest.approx(state.returns())


@pytest.mark.slow
@pytest.mark.parametrize("game", NAMES)
def test_matrix_games_pay_as_open_spiel(game):
    theirs, rng = pyspiel.load_game(f"matrix_{NAMES[game]}"), random.Random(0)
    low, high = theirs.min_utility(), theirs.max_utility()
    env = MatrixGame(game, num_rounds=1, num_messages=0)
    for _ in range(NUM_PLAYTHROUGHS):
        actions = rng.choices(range(2), k=2)
        state = theirs.new_initial_state()
        state.apply_actions(actions)
        env.reset(options={"task": rng.randrange(1000)})
        rewards = env.step({agent: env.options(agent)[a] for agent, a in zip(env.agents, actions, strict=True)})[1]
        assert list(rewards.values()) == pytest.approx([(pay - low) / (high - low) for pay in state.returns()])
