"""MiniBuild: two builders, one list of parts."""

import random
from itertools import product

import pytest
from replies import begun, steps_of

from collm.envs.games.mini_build import VOCABULARY, MiniBuild, demonstration, new_goal
from collm.envs.games.mini_build.prompts import parsed_move, prompt, reply
from collm.envs.games.mini_build.rules import MATERIALS, PARTS, Site, is_held_out, placed, quality

GOAL = (("roof", "wood"), ("wall", "stone"), ("door", "glass"), ("lamp", "iron"))


@pytest.mark.parametrize("reward", ["sparse", "terminal", "dense"])
@pytest.mark.parametrize("max_turns", [1, 4, 12])
@pytest.mark.parametrize("split", ["train", "test"])
def test_reference_players_reach_one(reward, max_turns, split):
    for task in range(20):
        steps = list(steps_of(MiniBuild(split, max_turns=max_turns, reward=reward), task=task))
        assert sum(rewards["builder_0"] for _, rewards, *_ in steps) == pytest.approx(1.0, abs=1e-9)
        assert steps[-1][4]["builder_0"]["metric/quality"] == 1.0


def test_partial_builds_score_by_hand():
    for moves, verdicts, score in [
        ([], [], 0.0),
        ([("roof", "wood")], ["ok"], 0.25),
        ([("roof", "stone")], ["wrong"], 0.0),
        ([("bed", "wood")], ["bad"], 0.0),
        ([None], ["bad"], 0.0),
        ([("roof", "wood"), ("roof", "wood")], ["ok", "taken"], 0.25),
        ([("roof", "stone"), ("roof", "wood")], ["wrong", "taken"], 0.0),
        ([("roof", "wood"), ("wall", "stone")], ["ok", "ok"], 0.5),
        ([("lamp", "iron"), ("door", "wood"), ("wall", "stone")], ["ok", "wrong", "ok"], 0.5),
        ([("lamp", "iron"), ("door", "glass"), ("wall", "stone")], ["ok", "ok", "ok"], 0.75),
        ([*GOAL], ["ok"] * 4, 1.0),
    ]:
        site, seen = Site(GOAL), []
        for move in moves:
            site, verdict = placed(site, move)
            seen.append(verdict)
        assert seen == verdicts
        assert quality(site) == pytest.approx(score, abs=1e-9)


def test_a_reply_names_exactly_one_part_and_one_material():
    for text in ("roof wood", "  Wood, for the ROOF!", "\x00 roof\nwood \ud7ff"):
        assert parsed_move(text) == ("roof", "wood")
    for text in ("", "roof", "wood", "roof wall wood", "roof wood stone", "roof roof wood", "rooftop wooden"):
        assert parsed_move(text) is None
    assert all(parsed_move(reply(pair)) == pair for pair in product(PARTS, MATERIALS))


HELD_OUT = [  # of the goals of one part, in the order of parts and materials
    *(0, 1, 6, 14, 17, 24, 25, 30, 32, 34, 35, 38, 44, 48, 52, 55, 58, 66, 69, 72, 82, 84, 92, 96, 99, 105, 112, 115),
    *(116, 122, 127, 134, 149, 153, 158, 164, 171, 172, 181),
]


def test_goals_have_each_part_once_and_those_that_are_held_out_stay_those():
    order = {(part, material): 8 * i + j for i, part in enumerate(PARTS) for j, material in enumerate(MATERIALS)}
    found = [i for (pair, i) in order.items() if is_held_out((pair,))]
    assert found == HELD_OUT
    assert set(new_goal(0, 1, "test")) <= {pair for pair, i in order.items() if i in HELD_OUT}
    train = {frozenset(new_goal(seed, 2, "train")) for seed in range(3000)}
    test = {frozenset(new_goal(seed, 2, "test")) for seed in range(1000)}
    assert not train & test
    assert is_held_out(GOAL) == is_held_out(GOAL[::-1])
    assert new_goal(7, 12) == new_goal(7, 12)
    assert new_goal(7, 12) != new_goal(8, 12)
    for num_pairs in (1, len(PARTS)):
        assert len({part for part, _ in new_goal(3, num_pairs)}) == num_pairs
    for num_pairs in (0, len(PARTS) + 1):
        with pytest.raises(ValueError, match="num_pairs must be 1 to 24"):
            new_goal(3, num_pairs)
    with pytest.raises(ValueError, match=r"max_turns=4.* 3 .*8 builders"):
        MiniBuild(num_agents=8, max_turns=4)
    assert len(MiniBuild(num_agents=8, max_turns=3).goal) == 24
    for task in ("roof", "3", 3.5, True, -1):
        with pytest.raises(ValueError, match=r"task=.*number"):
            MiniBuild().reset(options={"task": task})


