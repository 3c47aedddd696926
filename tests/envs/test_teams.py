"""Teams of two, three and four: rules of `check_env`, branches, hostile replies, memory."""

import copy
import pickle
import random
import resource
from pathlib import Path

import numpy as np
import pytest
from replies import SHAPES, SIZES, any_replies, called_from, earned_and_read

from collm.envs import EnvSpec, check_env
from collm.envs.coding.classes import ClassEval
from collm.envs.coding.functions import MBPP, CoopHumanEval, HumanEval
from collm.envs.coding.mini_code import MiniCode
from collm.envs.games.house_build import HouseBuild
from collm.envs.games.mini_build import MiniBuild
from collm.envs.games.str_build import StrBuild
from collm.envs.writing import TLDR, ArxivExpansion, MiniWriting

BUILDERS = (MiniBuild, StrBuild, HouseBuild)
WRITERS = (MiniWriting, TLDR, ArxivExpansion)
FUNCTIONS = (HumanEval, MBPP, CoopHumanEval)
PROGRAMMERS = (*FUNCTIONS, ClassEval)
TEAMS = [*((game, team) for game in (*BUILDERS, *WRITERS, *PROGRAMMERS) for team in (2, 3, 4)), (MiniCode, 2)]
BEST = {MiniCode: 1.0, ClassEval: 6.0, **dict.fromkeys(FUNCTIONS, 4.0)}
"""Highest return of the games whose hostile teams are held to three quarters of it."""
LEAVES = {game: {"can_leave": True} for game in (StrBuild, HouseBuild)}
STOPS_SOON = {game: {"test_seconds": 0.2, "max_timeouts": 1} for game in PROGRAMMERS}
"""Programs that never end are stopped early, so that many can be tried."""


@pytest.fixture(autouse=True)
def isolated(request):
    """The sandbox, for games that run programs, on machines that offer one."""
    if request.node.callspec.params.get("game", MiniCode) in BEST:
        request.getfixturevalue("sandbox")


def of_any_size(few=((HumanEval, 3), (ClassEval, 4))):
    """Parametrize by game and team size; most teams of programmers are slow. None: all are slow."""
    return pytest.mark.parametrize(
        ("game", "team"),
        [
            pytest.param(
                game,
                team,
                id=f"{game.__name__} {team}",
                marks=pytest.mark.slow if few is None or (game in BEST and (game, team) not in few) else [],
            )
            for game, team in TEAMS
        ],
    )


def made(game, team, **settings):
    return game(num_agents=team, **{**LEAVES.get(game, {}), **STOPS_SOON.get(game, {}), **settings})


def replies_of(env, rng):
    found = any_replies(env, rng)
    if type(env) in LEAVES:
        found = {agent: text + "\n/done" if rng.random() < 0.15 else text for agent, text in found.items()}
    return found


def played(env, seed):
    rng = random.Random(seed)
    record = [env.reset(seed=seed), env.state()]
    while env.agents:
        record += [env.step(replies_of(env, rng)), env.state()]
    return record


@pytest.mark.parametrize(
    ("game", "settings", "episodes", "expected", "text"),
    [
        (HumanEval, {"partner_code": True}, 5, 12.4, "8fd0d7b632fbc78e"),
        (MBPP, {"num_revealed": None}, 4, 9.183333333333334, "3677b68919a0222c"),
        (CoopHumanEval, {"tests": "generated", "num_public": 2}, 2, 8.0, "cdd95415450e716c"),
        (HumanEval, {"variant": "published", "previous_response": False}, 4, -16.4, "4d056dabe832a0cb"),
        (MiniCode, {"needs_both": False}, 200, 59.30000000000002, "d60e1bc6b486b30e"),
        (MiniCode, {"needs_both": False, "is_explained": True, "num_operations": 4}, 50, 20.6, "3560ca1bec0d4e3d"),
        (ClassEval, {"partner_code": True}, 12, 55.666666666666664, "a06162f29106034f"),
        (ClassEval, {"variant": "published", "previous_response": False}, 4, -29.0, "3d098f35f19192da"),
        (TLDR, {}, 60, 89.58, "46769a9191657daa"),
        (TLDR, {"variant": "published"}, 20, 38.406218776916454, "6bde4d6f9a32b435"),
        (ArxivExpansion, {}, 60, 64.02655906534554, "b4669a603ebe6e22"),
        (ArxivExpansion, {"variant": "published"}, 20, 18.731774193548386, "34491cbd5d4dc460"),
    ],
)
def test_rewards_and_texts_of_teams_of_two_are_unchanged(game, settings, episodes, expected, text):
    """Sums of rewards and a hash of all texts that were read, at commits 104ef4d and 7942a3f; of writers since v2."""
    assert earned_and_read(game(**settings), episodes) == (pytest.approx(expected, abs=1e-9), text)


