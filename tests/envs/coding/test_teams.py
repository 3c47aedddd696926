"""Teams of two, three and four programmers: the contract, hostile replies, and what two programmers keep."""

import copy
import pickle
import random
import resource
import warnings
from pathlib import Path

import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test
from replies import SHAPES, SIZES, any_replies, called_from, earned_and_read, played

from collm.envs import EnvSpec, check_env
from collm.envs.checks.exploits import exploit_standings, refuse_exploits
from collm.envs.coding.classes import ClassEval
from collm.envs.coding.functions import MBPP, CoopHumanEval, HumanEval
from collm.envs.coding.mini_code import MiniCode
from collm.envs.wrappers import Shares

pytestmark = pytest.mark.usefixtures("sandbox")

FUNCTIONS = (HumanEval, MBPP, CoopHumanEval)
TEAMS = [(game, team) for game in (*FUNCTIONS, ClassEval) for team in (2, 3, 4)]
SOME = [(HumanEval, 3), (ClassEval, 4)]
"""Of those the ones that the quick tests play."""


def of_any_size(few=SOME):
    """A test for every coding task and team; all but a few are slow."""
    return pytest.mark.parametrize(
        ("game", "team"),
        [
            pytest.param(
                game, team, id=f"{game.__name__} {team}", marks=[] if (game, team) in few else pytest.mark.slow
            )
            for game, team in [*TEAMS, (MiniCode, 2)]
        ],
    )


def best(game):
    return {MiniCode: 1.0, ClassEval: 6.0}.get(game, 4.0)


def made(game, team, **settings):
    """Programs that never end are stopped early, so that many can be tried."""
    limits = {} if game is MiniCode else {"test_seconds": 0.2, "max_timeouts": 1}
    return game(num_agents=team, **limits, **settings)


@pytest.mark.parametrize(
    ("game", "settings", "episodes", "expected", "text"),
    [
        (HumanEval, {"partner_code": True}, 5, 12.4, "8fd0d7b632fbc78e"),
        (MBPP, {"num_revealed": None}, 4, 9.183333333333334, "3677b68919a0222c"),
        (CoopHumanEval, {"tests": "generated", "num_public": 2}, 2, 8.0, "cdd95415450e716c"),
        (HumanEval, {"variant": "published", "previous_response": False}, 4, -16.4, "aa3d577aa0a605b7"),
        (MiniCode, {"needs_both": False}, 200, 59.30000000000002, "d60e1bc6b486b30e"),
        (
            MiniCode,
            {"needs_both": False, "is_explained": True, "num_operations": 4},
            50,
            20.599999999999998,
            "3560ca1bec0d4e3d",
        ),
    ],
)
def test_two_read_and_earn_what_they_did_when_there_were_no_larger_teams(game, settings, episodes, expected, text):
    """Sums of rewards, and a hash of all that was read, at commit 104ef4d."""
    assert earned_and_read(game(**settings), episodes) == (pytest.approx(expected, abs=1e-9), text)


@of_any_size()
def test_branches_and_second_plays_are_alike(game, team):
    one, other = (made(game, team) for _ in range(2))
    for seed in range(2):
        assert played(one, seed) == played(other, seed)
    one.reset(seed=4)
    if one.max_turns > 1:
        one.step(dict.fromkeys(one.agents, "def other():\n    return 1"))
    branches = [one, copy.deepcopy(one), pickle.loads(pickle.dumps(one))]
    ends = [branch.step(any_replies(branch, random.Random(1))) for branch in branches]
    assert ends[0] == ends[1] == ends[2]


@of_any_size()
def test_petting_zoo_finds_no_fault(game, team):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it expects spaces of numbers
        parallel_api_test(made(game, team), num_cycles=3)
        parallel_seed_test(lambda: made(game, team), num_cycles=3)


@of_any_size(few=[])
def test_the_contract_is_kept(game, team):
    check_env(EnvSpec(f"test/{game.__name__}-v0", f"{game.__module__}:{game.__name__}", {"num_agents": team}))


@of_any_size(few=[])
def test_no_degenerate_team_comes_far(game, team):
    refuse_exploits(exploit_standings(game(num_agents=team)))


@pytest.mark.parametrize("game", FUNCTIONS)
@pytest.mark.parametrize("number", [1, 5, True, 2.5, "3", None])
def test_a_team_that_cannot_play_is_refused(game, number):
    with pytest.raises(ValueError, match="num_agents must be 2 to 4, got"):
        game(num_agents=number)


@pytest.mark.parametrize("game", FUNCTIONS)
def test_the_published_variant_has_two_programmers(game):
    with pytest.raises(ValueError, match="num_agents=3"):
        game(num_agents=3, variant="published")


@pytest.mark.parametrize("number", [1, 3, True, "2"])
def test_mini_code_is_for_two(number):
    with pytest.raises(ValueError, match=r"num_agents must be 2, got "):
        MiniCode(num_agents=number)


# Who did the work


def shares(env, replies):
    """Each agent's share of the work in an episode of one turn, and what was earned."""
    env.reset(seed=1)
    rewards, *_, infos = env.step({agent: replies(env.unwrapped, agent) for agent in env.agents})[1:]
    agents = env.possible_agents
    return [infos[agents[0]][f"metric/share/{agent}"] for agent in agents], rewards[agents[0]]


few_teams = pytest.mark.parametrize("team", [2, 3, pytest.param(4, marks=pytest.mark.slow)])


