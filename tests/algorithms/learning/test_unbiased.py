"""The expected gradient of an update is that of the expected return, whenever episodes end and whoever leaves."""

from dataclasses import replace
from functools import partial
from itertools import permutations
from math import log

import pytest
import torch
from enumeration import (
    AGENTS,
    UNEVEN,
    Course,
    Game,
    Pennies,
    Waiting,
    cosines,
    exact_gradient,
    expected_gradient,
    expected_sum,
    make_algorithm,
    make_trainer,
    relative_error,
    rows_of,
)
from torch.nn.functional import logsigmoid

from collm.algorithms.learning.policy_learner import TurnBatch

KINDS = ("full", "early end", "leaving")
FORMS = ("sampled", "fixed")
"""Kinds of the denominator of a loss."""
UNBIASED = [
    *[("mareinforce", {"num_generations": 1}), ("marloo", {"num_generations": 2})],
    *[(name, {"estimator": "monte_carlo"}) for name in ("iac", "maac", "ippo", "mappo")],
    *[(name, {"estimator": "gae", "trace": 1.0}) for name in ("iac", "maac", "ippo", "mappo")],
    *[(name, {"estimator": "n_step", "num_steps": 2}) for name in ("iac", "maac")],
    ("iac", {"trace": 1.0, "use_separate_critic": False}),
]
WEAK = {"early end": 43, "leaving": 7}
"""Seeds of games in which an agent's signal is weak, so that a bias of the denominator shows."""


def made(name, **settings):
    return make_algorithm(name, **({"rollout_buffer_size": 2} | settings))


def gradient(algorithm, game, num_episodes=2, **options):
    """The expected gradient of an update in the unit of the return: times the largest number of turns."""
    options |= {"has_value_head": algorithm.has_actor_heads}
    return game.num_turns * expected_gradient(algorithm, game, num_episodes, **options)


def quick_gradient(name, settings, game, reward="own", **options):
    """The expected gradient with the fewest episodes: one group of rollouts, or one episode."""
    size = settings.get("num_generations", 1)
    algorithm = made(name, rollout_buffer_size=size, credited_reward=reward, **settings)
    return gradient(algorithm, game, size, **options)


