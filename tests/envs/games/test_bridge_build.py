"""BridgeBuild: a bridge from two banks."""

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replies import begun, references, rewards_of, share

from collm.envs.games.bridge_build import Bridge, BridgeBuild, new_bridge
from collm.envs.games.bridge_build.players import merged, read_message
from collm.envs.games.bridge_build.prompts import fogged_rows
from collm.envs.games.bridge_build.rules import MAX_COMMANDS, beginning, missing, missing_on_side

ROWS = ["##S##", ".....", ".Y.N.", ".....", "##T##"]
BY_THE_WEST = ["/fill 1 1 2 1 oak_planks", "/fill 1 3 2 3 oak_planks"]


def strait(**kwargs):
    """An environment of one small map, with a true pillar to the west and a false one to the east."""
    settings = {"reach": "side", "view": 3, "max_probes": 2, "max_steps": 6, **kwargs}
    return begun(BridgeBuild(data=[{"task_id": "strait", "map": ROWS}], **settings), seed=0)


def act(*cmds, comm="", probe=(), path=()):
    return json.dumps({"comm": comm, "probe": list(probe), "cmds": list(cmds), "path": list(path)})


def check_terms(rewards, infos, expected):
    info = infos["worker_0"]
    assert infos["worker_1"] == info and rewards["worker_0"] == rewards["worker_1"]
    assert rewards["worker_0"] == pytest.approx(expected, abs=1e-9)
    assert sum(info[key] for key in info if key.startswith("reward/")) == pytest.approx(expected, abs=1e-9)


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
def test_partial_builds_score_by_hand_as_published(first, second, expected):
    env = strait(reward="reference", reach="map")
    _, rewards, over, _, infos = env.step({"worker_0": first, "worker_1": second})
    check_terms(rewards, infos, expected)
    assert over["worker_0"] == (infos["worker_0"]["metric/connected"] == 1.0)


MAPS = [{"difficulty": d} for d in range(1, 6)] + [{"split": "all", "data": "builtin"}]
on_every_map = pytest.mark.parametrize("settings", MAPS)
PLANK = 5 / 23  # of 25 cells two are pillars


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("", "", 0),
        (act("/fill 2 1 2 2 oak_planks"), act("/fill 2 3 2 3 oak_planks"), 5 + 10 - 8 - 3 * PLANK),
        (act("/fill 2 1 2 1 oak_planks"), "", -PLANK),
        (act("/fill 1 1 1 1 oak_planks"), "", 5 - PLANK),
        (act("/fill 3 1 3 1 oak_planks"), "", -8 - PLANK),
        (act(BY_THE_WEST[0]), act(BY_THE_WEST[1], probe=[[3, 2]]), 15 - 4 * PLANK - 0.3),
        (act(comm="two words!"), act(comm="ok"), -0.004),
        (act("/fill 4 2 0 0 oak_planks"), act("/fill 0 4 4 2 oak_planks"), 5 - 8 + 10 - 5),
        # beyond the own side nothing is laid, be it by one command in part, and nothing taken away
        (act(*BY_THE_WEST), "", 5 - 2 * PLANK),
        ("", act(*BY_THE_WEST), 5 - 2 * PLANK),
        (act(*BY_THE_WEST), act(*BY_THE_WEST), 15 - 4 * PLANK),
        (act(BY_THE_WEST[0]), act(BY_THE_WEST[0]), 5 - 2 * PLANK),
        (act("/fill 2 1 2 3 oak_planks"), "", 0),
        (act("/fill 4 4 0 0 oak_planks"), act("/fill 0 0 4 4 oak_planks"), 0),
        (act(BY_THE_WEST[0]), act("/fill 0 0 4 4 air", "/fill 0 1 4 1 air"), 5 - 2 * PLANK),
        # the row in the middle is both workers'
        (act("/fill 0 2 0 2 oak_planks"), "", 5 - PLANK),
        ("", act("/fill 0 2 0 2 oak_planks"), 5 - PLANK),
        (act("/fill 0 2 0 2 oak_planks"), act("/fill 0 2 0 2 air"), 0),
    ],
)
def test_partial_builds_score_by_hand(first, second, expected):
    env = strait()
    _, rewards, _, _, infos = env.step({"worker_0": first, "worker_1": second})
    check_terms(rewards, infos, expected)


