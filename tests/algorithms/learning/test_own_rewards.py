"""Own rewards: their default by the environment's interests, and joint critics with one value per agent."""

import pytest
import torch
from fakes import WeightlessCritic
from probes import AGENTS, NumberProbe, TextProbe, word_policies
from small_trainers import algorithm_of, number_trainer, text_trainer, through_a_file, weights

from collm.agents.config import ModelConfig
from collm.agents.numeric.config import NetworkConfig
from collm.algorithms import algorithm_specs
from collm.algorithms.distribution.group import Alone
from collm.algorithms.learning import critic_learner
from collm.algorithms.runs.assembly.policies import make_policies
from collm.algorithms.runs.assembly.trainers import make_trainer
from collm.envs.core import Outcome
from collm.envs.vectors.vector import SyncVector
from collm.envs.views import with_truth
from collm.envs.wrappers import Partnered


class Opposed(TextProbe):
    """Two turns of a zero-sum game: the first agent wins if both agents write the same first letter."""

    interests = "opposed"

    def __init__(self):
        super().__init__("delayed")

    def play(self, replies):
        first, second = (replies[agent][:1] for agent in AGENTS)
        sign = 1.0 if first == second else -1.0
        return Outcome({AGENTS[0]: sign, AGENTS[1]: -sign}, dict.fromkeys(AGENTS, "next"))

    def truth(self):
        return f"turn {self.turn}"


class OpposedNumbers(NumberProbe):
    interests = "opposed"

    def __init__(self):
        super().__init__("delayed")

    def step(self, actions):
        observations, _, *rest = super().step(actions)
        sign = 1.0 if actions[AGENTS[0]] == actions[AGENTS[1]] else -1.0
        return observations, {AGENTS[0]: sign, AGENTS[1]: -sign}, *rest


def numeric(name, **changes):
    algorithm = algorithm_of(name, **changes)
    vector = SyncVector(OpposedNumbers, 4)
    network = NetworkConfig(hidden_dims=(8,), normalizes_observations=True)
    return make_trainer(algorithm, vector, make_policies(algorithm, vector, ModelConfig(), network), network=network)


def test_wrappers_keep_the_interests_and_other_environments_have_common_interests():
    for wrap in (with_truth, lambda env: Partnered(env, {AGENTS[1]: "random"})):
        assert SyncVector(lambda wrap=wrap: wrap(Opposed()), 1).interests == "opposed"
    assert SyncVector(lambda: NumberProbe("constant"), 1).interests == "common"
    with pytest.raises(ValueError, match="interests='hostile'"):
        SyncVector(type("Hostile", (NumberProbe,), {"interests": "hostile"}), 1, probe="constant")


@pytest.mark.parametrize(
    ("interests", "settings", "expected"),
    [
        ("common", {}, "team"),
        ("mixed", {}, "own"),
        ("opposed", {}, "own"),
        ("opposed", {"credited_reward": "team"}, "team"),
        ("common", {"credited_reward": "own"}, "own"),
        ("mixed", {"reward_model": "a/b"}, "team"),
    ],
)
def test_the_default_reward_is_that_of_the_interests(interests, settings, expected):
    algorithm = algorithm_of("maac", **settings)
    assert algorithm.resolved(interests).config.credited_reward == expected
    assert algorithm.config.credited_reward == settings.get("credited_reward")


# Presets learn too slowly, difference rewards are the team's, coma's first critic is constant, c3 credits single turns.
OTHERS = ("collm-cc", "collm-dc", "difference", "coma", "c3")


