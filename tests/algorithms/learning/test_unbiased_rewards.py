"""The expected gradient follows the team's return if agents are truncated singly, and the price of divergence."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest
import torch
from enumeration import AGENTS, Game, exact_gradient, expected_gradient, make_algorithm, relative_error, rows_of
from torch.nn.functional import logsigmoid

PRICE = 0.7


class Truncating(Game):
    """A game whose environment truncates an agent that leaves while the other plays on."""

    def episode(self, course, group, index):
        is_terminated = {agent: agent in course.turns[-1] for agent in AGENTS}
        finals = {agent: self._observation(course, agent, len(course.turns)) for agent in course.turns[-1]}
        finals |= {agent: ("final", agent) for agent in AGENTS if agent not in finals}
        return replace(super().episode(course, group, index), is_terminated=is_terminated, finals=finals)


def gradient(name, game, **settings):
    """The expected gradient of an update in the unit of the return."""
    has_reference = "reference_kl_coef" in settings
    algorithm = make_algorithm(name, rollout_buffer_size=2, **settings)
    return game.num_turns * expected_gradient(algorithm, game, has_reference=has_reference)


@pytest.mark.parametrize("name", ["iac", "maac", "ippo", "mappo"])
@pytest.mark.parametrize("estimator", [{"estimator": "monte_carlo"}, {"estimator": "gae", "trace": 1.0}])
def test_the_truncation_of_one_agent_does_not_bias_the_gradient(name, estimator):
    game = Truncating("leaving")
    assert relative_error(gradient(name, game, **estimator), exact_gradient(game)) <= 1e-6


def exact_gradient_with_price(game, charged):
    """Of the expected team return minus the price times the divergences of the charged agents from even coins."""
    logits = game.logits.clone().requires_grad_()
    place = {row: i for i, row in enumerate(game.rows)}
    values = []
    for course in game.courses:
        decisions = [each for agent in charged for each in course.decisions(agent)]
        signs = torch.tensor([2.0 * token - 1 for _, token in decisions], dtype=torch.float64)
        logprobs = logsigmoid(logits[[place[row] for row, _ in decisions]] * signs)
        values.append(course.team_return() - PRICE * (logprobs + log(2)).sum())
    return torch.autograd.grad((game.probabilities(logits) * torch.stack(values)).sum(), logits)[0]


@pytest.mark.parametrize("kind", ["full", "early end", "leaving"])
def test_a_joint_critic_s_agents_pay_for_the_sum_of_all_divergences(kind):
    game = Game(kind)
    found = gradient("maac", game, trace=1.0, reference_kl_coef=PRICE, reference_kl_in="reward")
    assert relative_error(found, exact_gradient_with_price(game, AGENTS)) <= 1e-6


@pytest.mark.parametrize("kind", ["full", "early end", "leaving"])
@pytest.mark.parametrize(("name", "settings"), [("iac", {"trace": 1.0}), ("mareinforce", {"num_generations": 1})])
def test_without_a_joint_critic_each_agent_pays_for_its_own_divergence(name, settings, kind):
    game = Game(kind)
    found = gradient(name, game, reference_kl_coef=PRICE, reference_kl_in="reward", **settings)
    for agent in AGENTS:
        rows = rows_of(game, agent)
        assert relative_error(found[rows], exact_gradient_with_price(game, (agent,))[rows]) <= 1e-6