@of_any_size()
def test_branches_and_second_plays_are_alike(game, team):
    one, other = (made(game, team) for _ in range(2))
    for seed in range(2):
        assert played(one, seed) == played(other, seed)
    one.reset(seed=4)
    if one.max_turns > 1:
        one.step(replies_of(one, random.Random(3)))
    ends = []
    for branch in (one, copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        rng, steps = random.Random(9), []
        while branch.agents:
            steps.append(branch.step(replies_of(branch, rng)))
        ends.append((steps, branch.state(), branch.reset()))
    assert ends[0] == ends[1] == ends[2]


@of_any_size(few=None)
def test_the_contract_is_kept(game, team):
    settings = {"num_agents": team, **LEAVES.get(game, {})}
    check_env(EnvSpec(f"test/{game.__name__}-v0", f"{game.__module__}:{game.__name__}", settings))


@pytest.mark.parametrize(
    ("game", "settings", "message"),
    [
        *(
            (game, {"num_agents": number}, f"num_agents must be 2 to .*, got {number!r}")
            for game in (*BUILDERS, *WRITERS, *PROGRAMMERS)
            for number in (1, 9, True, 2.5, "3", None)
        ),
        *((game, {"num_agents": 5}, "2 to 4, got 5") for game in (*PROGRAMMERS, *WRITERS)),
        *((MiniCode, {"num_agents": number}, f"must be 2, got {number!r}") for number in (1, 3, True, "2")),
        *(
            (game, {"num_agents": 3, "variant": "published"}, "num_agents=3")
            for game in (*PROGRAMMERS, TLDR, ArxivExpansion)
        ),
    ],
)
def test_teams_of_other_sizes_are_refused(game, settings, message):
    with pytest.raises(ValueError, match=message):
        game(**settings)


PIECES = (
    *("def aux(x):\n    return x\n", "def aux_1(x):\n    return x\n", "def aux_2(*a, **k):\n    return aux_2\n"),
    *("def aux_3():\n    while True: pass\n", "class aux_1: pass\n", "aux_1 = aux_2 = aux = print\n"),
    *("```python\n", "```\n", "return aux_1(aux_2(0))\n", "    pass\n", "import os, sys\n", "sys.exit(0)\n"),
    *("os._exit(0)\n", "raise SystemExit\n", "def (", "(" * 300, "\x00", "\ud800", "\u202e", "</think>", "<think>"),
    *("[main_0 writes] def aux(x): return 1\n", "9" * 400, "数\n", "\r\n", "class Yes(int):\n    __eq__ = id\n"),
)
"""Of programmers."""
OTHER_PIECES = (
    *("/setblock ", "/fill ", "/kill", "/done", "```", "\n", "\x00", "\ud800", "9" * 400, "-1 ", "3.5 ", "stone"),
    *("wall wood", "</think>", "<think>", "[builder_1 writes] roof stone\n", "\u2028", "{" * 50, "٣ ", "~", "数 "),
    *("however ", "the ", "post: ", "[writer_1 writes] so ", "{source}"),
)


def hostile(env, rng):
    """Replies of pieces: broken and endless code, commands, the functions of all, control characters, floods."""
    if type(env) not in BEST:
        texts = ["".join(rng.choices(OTHER_PIECES, k=rng.randrange(40))) for _ in env.agents]
        texts = [text if rng.random() < 0.97 else "x " * rng.choice([1, 8_192, 50_000]) for text in texts]
        return dict(zip(env.agents, texts, strict=True))
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


@pytest.mark.parametrize("count", [40, pytest.param(10_000, marks=pytest.mark.slow)])
@of_any_size()
def test_hostile_replies_are_scored(game, team, count):
    rng, env, seen, episode = random.Random(team), made(game, team), 0, 0
    low, high = {**dict.fromkeys(BUILDERS, (-1.0, 4.0)), MiniWriting: (0, 1.0)}.get(game, (0, 3.48))
    if game in BEST:
        low, high = 0, 0.75 * BEST[game]
    while seen < count:
        env.reset(seed=episode)
        episode, earned = episode + 1, 0.0
        while env.agents:
            actions = hostile(env, rng)
            seen += len(actions)
            observations, rewards, *_, infos = env.step(actions)
            assert np.isfinite(list(rewards.values())).all()
            earned += next(iter(rewards.values()))
            assert all(env.observation_space(agent).contains(text) for agent, text in observations.items())
            assert all(isinstance(value, float | int) for info in infos.values() for value in info.values())
        assert low - 1e-9 <= earned <= high


@of_any_size(few=None)
def test_five_thousand_episodes_are_flat_in_memory(game, team):
    rng, env, resident = random.Random(0), made(game, team), []
    for seed in range(5_000):
        env.reset(seed=seed)
        replies = replies_of(env, rng) if seed % 5 == 0 else dict.fromkeys(env.agents, "def aux_1(x):\n    return x")
        while env.agents:
            env.step({agent: replies[agent] for agent in env.agents})
        if seed % 1_000 == 999:
            resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize())
    assert resident[-1] - resident[0] < 4_000_000  # bytes, over 4,000 episodes


def nested(env, shape, size):
    """Replies whose functions are nested so deep; the last one calls the others first."""
    if isinstance(env, FUNCTIONS):
        own = [*env.problem.helpers, env.problem.entry_point]
    else:
        is_class = isinstance(env, ClassEval)
        own = [(each or env.task.methods)[0] for each in env.task.shares] if is_class else ["aux", "main"]
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
            assert earned < 0.75 * BEST[game], (shape, size)


@pytest.mark.parametrize("game", [HumanEval, ClassEval, MiniCode])
@pytest.mark.parametrize("shape", ["dictionaries", "functions", "methods", "elif", "sum"])
def test_programs_score_the_same_from_a_deep_stack(game, shape):
    env = made(game, 2)
    for size in (20, 70, 90, 180):
        assert called_from(400, lambda size=size: first_step(env, shape, size)) == first_step(env, shape, size)