@pytest.mark.parametrize("name", [spec.name for spec in algorithm_specs() if spec.name not in OTHERS])
def test_every_algorithm_learns_in_a_zero_sum_game(name):
    trainer = text_trainer(name, Opposed)
    before = weights(trainer)
    episodes, metrics = trainer.step()
    assert trainer.config.credited_reward == "own"
    assert {episode.team_return for episode in episodes} == {0.0}
    assert metrics["grad_norm"] > 1e-3
    assert not all(torch.equal(*pair) for pair in zip(before, weights(trainer), strict=True))
    earned = [sum(trainer.credits[agent].returns[::3].tolist()) for agent in AGENTS]
    assert sum(earned) == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (text_trainer, {"critic_model_name_or_path": "bag_of_words"}),
        (text_trainer, {"critic_type": "q", "value_clip_range": 0.2}),
        (text_trainer, {"critic_input": "privileged"}),
        (numeric, {}),
        (numeric, {"critic_type": "q", "value_clip_range": 0.2}),
    ],
)
def test_every_joint_critic_has_one_value_per_agent_and_continues_from_a_checkpoint(make, settings):
    def made():
        algorithm_settings = settings | {"critic_batch_size": 4}
        if make is numeric:
            return numeric("mappo", **algorithm_settings)
        vector = SyncVector(lambda: with_truth(Opposed()) if "critic_input" in settings else Opposed(), 4)
        return text_trainer("maac", vector=vector, **algorithm_settings)

    trainer, other = made(), made()
    for _ in range(3):
        trainer.step()
    critic = trainer.critics["joint"]
    inputs = [item.input for item in critic.replay[-1]]
    values = critic.values(inputs)
    assert values.shape == (sum(len(each.histories) + len(each.actions) for each in inputs), len(AGENTS))
    assert not torch.allclose(values[:, 0], values[:, 1])
    other.load_state_dict(through_a_file(trainer.state_dict()))
    assert torch.equal(other.critics["joint"].values(inputs), values)
    (_, first), (_, second) = trainer.step(), other.step()
    assert first["grad_norm"] == second["grad_norm"]
    assert first.get("value_loss") == second.get("value_loss")


def test_a_joint_critic_learns_the_return_of_each_agent():
    """The first agent always wins 1 per turn from the second, so the values have opposite signs."""

    class Rigged(Opposed):
        def play(self, replies):
            return super().play(dict.fromkeys(replies, "same"))

    trainer = text_trainer("maac", Rigged, critic_learning_rate=1e-2, critic_steps=8)
    for _ in range(6):
        trainer.step()
    critic = trainer.critics["joint"]
    values = critic.values([item.input for item in critic.replay[-1]]).view(-1, 3, len(AGENTS)).mean(dim=0)
    expected = torch.tensor([[3.0, -3.0], [2.0, -2.0], [1.0, -1.0]])
    torch.testing.assert_close(values, expected, atol=0.7, rtol=0)


def test_a_critic_with_one_value_is_refused_with_own_rewards():
    class Zero(WeightlessCritic):
        def values(self, inputs):
            return torch.zeros(sum(len(each.histories) for each in inputs))

    vector = SyncVector(Opposed, 4)
    trainer = make_trainer(algorithm_of("maac"), vector, word_policies(), critics=Zero())
    with pytest.raises(ValueError, match=r"Zero have shape \(\d+,\)"):
        trainer.step()


def test_a_team_critic_keeps_one_value():
    opposed = text_trainer("maac", Opposed, credited_reward="team")
    for trainer in (text_trainer("maac"), number_trainer("mappo"), opposed):
        trainer.step()
        critic = trainer.critics["joint"]
        assert critic.values([item.input for item in critic.replay[-1]]).dim() == 1


def test_values_of_several_ranks_have_one_column_per_agent(monkeypatch):
    class Flat(Alone):
        """Group of one rank that returns flat tensors, as several ranks do."""

        def union(self, found):
            return {number: values.reshape(-1) for number, values in found.items()}

    trainer = text_trainer("maac", Opposed)
    trainer.step()
    critic = trainer.critics["joint"]
    inputs = [item.input for item in critic.replay[-1]]
    expected = critic.values(inputs)
    monkeypatch.setattr(critic_learner, "current", Flat)
    assert torch.equal(critic.values(inputs), expected)
