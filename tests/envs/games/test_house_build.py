"""HouseBuild: a house in layers."""

import json
from itertools import product

import numpy as np
import pytest
from replies import begun, rewards_of, share

from collm.envs.games.house_build import HouseBuild, house, houses, new_house

# 16 cells: 8 of C, 2 of O, 6 of air. A builder's stock as published: 4 + 2 of C, 1 of O.
HUT = {
    "task_id": "hut",
    "inventory": {"C": "white_concrete", "O": "obsidian", "A": "air"},
    "target_spec": {"layers": [{"y": 0, "rows": ["CCCC", "CCCC"]}, {"y": 1, "rows": ["OAAO", "AAAA"]}]},
}
FRONT, BACK = "/fill 0 0 0 3 0 0 white_concrete", "/fill 0 0 1 3 0 1 white_concrete"
TOP_LEFT, TOP_RIGHT = "/fill 0 1 0 0 1 0 obsidian", "/fill 3 1 0 3 1 0 obsidian"
EMPTY = 6 / 16


def hut(**kwargs):
    return begun(HouseBuild(data=[HUT], **{"needs_both": False, **kwargs}), seed=0)


@pytest.mark.parametrize(
    ("first", "second", "attacks", "published", "paper", "strict"),
    [
        ("", "", (2, 2, 2), EMPTY - 0.1, -0.2, -0.1),
        ("", "", (1, 1, 1), EMPTY - 0.06, -0.12, -0.06),
        ("", "", (), EMPTY, 0, 0),
        ("/kill", "", (2, 2, 2), EMPTY, 0, 0),
        ("/kill", "/kill @e", (2, 2, 2), EMPTY, 0, -0.01),
        (f"/kill\n{FRONT}", "", (3, 3, 3), 10 / 16, 2 * 4 / 10, 4 / 10),
        (f"{FRONT}\n{BACK}", "/kill", (3, 3, 3), 10 / 16, 2 * 4 / 10, 4 / 10),
        ("/fill 0 0 0 3 0 1 white_concrete", "/kill", (3, 3, 3), EMPTY, 0, 0),
        ("/fill 0 0 0 0 0 0 obsidian", "/kill", (3, 3, 3), EMPTY, 0, 0),
        ("/fill 0 1 1 0 1 1 white_concrete", "/kill", (3, 3, 3), 5 / 16, -1.5 / 6, 0),
        (FRONT, BACK, (1, 1, 3), 14 / 16 - 0.1, 2 * 8 / 10 - 0.2, 8 / 10 - 0.1),
        (FRONT, "/kill\n/fill 0 0 0 3 1 1 air", (3, 3, 3), EMPTY, 0, 0),
        (f"{FRONT}\n{TOP_LEFT}\n{TOP_RIGHT}", f"/kill\n{BACK}", (3, 3, 3), 15 / 16, 2 * 9 / 10, 9 / 10),
        (f"{FRONT}\n{TOP_LEFT}", f"/kill\n{BACK}\n{TOP_RIGHT}", (3, 3, 3), 1, 2, 1),
        (f"{FRONT}\n/fill 1 1 0 2 1 0 white_concrete", f"/kill\n{BACK}", (3, 3, 3), 12 / 16, 1.6 - 0.5, 8 / 12),
    ],
)
def test_partial_builds_score_by_hand(first, second, attacks, published, paper, strict):
    for reward, expected in (("reference", published), ("paper", paper), ("iou", strict)):
        env = hut(reward=reward, spider_attacks=attacks)
        _, rewards, _, _, infos = env.step({"builder_0": first, "builder_1": second})
        info = infos["builder_1"]
        assert rewards["builder_0"] == rewards["builder_1"] == pytest.approx(expected, abs=1e-9)
        assert info["metric/score"] == pytest.approx(published, abs=1e-9)
        assert sum(info[key] for key in info if key.startswith("reward/")) == pytest.approx(expected, abs=1e-9)


def test_the_benchmark_is_read_as_published_and_reference_players_reach_its_maximum(shared_data):
    benchmark = shared_data("minecraft/house_build.json")
    read = houses(str(benchmark), "all")
    airs = [int((task.target == 0).sum()) for task in read]
    assert [task.target.size for task in read] == [294] * 10
    assert airs == [row["count"]["A"] for row in json.loads(benchmark.read_text())]
    assert (min(airs), max(airs)) == (86, 146)
    assert [task.id for task in houses(str(benchmark), "test")] == ["house_build_0108", "house_build_0109"]
    assert len({task.target.tobytes() for task in read}) == 5
    assert read[0].stock == {1: 51, 2: 9, 3: 27, 4: 40, 5: 1}
    for world, (reward, best) in product(("rebuilt", "kept"), (("reference", 1), ("paper", 2), ("iou", 1))):
        env = HouseBuild("all", data=str(benchmark), world=world, reward=reward)
        for task in range(10):
            assert rewards_of(env, seed=task, task=task) == pytest.approx([best] * 4, abs=1e-9)


