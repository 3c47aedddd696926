"""Games of two, three and four builders: references, the ends of episodes, and scores that two builders keep."""

import random

import numpy as np
import pytest
from replies import begun, references, steps_of

from collm.envs.games.house_build import HouseBuild, new_house
from collm.envs.games.mini_build import MiniBuild, demonstration
from collm.envs.games.pictures import LETTERS
from collm.envs.games.str_build import BLOCKS, StrBuild, score, word

PARTS = "wall roof door window floor stair tower gate bridge fence beam arch bench lamp shelf stove bed desk".split()
PARTS += "rug path well pond shed dome".split()
MATERIALS = "wood stone brick glass clay iron sand wool".split()
GAMES = (MiniBuild, StrBuild, HouseBuild)


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("team", [2, 3, 4])
def test_reference_teams_reach_the_maximum(game, team):
    best = {MiniBuild: 1.0, StrBuild: 4.0, HouseBuild: 4.0}[game]
    for seed in range(5):
        rewards = [step[1] for step in steps_of(game(num_agents=team), seed=seed)]
        totals = [sum(each[f"builder_{seat}"] for each in rewards) for seat in range(team)]
        assert totals == pytest.approx([best] * team, abs=1e-9)


def written(game, rng):
    """A reply made without the games' own code: mostly legal, and without what is read otherwise than before."""
    number = rng.randrange
    if game is MiniBuild:
        return f"{rng.choice(PARTS)} {rng.choice(MATERIALS)}"
    count = number(30)
    if game is StrBuild:
        kinds = ["oak_planks", "stone", "white_concrete", "obsidian", "air"]
        return "\n".join(f"/setblock {number(20)} {number(6)} 0 {rng.choice(kinds)}" for _ in range(count))
    kinds = "white_concrete obsidian stone_stairs stone_bricks planks bricks sandstone spruce_planks air".split()
    corners = [" ".join(str(number(7)) for _ in range(6)) for _ in range(count)]
    lines = [f"/fill {corner} {rng.choice(kinds)}" for corner in corners]
    return "\n".join([*lines, *["/kill"] * (rng.random() < 0.5)])


@pytest.mark.parametrize(
    ("game", "settings", "expected"),
    [
        (MiniBuild, {"reward": "dense"}, 0.75),
        (StrBuild, {"reward": "reference"}, -28.165713356273688),
        (HouseBuild, {"needs_both": False}, 24.94644638807904),
    ],
)
def test_two_builders_are_paid_what_they_were_paid_when_there_were_no_larger_teams(game, settings, expected):
    """The sums of 20 episodes of random replies at commit 542c54e."""
    rng, env, total = random.Random(1), game(**settings), 0.0
    for seed in range(20):
        env.reset(seed=seed)
        while env.agents:
            total += env.step({agent: written(game, rng) for agent in env.agents})[1]["builder_0"]
    assert total == pytest.approx(expected, abs=1e-9)


