"""Settings of games, and where tasks come from: numbers, splits and ranges of difficulty."""

import json
import re
from collections import Counter

import pytest
from replies import begun

from collm.envs import make
from collm.envs.games.bridge_build import BridgeBuild
from collm.envs.games.house_build import HouseBuild
from collm.envs.games.resource_gathering import ResourceGathering
from collm.envs.games.str_build import StrBuild

GAMES = (StrBuild, HouseBuild, BridgeBuild, ResourceGathering)


@pytest.mark.parametrize("game", GAMES)
def test_a_range_of_difficulties_is_dealt_evenly_and_of_one_nothing_changes(game):
    env, counts = game(difficulty="1-3"), Counter()
    for seed in range(60):
        env.reset(seed=seed)
        counts[env.task.id.split("-")[1]] += 1
    assert set(counts) == {"1", "2", "3"} and min(counts.values()) > 8
    one, same = game(difficulty=2), game(difficulty="2-2")
    for seed in range(3):
        assert one.reset(seed=seed) == same.reset(seed=seed)
    env = game(difficulty="1-2")
    for task in (-1, -7, 2.0, True, "3"):
        with pytest.raises(ValueError, match="task"):
            env.reset(options={"task": task})
    for difficulty in ("0-2", "3-2", "1-9", "2-", "hard", "1-2-3", 2.5, True, None):
        if game in (StrBuild, HouseBuild):
            with pytest.raises(ValueError, match=r"difficulty=\S+"):
                game(difficulty=difficulty)


def test_a_number_names_the_same_task_of_a_range_each_time():
    env = StrBuild(difficulty="2-4")
    texts = []
    for task in (0, 1, 2, 3, 0):
        env.reset(seed=task, options={"task": task})
        texts.append(env.task.text)
    assert [len(text) for text in texts] == [2, 3, 4, 2, 2] and texts[0] == texts[4]
    env = begun(StrBuild(difficulty=3), seed=0, options={"task": 1})
    assert env.task.text == texts[1]


LAYERS = [{"y": 0, "rows": ["CC", "CC"]}]
GOOD = {
    StrBuild: {"string": "I", "difficulty": 1},
    HouseBuild: {"task_id": "hut", "inventory": {"C": "stone", "A": "air"}, "target_spec": {"layers": LAYERS}},
    BridgeBuild: {"task_id": "strait", "map": ["S.T"]},
    ResourceGathering: {"task_id": "strip", "goal": {"wood": 1, "stone": 1, "iron": 1}, "rows": ["A (1,1,1) B"]},
}
BAD = {
    StrBuild: {"difficulty": "hard"},
    HouseBuild: {"target_spec": {"layers": [{"y": 0, "rows": ["CX"]}]}},
    BridgeBuild: {"map": ["S?T"]},
    ResourceGathering: {"rows": ["A x B"]},
}


@pytest.mark.parametrize("game", GAMES)
def test_a_row_that_is_no_task_is_refused_with_its_file_and_number(game, tmp_path):
    path = tmp_path / "rows.json"
    rows = [GOOD[game], {**GOOD[game], **BAD[game], "task_id": "wrong"}]
    path.write_text(json.dumps(rows))
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}.*row 2: "):
        game("all", data=str(path))
    with pytest.raises(ValueError, match=r"given list.*row 2: "):
        game("all", data={"train": rows[:1], "test": rows})


@pytest.mark.parametrize("game", GAMES)
def test_an_episode_may_ask_for_a_difficulty_and_tells_the_one_that_it_has(game):
    env = game(difficulty=1)
    hardest = env.metadata["highest_difficulty"]
    for asked, found in ((None, {1}), (2, {2}), ("2-3", {2, 3}), (hardest, {hardest}), (None, {1})):
        dealt = set()
        for task in range(6):
            env.reset(seed=0, options={"task": task, "difficulty": asked})
            *_, infos = env.step(dict.fromkeys(env.agents, ""))
            told = {info["metric/difficulty"] for info in infos.values()}
            assert told == {env.task.difficulty} and env.task.id == f"train-{env.task.difficulty}-{task}"
            dealt |= told
        assert dealt == found
    same = game(difficulty="2-3")
    assert env.reset(seed=7, options={"difficulty": "2-3"}) == same.reset(seed=7)
    with pytest.raises(ValueError, match=r"difficulty=\S+"):
        env.reset(seed=0, options={"difficulty": hardest + 1})


@pytest.mark.parametrize("game", GAMES)
def test_lists_are_not_dealt_by_difficulty_and_the_reference_alone_succeeds(game):
    env = game(data="builtin")
    assert "highest_difficulty" not in env.metadata
    with pytest.raises(ValueError, match="difficulty="):
        env.reset(seed=0, options={"difficulty": 2})
    env.reset(seed=0)
    *_, infos = env.step(dict.fromkeys(env.agents, ""))
    assert ("metric/difficulty" in infos[env.possible_agents[0]]) == (game is StrBuild)  # whose rows say it
    for reply, wanted in ((lambda env, agent: env.reference_reply(agent), 1.0), (lambda env, agent: "", 0.0)):
        env = begun(game(), seed=3)
        success = 0.0
        while env.agents:
            *_, infos = env.step({agent: reply(env, agent) for agent in env.agents})
            success = max(success, *(info["metric/success"] for info in infos.values()))
        assert success == wanted


WRONG = {
    "collm/BridgeBuild-v2": [
        *({"feedback": "all"}, {"reward": "iou"}, {"reach": "bank"}, {"view": -1}, {"difficulty": 6}),
        {"split": "valid"},
    ],
    "collm/HouseBuild-v2": [
        *({"split": "valid"}, {"difficulty": 0}, {"world": "new"}, {"reward": "released"}, {"feedback": "none"}),
        *({"feedback_limit": 0}, {"spider_attacks": [1, -1]}),
    ],
    "collm/MiniBuild-v0": [
        *({"split": "valid"}, {"max_turns": 13}, {"max_turns": 0}, {"reward": "thresh"}, {"feedback": "all"}),
        *({"threshold": 0.0}, {"max_turns": 1, "num_agents": 1}, {"max_turns": 1, "num_agents": 9}),
        *({"max_turns": 1, "num_agents": True}, {"num_agents": 8, "max_turns": 4}),  # there are 24 parts
    ],
    "collm/MiniShift-v0": [
        *({"split": "valid"}, {"max_turns": 0}, {"reward": "thresh"}, {"feedback": "all"}, {"threshold": 1.5}),
        *({"num_agents": 1}, {"num_agents": 9}, {"num_agents": True}),
    ],
    "collm/ResourceGathering-v2": [{"reward": "iou"}, {"feedback": "all"}, {"reach": -1}, {"difficulty": 0}],
    "collm/StrBuild-v2": [
        *({"split": "valid"}, {"split": "all"}, {"difficulty": 9}, {"difficulty": True}, {"world": "new"}),
        *({"reward": "paper"}, {"feedback": "none"}),
    ],
}
"""Settings by game; the last one of each dictionary is wrong."""


@pytest.mark.parametrize("id", WRONG)
def test_wrong_settings_are_refused(id):
    for kwargs in WRONG[id]:
        name, value = list(kwargs.items())[-1]
        with pytest.raises(ValueError, match=rf"\b{name}\b.*{re.escape(repr(value))}"):
            make(id, **kwargs)
