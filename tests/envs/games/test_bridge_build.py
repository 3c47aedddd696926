"""BridgeBuild: a bridge from two banks."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collm.envs.games.bridge_build import Bridge, BridgeBuild, new_bridge
from collm.envs.games.bridge_build.rules import MAX_COMMANDS, beginning, missing

ROWS = ["##S##", ".....", ".Y.N.", ".....", "##T##"]
BY_THE_WEST = ["/fill 1 1 2 1 oak_planks", "/fill 1 3 2 3 oak_planks"]


@pytest.fixture
def strait(tmp_path):
    """An environment of one small map, with a true pillar to the west and a false one to the east."""
    path = tmp_path / "maps.json"
    path.write_text(json.dumps([{"task_id": "strait", "map": ROWS}]))

    def made(**kwargs):
        env = BridgeBuild("all", data=str(path), **kwargs)
        env.reset(seed=0)
        return env

    return made


def act(*cmds, comm="", probe=(), path=()):
    return json.dumps({"comm": comm, "probe": list(probe), "cmds": list(cmds), "path": list(path)})


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("", "", -7),
        (act("/fill 2 1 2 3 oak_planks"), "", -1),
        (act("/fill 2 1 2 1 oak_planks"), "", -7),
        (act("/fill 1 1 1 1 oak_planks"), "", -5),
        (act("/fill 3 1 3 1 oak_planks"), "", -8),
        (act(*BY_THE_WEST), "", 0),
        (act(BY_THE_WEST[0]), act(BY_THE_WEST[1], probe=[[3, 2]]), -0.3),
        (act(probe=[[1, 2], [3, 2]]), "", -7.6),
        (act(probe=[[1, 2], [1, 2], [3, 2]]), "", -7.6),
        (act(probe=[[9, 9], "x"]), "", -7),
        (act(comm="two words!"), act(comm="ok"), -7.004),
        (act(*BY_THE_WEST), act("/fill 0 0 4 4 air"), -7),
        (act("/fill 1 2 1 2 oak_planks"), act("/fill 3 2 3 2 oak_planks"), -7),
        (act("/fill 4 4 0 0 oak_planks"), "", -1),
        (act("/fill 0 0 4 5 oak_planks", "/fill 0 0 1 oak_planks", "/fill 2 1 2 3 stone"), "", -7),
    ],
)
def test_partial_builds_score_by_hand(strait, first, second, expected):
    env = strait()
    _, rewards, over, _, infos = env.step({"worker_0": first, "worker_1": second})
    assert rewards["worker_0"] == rewards["worker_1"] == pytest.approx(expected, abs=1e-9)
    info = infos["worker_0"]
    assert sum(info[key] for key in info if key.startswith("reward/")) == pytest.approx(expected, abs=1e-9)
    assert over["worker_0"] == (info["metric/connected"] == 1.0)


def test_the_plan_of_the_strait_by_hand():
    plan = Bridge("strait", tuple(ROWS)).plan
    assert len(plan) == 4 and {(1, 1), (1, 3)} <= plan
    assert not plan & {(3, 1), (3, 3), (2, 2), (4, 2)}


@pytest.mark.parametrize("difficulty", range(1, 6))
def test_reference_workers_lose_nothing_on_a_thousand_generated_maps(difficulty):
    env = BridgeBuild(difficulty=difficulty)
    for task in range(200):
        env.reset(seed=0, options={"task": task})
        _, rewards, over, _, _ = env.step({agent: env.reference_reply(agent) for agent in env.agents})
        assert rewards["worker_0"] == 0.0 and all(over.values())


def test_reference_workers_lose_nothing_on_the_sample():
    env = BridgeBuild("all", data="builtin")
    for task in range(10):
        env.reset(seed=0, options={"task": task})
        assert env.step({agent: env.reference_reply(agent) for agent in env.agents})[1]["worker_1"] == 0.0


def test_reference_workers_clear_what_is_in_the_way(strait):
    env = strait()
    env.step({"worker_0": act("/fill 3 1 3 1 oak_planks"), "worker_1": ""})
    assert env.step({agent: env.reference_reply(agent) for agent in env.agents})[1]["worker_0"] == 0.0


def test_splits_share_no_map():
    train = {new_bridge(seed, 1, "train").rows for seed in range(300)}
    test = {new_bridge(seed, 1, "test").rows for seed in range(100)}
    assert not train & test


def test_a_generated_plan_fits_the_limit_of_commands():
    for seed in range(50):
        bridge = new_bridge(seed, 5)
        assert all(len(missing(bridge, beginning(bridge), worker)) <= MAX_COMMANDS // 2 for worker in (0, 1))


def test_a_worker_sees_only_near_where_it_has_been(strait):
    env = strait(view=1)
    assert "??S" not in env.reset(seed=0)[0]["worker_0"]
    assert env.reset(seed=0)[0]["worker_0"].splitlines()[-7:-2] == ["?#S#?", "?...?", "?????", "?????", "??T??"]
    observations = env.step({"worker_0": act(path=[[2, 0], [2, 1]]), "worker_1": ""})[0]
    assert "You are at 2 1.\n?#S#?\n?...?\n?P.P?\n" in observations["worker_0"].messages[-1].content


def test_a_probe_is_known_to_the_one_who_made_it_and_a_message_to_the_other(strait):
    env = strait()
    observations = env.step({"worker_0": act(probe=[[3, 2], [0, 0]], comm="3 2 is N\nIgnore"), "worker_1": ""})[0]
    assert "Probed: 0 0 is no pillar; 3 2 is a false pillar." in observations["worker_0"]
    assert ".P.N." in observations["worker_0"].messages[-1].content
    heard = observations["worker_1"].messages[-1].content
    assert heard.endswith("Your partner says: 3 2 is N Ignore") and "Probed: nothing" in heard


def test_commands_beyond_a_workers_half_are_refused(strait):
    env = strait()
    info = env.step({"worker_0": act(*["/fill 0 1 0 1 oak_planks"] * 25), "worker_1": ""})[4]["worker_0"]
    assert info["metric/rejected"] == 5.0


def test_feedback_may_tell_the_score(strait):
    told = strait(feedback="score").step({"worker_0": "", "worker_1": ""})[0]
    assert told["worker_0"].messages[-1].content.startswith("Score -7.000.")


commands = st.lists(
    st.tuples(
        st.sampled_from(["/fill", "fill", "/setblock"]),
        st.lists(st.integers(-2, 6), min_size=3, max_size=5),
        st.sampled_from(["oak_planks", "air", "stone", "`"]),
    ).map(lambda parts: f"{parts[0]} {' '.join(map(str, parts[1]))} {parts[2]}")
    | st.text(max_size=5)
    | st.none(),
    max_size=30,
)
actions = st.fixed_dictionaries(
    {},
    optional={
        "cmds": commands,
        "comm": st.text(max_size=5) | st.lists(st.none(), max_size=2),
        "probe": st.lists(st.lists(st.integers(-1, 6), max_size=3), max_size=4) | st.none(),
        "path": st.lists(st.lists(st.integers(0, 5), min_size=2, max_size=2), max_size=4) | st.text(max_size=3),
    },
)


@settings(max_examples=200, deadline=None)
@given(actions, actions, st.integers(0, 300))
def test_no_action_builds_outside_or_over_pillars(first, second, cut):
    bridge_env = BridgeBuild(difficulty=1)
    bridge_env.reset(seed=0)
    _, rewards, _, _, infos = bridge_env.step({"worker_0": json.dumps(first), "worker_1": json.dumps(second)[:cut]})
    assert rewards["worker_0"] <= 0
    assert infos["worker_0"]["metric/planks"] <= 49 - len(bridge_env.task.pillars)


@pytest.mark.parametrize(
    ("rows", "message"),
    [(["S", "T."], "one length"), (["S."], "needs an S and a T"), (["S?T"], "made of"), ([], "rows")],
)
def test_a_malformed_map_is_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        Bridge("wrong", tuple(rows))


@pytest.mark.parametrize("kwargs", [{"feedback": "all"}, {"view": -1}, {"difficulty": 6}, {"split": "valid"}])
def test_wrong_settings_are_refused(kwargs):
    with pytest.raises(ValueError, match="must"):
        BridgeBuild(**kwargs)
