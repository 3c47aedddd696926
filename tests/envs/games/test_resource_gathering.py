"""ResourceGathering: two gatherers with different tools."""

import copy
import json
import random
from dataclasses import replace

import pytest
from replies import begun, rewards_of, share

from collm.envs.games.resource_gathering import Land, ResourceGathering, new_land
from collm.envs.games.resource_gathering.prompts import land, row
from collm.envs.games.resource_gathering.rules import Settings, beginning, steps_to_work, visible

# A at x=0 wants the wood at 7, B at x=8 the stone and iron at 1; each is 5 away from where it can take them.
STRIP = {"task_id": "strip", "goal": {"wood": 4, "stone": 3, "iron": 1}, "rows": ["A (0,3,2) . . . . . (4,0,0) B"]}


def strip(goal=None, **kwargs):
    env = ResourceGathering(data=[{**STRIP, "goal": goal or STRIP["goal"]}], **{"view": 2, "reach": 2, **kwargs})
    env.reset(seed=0)
    return env


def go(*xs, tell=()):
    facts = [{"x": x, "z": 0, "type": kind, "count": 9} for x, kind in tell]
    return json.dumps({"comm": {"resource_facts": facts} if facts else {}, "path": [[x, 0] for x in xs]})


STONE, IRON, WOOD = (1, "stone"), (1, "iron"), (7, "wood")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("", "", 0),
        (go(0, 1), "", 0.05),
        (go(0, 1, 2, 3, 4), "", 0.2),
        (go(0, 1, 2, 3, 4, 5), "", 0.2),
        (go(0, 1, 2, 3, 4), go(8, 7, 6, 5, 4), 0.4),
        (go(0, tell=[STONE]), "", 0.1),
        (go(0, tell=[IRON]), "", 0.1),
        (go(0, tell=[WOOD]), "", 0),
        (go(0, tell=[(1, "gold")]), "", 0),
        (go(0, tell=[STONE, IRON]), "", 0.1),
        ("", go(8, tell=[WOOD]), 0.1),
        (go(0, tell=[STONE]), go(8, 7, tell=[WOOD]), 0.25),
        (go(0, 2), go(8, 9), 0),
        (go(4), "", 0),
    ],
)
def test_first_turns_score_by_hand(first, second, expected):
    _, rewards, _, _, infos = strip().step({"gatherer_0": first, "gatherer_1": second})
    assert rewards["gatherer_0"] == rewards["gatherer_1"] == pytest.approx(expected, abs=1e-9)
    info = infos["gatherer_0"]
    assert sum(info[key] for key in info if key.startswith("reward/")) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("goal", "first", "second", "expected"),
    [
        (None, go(4, 5), "", 10 / 3 + 0.05 + 0.15),
        (None, "", go(4, 3), 20 / 3 + 0.05 + 0.15),
        (None, go(4, 5), go(4, 3), 10 + 4 + 0.1 + 0.3),
        ({"wood": 8, "stone": 3, "iron": 1}, go(4, 5), "", 10 / 6 + 0.2),
        ({"wood": 8, "stone": 6, "iron": 4}, go(4, 5), go(4, 3), 10 * 0.5 + 0.4),
        ({"wood": 3, "stone": 2, "iron": 8}, go(4, 5), go(4, 3), 10 * (1 + 1 + 0.25) / 3 + 0.4),
        (None, go(4, tell=[STONE]), "", 0),
        (None, go(4, 5, 6, 7, 8), "", 10 / 3 + 0.05 + 0.15),
    ],
)
def test_second_turns_score_by_hand(goal, first, second, expected):
    env = strip(goal)
    env.step({"gatherer_0": go(0, 1, 2, 3, 4, tell=[STONE]), "gatherer_1": go(8, 7, 6, 5, 4)})
    _, rewards, over, _, infos = env.step({"gatherer_0": first, "gatherer_1": second})
    assert rewards["gatherer_1"] == pytest.approx(expected, abs=1e-9)
    assert all(over.values()) == (infos["gatherer_0"]["metric/success"] == 1.0)


