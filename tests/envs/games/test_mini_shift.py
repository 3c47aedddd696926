"""MiniShift: a new list of parts every turn, and nothing but the dividing of it."""

import itertools
import random

import pytest
from replies import begun, steps_of

from collm.envs.checks.exploits import exploit_standings
from collm.envs.games.mini_build import VOCABULARY, MiniBuild
from collm.envs.games.mini_build.prompts import parsed_move, reply
from collm.envs.games.mini_shift import MiniShift, demonstration, new_shift
from collm.envs.games.mini_shift.prompts import prompt


def turn(env, *moves):
    """A joint turn: the pairs that builders name, or None for silence; everything that `step` returns."""
    actions = {agent: reply(move) if move else "" for agent, move in zip(env.possible_agents, moves, strict=True)}
    return env.step(actions)


def team_return(env, plays, seed=0):
    """The return of an episode in which each turn's moves are given as places of the offer, by seat."""
    env.reset(seed=seed)
    return sum(turn(env, *(env.offer.pairs[place] for place in places))[1]["builder_0"] for places in plays)


@pytest.mark.parametrize("reward", ["sparse", "terminal", "dense"])
@pytest.mark.parametrize("team", [2, 4])
@pytest.mark.parametrize("is_shuffled", [False, True])
def test_reference_players_reach_one(reward, team, is_shuffled):
    for task in range(3):
        env = MiniShift("test", num_agents=team, max_turns=12, reward=reward, is_shuffled=is_shuffled)
        steps = list(steps_of(env, task=task))
        assert sum(rewards["builder_1"] for _, rewards, *_ in steps) == pytest.approx(1.0, abs=1e-9)
        assert steps[-1][4]["builder_0"]["metric/quality"] == 1.0


def test_moves_are_judged_by_this_turn_s_offer_alone():
    env = begun(MiniShift(feedback="own", max_turns=8), seed=0)
    old = env.offer.pairs
    verdicts = []

    def play(*moves):
        observations, _, _, _, infos = turn(env, *moves)
        verdicts.append([str(observations[agent].messages[-1].content).split()[0] for agent in env.agents])
        return infos["builder_0"]

    assert play(*old)["metric/ok"] == 2.0
    assert all(pair[0] not in dict(env.offer.pairs) for pair in old), "of this seed: nothing is offered twice in a row"
    assert play(old[0], None)["metric/bad"] == 2.0
    first, second = env.offer.pairs
    infos = play(second, second)
    assert (infos["metric/ok"], infos["metric/taken"], infos["metric/collisions"]) == (1.0, 1.0, 1.0)
    first, second = env.offer.pairs
    wrong = first[0], next(material for material in ("wood", "stone") if material != first[1])
    infos = play(wrong, second)
    assert (infos["metric/wrong"], infos["metric/ok"], infos["reward/quality_gain"]) == (1.0, 1.0, 1 / 16)
    assert infos["metric/quality"] == (2 + 0 + 1 + 1) / 16
    assert verdicts[:2] == [["ok", "ok"], ["bad", "bad"]] and verdicts[3] == ["wrong", "ok"]
    assert sorted(verdicts[2]) == ["ok", "taken"]


def test_after_a_turn_builders_read_what_their_mode_allows_and_the_next_list():
    for feedback, first, second in [
        ("own", "ok", "bad"),
        ("cross", "bad", "ok"),
        ("both", "ok bad", "bad ok"),
        ("none", "next", "next"),
    ]:
        env = begun(MiniShift(feedback=feedback, max_turns=2), seed=0)
        observations = turn(env, env.offer.pairs[1], None)[0]
        listed = " ".join(f"{part} {material}" for part, material in env.offer.pairs)
        assert observations["builder_0"].messages[-1].content == f"{first} goal {listed}"
        assert observations["builder_1"].messages[-1].content == f"{second} goal {listed}"
        observations = turn(env, env.offer.pairs[1], None)[0]
        assert observations["builder_0"].messages[-1].content == first, "after the last turn there is no list"


def test_sparse_reward_pays_at_the_threshold_and_only_at_the_end():
    """0.85 of 16 parts are 13.6: two collisions are forgiven, and three are not."""
    divided, collision = (0, 1), (1, 1)
    for num_collisions, paid in [(0, 1.0), (2, 1.0), (3, 0.0)]:
        plays = [*[collision] * num_collisions, *[divided] * (8 - num_collisions)]
        assert team_return(MiniShift(), plays) == paid
        quality = (16 - num_collisions) / 16
        assert team_return(MiniShift(reward="terminal"), plays) == pytest.approx(quality)
        assert team_return(MiniShift(reward="dense"), plays) == pytest.approx(quality)


def test_splits_share_no_offer_and_lists_differ_in_their_order_alone():
    def offers(split):
        shifts = [new_shift(number, num_builders=2, num_turns=8, split=split) for number in range(300)]
        return {frozenset(offer.pairs) for shift in shifts for offer in shift}

    assert not offers("train") & offers("test")
    ordered = new_shift(3, num_builders=3, num_turns=12)
    shuffled = new_shift(3, num_builders=3, num_turns=12, is_shuffled=True)
    assert ordered[:5] == new_shift(3, num_builders=3, num_turns=5)
    assert [offer.pairs for offer in ordered] == [offer.pairs for offer in shuffled]
    assert all(set(offer.lists) == {offer.pairs} for offer in ordered)
    assert all(sorted(each) == sorted(offer.pairs) for offer in shuffled for each in offer.lists)
    places = [tuple(offer.pairs.index(pair) for pair in each) for offer in shuffled for each in offer.lists]
    assert len(set(places)) == 6, "all orders of three come up in 36 lists"


