"""Gymnasium environments as parallel environments with a single agent."""

import gymnasium
import numpy as np
import pytest
from pettingzoo.test.parallel_test import parallel_api_test
from replies import begun

from collm.envs import check_env, make
from collm.envs.registration.foreign.gym_as_parallel import GymAsParallel

NAMES = ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1", "Acrobot-v1"]


@pytest.mark.parametrize("name", NAMES)
def test_a_gymnasium_environment_passes_the_checks(name, capsys):
    assert "same_seed" in check_env(lambda: GymAsParallel(name))
    parallel_api_test(GymAsParallel(name), num_cycles=50)


def test_episodes_are_those_of_the_environment_itself_and_the_time_limit_truncates():
    team, alone = GymAsParallel("CartPole-v1"), gymnasium.make("CartPole-v1")
    (ours, _), (theirs, _) = team.reset(seed=3), alone.reset(seed=3)
    assert team.np_random is team.env.unwrapped.np_random  # from which wrappers draw
    while team.agents:
        assert np.array_equal(ours["agent_0"], theirs)
        ours, rewards, terminations, truncations, _ = team.step({"agent_0": 1})
        theirs, reward, is_terminated, is_truncated, _ = alone.step(1)
        assert (rewards, terminations) == ({"agent_0": reward}, {"agent_0": is_terminated})
        assert truncations == {"agent_0": is_truncated}
    env = begun(GymAsParallel("Pendulum-v1", max_episode_steps=3), seed=0)
    for _ in range(3):
        _, _, terminations, truncations, _ = env.step({"agent_0": np.zeros(1)})
    assert (terminations, truncations) == ({"agent_0": False}, {"agent_0": True})
    with pytest.raises(RuntimeError, match="reset"):
        env.step({"agent_0": np.zeros(1)})


def test_an_action_may_come_in_any_wrapping_and_out_of_bounds_counts_as_the_nearest_within():
    def earned(name, action):
        env = begun(GymAsParallel(name), seed=0)
        return env.step({"agent_0": action})[1]

    for action in (9.0, [9.0], np.array([9.0]), np.float64(9)):
        assert earned("Pendulum-v1", action) == earned("Pendulum-v1", np.array([2.0], np.float32))
    for action in (1, np.int64(1), np.array(1), np.array([1])):
        assert earned("CartPole-v1", action) == {"agent_0": 1.0}


def test_gymnasium_environments_are_made_by_id_and_arguments_need_one():
    env = make("gymnasium/CartPole-v1", max_episode_steps=7)
    assert isinstance(env, GymAsParallel)
    assert env.env.spec.max_episode_steps == 7
    assert "hash_seed" in check_env("gymnasium/CartPole-v1")
    with pytest.raises(TypeError, match="render_mode"):
        GymAsParallel(gymnasium.make("CartPole-v1"), render_mode="ansi")


@pytest.mark.parametrize("kwargs", [{"flatten": True}, {"flatten": False}, {}])
def test_observations_are_flattened_on_request(kwargs):
    env, alone = make("gymnasium/Blackjack-v1", **kwargs), gymnasium.make("Blackjack-v1")
    if kwargs.get("flatten"):
        alone = gymnasium.wrappers.FlattenObservation(alone)
    assert env.observation_space("agent_0") == alone.observation_space
    assert np.array_equal(env.reset(seed=3)[0]["agent_0"], alone.reset(seed=3)[0])
    assert env.unwrapped.spec is not None
    assert "same_seed" in check_env(lambda: make("gymnasium/Blackjack-v1", **kwargs))


class Mission(gymnasium.spaces.Space):
    """A space without `is_np_flattenable`, like MiniGrid's."""


@pytest.mark.parametrize("space", [gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(2)), Mission()])
def test_observations_without_a_fixed_size_cannot_be_flattened(clean_registry, space):
    class Growing(gymnasium.Env):
        observation_space = space
        action_space = gymnasium.spaces.Discrete(2)

    gymnasium.register("Growing-v0", Growing)
    try:
        with pytest.raises(TypeError, match="flatten=True needs observations of a fixed size"):
            make("gymnasium/Growing-v0", flatten=True)
    finally:
        del gymnasium.registry["Growing-v0"]
