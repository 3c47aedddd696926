"""Tests of PettingZoo and Gymnasium on every registered environment and view; `check_env` has the parallel API test."""

import pickle
from copy import deepcopy
from functools import partial
from types import SimpleNamespace

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from pettingzoo.test import api_test, max_cycles_test, render_test, seed_test
from pettingzoo.test.state_test import state_test

from collm.envs import check_env, make, registry, specs, views
from collm.envs.views.aec import make_aec, make_parallel, takes_max_turns

IDS = [spec.id for spec in specs()]
pytestmark = [  # their tests warn of whatever is no array
    pytest.mark.filterwarnings("ignore::UserWarning:pettingzoo"),
    pytest.mark.filterwarnings("ignore::UserWarning:gymnasium"),
]
every_id = pytest.mark.parametrize("id", IDS)

VIEWS = {
    "tokens as floats": lambda env: views.TokenActions(views.TokenObservations(env, 64), 16),
    "tokens as ids": lambda env: views.TokenActions(views.TokenObservations(env, 32, "multi_discrete"), 16),
    "bags of bytes": lambda env: views.TokenObservations(env, 64, "bag"),
    "phrases": lambda env: views.PhraseActions(views.TokenObservations(env, 64), views.reference_phrases(env, 4)),
    "chat": views.ChatObservations,
    "dict of chat": lambda env: views.DictObservations(views.ChatObservations(env), key="messages"),
    "numeric infos under a limit": lambda env: views.NumericInfos(views.TurnLimit(env, 2)),
    "tokens for one agent": lambda env: views.TokenObservations(env, 64, agents=env.possible_agents[:1]),
}


@pytest.fixture(autouse=True)
def quiet(capsys):
    """Their tests print."""


@every_id
def test_pettingzoo_aec_api_state_render_and_max_cycles(id):
    env = views.to_aec(make(id))
    api_test(env, num_cycles=5 if env.unwrapped.metadata.get("runs_programs") else 20)  # programs take seconds
    seed_test(lambda: views.to_aec(make(id)), num_cycles=5)
    state_test(views.to_aec(make(id)), make(id), num_cycles=3)
    render_test(lambda **kwargs: views.to_aec(make(id, **kwargs)), {"ansi": lambda drawn: isinstance(drawn, str)})
    made = SimpleNamespace(parallel_env=partial(make_parallel, id), env=partial(make_aec, id))
    if takes_max_turns(registry[id].constructor()):
        max_cycles_test(made)
        return
    env = made.parallel_env(max_cycles=1)  # their test wants four turns, but the number of turns is a rule of this game
    env.reset(seed=0)
    env.step({agent: env.action_space(agent).sample() for agent in env.agents})
    assert env.agents == []


@every_id
@pytest.mark.parametrize("view", ["text", "tokens", "chat", "dict"])
def test_gymnasium_check_env_and_pickles_in_the_middle_of_an_episode(id, view):
    env = gymnasium.make(id, view=view, disable_env_checker=True)
    gymnasium_check_env(env.unwrapped)
    env.reset(seed=0)
    action = env.action_space.sample()
    returned = [branch.step(action)[:4] for branch in (pickle.loads(pickle.dumps(env)), deepcopy(env), env)]
    assert data_equivalence(returned[0], returned[2]) and data_equivalence(returned[1], returned[2])


@every_id
def test_gymnasium_vectors_refuse_shared_memory_and_work_without(id):
    build = partial(gymnasium.make, id)
    vector = SyncVectorEnv([build, build])
    first, _ = vector.reset(seed=0)
    vector.step(("a", "b"))
    vector.close()
    with pytest.raises(TypeError, match="shared_memory=False"):
        AsyncVectorEnv([build, build])
    apart = AsyncVectorEnv([build], shared_memory=False)
    assert apart.reset(seed=0)[0] == first[:1]
    apart.close()


@pytest.mark.parametrize("id", [pytest.param(id, marks=[pytest.mark.slow] if "ClassEval" in id else []) for id in IDS])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_keeps_the_contract(id, view):
    check_env(VIEWS[view](make(id)), skip=["hostile_replies"])  # which the environment itself has passed
