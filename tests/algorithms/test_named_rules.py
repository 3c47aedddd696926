"""Published credit rules: each equals its paper's formula, and its bias is the one that the documentation states."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from enumeration import AGENTS, BITS, Game, cosines, exact_gradient, expected_gradient, make_algorithm, relative_error

from collm.agents.core import Completion
from collm.algorithms import COMA, algorithm_spec
from collm.algorithms.algorithm import Grid, PolicyBatch
from collm.algorithms.functions.baselines import (
    counterfactual_advantages,
    moving_average_advantages,
    trajectory_advantages,
)
from collm.algorithms.rollout.episode import Episode, Turn

KINDS = ("full", "early end", "leaving")
LENGTHS = torch.tensor([3, 1, 2, 2, 3, 1])  # turns of 6 rollouts, of 2 tasks
TASK = torch.tensor([0, 0, 0, 1, 1, 1])


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def grid(agent="a_0", episodes=()):
    is_real = torch.arange(3) < LENGTHS[:, None]
    rewards = torch.where(is_real, drawn(6, 3), 0.0)
    return Grid(rewards, torch.zeros(6, 4), None, is_real, TASK, agent, episodes)


def assigned(name, **settings):
    return make_algorithm(name, num_generations=3, rollout_buffer_size=6, **settings).advantages(grid())


def outcomes():
    return grid().rewards.sum(dim=1)


def test_at_grpo_compares_the_rewards_of_a_turn_per_task():
    # arXiv:2510.11062, equation 1, for each group (task, agent, turn); a rollout that has ended counts as 0
    expected = torch.zeros(6, 3, dtype=torch.float64)
    for rows in (slice(0, 3), slice(3, 6)):
        rewards = grid().rewards[rows]
        expected[rows] = (rewards - rewards.mean(dim=0)) / (rewards.std(dim=0) + 1e-6)
    torch.testing.assert_close(assigned("at-grpo"), torch.where(grid().is_real, expected, 0.0), rtol=0, atol=1e-6)


def test_dr_mas_normalizes_over_all_turns_of_the_agent_in_the_group():
    # arXiv:2602.08847: mean and deviation of R over the set of (rollout, turn) in which the agent acts
    expected = torch.zeros(6, dtype=torch.float64)
    for task in (0, 1):
        rows = task == TASK
        of_turns = outcomes()[rows].repeat_interleave(LENGTHS[rows])
        expected[rows] = (outcomes()[rows] - of_turns.mean()) / (of_turns.std() + 1e-6)
    expected = torch.where(grid().is_real, expected[:, None], 0.0)
    torch.testing.assert_close(assigned("dr-mas"), expected, rtol=0, atol=1e-6)


def test_m_grpo_is_the_mean_over_random_alignments():
    # arXiv:2511.13288: a rollout of n turns fills 3 places; with n = 1 and 3 the alignment is certain
    lengths = torch.tensor([1, 3, 1])
    is_real = torch.arange(3) < lengths[:, None]
    returns = torch.where(is_real, drawn(3, 3), 0.0)
    aligned = returns[:, 0].repeat_interleave(3)
    above = (returns[:, 0] - aligned.mean()) * torch.tensor([3.0, 1.0, 3.0])
    found = trajectory_advantages(returns, torch.zeros(3), is_real, weighs_rollouts_equally=True)
    torch.testing.assert_close(found, torch.where(is_real, above[:, None], 0.0), rtol=0, atol=1e-6)


def test_dr_mas_and_m_grpo_are_equal_if_all_rollouts_have_the_same_number_of_turns():
    returns = drawn(6, 2)
    found = [trajectory_advantages(returns, TASK, weighs_rollouts_equally=each) for each in (True, False)]
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("weighs_rollouts_equally", [True, False])
def test_equal_returns_have_no_advantage(weighs_rollouts_equally):
    settings = {"divide_by_std": True, "weighs_rollouts_equally": weighs_rollouts_equally}
    assert not trajectory_advantages(torch.full((6, 3), 0.1), TASK, grid().is_real, **settings).any()


def test_a_lone_rollout_has_no_advantage():
    assert not trajectory_advantages(drawn(1, 1), torch.zeros(1), divide_by_std=True).any()


def test_rae_reads_the_moving_average_before_it_updates_it():
    # arXiv:2506.24119 with decay 0.5: b = 1, 2, 0 before the returns 3, -2, 4
    found, last = moving_average_advantages(torch.tensor([3.0, -2.0, 4.0]), 1.0, 0.5)
    assert found.tolist() == [2.0, -4.0, 4.0] and last == 2.0


def test_rae_keeps_one_average_per_agent_in_checkpoints():
    algorithm = make_algorithm("rae", baseline_decay=0.5)
    first = algorithm.advantages(grid())
    expected, last = moving_average_advantages(outcomes(), 0.0, 0.5)
    torch.testing.assert_close(first, torch.where(grid().is_real, expected[:, None], 0.0), rtol=0, atol=1e-6)
    algorithm.advantages(grid("a_1"))
    resumed = make_algorithm("rae", baseline_decay=0.5)
    resumed.load_state_dict(algorithm.state_dict())
    assert resumed.baselines == {"a_0": last, "a_1": last}
    torch.testing.assert_close(resumed.advantages(grid()), algorithm.advantages(grid()))


def test_difference_rewards_read_what_the_replay_measured():
    def episode(index, difference):
        track = (Turn("", Completion("word"), 9.0, 0),)
        infos = ({"difference/a_0": difference},)
        return Episode(index, 0, 0, {"a_0": track}, (), {"a_0": ""}, {"a_0": True}, infos)

    episodes = tuple(episode(*each) for each in enumerate([1.0, 0.25, -0.5]))
    one_turn = Grid(torch.full((3, 1), 9.0), torch.zeros(3, 2), None, torch.ones(3, 1) > 0, TASK[:3], "a_0", episodes)
    found = make_algorithm("difference", num_generations=3, rollout_buffer_size=3).advantages(one_turn)
    assert found.flatten().tolist() == [1.125, 0.0, -1.125]


@pytest.mark.parametrize("setting", [{"reward_model": "judge"}, {"early_termination_threshold": 1.0}])
def test_difference_rewards_refuse_settings_that_they_would_ignore(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        make_algorithm("difference", **setting)


def test_coma_subtracts_the_mean_over_the_replies_by_hand():
    action_values = torch.tensor([[1.0, 3.0], [0.0, 4.0]])
    probabilities = torch.tensor([[0.5, 0.5], [0.1, 0.3]])  # only their ratio counts
    found = counterfactual_advantages(action_values, probabilities, torch.tensor([1, 0]))
    assert found.tolist() == [1.0, -3.0]


def test_coma_refuses_a_critic_without_actions():
    with pytest.raises(ValueError, match="critic_type"):
        make_algorithm("coma", critic_type="v")


def test_coma_keeps_the_most_frequent_replies_in_checkpoints(monkeypatch):
    monkeypatch.setattr(COMA, "max_replies", 1)
    algorithm = make_algorithm("coma")
    algorithm.replies("a_0", ["x", "y", "y"])
    resumed = make_algorithm("coma")
    resumed.load_state_dict(algorithm.state_dict())
    assert resumed.replies("a_0", ["z"]) == ["y", "z"]


def expected(name, kind, **options):
    game = Game(kind)
    settings = {"num_generations": 2} if "num_generations" in vars(algorithm_spec(name).config()) else {}
    settings |= {"credited_reward": "team", "rollout_buffer_size": 2, "mini_batch_size": None}
    algorithm = options.pop("algorithm", None) or make_algorithm(name, **settings)
    return game, game.num_turns * expected_gradient(algorithm, game, 2, **options), exact_gradient(game)


@pytest.mark.parametrize("kind", KINDS)
def test_dr_grpo_is_biased_only_in_scale(kind):
    _, found, exact = expected("dr-grpo", kind)
    assert relative_error(found, exact / 2) <= 1e-6  # 1 - 1 / G


class Fixed(dict):
    """Averages that no update changes, so that the courses of the enumeration are independent."""

    def __setitem__(self, key, value):
        pass


@pytest.mark.parametrize("kind", KINDS)
def test_rae_is_unbiased(kind):
    algorithm = make_algorithm("rae", credited_reward="team", rollout_buffer_size=2)
    algorithm.baselines = Fixed(zip(AGENTS, (0.7, -1.3), strict=True))
    _, found, exact = expected("rae", kind, algorithm=algorithm)
    assert relative_error(found, exact) <= 1e-6


@pytest.mark.parametrize("kind", KINDS[:2])
def test_coma_with_an_exact_critic_is_unbiased(kind):
    algorithm = make_algorithm("coma", credited_reward="team", rollout_buffer_size=2)
    algorithm.counts = {agent: Counter(BITS) for agent in AGENTS}  # the replies of an earlier update
    _, found, exact = expected("coma", kind, algorithm=algorithm, is_exact=True)
    assert relative_error(found, exact) <= 1e-6


COSINES = {
    "dapo": ((0.9997, 0.9724), (0.9877, 0.9872), (0.9955, 0.9983)),
    "gspo": ((0.9997, 0.9724), (0.9877, 0.9872), (0.9955, 0.9983)),
    "at-grpo": ((0.2713, 0.9453), (0.6771, -0.2239), (0.5673, -0.9775)),
    "dr-mas": ((0.9986, 0.9771), (0.96, 0.9535), (0.9859, 0.9906)),
    "m-grpo": ((0.9986, 0.9771), (0.9476, 0.9243), (0.9644, 0.9852)),
}
"""Cosines to the gradient of the team's return, by kind of game and agent."""