def test_the_first_of_two_equal_moves_is_drawn_anew_and_repeats_are_told_from_collisions():
    env = MiniBuild(feedback="own")
    firsts = set()
    for seed in range(20):
        env.reset(seed=seed)
        move = reply(env.goal[0])
        observations = env.step({"builder_0": move, "builder_1": move})[0]
        words = tuple(observations[agent].messages[-1].content for agent in env.possible_agents)
        assert set(words) == {"ok", "taken"}
        firsts.add(words)
    assert len(firsts) == 2
    env = begun(MiniBuild(max_turns=4), seed=0)
    first, second, third = env.goal[:3]
    wasted = []
    for moves in [(first, second), (first, first), (first, second), (third, third)]:
        infos = env.step(dict(zip(env.possible_agents, map(reply, moves), strict=True)))[4]["builder_0"]
        wasted.append([infos[f"metric/{name}"] for name in ("taken", "own_repeats", "collisions")])
    assert wasted == [[0, 0, 0], [2, 1, 1], [2, 2, 0], [1, 0, 1]]


def test_sparse_reward_pays_at_the_threshold_and_only_at_the_end():
    env = MiniBuild(max_turns=5)
    for num_right, expected in [(6, 1.0), (5, 0.0)]:
        env.reset(seed=1)
        moves = [reply(pair) for pair in env.goal[:num_right]] + [""] * (10 - num_right)
        rewards = []
        while env.agents:
            at = 2 * env.turn
            rewards.append(env.step({"builder_0": moves[at], "builder_1": moves[at + 1]})[1]["builder_0"])
        assert rewards == [0, 0, 0, 0, expected]


def test_prompts_are_short_explained_or_given():
    for feedback in ("own", "cross", "both", "none"):
        for messages in demonstration(random.Random(5), feedback=feedback).values():
            assert {word for message in messages for word in message.content.split()} <= set(VOCABULARY)
    long = prompt(GOAL, 1, turns=2, feedback="cross", is_explained=True)
    assert long.endswith("\n" + prompt(GOAL, 1, turns=2, feedback="cross"))
    assert "2 turns" in long and "roof wood" in long
    env = MiniBuild(num_agents=3, max_turns=1, prompts={"system": "Short.", "prompt": "Seat {seat}: {goal}"})
    first = env.reset(seed=0)[0]["builder_2"]
    assert [message.content.split(":")[0] for message in first.messages] == ["Short.", "Seat 2"]
    assert " ".join(env.goal[0]) in first


def test_demonstrations_are_legal_and_far_from_perfect():
    rng = random.Random(0)
    qualities = []
    for _ in range(200):
        episode = demonstration(rng, feedback="own")
        texts = [message.content for messages in episode.values() for message in messages if message.role == "user"]
        replies = [message for messages in episode.values() for message in messages if message.role == "assistant"]
        assert len(replies) == 12 and all(parsed_move(message.content) for message in replies)
        qualities.append(texts.count("ok") / 12)
    assert 0.4 < sum(qualities) / 200 < 0.6
    for preference in 15 * [(0.0, 0.0), (1.0, 1.0)]:  # players who make no mistake never name a part twice
        for messages in demonstration(rng, max_turns=8, preference=preference, mistakes=(0.0, 0.0)).values():
            parts = [message.content.split()[0] for message in messages if message.role == "assistant"]
            assert len(set(parts)) == len(parts) == 8
