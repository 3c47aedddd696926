"""One agent of a team as a Gymnasium environment."""

import copy
import pickle
import re

import gymnasium
import numpy as np
import pytest
from heard import Heard, Knowing
from replies import begun

from collm.envs import make
from collm.envs.views import SingleAgent, TokenObservations

TEAM = ("a_0", "b_0", "b_1")


def repeat(agent, observation, rng):
    return f"{agent} saw {observation.split()[0]}"


def test_partners_act_on_what_they_read_and_seeds_and_spaces_are_those_of_the_team():
    env = SingleAgent(Heard(TEAM, 3), "b_0", repeat)
    observation, _ = env.reset(seed=0, options={"task": "T"})
    assert observation.startswith("b_0 reads T")
    _, reward, *_ = env.step("mine")
    assert env.env.heard == {"a_0": "a_0 saw a_0", "b_0": "mine", "b_1": "b_1 saw b_1"}
    assert reward == 3.0
    env = begun(SingleAgent(Knowing(TEAM, 3), partners={"b_0": repeat}), seed=0)
    env.step("mine")
    assert env.env.heard == {"a_0": "mine", "b_0": "b_0 saw b_0", "b_1": "b_1 at 0"}
    env = SingleAgent(make("collm/MiniWriting-v2"))
    assert env.reset(seed=3)[0] == make("collm/MiniWriting-v2").reset(seed=3)[0]["writer_0"]
    env = SingleAgent(TokenObservations(Heard(TEAM, 3), 8, agents=["a_0"]), partners=repeat)
    assert env.reset(seed=0)[0].shape == env.observation_space.shape == (8,)
    env.step("mine")
    assert env.env.unwrapped.heard["b_0"] == "b_0 saw b_0"


def test_default_partners_draw_from_the_seed_and_those_of_a_copy_read_the_copy():
    heard = []
    for _ in range(2):
        env = begun(SingleAgent(Heard(TEAM, 3)), seed=4)
        env.step("mine")
        heard.append(env.env.heard)
    assert heard[0] == heard[1]
    env = begun(SingleAgent(Knowing(TEAM, 3)), seed=0)
    branches = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    env.step("mine")
    for branch in branches:
        branch.step("mine")
        assert branch.env.heard["b_0"] == "b_0 at 0"


def test_the_episode_ends_with_the_agents_own_and_partners_that_leave_are_not_asked_again():
    env = begun(SingleAgent(Heard(TEAM, 3), partners=repeat), seed=0)
    assert env.step("leave")[2:4] == (True, False)
    with pytest.raises(RuntimeError, match="reset"):
        env.step("more")
    env = begun(SingleAgent(Heard(TEAM, 3), partners=lambda agent, observation, rng: "leave"), seed=0)
    env.step("a")
    env.step("b")
    assert env.env.heard == {"a_0": "b"}


def test_gymnasium_makes_one_or_many_by_id_with_arguments():
    env = gymnasium.make("collm/MiniWriting-v2", agent="writer_1", split="test", view="tokens")
    assert env.unwrapped.agent == "writer_1"
    observation, _ = env.reset(seed=0)
    assert observation.dtype == np.float32
    assert env.spec.to_json()
    envs = gymnasium.make_vec("collm/MiniWriting-v2", num_envs=3, vectorization_mode="sync")
    observations, _ = envs.reset(seed=0)
    assert len(observations) == 3
    _, rewards, terminations, *_ = envs.step(("a", "b", "c"))
    assert rewards.shape == (3,) and terminations.all()
    envs.close()
    with pytest.raises(ValueError, match="'c_0'"):
        SingleAgent(Heard(TEAM, 3), "c_0")
    with pytest.raises(ValueError, match="tokenz"):
        gymnasium.make("collm/MiniWriting-v2", view="tokenz")
    env = gymnasium.make("collm/BridgeBuild-v2", view="tokens", env_kwargs={"view": 3})
    assert env.unwrapped.env.unwrapped._view == 3
    with pytest.raises(ValueError, match=re.escape("env_kwargs={'view': 3}")):
        gymnasium.make("collm/BridgeBuild-v2", view=3)