def test_nothing_is_earned_by_laying_again_nor_beyond_a_workers_half():
    env = strait()
    lay, clear = act("/fill 1 1 1 1 oak_planks"), act("/fill 1 1 1 1 air")
    rewards = [env.step({"worker_0": reply, "worker_1": ""})[1]["worker_0"] for reply in (lay, clear, lay)]
    assert rewards == pytest.approx([5 - PLANK, 0, 0], abs=1e-9)
    env = strait()
    info = env.step({"worker_0": act(*["/fill 0 1 0 1 oak_planks"] * 25), "worker_1": ""})[4]["worker_0"]
    assert info["metric/rejected"] == 5.0
    told = strait(feedback="score", reward="reference").step({"worker_0": "", "worker_1": ""})[0]
    assert told["worker_0"].messages[-1].content.startswith("Score -7.000.")


def band(env):
    """All water between the columns of S and T, and one column more, by both workers."""
    xs = [x for x, _ in env.task.cells("ST")]
    rows = [f"/fill {max(0, min(xs) - 1)} {z} {max(xs)} {z} oak_planks" for z in range(1, env.task.depth - 1)]
    return {"worker_0": act(*rows), "worker_1": act(*rows)}


@on_every_map
def test_covering_the_water_blindly_gets_at_most_sixty_percent(settings):
    env = BridgeBuild(**settings)
    best = reached = 0.0
    for task in range(10):
        best += sum(rewards_of(env, task=task))
        env.reset(seed=0, options={"task": task})
        _, rewards, _, _, infos = env.step(band(env))
        assert infos["worker_0"]["metric/planks"] > env.task.depth // 2  # that neither worker's were refused
        reached += rewards["worker_0"]
    assert reached <= 0.6 * best


@on_every_map
def test_one_worker_that_knows_the_map_gets_at_most_sixty_percent(settings):
    env = BridgeBuild(**settings)
    best, reached, num_joined = 0.0, {"worker_0": 0.0, "worker_1": 0.0}, 0
    for task in range(20 if "difficulty" in settings else 10):
        best += sum(rewards_of(env, task=task))
        for doer in reached:
            env.reset(seed=0, options={"task": task})
            planks = [f"/fill {x} {z} {x} {z} oak_planks" for x, z in sorted(env.task.plan)]
            while env.agents:
                part = planks[env.turn * 20 :] if env.turn * 20 < len(planks) else planks
                _, rewards, _, _, infos = env.step({agent: act(*part) if agent == doer else "" for agent in env.agents})
                reached[doer] += rewards[doer]
            num_joined += infos[doer]["metric/connected"]
    assert 0 < max(reached.values()) <= 0.6 * best and num_joined <= 2


@on_every_map
def test_reference_workers_earn_on_their_sides_what_they_earn_where_each_reaches_the_whole_map(settings):
    whole, parted = BridgeBuild(**settings, reach="map"), BridgeBuild(**settings, reach="side")
    for task in range(40 if "difficulty" in settings else 10):
        earned = []
        for env in (whole, parted):
            env.reset(seed=0, options={"task": task})
            _, rewards, over, _, infos = env.step(references(env))
            earned.append(rewards["worker_0"])
            info = infos["worker_0"]
            assert all(over.values()) and info["metric/rejected"] == info["metric/score"] == 0.0
        assert earned[0] == pytest.approx(earned[1], abs=1e-12)
        pillars, planks = len(env.task.true_pillars), len(env.task.plan)
        assert earned[1] == pytest.approx(10 + 5 * pillars - 5 * planks / env.task.num_placeable)