@pytest.mark.parametrize(("reward", "walked", "told"), [("bounded", 0.0, 0.1), ("reference", 5 * 0.05, 0.2)])
def test_walking_to_and_fro_and_telling_of_two_heaps_pay_twice_only_as_published(reward, walked, told):
    rows = ["A (0,9,1) (0,9,0) . . . . . . (4,0,0) B"]
    rich = {**STRIP, "rows": rows}
    walks = [go(0, 1), go(1, 0)] * 5
    tells = [go(0, tell=[(x, "stone")]) for x in (1, 2)]
    for land_row, replies, expected in ((STRIP, walks, walked), (rich, tells, told)):
        env = begun(ResourceGathering(data=[land_row], reward=reward, max_turns=10), seed=0)
        total = sum(env.step({"gatherer_0": reply, "gatherer_1": ""})[1]["gatherer_0"] for reply in replies)
        assert total == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("max_turns", [4, 60])
def test_no_walk_earns_more_than_the_bound_however_long(max_turns):
    """Random walkers and tellers: 14 for the goal, 0.3 for entries, 0.2 for facts, and the way from the starts."""
    rng = random.Random(max_turns)
    env = ResourceGathering(max_turns=max_turns, difficulty=2)
    for seed in range(15):
        env.reset(seed=seed)
        settings = Settings()
        bound = 14 + 0.3 + 0.2 + 0.05 * steps_to_work(env.task, beginning(env.task, settings), settings)
        total = 0.0
        while env.agents:
            replies = {}
            for agent in env.agents:
                heaps = [{"x": x, "z": z, "type": kind} for x, z in env.task.lies for kind in ("wood", "stone", "iron")]
                told = json.loads(env.reference_reply(agent))
                path = told["path"] if rng.random() < 0.3 else [[rng.randrange(7), rng.randrange(7)]]
                replies[agent] = json.dumps({"comm": {"resource_facts": rng.sample(heaps, 3)}, "path": path})
            total += env.step(replies)[1]["gatherer_0"]
        assert total <= bound + 1e-9


@pytest.mark.parametrize("settings", [{"difficulty": d} for d in range(1, 6)] + [{"split": "all", "data": "builtin"}])
def test_reference_gatherers_finish_every_land_and_progress_alone_is_worth_fourteen(settings):
    env = ResourceGathering(**settings, reward="progress")
    for task in range(100 if "difficulty" in settings else 10):
        assert sum(rewards_of(env, task=task)) == pytest.approx(14.0, abs=1e-9)
    env = strip(reward="progress")
    assert sum(rewards_of(env)) == pytest.approx(14.0, abs=1e-9) and env.turn == 3


@pytest.mark.parametrize("difficulty", range(1, 6))
def test_honest_gatherers_need_messages(difficulty):
    env = ResourceGathering(difficulty=difficulty)
    assert share(env, "talking", 25) == 1.0
    assert share(env, "silent", 25) < 0.5
    if difficulty in (1, 3, 5):  # who does not look goes half of the way at most
        shares = {name: share(env, name, 25) for name in env.exploits()}
        assert len(shares) >= 6 and max(shares.values()) <= 0.5


@pytest.mark.parametrize("name", ["silent", "talking"])
def test_honest_gatherers_read_nothing_hidden(name):
    env = ResourceGathering()
    for seed in range(10):
        env.reset(seed=seed)
        while env.agents:
            replies = {agent: env.honest_players()[name](agent) for agent in env.agents}
            for gatherer, agent in enumerate(env.agents):
                seen = visible(env.task, env._state, gatherer, Settings())
                told = {fact.cell for fact in env._state.told[gatherer]}
                lies = {cell: heap for cell, heap in env._state.lies.items() if cell in seen | told}
                other = copy.deepcopy(env)
                other._state = replace(env._state, lies=lies)
                assert other.honest_players()[name](agent) == replies[agent]
            env.step(replies)