@pytest.mark.parametrize("difficulty", range(1, 6))
def test_reference_players_reach_the_maximum_on_a_thousand_generated_houses_and_on_the_sample(difficulty):
    env = HouseBuild(difficulty=difficulty, max_turns=1, reward="iou")
    for task in range(200):
        assert rewards_of(env, task=task) == pytest.approx([1], abs=1e-9)
    sample = HouseBuild("all", data="builtin")
    for task in (2 * difficulty - 2, 2 * difficulty - 1):
        assert rewards_of(sample, task=task) == pytest.approx([1] * 4, abs=1e-9)


def test_splits_share_no_house_and_one_builder_goes_further_only_with_the_published_stock():
    train = {new_house(seed, 1, "train").target.tobytes() for seed in range(500)}
    test = {new_house(seed, 1, "test").target.tobytes() for seed in range(200)}
    assert len(train) > 450 and not train & test
    sizes = [np.mean([(new_house(seed, d).target != 0).sum() for seed in range(30)]) for d in range(1, 6)]
    assert sizes == sorted(sizes)
    env = HouseBuild(needs_both=False)
    assert share(env, "one builds to its stock", 8) > 0.7
    assert "one builds to its stock" in env.allowed_exploits
    assert "one builds to its stock" not in HouseBuild().allowed_exploits
    env = hut(needs_both=True)
    assert env.task.stock == {1: 4, 2: 1}
    infos = env.step({"builder_0": f"{FRONT}\n/fill 0 0 1 0 0 1 white_concrete", "builder_1": ""})[4]
    assert (infos["builder_0"]["metric/accepted"], infos["builder_0"]["metric/rejected"]) == (1.0, 1.0)


def test_spiders_are_an_episodes_own_and_the_published_iou_counts_blocks_of_any_kind():
    env = hut()
    info = env.step({"builder_0": "/fill 0 0 0 0 0 0 obsidian", "builder_1": "/fill 1 1 0 1 1 0 obsidian"})[4]
    assert info["builder_0"]["metric/iou"] == pytest.approx(1 / 11, abs=1e-9)
    assert info["builder_0"]["metric/exact_iou"] == 0
    drawn = {env.reset(seed=seed)[0]["builder_0"].split("damage ")[1].split(",")[0] for seed in range(30)}
    assert len(drawn) > 5
    for world, second_damage in (("kept", 0.0), ("rebuilt", 1.0)):
        env = hut(world=world, spider_attacks=(5,))
        env.step({"builder_0": "/kill", "builder_1": ""})
        assert env.step({"builder_0": "", "builder_1": ""})[4]["builder_0"]["metric/damage"] == second_damage


@pytest.mark.parametrize(
    ("feedback", "first", "second"),
    [
        ("score", "Score 0.5250. 1 commands carried out.", "1 lines refused. The spiders took 100%"),
        ("perfect", "0 1 0 obsidian; 0 0 1 white_concrete", "3 1 0 obsidian; 1 0 1 white_concrete"),
        ("position", "0 1 0 obsidian; 3 1 0 obsidian; 0 0 0 white", "half of them (5)"),
        ("position_modification", "block: 0 0 1 white_concrete; 1 0 1 white_concrete.", "0 0 1 white_concrete"),
        ("rect_modification", f"{FRONT}\nTo mend, as y: x1 z1 x2 z2 block: 0: 0 0 3 1 white_concrete", "nothing"),
        ("resource_schedule", "left over: 2 white_concrete, 1 obsidian", "6 white_concrete, 1 obsidian"),
    ],
)
def test_feedback_tells_what_its_mode_allows(feedback, first, second):
    env = hut(feedback=feedback, feedback_limit=2, spider_attacks=(9,))
    observations = env.step({"builder_0": FRONT, "builder_1": "Done"})[0]
    assert first in observations["builder_0"].messages[-1].content
    assert second in observations["builder_1"].messages[-1].content
    if feedback == "resource_schedule":  # without a limit it ends with the largest part that the stock still allows
        told = hut(feedback=feedback).step({"builder_0": FRONT, "builder_1": ""})[0]
        assert told["builder_0"].messages[-1].content.endswith("1: 0 0 0 0 obsidian; 0: 0 0 1 0 white_concrete.")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inventory": {"C": "white_concrete", "O": "obsidian"}}, "no letter for air"),
        ({"target_spec": {"layers": [{"y": 0, "rows": ["CX"]}]}}, "outside the inventory"),
        ({"target_spec": {"layers": [{"y": 0, "rows": ["CC"]}, {"y": 2, "rows": ["CC"]}]}}, "consecutive y"),
        ({"target_spec": {"layers": [{"y": 0, "rows": ["CC", "C"]}]}}, "one size"),
        ({"target_spec": {"layers": [{"y": 0, "rows": ["AA"]}]}}, "only air"),
        ({"target_spec": {"layers": 1}}, "hut: target_spec"),
        ({"target_spec": 1}, "hut: target_spec"),
        ({"target_spec": {"layers": [{"rows": ["CC"]}]}}, "hut: a layer must have"),
        ({"target_spec": {"layers": [{"y": 0, "rows": [1]}]}}, "hut: a layer must have"),
        ({"inventory": 7}, "hut: inventory must map"),
        ({"bbox": {"from": [0, 0, 0], "to": [9, 9, 9]}}, "does not fit"),
    ],
)
def test_a_malformed_house_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        house({**HUT, **change})