def test_the_map_is_cut_half_way_from_s_to_t_and_the_prompt_says_where():
    for rows, first, second in [
        (["S..T"], "x = 0..1", "x = 2..3"),
        (["S...T"], "x = 0..2", "x = 2..4"),
        (["T...S"], "x = 2..4", "x = 0..2"),
        (["..", "T.", "..", ".S"], "z = 2..3", "z = 0..2"),
        (["S.", ".T"], "z = 0..0", "z = 1..1"),
        ([".....", "S...T", "....."], "x = 0..2", "x = 2..4"),
    ]:
        data = [{"task_id": "one", "map": rows}]
        for reach, workers in (("side", ("worker_0", "worker_1")), ("far", ("worker_1", "worker_0"))):
            read = BridgeBuild(data=data, reach=reach).reset(seed=0)[0]
            assert f"oak_planks or air, at {first} alone (your partner: {second})." in read[workers[0]]
            assert f"oak_planks or air, at {second} alone (your partner: {first})." in read[workers[1]]
        assert "your partner:" not in BridgeBuild(data=data, reach="map").reset(seed=0)[0]["worker_0"]


@pytest.mark.parametrize("cut", range(1, 4))
def test_no_plank_of_the_plan_is_one_too_many(cut):
    """The reference is at the top: without any one of its planks, or without all of a worker's, it earns less."""
    for task in range(5):
        env = begun(BridgeBuild(difficulty=cut, reach="side"), seed=0, options={"task": task})
        plan = sorted(env.task.plan)
        best = env.step(references(env))[1]["worker_0"]
        for left_out in plan[::cut]:
            env.reset(seed=0, options={"task": task})
            cells = [f"/fill {x} {z} {x} {z} oak_planks" for x, z in plan if (x, z) != left_out]
            rewards = env.step({"worker_0": act(*cells[:20]), "worker_1": act(*cells[:20])})[1]
            assert rewards["worker_0"] < best


def test_the_plan_of_the_strait_by_hand_is_built_over_what_is_in_the_way():
    plan = Bridge("strait", tuple(ROWS)).plan
    assert len(plan) == 4 and {(1, 1), (1, 3)} <= plan
    assert not plan & {(3, 1), (3, 3), (2, 2), (4, 2)}
    env = strait(reward="reference")
    env.step({"worker_0": act("/fill 3 1 3 1 oak_planks"), "worker_1": ""})
    assert env.step(references(env))[1]["worker_0"] == 0.0


@pytest.mark.parametrize("difficulty", range(1, 6))
def test_honest_workers_need_messages_and_earn_three_quarters_of_the_reference(difficulty):
    env = BridgeBuild(difficulty=difficulty)
    assert share(env, "talking", 25) == 1.0
    assert 0 < share(env, "silent", 25) < 0.4
    if difficulty in (1, 3, 5):  # who does not look earns less
        shares = {name: share(env, name, 15) for name in env.exploits()}
        assert len(shares) >= 7 and max(shares.values()) < 0.2
    talking = known = 0.0
    for task in range(20):
        talking += sum(rewards_of(env, task=task))
        env.reset(seed=0, options={"task": task})
        known += env.step({agent: env.knowing_reply(agent) for agent in env.agents})[1]["worker_0"]
    assert 0.75 * known < talking < known


@pytest.mark.parametrize("name", ["silent", "talking"])
def test_honest_workers_read_nothing_hidden(name):
    env = BridgeBuild()
    for seed in range(10):
        env.reset(seed=seed)
        while env.agents:
            replies = {agent: env.honest_players()[name](agent) for agent in env.agents}
            for worker, agent in enumerate(env.agents):
                rows = fogged_rows(env.task, env._state, worker, env._view)
                shown = "\n".join(rows).replace("?", ".").replace("=", ".").replace("P", "N").split("\n")
                other = copy.deepcopy(env)
                other.task = replace(env.task, rows=tuple(shown))
                assert other.honest_players()[name](agent) == replies[agent]
            env.step(replies)


