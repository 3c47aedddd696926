"""Games of OpenSpiel as text environments."""

import copy
import pickle
import random

import pytest

import collm
from collm._errors import UserError
from collm.envs import check_env, make

pyspiel = pytest.importorskip("pyspiel")


def played(env, seed, choose):
    """Play an episode and return (replies with their agents, return of each agent)."""
    env.reset(seed=seed)
    replies, returns = [], dict.fromkeys(env.possible_agents, 0.0)
    while env.agents:
        actions = {agent: choose(env.unwrapped.legal_replies(agent)) for agent in env.movers}
        replies += actions.items()
        for agent, reward in env.step(actions)[1].items():
            returns[agent] += reward
    return replies, returns


def test_the_prompt_has_the_players_own_information_and_the_legal_replies():
    env = make("open_spiel/kuhn_poker")
    observations, _ = env.reset(seed=0)
    assert env.possible_agents == ["player_0", "player_1"] and env.movers == ["player_0"]
    card = env.truth().split()[0]
    assert observations["player_0"] == f"kuhn_poker, player_0\n{card}\nLegal replies:\nPass\nBet\n"
    assert "Legal" not in observations["player_1"]
    observations, rewards, *_ = env.step({"player_0": " bet \n"})
    assert env.movers == ["player_1"] and set(rewards.values()) == {0.0}
    card = env.truth().split()[1]
    assert observations["player_1"] == f"kuhn_poker, player_1\n{card}b\nLegal replies:\nPass\nBet\n"
    _, rewards, terminations, *_ = env.step({"player_1": "pass"})
    assert rewards == {"player_0": 1.0, "player_1": -1.0} and all(terminations.values())


def test_an_illegal_reply_is_counted_and_plays_the_first_legal_action():
    env = make("open_spiel/kuhn_poker")
    env.reset(seed=0)
    *_, infos = env.step({"player_0": "raise everything"})
    assert env.truth().endswith("p") and infos["player_0"]["metric/illegal_replies"] == 1.0


def test_letter_case_is_ignored_unless_two_legal_replies_differ_only_in_case():
    env = make("open_spiel/chess")
    env.reset(seed=0)
    game = pyspiel.load_game("chess")
    env.unwrapped._state = game.new_initial_state("4k3/8/8/8/8/2n5/1P1B4/4K3 w - - 0 1")
    assert {"bxc3", "Bxc3"} <= set(env.unwrapped.legal_replies("player_1"))  # white
    env.movers = ["player_1"]
    env.step({"player_1": "bxc3"})
    assert env.truth().startswith("4k3/8/8/8/8/2P5")


@pytest.mark.parametrize(
    ("id", "interests", "num_players"),
    [
        ("open_spiel/kuhn_poker(players=3)", "opposed", 3),
        ("open_spiel/matrix_coordination", "common", 2),
        ("open_spiel/goofspiel(players=2,num_cards=3,points_order=descending)", "opposed", 2),
        ("open_spiel/bargaining", "mixed", 2),
    ],
)
def test_games_pay_the_returns_of_open_spiel(id, interests, num_players):
    env = make(id)
    game = pyspiel.load_game(id.removeprefix("open_spiel/"))
    assert (env.interests, len(env.possible_agents)) == (interests, num_players)
    rng = random.Random(0)
    for seed in range(20):
        _, returns = played(env, seed, rng.choice)
        final = pickle.loads(pickle.dumps(env.unwrapped._state))
        assert final.is_terminal() and list(returns.values()) == pytest.approx(final.returns())
        assert game.min_utility() <= min(returns.values()) and max(returns.values()) <= game.max_utility()


def test_the_seed_determines_the_chance_nodes_and_a_copy_continues_the_episode():
    env, other = make("open_spiel/leduc_poker"), make("open_spiel/leduc_poker")
    assert played(env, 3, min) == played(other, 3, min)
    env.reset(seed=5)
    env.step({"player_0": "Call"})
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        twin.step({"player_1": "Call"})
        assert "Round 2" in twin.state() and "Round 2" not in env.state()


def test_the_length_of_a_game_can_be_limited():
    env = make("open_spiel/tic_tac_toe", max_turns=2)
    assert len(played(env, 0, min)[0]) == 2 and env.max_turns == 2


@pytest.mark.parametrize(
    ("id", "said"),
    [
        ("open_spiel/kuhn_pokr", "did you mean 'kuhn_poker'"),
        ("open_spiel/kuhn_poker(cards=3)", "Unknown parameter 'cards'"),
        ("open_spiel/mfg_crowd_modelling", "turn-based or simultaneous"),
        ("open_spiel/tarok", "seed"),
        ("open_spiel/crossword", "legal actions"),
        ("open_spiel/nfg_game", "parameters: filename"),
        ("open_spiel/misere", "Missing parameter game; its parameters: game"),
    ],
)
def test_games_that_cannot_be_played_are_refused_in_one_line(id, said):
    with pytest.raises(UserError, match="open_spiel") as refused:
        make(id)
    assert said in str(refused.value) and "\n" not in str(refused.value)


UNPLAYABLE = {
    **dict.fromkeys(("bridge_uncontested_bidding", "negotiation", "stones_and_gems", "tarok"), "chance outcomes"),
    **dict.fromkeys(("cached_tree", "misere", "normal_form_extensive_game", "restricted_nash_response"), "parameters:"),
    **dict.fromkeys(("start_at", "turn_based_simultaneous_game", "zerosum", "add_noise"), "parameters:"),
    **dict.fromkeys(("repeated_game", "repeated_poker", "efg_game", "nfg_game"), "parameters: "),
    **dict.fromkeys(("mfg_crowd_modelling", "mfg_crowd_modelling_2d", "mfg_dynamic_routing"), "mean-field"),
    "mfg_garnet": "mean-field",
    "crossword": "legal actions",
}
"""Games of open_spiel 2.0.2 that cannot be played by their names alone, with a part of the reason."""


def test_exactly_the_games_that_are_known_to_be_unplayable_are_refused():
    refused = {}
    for name in pyspiel.registered_names():
        try:
            make(f"open_spiel/{name}")
        except UserError as error:
            refused[name] = str(error)
    assert refused.keys() == UNPLAYABLE.keys()
    assert all(UNPLAYABLE[name] in text and "\n" not in text for name, text in refused.items())


@pytest.mark.slow
def test_games_drawn_at_random_train(tmp_path):
    playable = sorted(set(pyspiel.registered_names()) - UNPLAYABLE.keys())
    for name in random.Random(0).sample(playable, 40):
        run = collm.train(
            "iac",
            f"open_spiel/{name}",
            num_updates=2,
            rollout_buffer_size=2,
            max_new_tokens=4,
            eval_interval=0,
            eval_num_samples=1,
            env_kwargs={"max_observation_length": 1200, "max_turns": 8},
            out=tmp_path / name,
            progress=False,
        )
        assert len(run.metrics) == 2


@pytest.mark.parametrize("id", ["kuhn_poker", "liars_dice(numdice=1,dice_sides=3)", "matrix_pd", "tic_tac_toe"])
def test_games_follow_the_rules_of_environments(id):
    check_env(f"open_spiel/{id}", hash_seeds=False)
