"""Teams of constant size."""

import numpy as np
import pytest
from heard import Heard
from pettingzoo.test import parallel_api_test
from replies import begun

from collm.envs import Outcome, make
from collm.envs.views import TokenActions, TokenObservations
from collm.envs.wrappers import KeptLeavers


class Leaving(Heard):
    """The first player leaves after the first of three turns, the second after the second; turns pay their number."""

    def __init__(self):
        super().__init__(["player_0", "player_1", "player_2"], max_turns=3, prompt="go")
        self.heard = []

    def play(self, replies):
        self.heard.append(sorted(replies))
        leaver = f"player_{self.turn}" if self.turn < 2 else None
        return Outcome(float(self.turn + 1), finished=frozenset(filter(None, [leaver])))


def test_who_leaves_stays_without_reward_and_all_end_together():
    bare = Leaving()
    env = KeptLeavers(bare)
    _, infos = env.reset(seed=0)
    assert all(info["has_left"] == 0 for info in infos.values())
    seen, paid, ended, left = [], [], [], []
    while env.agents:
        observations, rewards, terminations, truncations, infos = env.step(dict.fromkeys(env.agents, "word"))
        seen.append(observations)
        paid.append(list(rewards.values()))
        ended.append([terminations[agent] or truncations[agent] for agent in observations])
        left.append([infos[agent]["has_left"] for agent in observations])
    assert paid == [[1.0, 1.0, 1.0], [0.0, 2.0, 2.0], [0.0, 0.0, 3.0]]
    assert ended == [[False] * 3, [False] * 3, [True] * 3]
    assert left == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert seen[0]["player_0"] == seen[1]["player_0"] == seen[2]["player_0"] != seen[2]["player_2"]
    assert bare.heard == [["player_0", "player_1", "player_2"], ["player_1", "player_2"], ["player_2"]]
    bare, kept = make("collm/MiniBuild-v0"), KeptLeavers(make("collm/MiniBuild-v0"))
    first, _ = bare.reset(seed=3)
    assert kept.reset(seed=3)[0] == first
    while bare.agents:
        played, again = (env.step(dict.fromkeys(env.agents, "desk wood")) for env in (bare, kept))
        assert played[:4] == again[:4]
    assert kept.agents == []


def test_an_agent_cut_short_ends_truncated_and_the_others_as_they_left():
    class Cut(Leaving):
        def step(self, actions):
            observations, rewards, terminations, truncations, infos = super().step(actions)
            if self.turn == 2 and "player_2" in terminations:  # a limit from outside
                self.agents = []
                truncations["player_2"] = True
            return observations, rewards, terminations, truncations, infos

    env = begun(KeptLeavers(Cut()), seed=0)
    for _ in range(2):
        _, _, terminations, truncations, _ = env.step(dict.fromkeys(env.agents, ""))
    assert env.agents == []
    assert terminations == {"player_0": True, "player_1": True, "player_2": False}
    assert truncations == {"player_0": False, "player_1": False, "player_2": True}


@pytest.mark.filterwarnings("ignore")
def test_views_go_above_and_below_it():
    above = TokenActions(TokenObservations(KeptLeavers(Leaving()), 16), 4)
    below = KeptLeavers(TokenActions(TokenObservations(Leaving(), 16), 4))
    for env in (above, below):
        parallel_api_test(env, num_cycles=20)
        assert list(env.reset(seed=0)[0]) == env.agents == env.possible_agents
        num_turns = 0
        while env.agents:
            observations, *_ = env.step({agent: np.zeros(4, int) for agent in env.agents})
            assert list(observations) == env.possible_agents
            num_turns += 1
        assert num_turns == 3