def test_probed_kinds_count_first_and_what_is_no_message_or_no_map_is_ignored_or_refused():
    assert read_message("from 0 0: zz 3 2 is false") == {} and read_message("hello") == {}
    for maps in ([{(0, 0): "P"}, {(0, 0): "Y"}], [{(0, 0): "Y"}, {(0, 0): "P"}]):
        assert merged(maps) == {(0, 0): "Y"}
    for rows, message in [(["S", "T."], "one length"), (["S."], "S and T"), (["S?T"], "characters"), ([], "rows")]:
        with pytest.raises(ValueError, match=message):
            Bridge("wrong", tuple(rows))


def test_splits_share_no_map_and_plans_fit_the_limit_of_commands():
    train = {new_bridge(seed, 1, "train").rows for seed in range(300)}
    test = {new_bridge(seed, 1, "test").rows for seed in range(100)}
    assert not train & test
    for seed in range(50):
        bridge = new_bridge(seed, 5)
        for part in (missing, missing_on_side):
            assert all(len(part(bridge, beginning(bridge), worker)) <= MAX_COMMANDS // 2 for worker in (0, 1))


def test_the_truth_is_the_whole_world_and_a_worker_sees_a_part_its_own_probes_and_messages():
    env = strait(view=1, reach="map")
    assert env.truth().splitlines() == [
        *ROWS,
        "Worker 1 is at 2 0, worker 2 at 2 4.",
        "Planks on S or T: none. Planks taken away: none. Pillars that have had a plank beside them: none.",
    ]
    env.step({"worker_0": act("/fill 0 0 2 1 oak_planks", path=[[1, 0]]), "worker_1": act("/fill 3 3 3 3 oak_planks")})
    env.step({"worker_0": act("/fill 0 0 0 1 air"), "worker_1": act("/fill 3 3 3 3 air")})
    assert env.truth().splitlines() == [
        *["#=S##", ".==..", ".Y.N.", ".....", "##T##"],
        "Worker 1 is at 1 0, worker 2 at 2 4.",
        "Planks on S or T: 2 0. Planks taken away: 0 0, 0 1, 3 3. Pillars that have had a plank beside them: 1 2, 3 2.",
    ]
    other = [row.replace("Y", "*").replace("N", "Y").replace("*", "N") for row in ROWS]
    envs = [BridgeBuild(data=[{"task_id": "strait", "map": rows}]) for rows in (ROWS, other)]
    assert envs[0].reset(seed=0) == envs[1].reset(seed=0) and envs[0].state() == envs[1].state()
    assert envs[0].truth() != envs[1].truth()
    env = strait(view=1)
    assert "??S" not in env.reset(seed=0)[0]["worker_0"]
    assert env.reset(seed=0)[0]["worker_0"].splitlines()[-7:-2] == ["?#S#?", "?...?", "?????", "?????", "??T??"]
    observations = env.step({"worker_0": act(path=[[2, 0], [2, 1]]), "worker_1": ""})[0]
    assert "You are at 2 1.\n?#S#?\n?...?\n?P.P?\n" in observations["worker_0"].messages[-1].content
    env = strait()
    observations = env.step({"worker_0": act(probe=[[3, 2], [0, 0]], comm="3 2 is N\nIgnore"), "worker_1": ""})[0]
    assert "Probed: 0 0 is no pillar; 3 2 is a false pillar." in observations["worker_0"]
    assert ".P.N." in observations["worker_0"].messages[-1].content
    heard = observations["worker_1"].messages[-1].content
    assert heard.endswith("Your partner says: 3 2 is N Ignore") and "Probed: nothing" in heard


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
    bridge_env = begun(BridgeBuild(difficulty=1), seed=0)
    _, rewards, _, _, infos = bridge_env.step({"worker_0": json.dumps(first), "worker_1": json.dumps(second)[:cut]})
    assert rewards["worker_0"] <= 10 + 5 * len(bridge_env.task.true_pillars)
    assert infos["worker_0"]["metric/score"] <= 0
    assert infos["worker_0"]["metric/planks"] <= 7 * 13 - len(bridge_env.task.pillars)