def received(algorithm, game, courses, turn_limit=2, **options):
    trainer = make_trainer(algorithm, game, **options)
    trainer.collector.vector.turn_limit = turn_limit
    size = algorithm.config.num_generations
    trainer.collector.episodes = [game.episode(course, place // size, place) for place, course in enumerate(courses)]
    trainer.step()
    return trainer.collector.policies[AGENTS[0]].received


class Truncating(Game):
    """A game whose environment truncates an agent that leaves while the other plays on."""

    def episode(self, course, group, index):
        is_terminated = {agent: agent in course.turns[-1] for agent in AGENTS}
        finals = {agent: self._observation(course, agent, len(course.turns)) for agent in course.turns[-1]}
        finals |= {agent: ("final", agent) for agent in AGENTS if agent not in finals}
        return replace(super().episode(course, group, index), is_terminated=is_terminated, finals=finals)


@pytest.mark.parametrize(
    ("kind", "name", "settings"),
    [
        *[(kind, *each) for kind in KINDS[1:] for each in UNBIASED],
        *[("full", *each) for each in UNBIASED if each[0].startswith("mar") or "trace" in each[1]],
        *[("truncated", *each) for each in UNBIASED if each[1].get("estimator") in ("gae", "monte_carlo")],
    ],
)
def test_the_expected_gradient_is_that_of_the_team_s_return(name, settings, kind):
    game = Truncating("leaving") if kind == "truncated" else Game(kind)
    assert relative_error(gradient(made(name, **settings), game), exact_gradient(game)) <= 1e-6


MEAN = ("magrpo", {"num_generations": 2}, {}, 1 - 1 / 2)
SHARED = ("mareinforce", {"num_generations": 1}, {"is_shared": True}, 1 / len(AGENTS))
THREE = {"num_generations": 3, "rollout_buffer_size": 3}


@pytest.mark.parametrize(
    ("kind", "name", "settings", "options", "factor"),
    [
        *[(kind, *MEAN) for kind in KINDS],
        *[(kind, *SHARED) for kind in KINDS],
        *[
            pytest.param("leaving", name, THREE, {"num_episodes": 3}, factor, marks=pytest.mark.slow)
            for name, factor in (("marloo", 1.0), ("magrpo", 1 - 1 / 3))
        ],
        # An epoch of mini-batches of turns: at most 2 episodes of 2 turns, which make 4 of 1 or 1 of 8.
        *[
            ("early end", "ippo", {"trace": 1.0, "mini_batch_size": size}, {"reads_turns_alone": True}, num_steps)
            for size, num_steps in ((1, 4), (8, 1))
        ],
        ("early end", "ippo", {"trace": 1.0, "mini_batch_size": 1}, {}, 2),  # of episodes
        ("early end", "mareinforce", {"num_generations": 1, "max_batch_tokens": 1}, {}, 1),  # passes of any size
    ],
)
def test_the_gradient_of_every_turn_is_scaled_alike(kind, name, settings, options, factor):
    game = Game(kind)
    found = gradient(made(name, **settings), game, **options)
    assert relative_error(found, factor * exact_gradient(game)) <= 1e-6


MAXIMUM = {"full": (0.9957, 0.9885), "early end": (0.9998, 0.5187), "leaving": (0.9979, 0.5264)}
"""Cosines to the true gradient, by agent."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_group_s_maximum_is_a_biased_baseline(kind):
    game = Game(kind)
    found = gradient(made("maremax", num_generations=2), game)
    assert cosines(found, exact_gradient(game), game) == pytest.approx(MAXIMUM[kind], abs=1e-4)


@pytest.mark.parametrize(
    ("kind", "name", "settings"),
    [
        *[(kind, *each) for kind in KINDS[1:] for each in UNBIASED],
        *[("full", *each) for each in UNBIASED if each[0].startswith("mar") or "trace" in each[1]],
        *[("truncated", *each) for each in UNBIASED if each[0].startswith("mar")],  # critics bootstrap
    ],
)
def test_with_its_own_reward_an_agent_climbs_its_own_return(name, settings, kind):
    game = Truncating("leaving") if kind == "truncated" else Game(kind)
    found = quick_gradient(name, settings, game)
    assert relative_error(found, exact_gradient(game, "own")) <= 1e-6
    assert relative_error(exact_gradient(game, "team"), exact_gradient(game, "own")) > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_with_own_rewards_the_group_s_mean_keeps_its_scale(kind):
    name, settings, _, factor = MEAN
    game = Game(kind)
    found = quick_gradient(name, settings, game)
    assert relative_error(found, factor * exact_gradient(game, "own")) <= 1e-6


def test_with_own_rewards_the_group_s_maximum_is_that_of_each_agent_s_returns():
    game = Game("full", num_turns=1)
    logits = game.logits.clone().requires_grad_()
    chances = game.probabilities(logits)
    found = quick_gradient("maremax", {"num_generations": 2}, game)
    for agent in AGENTS:
        returns = torch.tensor([course.own_return(agent) for course in game.courses], dtype=torch.float64)
        advantages = returns[:, None] - torch.maximum(returns[:, None], returns)
        expected = (chances * (advantages @ chances.detach())).sum()
        (exact,) = torch.autograd.grad(expected, logits, retain_graph=True)
        rows = rows_of(game, agent)
        assert relative_error(found[rows], exact[rows]) <= 1e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reward", ["team", "own"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *[(name, {"estimator": "td"}) for name in ("iac", "maac")],
        *[(name, {"trace": 0.5}) for name in ("iac", "maac", "ippo", "mappo")],
    ],
)
def test_with_an_exact_critic_every_estimator_is_unbiased(name, settings, reward, kind):
    game = Game(kind)
    found = quick_gradient(name, settings, game, reward, is_exact=True)
    assert relative_error(found, exact_gradient(game, reward)) <= 1e-6


@pytest.mark.parametrize("reward", ["team", "own"])
@pytest.mark.parametrize(("name", "settings"), [each for each in UNBIASED if each[1].get("num_steps") is None])
def test_agents_that_wait_climb_all_rewards_that_follow_their_turns(name, settings, reward):
    game = Waiting(num_turns=3)
    found = quick_gradient(name, settings, game, reward)
    assert relative_error(found, exact_gradient(game, reward)) <= 1e-6


@pytest.mark.parametrize("reward", ["team", "own"])
@pytest.mark.parametrize("settings", [{"estimator": "td"}, {"trace": 0.5}])
def test_an_exact_joint_critic_is_unbiased_if_agents_wait(settings, reward):
    game = Waiting(num_turns=3)
    found = quick_gradient("maac", settings, game, reward, is_exact=True)
    assert relative_error(found, exact_gradient(game, reward)) <= 1e-6


def test_with_an_arbitrary_critic_one_td_error_is_biased():
    game = Game("early end")
    found = quick_gradient("maac", {"estimator": "td"}, game)
    assert relative_error(found, exact_gradient(game, "own")) > 0.1


@pytest.mark.parametrize("name", ["maac", "mappo"])
@pytest.mark.parametrize("settings", [{"estimator": "td"}, {"estimator": "monte_carlo"}])
def test_a_joint_critic_learns_matching_pennies_with_own_rewards_only(name, settings):
    game = Pennies(num_turns=1)
    exact = exact_gradient(game, "own")
    team, own = (quick_gradient(name, settings, game, reward) for reward in ("team", "own"))
    assert relative_error(own, exact) <= 1e-6
    assert exact_gradient(game).norm() < 1e-12 < 1e-2 < exact.norm()
    assert team.norm() < 1e-6  # the critic's values have mean 0 over the actions


@pytest.mark.parametrize("kind", WEAK)
def test_a_sampled_number_of_turns_biases_the_gradient_and_a_fixed_one_does_not(kind):
    game = Game(kind, seed=WEAK[kind])
    exact = exact_gradient(game)
    sampled, fixed = (gradient(made("mareinforce", num_generations=1, loss_denominator=form), game) for form in FORMS)
    assert min(cosines(sampled, exact, game)) < 0.5
    assert min(cosines(fixed, exact, game)) > 1 - 1e-6


@pytest.mark.parametrize(
    ("name", "settings", "options"),
    [
        ("marloo", {"num_generations": 2}, {}),
        ("maac", {"entropy_coef": 0.3}, {}),
        ("ippo", {"mini_batch_size": 3}, {"reads_turns_alone": True}),  # four turns make mini-batches of 3 and 1
    ],
)
def test_where_all_episodes_have_full_length_both_denominators_give_the_same_digits(name, settings, options):
    game = Game("full")
    courses = game.courses[2:4] if options else (game.courses[1], game.courses[10])
    algorithms = (made(name, loss_denominator=form, **settings) for form in FORMS)
    sampled, fixed = (received(each, game, courses, **options) for each in algorithms)
    assert torch.equal(sampled, fixed) and fixed.norm() > 0.01


def test_a_sampled_number_of_tokens_biases_the_gradient_and_a_fixed_one_does_not():
    game = Game("full", num_turns=1, words=UNEVEN)
    exact = exact_gradient(game)
    settings = {"num_generations": 1, "credit": "token"}
    sampled, fixed = (gradient(made("mareinforce", loss_denominator=form, **settings), game) for form in FORMS)
    assert relative_error(sampled, exact) > 0.1
    assert relative_error(2 * fixed, exact) <= 1e-6  # two tokens per turn at most


def test_an_epoch_of_uneven_mini_batches_of_turns_is_unbiased(monkeypatch):
    """By hand: 3 of 8 possible turns in mini-batches of 2 and 1, over all orders; 8 turns would make 4 of 2."""
    game = Game("early end")
    learner = make_trainer(made("ippo", mini_batch_size=2), game, reads_turns_alone=True).learners[AGENTS[0]]
    long, short = (next(each for each in game.courses if len(each.turns) == length) for length in (2, 1))
    turns = [turn.completion for each in (long, short) for turn in game.episode(each, 0, 0).tracks[AGENTS[0]]]
    advantages = torch.tensor([1.0, -2.0, 0.5])
    logprobs = learner.policy.evaluate([turns]).logprobs
    (sum_over_turns,) = torch.autograd.grad(-(logprobs * advantages).sum(), learner.policy.logits)
    learner.policy.received.zero_()
    orders = list(permutations(range(3)))
    for order in orders:
        monkeypatch.setattr(torch, "randperm", lambda count, generator, order=order: torch.tensor(order))
        learner.prepare(TurnBatch([turns], advantages, max_turns=8))()
    torch.testing.assert_close(learner.policy.received / len(orders), 4 * sum_over_turns / 8, atol=0, rtol=1e-6)


FULL = Game("full", num_turns=1, words=UNEVEN)
PRICED = {"reference_kl_coef": 0.5}


@pytest.mark.parametrize(
    ("game", "settings", "sign", "of_turn"),
    [
        *[
            (game, {"entropy_coef": 0.5}, 1, lambda tokens: tokens.entropies.mean())
            for game in (Game("early end"), FULL)
        ],
        (FULL, {"credit": "turn"} | PRICED, -1, lambda tokens: tokens.divergences.sum()),
        (FULL, {"credit": "token"} | PRICED, -1, lambda tokens: tokens.divergences.sum() / 2),
        (FULL, {"credit": "token", "divide_by_length": True} | PRICED, -1, lambda tokens: tokens.divergences.mean()),
    ],
)
def test_entropy_bonus_and_penalty_in_the_loss_are_expected_sums_over_turns(game, settings, sign, of_turn):
    algorithm = made("mareinforce", num_generations=1, reward_scale=0.0, **settings)
    found = gradient(algorithm, game, has_reference=True)
    assert relative_error(found, sign * 0.5 * expected_sum(game, of_turn)) <= 1e-6


def test_episodes_without_a_declared_limit_count_once():
    game = Game("early end")
    algorithm = made("mareinforce", num_generations=1)
    limited, unlimited = (received(algorithm, game, game.courses[:2], limit) for limit in (2, None))
    torch.testing.assert_close(unlimited, 2 * limited)


def test_cut_rollouts_count_their_joint_turns_also_those_after_an_agent_left():
    game = Game("leaving")
    presence = {tuple(AGENTS[0] in words for words in each.turns): each for each in reversed(game.courses)}
    courses = [presence[True, True], presence[True, False]]
    whole = received(made("iac", turns_per_update=None), game, courses, 2)
    cut = received(made("iac", turns_per_update=4), game, courses, None)
    torch.testing.assert_close(cut, whole)


def test_an_agent_that_is_absent_from_an_episode_counts_in_the_denominator():
    game = Game("full", num_turns=1)
    trainer = make_trainer(made("mareinforce", num_generations=1), game)
    both, one = (game.episode(game.courses[0], place, place) for place in range(2))
    gradients = []
    alone = replace(one, tracks={AGENTS[0]: one.tracks[AGENTS[0]]})
    for episodes in ([both], [both, alone]):
        trainer.collector.episodes = episodes
        policy = trainer.collector.policies[AGENTS[1]]
        policy.received.zero_()
        trainer.step()
        gradients.append(policy.received.clone())
    torch.testing.assert_close(gradients[1], gradients[0] / 2)


PRICE = 0.7
PENALTY = {"reference_kl_coef": PRICE, "reference_kl_in": "reward"}


def exact_gradient_with_price(game, charged, earned=Course.team_return):
    """Of the expected return minus the price times the divergences of the charged agents from even coins."""
    logits = game.logits.clone().requires_grad_()
    place = {row: i for i, row in enumerate(game.rows)}
    values = []
    for course in game.courses:
        decisions = [each for agent in charged for each in course.decisions(agent)]
        signs = torch.tensor([2.0 * token - 1 for _, token in decisions], dtype=torch.float64)
        logprobs = logsigmoid(logits[[place[row] for row, _ in decisions]] * signs)
        values.append(earned(course) - PRICE * (logprobs + log(2)).sum())
    return torch.autograd.grad((game.probabilities(logits) * torch.stack(values)).sum(), logits)[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["maac", "iac", "mareinforce"])
def test_each_agent_pays_for_its_own_divergence_and_a_joint_critic_s_agents_for_the_sum(name, kind):
    game = Game(kind)
    settings = {"num_generations": 1} if name == "mareinforce" else {"trace": 1.0}
    found = gradient(made(name, **PENALTY, **settings), game, has_reference=True)
    for agent in AGENTS:
        rows, charged = rows_of(game, agent), AGENTS if name == "maac" else (agent,)
        assert relative_error(found[rows], exact_gradient_with_price(game, charged)[rows]) <= 1e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["maac", "iac", "mareinforce"])
def test_with_own_rewards_each_agent_pays_for_its_own_divergence(name, kind):
    game = Game(kind)
    settings = {"num_generations": 1} if name == "mareinforce" else {"trace": 1.0}
    found = quick_gradient(name, PENALTY | settings, game, has_reference=True)
    for agent in AGENTS:
        rows = rows_of(game, agent)
        exact = exact_gradient_with_price(game, (agent,), partial(Course.own_return, agent=agent))
        assert relative_error(found[rows], exact[rows]) <= 1e-6
