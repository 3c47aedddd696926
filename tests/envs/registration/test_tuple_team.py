"""Multi-agent Gymnasium environments as parallel environments."""

from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Tuple
from pettingzoo.test.parallel_test import parallel_api_test
from replies import begun

from collm.envs import check_env, make
from collm.envs.views import GymAsParallel, TupleTeam


class Meeting(gymnasium.Env):
    """Two agents on a line of five cells, with rewards 0.7 and 0.3 when they meet."""

    metadata: ClassVar = {"render_modes": []}

    def __init__(self, done_of_each: bool = False):
        self.observation_space = Tuple((Box(0, 4, (2,), np.float32), Box(0, 4, (2,), np.float32)))
        self.action_space = Tuple((Discrete(3), Discrete(3)))
        self.done_of_each = done_of_each

    def seen(self):
        return tuple(np.array([cell, other], np.float32) for cell, other in (self.cells, self.cells[::-1]))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cells = [0, int(self.np_random.integers(1, 5))]
        return self.seen(), {"distance": self.cells[1]}

    def step(self, actions):
        assert isinstance(actions, tuple) and len(actions) == 2
        for number, action in enumerate(actions):
            self.cells[number] = min(4, max(0, self.cells[number] + action - 1))
        has_met = self.cells[0] == self.cells[1]
        done = [has_met, has_met] if self.done_of_each else has_met
        return self.seen(), [0.7 * has_met, 0.3 * has_met], done, False, [{"own": 0}, {"own": 1}]


class Haunted(Meeting):
    """Start cells exclude the last cells of the episode before, as in lbforaging 2.0.0."""

    def reset(self, *, seed=None, options=None):
        left = self.__dict__.get("cells", [])
        gymnasium.Env.reset(self, seed=seed)
        self.cells = [0, int(self.np_random.choice([cell for cell in range(1, 5) if cell not in left]))]
        return self.seen(), {}


gymnasium.register("Meeting-v0", Meeting, max_episode_steps=6)
gymnasium.register("Haunted-v0", Haunted, max_episode_steps=6)


@pytest.mark.parametrize("done_of_each", [False, True])
def test_observations_rewards_and_infos_come_in_the_agents_order(done_of_each):
    env = TupleTeam(Meeting(done_of_each))
    seen, infos = env.reset(seed=3)
    distance = int(seen["agent_0"][1])
    assert seen["agent_0"].tolist() == [0, distance] and seen["agent_1"].tolist() == [distance, 0]
    assert infos == {agent: {"distance": distance} for agent in env.possible_agents}
    for left in range(distance, 0, -1):
        assert env.agents == ["agent_0", "agent_1"], left
        _, rewards, terminations, _, infos = env.step({"agent_1": 0, "agent_0": 1})  # by name, in any order
    assert rewards == {"agent_0": 0.7, "agent_1": 0.3} and all(terminations.values()) and env.agents == []
    assert infos == {"agent_0": {"own": 0}, "agent_1": {"own": 1}}
    with pytest.raises(RuntimeError, match="reset"):
        env.step({"agent_0": 0, "agent_1": 0})


def test_who_is_done_waits_and_other_spaces_and_short_lists_of_rewards_are_refused():
    class Uneven(Meeting):
        turn = 0

        def step(self, actions):
            self.turn += 1
            return self.seen(), [1.0, 1.0], [True, self.turn == 2], [False, False], {}

    env = begun(TupleTeam(Uneven()), seed=0)
    assert not any(env.step({"agent_0": 1, "agent_1": 1})[2].values()) and len(env.agents) == 2
    assert all(env.step({"agent_0": 1, "agent_1": 1})[2].values()) and env.agents == []
    with pytest.raises(TypeError, match="TupleTeam needs a Tuple"):
        TupleTeam("Blackjack-v1")

    class Short(Meeting):
        def step(self, actions):
            return self.seen(), [1.0], False, False, {}

    env = begun(TupleTeam(Short()), seed=0)
    with pytest.raises(TypeError, match="rewards must have an entry for each of 2 agents"):
        env.step({"agent_0": 1, "agent_1": 1})


def test_a_tuple_team_is_found_by_id_truncated_as_a_whole_and_keeps_the_contract(capsys):
    env = begun(TupleTeam("Meeting-v0"), seed=0)
    for _ in range(6):
        _, _, terminations, truncations, _ = env.step({"agent_0": 1, "agent_1": 1})
    assert not any(terminations.values()) and all(truncations.values())
    assert isinstance(make("gymnasium/Meeting-v0"), TupleTeam)
    assert isinstance(make("gymnasium/Blackjack-v1"), GymAsParallel)  # its observations are a tuple of one agent's
    assert isinstance(make(f"{__name__}:Meeting", done_of_each=True), TupleTeam)
    assert "reset_midway" in check_env(lambda: make("gymnasium/Haunted-v0"))
    with pytest.raises(AssertionError, match="reset_midway"):
        check_env(lambda: TupleTeam(Haunted()))  # only ids are built again
    assert "same_seed" in check_env(lambda: TupleTeam("Meeting-v0"))
    parallel_api_test(TupleTeam("Meeting-v0"), num_cycles=30)


def test_an_entry_of_dict_observations_is_chosen_by_name():
    class Pictured(gymnasium.Env):
        observation_space = gymnasium.spaces.Dict(image=Box(0, 255, (7, 7, 3), np.uint8), direction=Discrete(4))
        action_space = Discrete(2)

        def reset(self, *, seed=None, options=None):
            return {"image": np.full((7, 7, 3), 5, np.uint8), "direction": 1}, {}

    gymnasium.register("Pictured-v0", Pictured)
    env = make("gymnasium/Pictured-v0", observed="image")
    assert env.observation_space("agent_0").shape == (7, 7, 3)
    assert env.reset(seed=0)[0]["agent_0"].max() == 5
    with pytest.raises(TypeError, match="observed='mission'"):
        make("gymnasium/Pictured-v0", observed="mission")