@pytest.mark.parametrize("reward", ["sparse", "terminal"])
@pytest.mark.parametrize(("team", "turns", "threshold"), [(2, 3, 0.85), (2, 2, 0.75), (3, 2, 0.6)])
def test_ceilings_are_what_all_plays_of_the_game_come_to(reward, team, turns, threshold):
    env = MiniShift(num_agents=team, max_turns=turns, reward=reward, threshold=threshold)
    of_turn = list(itertools.product(range(team), repeat=team))
    drawn = [team_return(env, plays) for plays in itertools.product(of_turn, repeat=turns)]
    by_lot = [team_return(env, [places] * turns) for places in of_turn]
    memoryless, conventionless, lot = env.ceilings().values()
    assert memoryless == team_return(env, [tuple(range(team))] * turns) == 1.0
    assert conventionless == pytest.approx(sum(drawn) / len(drawn))
    assert lot == pytest.approx(sum(by_lot) / len(by_lot))
    by_hand = (28 + 8 + 1) / 256  # at least six of eight lists
    assert list(MiniShift().ceilings().values())[1] == pytest.approx(by_hand)


@pytest.mark.parametrize("reward", ["sparse", "terminal"])
def test_the_ceilings_of_mini_build_are_what_all_plays_of_the_game_come_to(reward):
    env = MiniBuild(max_turns=2, reward=reward, threshold=0.75)

    def mean(places):
        total, number = 0.0, 0
        for first, second in itertools.product(*places):
            env.reset(seed=0)
            for one, other in zip(first, second, strict=True):
                earned = turn(env, env.goal[one], env.goal[other])[1]["builder_0"]
            total, number = total + earned, number + 1
        return total / number

    def twice(places):
        return list(itertools.product(places, repeat=2))

    no_memory = mean([twice((0, 1)), twice((2, 3))])
    no_convention = mean([list(itertools.permutations(range(4), 2))] * 2)
    neither = mean([twice(range(4))] * 2)
    assert list(env.ceilings().values()) == pytest.approx([no_memory, no_convention, neither])


def test_no_exploit_comes_far_even_where_parts_of_the_work_are_paid():
    for kwargs in ({"reward": "terminal"}, {"reward": "terminal", "is_shuffled": True}):
        standings = exploit_standings(MiniShift(max_turns=3, **kwargs), num_episodes=2)
        assert [each.player for each in standings if each.is_too_good] == []
        found = {each.player: each.mean_return for each in standings}
        assert found["first of the list"] == pytest.approx(0.5)
        assert found["the whole list"] == 0.0


def test_prompts_are_words_of_mini_build_and_the_picture_shows_the_whole_shift():
    for feedback in ("own", "cross", "both", "none"):
        episode = demonstration(random.Random(5), num_agents=4, feedback=feedback, is_shuffled=True)
        for messages in episode.values():
            assert {word for message in messages for word in message.content.split()} <= set(VOCABULARY)
    pairs = (("roof", "wood"), ("wall", "stone"), ("door", "glass"))
    short = prompt(pairs, 1, turns=5, feedback="cross", num_builders=3)
    assert short == "builder 1 goal roof wood wall stone door glass"
    long = prompt(pairs, 1, turns=5, feedback="cross", num_builders=3, is_explained=True, is_shuffled=True)
    assert long.endswith("\n" + short) and "5 turns" in long and "order of its own" in long and "taken" in long
    env = MiniShift(prompts={"system": "Short.", "prompt": "Seat {seat}: {offer}"})
    first = env.reset(seed=0)[0]["builder_1"]
    assert [message.content.split(":")[0] for message in first.messages] == ["Short.", "Seat 1"]
    assert " ".join(env.offer.pairs[0]) in first
    env = begun(MiniShift(max_turns=2), seed=1)
    turn(env, env.offer.pairs[0], env.offer.pairs[0])
    target, built = env.panels()
    assert len(target.layers[0][0]) == len(built.layers[0][0]) == 4
    equal = [cell == wanted for cell, wanted in zip(built.layers[0][0], target.layers[0][0], strict=True)]
    assert equal == [True, False, False, False]


def test_demonstrations_know_the_materials_and_do_not_divide():
    rng = random.Random(0)
    counts: dict[str, int] = dict.fromkeys(("ok", "taken", "wrong", "bad"), 0)
    for _ in range(100):
        for messages in demonstration(rng, feedback="own").values():
            replies = [message.content for message in messages if message.role == "assistant"]
            assert len(replies) == 8 and all(parsed_move(each) for each in replies)
            for message in messages[2::2]:
                counts[message.content.split()[0]] += 1
    total = sum(counts.values())
    assert total == 1600
    assert 0.2 < counts["taken"] / total < 0.28, "collisions in almost half of the turns, each wastes one move of two"
    assert 0.01 < (counts["wrong"] + counts["bad"]) / total < 0.05