def test_goals_have_a_part_for_each_builder_and_stocks_a_share_of_the_house():
    for team, max_turns in ((2, 12), (3, 8), (4, 6), (8, 3)):
        env = begun(MiniBuild(num_agents=team, max_turns=max_turns), seed=0)
        assert len(env.goal) == team * max_turns
        with pytest.raises(ValueError, match=f"max_turns.*{max_turns}.*{team} builders"):
            MiniBuild(num_agents=team, max_turns=max_turns + 1)
    episode = demonstration(random.Random(0), num_agents=3, max_turns=4)
    assert list(episode) == ["builder_0", "builder_1", "builder_2"]
    assert len({messages[0].content.split(" goal ")[1] for messages in episode.values()}) == 1
    for team in (2, 3, 4, 6):
        task = new_house(3, num_builders=team)
        counts = np.bincount(task.target.ravel(), minlength=len(task.blocks))
        for block, stock in task.stock.items():
            n = int(counts[block])
            assert stock == -(-n // team) + n // (2 * team)
            assert max((task.owners[task.target == block] == i).sum() for i in range(team)) <= stock if n else True


def test_each_of_three_reads_of_the_moves_that_its_mode_allows():
    for feedback, told in [
        ("own", ["ok", "bad", "wrong"]),
        ("cross", ["bad wrong", "ok wrong", "ok bad"]),
        ("both", ["ok bad wrong", "bad ok wrong", "wrong ok bad"]),
        ("none", ["next"] * 3),
    ]:
        env = begun(MiniBuild(num_agents=3, max_turns=2, feedback=feedback), seed=0)
        (one, right), (other, material) = env.goal[:2]
        wrong = "wood" if material != "wood" else "stone"
        replies = dict(zip(env.agents, [f"{one} {right}", "hello", f"{other} {wrong}"], strict=True))
        observations = env.step(replies)[0]
        assert [observations[agent].messages[-1].content for agent in env.possible_agents] == told


@pytest.mark.parametrize("team", [3, 4, 5, 6])
def test_every_letter_that_has_the_cells_has_a_plan_with_all_blocks(team):
    for text in LETTERS:
        if sum(row.count("#") for row in word(text, "t", 1).rows) < 2 * team:
            with pytest.raises(ValueError, match=f"{2 * team} kinds"):
                word(text, "t", 1, team)
            continue
        task = word(text, "t", 1, team)
        assert score(task, task.plan).published == 2.0


@pytest.mark.parametrize("game", [StrBuild, HouseBuild])
@pytest.mark.parametrize("world", ["rebuilt", "kept"])
def test_who_is_done_leaves_and_what_it_built_stands_on(game, world):
    env = begun(game(num_agents=3, can_leave=True, world=world), seed=2)
    replies = references(env)
    observations, rewards, over, _, _ = env.step({**replies, "builder_1": replies["builder_1"] + "\n/done"})
    assert over == {"builder_0": False, "builder_1": True, "builder_2": False}
    assert env.agents == ["builder_0", "builder_2"]
    assert observations["builder_0"].endswith("Builder 2 is done.\n")
    assert "is done" not in observations["builder_1"].messages[-1].content
    best = rewards["builder_1"]
    again = env.step({agent: replies[agent] for agent in env.agents})[1]
    assert again == {"builder_0": pytest.approx(best), "builder_2": pytest.approx(best)}


def test_idle_builders_cost_a_quarter_of_a_word_and_an_episode_ends_when_all_have_left():
    env = begun(StrBuild(can_leave=True), seed=0)
    over = env.step(dict.fromkeys(env.agents, "/done"))[2]
    assert all(over.values()) and not env.agents
    env = StrBuild()
    assert "/done" not in env.reset(seed=0)[0]["builder_0"]
    infos = env.step(dict.fromkeys(env.agents, "/done"))[4]
    assert len(env.agents) == 2 and infos["builder_0"]["metric/rejected"] == 2
    task = word("ICML", "t", 4, 4)
    kinds = [block for palette in task.palettes for block in palette]
    assert len(set(kinds)) == 8
    assert [BLOCKS[block] for block in kinds[:4]] == ["oak_planks", "stone", "white_concrete", "obsidian"]
    first = StrBuild(num_agents=3).reset(seed=0)[0]["builder_1"]
    assert "builder 2 of a team of three" in first and "both" not in first.lower().split("each of you")[0]
    assert "builder 1 oak_planks, stone; builder 3 bricks, sandstone" in first
    env = begun(StrBuild(num_agents=4, reward="reference"), seed=0)
    assert env.step(dict.fromkeys(env.agents, ""))[1]["builder_3"] == -1.0
    replies = {agent: env.reference_reply(agent) if agent == "builder_2" else "" for agent in env.agents}
    assert env.step(replies)[4]["builder_0"]["reward/idle_palettes"] == -0.75
    env = HouseBuild(num_agents=4)
    alone = whole = 0.0
    for seed in range(10):
        env.reset(seed=seed)
        everything = "/kill\n" + "\n".join(env.reference_reply(agent) for agent in env.agents)
        whole += env.step(references(env))[4]["builder_0"]["metric/iou"]
        env.reset(seed=seed)
        replies = {agent: everything if agent == "builder_0" else "" for agent in env.agents}
        alone += env.step(replies)[4]["builder_0"]["metric/iou"]
    assert whole == 10 and alone < 5
