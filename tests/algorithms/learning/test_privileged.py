"""A privileged critic: it explains what no history tells, and is refused where there is nothing to tell."""

import pytest
import torch
from probes import AGENTS, WORDS, NumberProbe, word_policies, word_tokenizer

from collm.agents.config import ModelConfig
from collm.agents.language.critics import TextCritic
from collm.algorithms.config import MAACConfig
from collm.algorithms.learning.critic_learner import CriticLearner
from collm.algorithms.learning.trainer import Trainer
from collm.algorithms.maac import MAAC
from collm.algorithms.rollout.collector import RolloutCollector
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.envs.core import Outcome, TextParallelEnv
from collm.envs.vectors.vector import SyncVector
from collm.envs.views import PrivilegedState, with_truth

NUM_UPDATES = 40


class Fate(TextParallelEnv):
    """Two turns, after which a word that nobody is shown decides all."""

    def __init__(self):
        super().__init__(AGENTS, 2)
        self.word = WORDS[0]

    def deal(self, task):
        self.word = self.rng.choice(WORDS)
        return dict.fromkeys(AGENTS, "say")

    def play(self, replies):
        is_last = self.turn + 1 == self.max_turns
        return Outcome(float(is_last and self.word == WORDS[0]), dict.fromkeys(AGENTS, "next"))

    def truth(self):
        return self.word


def explained(view):
    """Share of the variance of returns that a centralized critic explains in the last updates."""
    settings = {"agent_learning_rate": 0.0, "critic_learning_rate": 1e-2, "critic_warmup": NUM_UPDATES - 1}
    config = MAACConfig(num_updates=NUM_UPDATES, rollout_buffer_size=16, critic_replay=2, **settings)
    collector = RolloutCollector(SyncVector(lambda: view(Fate()), 16), word_policies(), reads_state=True)
    critic = TextCritic.small(word_tokenizer(), hidden_dim=32, num_layers=1)
    learner = CriticLearner(critic, config, torch.Generator().manual_seed(0))
    trainer = Trainer(MAAC(config), collector, {"joint": learner})
    found = [trainer.step()[1]["explained_variance"] for _ in range(NUM_UPDATES)]
    return sum(found[-10:]) / 10


@pytest.mark.slow
def test_only_the_privileged_critic_explains_a_hidden_fate():
    assert explained(PrivilegedState) > 0.95
    assert explained(lambda env: env) < 0.1


def experiment(env="collm/MiniBuild-v0", env_kwargs=None, **settings):
    chosen = {"num_updates": 2, "rollout_buffer_size": 4, "eval_num_samples": 2, "critic_warmup": 1}
    return Experiment(
        algorithm="maac",
        config=MAACConfig(critic_input="privileged", **(chosen | settings)),
        env=env,
        env_kwargs=env_kwargs or ({"max_turns": 2} if env == "collm/MiniBuild-v0" else {}),
        model=ModelConfig(max_new_tokens=4),
    )


@pytest.mark.parametrize("critic_type", ["v", "q"])
def test_the_critic_of_a_run_reads_the_truth_and_its_actors_do_not(critic_type):
    trainer = experiment(critic_type=critic_type).make_trainer()
    episodes, metrics = trainer.step()
    assert "explained_variance" in metrics
    for episode in episodes:
        assert all("[critic reads] " in state for state in episode.states)
        read = [turn.observation for track in episode.tracks.values() for turn in track]
        assert not any("critic reads" in observation or " of 4" in observation for observation in read)


@pytest.mark.slow
def test_workers_tell_the_truth_too():
    given = experiment(num_workers=1)
    with given.make_vector("train", 1) as vector:
        vector.reset(0, seed=0)
        assert vector.state(0).endswith("[critic reads] goal 0 of 4\n")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (experiment("collm/MiniWriting-v2"), "hides nothing"),
        (experiment("collm/MiniWriting-v2", {"single_model": True}), r"truth\(\) of .*critic_input='joint'"),
        (experiment("gymnasium/CartPole-v1"), r"no state\(\)"),
        (experiment(reward_model="anything"), "reward_model"),
    ],
)
def test_a_run_that_has_nothing_to_tell_is_refused_before_a_model_is_loaded(given, message, monkeypatch):
    monkeypatch.setattr("collm.algorithms.runs.assembly.experiment.make_policies", None)
    with pytest.raises(ValueError, match=message):
        given.make_trainer()
    env = NumberProbe("observed")
    assert with_truth(env) is env  # the state of vectors is the truth