@pytest.mark.parametrize("name", COSINES)
def test_the_bias_of_the_other_rules_is_the_documented_one(name):
    for kind, known in zip(KINDS, COSINES[name], strict=True):
        game, found, exact = expected(name, kind)
        assert cosines(found, exact, game) == pytest.approx(known, abs=1e-4)


@pytest.mark.parametrize("name", ["dr-grpo", "dapo", "gspo"])
def test_the_losses_equal_the_formulas_of_the_papers(name):
    """3 completions of 1, 4 and 2 tokens of at most 4, with ratios on both sides of the clip ranges."""
    lengths = torch.tensor([1, 4, 2])
    turn_of_token = torch.arange(3).repeat_interleave(lengths)
    logprobs, sampled, advantages = drawn(7), drawn(7, seed=1), torch.tensor([1.0, -0.5, 0.3], dtype=torch.float64)
    algorithm = make_algorithm(name, mini_batch_size=None)
    found = algorithm.loss(PolicyBatch(logprobs, sampled, turn_of_token, advantages, 3, 7)).loss
    config = algorithm.config
    log_ratio = logprobs - sampled
    if name == "gspo":  # arXiv:2507.18071, equation 5
        means = torch.zeros(3, dtype=torch.float64).index_add(0, turn_of_token, log_ratio) / lengths
        ratio, credited, divisor = means.exp(), advantages, 3
    else:  # arXiv:2503.14476, equation 8; arXiv:2503.20783: the learner replaces 7 by 3 * 4 tokens
        ratio, credited, divisor = log_ratio.exp(), advantages[turn_of_token], 7
    clipped = ratio.clamp(1 - config.clip_range, 1 + (config.clip_range_high or config.clip_range))
    loss = -torch.minimum(ratio * credited, clipped * credited).sum() / divisor
    assert float((found - loss).abs()) <= 1e-6


class Differences(Game):
    """Game whose episodes have the return without each agent: a replay in which its words are the first of `words`."""

    def episode(self, course, group, index):
        found = {}
        for agent in AGENTS:
            turns = tuple({**words, agent: self.words[0]} for words in course.turns)
            found[f"difference/{agent}"] = course.team_return() - replace(course, turns=turns).team_return()
        episode = super().episode(course, group, index)
        return replace(episode, infos=(*episode.infos[:-1], found))


@pytest.mark.parametrize("num_turns", [1, 2])
def test_difference_rewards_are_unbiased_if_no_reply_depends_on_another_agent(num_turns):
    algorithm = make_algorithm("difference", num_generations=2, credited_reward="team", rollout_buffer_size=2)
    game = Differences(num_turns=num_turns)
    assert relative_error(num_turns * expected_gradient(algorithm, game, 2), exact_gradient(game)) <= 1e-6