@few_teams
def test_shares_tell_helpers_that_help_from_those_that_are_called_for_show(team):
    env = Shares(HumanEval(num_agents=team, max_turns=1))
    found, earned = shares(env, lambda world, agent: world.reference_reply(agent))
    assert earned == pytest.approx(4.0) and min(found) > 0.1
    found, earned = shares(env, lambda world, agent: world.exploits()["helpers for show"](agent))
    assert earned == pytest.approx(4.0) and found == [0.0] * (team - 1) + [1.0]


@few_teams
def test_shares_tell_that_one_wrote_the_whole_class(team):
    env = Shares(ClassEval(num_agents=team, max_turns=1))

    def last_writes_all(world, agent):
        is_last = agent == world.agents[-1]
        return "\n\n".join(world.reference_reply(each) for each in world.agents) if is_last else "pass"

    found, earned = shares(env, last_writes_all)
    assert earned == pytest.approx(6.0) and found == [0.0] * (team - 1) + [1.0]


# Hostile replies, and memory

PIECES = (
    *("def aux(x):\n    return x\n", "def aux_1(x):\n    return x\n", "def aux_2(*a, **k):\n    return aux_2\n"),
    *("def aux_3():\n    while True: pass\n", "class aux_1: pass\n", "aux_1 = aux_2 = aux = print\n"),
    *("```python\n", "```\n", "return aux_1(aux_2(0))\n", "    pass\n", "import os, sys\n", "sys.exit(0)\n"),
    *("os._exit(0)\n", "raise SystemExit\n", "def (", "(" * 300, "\x00", "\ud800", "\u202e", "</think>", "<think>"),
    *("[main_0 writes] def aux(x): return 1\n", "9" * 400, "数\n", "\r\n", "class Yes(int):\n    __eq__ = id\n"),
)


def hostile(env, rng):
    """Replies of pieces: broken and endless code, the functions of all, control characters, floods."""
    if isinstance(env, FUNCTIONS):
        names = [env.problem.entry_point]
    else:
        names = env.task.methods if isinstance(env, ClassEval) else ["main"]
    replies = {}
    for agent in env.agents:
        own = f"def {rng.choice(names)}(*a, **k):\n    return "
        pieces = [*PIECES, f"{own}a\n", f"{own}aux_1(*a)\n", f"{own}aux(a) or aux_2(a)\n"]
        text = "".join(rng.choices(pieces, k=rng.randrange(14)))
        replies[agent] = text if rng.random() < 0.97 else text * 2_000
    return replies


def score_hostile(game, team, count):
    rng, env, seen, episode = random.Random(team), made(game, team), 0, 0
    while seen < count:
        env.reset(seed=episode)
        episode, earned = episode + 1, 0.0
        while env.agents:
            seen += team
            observations, rewards, *_, infos = env.step(hostile(env, rng))
            earned += rewards[env.possible_agents[-1]]
            assert all(env.observation_space(agent).contains(text) for agent, text in observations.items())
            assert all(isinstance(value, float | int) for value in infos[env.possible_agents[0]].values())
        assert -1e-9 <= earned < 0.75 * best(game)


@of_any_size()
def test_hostile_replies_are_scored(game, team):
    score_hostile(game, team, 40)


def names(env):
    """A function's name for each programmer."""
    if isinstance(env, FUNCTIONS):
        return [*env.problem.helpers, env.problem.entry_point]
    return [(own or env.task.methods)[0] for own in env.task.shares] if isinstance(env, ClassEval) else ["aux", "main"]


def nested(env, shape, size):
    """Replies whose functions are nested so deep; the last one calls the others first."""
    own = names(env)
    called = "".join(f"    x = {name}(x)\n" for name in own[:-1])
    bodies = [SHAPES[shape](size)] * (len(own) - 1) + [f"{called}{SHAPES[shape](size)}"]
    return {
        agent: f"def {name}({'self, ' if isinstance(env, ClassEval) else ''}x=0):\n{body}"
        for agent, name, body in zip(env.agents, own, bodies, strict=True)
    }


def first_step(env, shape, size):
    env.reset(seed=0, options={"task": 0})
    return env.step(nested(env, shape, size))


@pytest.mark.parametrize(
    ("game", "settings"),
    [
        (MiniCode, {}),
        *((game, {"variant": variant}) for game in (HumanEval, ClassEval) for variant in ("ours", "published")),
    ],
)
def test_programs_of_any_depth_are_scored(game, settings):
    env = made(game, 2, **settings)
    for shape in SHAPES:
        for size in SIZES:
            earned = first_step(env, shape, size)[1][env.possible_agents[0]]
            assert earned < 0.75 * best(game), (shape, size)


@pytest.mark.parametrize("game", [HumanEval, ClassEval, MiniCode])
@pytest.mark.parametrize("shape", ["dictionaries", "functions", "methods", "elif", "sum"])
def test_programs_score_the_same_from_a_deep_stack(game, shape):
    env = made(game, 2)
    for size in (20, 70, 90, 180):
        assert called_from(400, lambda size=size: first_step(env, shape, size)) == first_step(env, shape, size)


@of_any_size(few=[])
def test_ten_thousand_hostile_replies_are_scored(game, team):
    score_hostile(game, team, 10_000)


@of_any_size(few=[])
def test_five_thousand_episodes_are_flat_in_memory(game, team):
    rng, env, resident = random.Random(0), made(game, team), []
    for seed in range(5_000):
        env.reset(seed=seed)
        replies = any_replies(env, rng) if seed % 5 == 0 else dict.fromkeys(env.agents, "def aux_1(x):\n    return x")
        while env.agents:
            env.step(replies)
        if seed % 1_000 == 999:
            resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize())
    assert resident[-1] - resident[0] < 4_000_000  # bytes, over 4,000 episodes
