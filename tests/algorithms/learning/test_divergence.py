"""What is not finite is named with its update, its agent and what was finite before; no weight becomes so."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from probes import AGENTS, NumberProbe, TextProbe, word_policies, word_policy

from collm.agents.core import Divergence, Request
from collm.agents.numeric.policy import NumericPolicy
from collm.algorithms import IAC, MAAC, MAGRPO, IACConfig, MAACConfig, ReinforceConfig
from collm.algorithms.runs.assembly.trainers import make_trainer
from collm.envs.core import Outcome
from collm.envs.vectors.vector import SyncVector

SMALL = {"rollout_buffer_size": 8}


class Scaled(TextProbe):
    """Rewards of either sign, finite and huge."""

    def play(self, replies):
        outcome = super().play(replies)
        return Outcome(self.rng.choice((-1e300, 1e300)), outcome.feedback)


def text_trainer(algorithm, world=lambda: TextProbe("observed"), **parts):
    policies = word_policies()
    return make_trainer(algorithm, SyncVector(world, 4), policies, **parts)


def number_trainer(algorithm):
    vector = SyncVector(lambda: NumberProbe("observed"), 4)
    policies = {
        agent: NumericPolicy.for_spaces(vector.observation_space(agent), vector.action_space(agent), seed=i)
        for i, agent in enumerate(AGENTS)
    }
    return make_trainer(algorithm, vector, policies)


def diverged(trainer, most=5):
    """The message of the update that diverges."""
    with pytest.raises(Divergence) as caught:
        for _ in range(most):
            trainer.step()
    for learner in trainer.learners.values():
        assert all(weight.isfinite().all() for weight in learner.policy.parameters())
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    "algorithm",
    [
        MAGRPO(ReinforceConfig(agent_learning_rate=1e20, num_generations=4, **SMALL)),
        MAAC(MAACConfig(agent_learning_rate=1e20, critic_warmup=0, **SMALL)),
    ],
    ids=["magrpo", "maac"],
)
def test_a_ruinous_learning_rate_is_named_at_the_next_update(algorithm):
    fault = diverged(text_trainer(algorithm))
    assert fault.update == 2
    assert re.match(r"update 2, agent speaker_[01](, speaker_1)?: ", str(fault))
    assert re.search(
        r"the largest weight is 1\.?\d*e\+20; the previous update had return [\d.]+, policy_loss", str(fault)
    )
    assert str(fault).endswith("lower the learning rate (1e+20), or compute in float32")
    not_finite = [name for name, value in fault.metrics.items() if not np.isfinite(value)]
    assert not_finite == ["kl_after_update"], "measured with the ruined weights"


def test_weights_that_are_not_numbers_are_named_with_their_agent():
    trainer = text_trainer(IAC(IACConfig(**SMALL)))
    trainer.step()
    with torch.no_grad():
        trainer.collector.policies["speaker_1"].parameters()[0].fill_(float("nan"))
    with pytest.raises(Divergence, match=r"^update 2, agent speaker_1: the model's logits are not numbers; the"):
        trainer.step()


def test_a_perceptron_that_says_no_numbers_is_named_with_its_agent():
    trainer = number_trainer(MAGRPO(ReinforceConfig(num_generations=4, **SMALL)))
    with torch.no_grad():
        trainer.collector.policies["speaker_0"].parameters()[0].fill_(float("nan"))
    with pytest.raises(Divergence, match=r"^update 1, agent speaker_0: the network's outputs are not numbers"):
        trainer.step()


def test_a_critic_that_diverged_is_named_and_not_the_policy():
    trainer = text_trainer(MAAC(MAACConfig(critic_warmup=0, **SMALL)))
    trainer.step()
    with torch.no_grad():
        trainer.critics["joint"].critic.parameters()[0].fill_(float("nan"))
    fault = diverged(trainer)
    assert "the critic's values are not finite" in str(fault)


def test_rewards_too_large_to_learn_from_are_shown_beside_the_gradient():
    """Finite, so no fault of the environment; the message shows them, where the learning rate alone was blamed."""
    fault = diverged(text_trainer(MAGRPO(ReinforceConfig(num_generations=4, **SMALL)), lambda: Scaled("observed")))
    assert fault.update == 1
    assert "observations and rewards (-1e+300 to 1e+300) were finite" in str(fault)


def test_a_reward_processor_that_makes_what_is_not_finite_is_named():
    trainer = text_trainer(IAC(IACConfig(**SMALL)), reward_processor=lambda reward: float("nan"))
    fault = diverged(trainer)
    assert re.match(
        r"update 1, agent speaker_0: the reward to learn from is nan in turn 1 of episode 0 \(seed \d+\); "
        r"the environment's own reward is finite, so correct what changes it: reward_processor",
        str(fault),
    )


def test_a_policy_asked_alone_names_its_agent_too():
    policy = word_policy(0)
    with torch.no_grad():
        policy.parameters()[0].fill_(float("nan"))
    with pytest.raises(Divergence, match=r"^agent x_0: "):
        policy.act([Request("x_0", "say red", (0, 0, 0, 0))])
