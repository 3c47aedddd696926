"""A reward model that learned from pairs stands in for the reward, and a team that never sees the reward finds it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from probes import TextProbe, random_llama, word_policies, word_tokenizer
from torch.nn.functional import logsigmoid
from transformers import LlamaConfig, LlamaForSequenceClassification

from collm.agents.config import ModelConfig
from collm.agents.core import Completion
from collm.agents.language.reward_model import RewardModel
from collm.algorithms import IPPO, IPPOConfig, ReinforceConfig
from collm.algorithms.learning.preferences import ModelRewards, preferences
from collm.algorithms.rollout.collector import RolloutCollector, grouped_plans
from collm.algorithms.rollout.episode import Episode, Turn
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.algorithms.runs.assembly.trainers import make_trainer
from collm.envs.vectors.vector import SyncVector


def collector(probe="observed"):
    policies = word_policies()
    return RolloutCollector(SyncVector(lambda: TextProbe(probe), 16), policies, reads_state=True)


def test_a_text_is_scored_alike_alone_among_longer_ones_and_by_a_saved_model(tmp_path):
    model = RewardModel.small(word_tokenizer(), hidden_dim=32)
    texts = ["say red", "say red red next next blue", "next"]
    together = model.rewards(texts)
    np.testing.assert_allclose(together, [model.rewards([text])[0] for text in texts], atol=1e-5)
    np.testing.assert_allclose(together, model.rewards(texts, batch_size=1), atol=1e-5)

    model.save(tmp_path)
    np.testing.assert_allclose(RewardModel.load(tmp_path).rewards(texts), together, atol=1e-6)


def test_a_classifier_of_two_classes_is_refused():
    config = LlamaConfig(vocab_size=7, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_labels=2,
                         num_attention_heads=2)  # fmt: skip
    with pytest.raises(ValueError, match="has 2 outputs"):
        RewardModel(LlamaForSequenceClassification(config), word_tokenizer())


def fit(model, pairs, num_steps, learning_rate):
    """Train a reward model with the loss of Bradley and Terry; returns the accuracy on the last batches."""
    optimizer, hits = torch.optim.AdamW(model.parameters(), lr=learning_rate), []
    generator = torch.Generator().manual_seed(0)
    for _ in range(num_steps):
        batch = [pairs[i] for i in torch.randint(len(pairs), (16,), generator=generator).tolist()]
        scores = model.scores([pair[name] for name in ("chosen", "rejected") for pair in batch])
        gaps = scores[:16] - scores[16:]
        optimizer.zero_grad()
        torch.autograd.backward(-logsigmoid(gaps).mean())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        hits.append(float((gaps > 0).float().mean()))
    return np.mean(hits[-20:])


def test_a_reward_model_learns_from_preferences():
    model = RewardModel.small(word_tokenizer(), hidden_dim=32, num_layers=1)
    texts = [("say red", "say blue"), ("next red red", "next red blue")]
    pairs = [{"chosen": better, "rejected": worse} for better, worse in texts]
    assert fit(model, pairs, 40, 3e-3) > 0.9


def test_a_pair_s_gap_must_be_exceeded_and_its_group_shared():
    def rolled(group, reward, text):
        tracks = {"a_0": (Turn("o", Completion("w"), reward, 0),)}
        return Episode(0, 0, group, tracks, ("go", text), {"a_0": None}, {"a_0": True}, ({},))

    episodes = [rolled(0, 1.0, "low"), rolled(0, 1.5, "high"), rolled(1, 9.0, "other"), rolled(0, 1.5, "as high")]
    pairs = preferences(episodes)
    assert pairs == [{"chosen": "high", "rejected": "low"}, {"chosen": "as high", "rejected": "low"}]
    assert preferences(episodes, min_gap=0.5) == []
    assert len(preferences(episodes, min_gap=0.49)) == 2


class Lengths:
    """A reward model whose score is the length of the text."""

    def __init__(self):
        self.read = []

    def rewards(self, texts):
        self.read += texts
        return [float(len(text)) for text in texts]


def judged(pays, episodes):
    model = Lengths()
    return ModelRewards(model, pays)(episodes), model


def leaving_episode():
    """Three turns; the second of two agents leaves after the first."""
    tracks = {
        "a_0": tuple(Turn("o", Completion("w"), 9.0, time) for time in range(3)),
        "a_1": (Turn("o", Completion("w"), 9.0, 0),),
    }
    states = ("x", "xx", "xxxxx", "xxxxxxx")
    ends = dict.fromkeys(tracks, True)
    return Episode(0, 0, 0, tracks, states, dict.fromkeys(tracks), ends, ({},) * 3, num_agents=2)


def test_episodes_and_segments_are_paid_by_hand():
    (paid,), model = judged("end", [leaving_episode()])
    assert model.read == ["xxxxxxx"]
    assert paid.team_rewards == [0.0, 0.0, 7.0]
    assert [turn.reward for turn in paid.tracks["a_0"]] == [0.0, 0.0, 14.0]  # of two agents one is still there
    (paid,), _ = judged("differences", [leaving_episode()])
    assert paid.team_rewards == [1.0, 3.0, 2.0]
    assert [turn.reward for turn in paid.tracks["a_1"]] == [1.0]

    cut = replace(leaving_episode(), is_complete=False)
    (paid, _), model = judged("end", [cut, leaving_episode()])
    assert paid.team_return == 0 and len(model.read) == 1
    (paid,), _ = judged("differences", [cut])
    assert paid.team_return == 7 - 1


@pytest.mark.slow
def test_a_team_learns_from_the_model_s_score_what_it_was_never_paid_for():
    sampled = collector().collect(grouped_plans(range(60), 8))
    pairs = preferences(sampled)
    model = RewardModel.small(word_tokenizer(), hidden_dim=32, num_layers=2)
    assert fit(model, pairs, 12 * len(pairs) // 16, 2e-3) > 0.95
    team = collector()
    rates = {"agent_learning_rate": 3e-3, "critic_learning_rate": 3e-3}
    penalty = {"reference_kl_coef": 0.01, "reference_kl_in": "reward"}
    critic = {"use_separate_critic": True, "critic_steps": 2, "critic_replay": 2}
    config = IPPOConfig(num_updates=60, ppo_epochs=2, target_kl=0.03, **rates, **penalty, **critic)
    trainer = make_trainer(IPPO(config), team.vector, team.policies, rewarder=ModelRewards(model))
    returns = [trainer.step()[1]["return"] for _ in range(60)]
    # A team that learns half a hit ends at 0.5. The end varies by processor; 0.83 was measured.
    assert np.mean(returns[:3]) < 0.35 and np.mean(returns[-5:]) > 0.75


def test_an_experiment_loads_its_reward_model_by_name(tmp_path):
    random_llama().save_pretrained(tmp_path / "actor")
    word_tokenizer().save_pretrained(tmp_path / "actor")
    RewardModel.small(word_tokenizer(), hidden_dim=32).save(tmp_path / "judge")
    config = IPPOConfig(num_updates=8, rollout_buffer_size=4, reward_model=str(tmp_path / "judge"))
    model = ModelConfig(model=str(tmp_path / "actor"), is_chat=False, max_new_tokens=2)
    experiment = Experiment(algorithm="ippo", config=config, env="collm/MiniWriting-v2", model=model)
    trainer = experiment.make_trainer()
    trainer.collector.vector.close()
    assert trainer.rewards.rewarder is not None and trainer.collector.reads_state


@pytest.mark.parametrize(
    ("env", "config", "reason"),
    [
        ("gymnasium/CartPole-v1", ReinforceConfig(reward_model="tiny"), "judges texts"),
        ("collm/MiniWriting-v2", ReinforceConfig(reward_model="tiny", joint_mode="cross"), "reward_model replaces"),
        ("collm/MiniWriting-v2", ReinforceConfig(reward_model="./nowhere"), "there is no model folder"),
    ],
)
def test_a_reward_model_that_cannot_judge_is_refused(env, config, reason):
    with pytest.raises((ValueError, FileNotFoundError), match=reason):
        Experiment(algorithm="magrpo", config=config, env=env).check()
