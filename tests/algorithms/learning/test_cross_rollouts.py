"""Every completion with every other: what a reply is worth among all the partner's, at the price of branches."""

from dataclasses import replace

import enumeration
import numpy as np
import pytest
from enumeration import Course, Game, exact_gradient, expected_gradient, make_algorithm, relative_error
from probes import AGENTS, TextProbe

from collm.agents.core import Completion, Policy
from collm.algorithms.learning.cross_rollouts import average_cross_rewards
from collm.algorithms.rollout.collector import RolloutCollector, grouped_plans
from collm.envs.core import Outcome, TextParallelEnv
from collm.envs.vectors.vector import SyncVector


class Digits(TextParallelEnv):
    """Pays one agent ten times its digit plus the other's, and the other one the product."""

    def __init__(self):
        super().__init__(("left_0", "right_0"), 1)

    def deal(self, task):
        return dict.fromkeys(self.possible_agents, f"go {self.rng.random()}")

    def play(self, replies):
        left, right = int(replies["left_0"]), int(replies["right_0"])
        return Outcome({"left_0": 10.0 * left + right, "right_0": float(left * right)})


class Counting(Policy):
    """Says 1, 2, 3, … in the order of the rollouts."""

    def act(self, requests, *, greedy=False):
        return [Completion(str(request.stream[1] + 1)) for request in requests]


def played(num_rollouts):
    vector = SyncVector(Digits, 4)
    collector = RolloutCollector(vector, dict.fromkeys(("left_0", "right_0"), Counting()))
    return collector.collect(grouped_plans([0], num_rollouts)), vector


@pytest.mark.parametrize("num_envs", [1, 4, 5, 99])
def test_three_agents_are_averaged_over_all_joint_actions_of_their_own_group_by_a_loop(num_envs):
    """Every task has its own seed, which shifts the rewards."""
    names = ("left_0", "middle_0", "right_0")

    def worth(offset, said):
        left, middle, right = said
        return dict(zip(names, (offset + left * middle, 10.0 * right - left, 100.0 * middle + left), strict=True))

    class Three(TextParallelEnv):
        def __init__(self):
            super().__init__(names, 1)

        def deal(self, task):
            self.offset = self.rng.randrange(1000)
            return dict.fromkeys(names, f"go {self.offset}")

        def play(self, replies):
            return Outcome(worth(self.offset, [len(replies[name]) for name in names]))

    class Random(Policy):
        def act(self, requests, *, greedy=False):
            return [Completion("x" * np.random.default_rng(request.stream).integers(1, 9)) for request in requests]

    vector = SyncVector(Three, num_envs)
    episodes = RolloutCollector(vector, dict.fromkeys(names, Random())).collect(grouped_plans([7, 8], 3))
    shaped, num_steps = average_cross_rewards(episodes, vector, lambda reward: reward**2)
    assert num_steps == 2 * (3**3 - 3)
    paid, _ = average_cross_rewards(episodes, vector, None, pays_team=True)
    for group in (0, 1):
        members = [each for each in episodes if each.group == group]
        offset = int(members[0].tracks["left_0"][0].observation.split()[-1])
        lengths = [[len(each.tracks[name][0].completion.action) for each in members] for name in names]
        for i, name in enumerate(names):
            for g, number in enumerate(3 * group + np.arange(3)):
                kept = [[row[g]] if j == i else row for j, row in enumerate(lengths)]
                every = [worth(offset, (a, b, c)) for a in kept[0] for b in kept[1] for c in kept[2]]
                own = np.mean([each[name] ** 2 for each in every])
                team = np.mean([sum(each.values()) / 3 for each in every])
                assert shaped[number].tracks[name][0].reward == pytest.approx(own, rel=1e-12)
                assert paid[number].tracks[name][0].reward == pytest.approx(team, rel=1e-12)
                assert shaped[number].tracks[name][0].completion is episodes[number].tracks[name][0].completion


def test_the_team_s_mean_counts_agents_that_never_moved():
    episodes, vector = played(2)
    larger = [replace(each, num_agents=4) for each in episodes]
    of_two, of_four = (average_cross_rewards(each, vector, None, pays_team=True)[0] for each in (episodes, larger))
    # left says 1 or 2, right too: 10 l + r and l r, together 12, 14 for 1 and 23, 26 for 2, here for left
    assert [each.tracks["left_0"][0].reward for each in of_two] == [(12 + 14) / 4, (23 + 26) / 4]
    assert [each.tracks["left_0"][0].reward for each in of_four] == [(12 + 14) / 8, (23 + 26) / 8]


def test_games_of_several_turns_are_refused():
    vector = SyncVector(lambda: TextProbe("delayed"), 4)
    episodes = RolloutCollector(vector, dict.fromkeys(AGENTS, Counting())).collect(grouped_plans([0], 2))
    with pytest.raises(ValueError, match="has 3 turns"):
        average_cross_rewards(episodes, vector, None)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_every_rollout_must_have_started_as_its_branches_do(number):
    episodes, vector = played(3)
    tracks = dict(episodes[number].tracks)
    tracks["right_0"] = (replace(tracks["right_0"][0], observation="another start"),)
    episodes[number] = replace(episodes[number], tracks=tracks)
    with pytest.raises(ValueError, match="seed 0 gave 'right_0' another"):
        average_cross_rewards(episodes, vector, None)


WAITER = "c_0"


class Listened(Course):
    """A course whose rewards go to a third agent, too, which waits."""

    def team_return(self, start=0):
        return sum(self.reward(agent, 0) for agent in (*enumeration.AGENTS, WAITER)) / 3


class OneTurn(Game):
    """Two agents act in the only turn."""

    payees = enumeration.AGENTS

    def _observation(self, course, agent, turn):
        return f"go {agent}"

    def reset(self, copy, seed, options):
        return {agent: f"go {agent}" for agent in enumeration.AGENTS}, {}

    def step(self, actions):
        courses = {copy: self._course((dict(words),)) for copy, words in actions.items()}
        return {copy: ({}, {each: course.reward(each, 0) for each in self.payees}) for copy, course in courses.items()}


class OneWaits(OneTurn):
    """A third agent waits and is paid."""

    payees = (*enumeration.AGENTS, WAITER)

    def _course(self, turns):
        return Listened(turns)

    def episode(self, course, group, index):
        episode = super().episode(course, group, index)
        parts = {"waiting": {WAITER: {0: course.reward(WAITER, 0)}}, "num_agents": 3}
        ends, finals = {**episode.is_terminated, WAITER: True}, {**episode.finals, WAITER: None}
        return replace(episode, is_terminated=ends, finals=finals, **parts)


@pytest.mark.parametrize("game", [OneTurn(num_turns=1), OneWaits(num_turns=1)], ids=["all act", "one waits"])
@pytest.mark.parametrize("reward", ["team", "own"])
@pytest.mark.parametrize("name, factor", [("marloo", 1.0), ("magrpo", 1 / 2)])
def test_the_expected_gradient_of_crossed_completions_is_exact(name, factor, reward, game, monkeypatch):
    class Copies(enumeration.Prescribed):
        def __init__(self, game, policies):
            super().__init__(game, policies)
            self.vector.reset, self.vector.step = game.reset, game.step

    monkeypatch.setattr(enumeration, "Prescribed", Copies)
    settings = {"joint_mode": "cross", "num_generations": 2, "rollout_buffer_size": 2, "credited_reward": reward}
    found = expected_gradient(make_algorithm(name, **settings), game, 2)
    assert relative_error(found, factor * exact_gradient(game, reward)) <= 1e-6
