"""What is not finite is named with its update, its agent and what was finite before; no weight becomes so."""

import re
from functools import partial

import numpy as np
import pytest
import torch
from probes import TextProbe, word_policy
from small_trainers import number_trainer, text_trainer

from collm.agents.core import Divergence, Request
from collm.envs.core import Outcome

ONE_TURN = partial(TextProbe, "observed")


class Scaled(TextProbe):
    """Rewards of either sign, finite and huge."""

    def play(self, replies):
        outcome = super().play(replies)
        return Outcome(self.rng.choice((-1e300, 1e300)), outcome.feedback)


def ruin(model):
    with torch.no_grad():
        model.parameters()[0].fill_(float("nan"))


def diverged(trainer, most=5):
    with pytest.raises(Divergence) as caught:
        for _ in range(most):
            trainer.step()
    for learner in trainer.learners.values():
        assert all(weight.isfinite().all() for weight in learner.policy.parameters())
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("name", ["magrpo", "maac"])
def test_a_ruinous_learning_rate_is_named_at_the_next_update(name):
    fault = diverged(text_trainer(name, ONE_TURN, agent_learning_rate=1e20))
    assert fault.update == 2
    assert re.match(r"update 2, agent speaker_[01](, speaker_1)?: .*e\+20; .*return .*\(1e\+20\)", str(fault))
    not_finite = [name for name, value in fault.metrics.items() if not np.isfinite(value)]
    assert not_finite == ["kl_after_update"]  # measured with the ruined weights


@pytest.mark.parametrize(
    ("make", "what"), [(text_trainer, "the model's logits are not numbers"), (number_trainer, "the network's outputs")]
)
def test_weights_that_are_not_numbers_are_named_with_their_agent(make, what):
    trainer = make("magrpo")
    trainer.step()
    ruin(trainer.collector.policies["speaker_1"])
    with pytest.raises(Divergence, match=f"^update 2, agent speaker_1: {what}"):
        trainer.step()


def test_critics_policies_and_rewards_that_diverged_are_named():
    trainer = text_trainer("maac", ONE_TURN)
    trainer.step()
    ruin(trainer.critics["joint"].critic)
    assert "the critic's values are not finite" in str(diverged(trainer))
    policy = word_policy(0)
    ruin(policy)
    with pytest.raises(Divergence, match=r"^agent x_0: "):
        policy.act([Request("x_0", "say red", (0, 0, 0, 0))])
    fault = diverged(text_trainer("magrpo", lambda: Scaled("observed")))
    assert fault.update == 1
    assert "observations and rewards (-1e+300 to 1e+300) were finite" in str(fault)
    trainer = text_trainer("iac", ONE_TURN)
    trainer.rewards.processor = lambda reward: float("nan")
    named = r"update 1, agent speaker_0: .*nan in turn 1 of episode 0 \(seed \d+\).*reward_processor"
    assert re.match(named, str(diverged(trainer)))