def test_a_gatherer_sees_its_surroundings_hears_only_facts_and_takes_what_its_tools_fit():
    env = strip()
    observations, _ = env.reset(seed=0)
    assert "You see, as x z: 1 0 3 stone, 2 iron." in observations["gatherer_0"]
    assert "4 wood." in observations["gatherer_1"] and "stone." not in observations["gatherer_1"]
    observations = env.step({"gatherer_0": go(0, tell=[STONE]), "gatherer_1": go(8, tell=[(2, "wood")])})[0]
    assert observations["gatherer_1"].messages[-1].content.endswith("Your partner tells: 1 0 3 stone.")
    assert observations["gatherer_0"].messages[-1].content.endswith("Your partner tells: nothing.")
    env = strip()
    env.step({"gatherer_0": go(0, 1), "gatherer_1": go(8, 7)})
    assert env.step({"gatherer_0": "", "gatherer_1": ""})[4]["gatherer_0"]["metric/progress"] == 0.0


def test_the_truth_is_the_whole_world_and_tells_apart_lands_that_look_the_same():
    env = strip()
    assert env.truth().splitlines() == [
        "Gatherer 1 is at 0 0, gatherer 2 at 8 0.",
        "On the map, as x z: 1 0 3 stone, 2 iron; 7 0 4 wood.",
        "Have been at work: none. Usefulness told: 0.00 0.00.",
    ]
    env.step({"gatherer_0": go(0, 1, 2, 3, 4, tell=[STONE]), "gatherer_1": ""})
    env.step({"gatherer_0": go(4, 5), "gatherer_1": go(8, 7)})
    assert env.truth().splitlines() == [
        "Gatherer 1 is at 5 0, gatherer 2 at 7 0.",
        "On the map, as x z: 1 0 3 stone, 2 iron.",
        "Have been at work: gatherer 1. Usefulness told: 1.00 0.00.",
    ]
    far = {**STRIP, "rows": ["A . . . (0,3,2) . (4,0,0) . . . B"]}
    other = {**STRIP, "rows": ["A . . . (4,0,0) . (0,3,2) . . . B"]}
    envs = [ResourceGathering(data=[row], view=2) for row in (far, other)]
    assert envs[0].reset(seed=0) == envs[1].reset(seed=0) and envs[0].state() == envs[1].state()
    assert envs[0].truth() != envs[1].truth()


def test_splits_share_no_land_and_each_thing_lies_where_only_the_other_gatherer_sees_it():
    def content(split, count):
        lands = (new_land(seed, 1, split) for seed in range(count))
        return {(tuple(sorted(task.lies.items())), task.starts, task.goal) for task in lands}

    assert not content("train", 300) & content("test", 100)
    task = new_land(3, 4)
    assert land(json.loads(json.dumps(row(task)))) == task
    for seed in range(50):
        task = new_land(seed, 1 + seed % 5)
        state = beginning(task, Settings())
        for gatherer, kinds in enumerate(((0,), (1, 2))):
            own = {cell for cell, heap in task.lies.items() if any(heap[kind] for kind in kinds)}
            assert own <= visible(task, state, 1 - gatherer, Settings())
            assert not own & visible(task, state, gatherer, Settings())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": ["A . B", ". ."]}, r"length, got \[3, 2\]"),
        ({"rows": ["A x B"]}, "got 'x'"),
        ({"rows": ["A . ."]}, r"got \['A'\]"),
        ({"goal": {"wood": 0, "stone": 1, "iron": 1}}, "goal="),
        ({"goal": {"wood": "much", "stone": 1, "iron": 1}}, "strip: an amount of the goal must be a whole number"),
        ({"goal": {"wood": 1}}, "strip: rows must be"),
        ({"goal": 3}, "strip: rows must be"),
        ({"rows": 3}, "strip: rows must be"),
    ],
)
def test_a_malformed_land_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        land({**STRIP, **change})
    with pytest.raises(ValueError, match="on the map"):
        Land("wrong", 2, 2, {(2, 0): (1, 0, 0)}, ((0, 0), (1, 1)), (1, 1, 1))
