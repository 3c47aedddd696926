import copy

import numpy as np
import pytest
import torch
from probes import TextProbe, word_policy

import collm
from collm.agents.core import CriticInput
from collm.agents.language.bag_of_words import BagOfWordsCritic, BagOfWordsPerAgent, counted, logistic_regression
from collm.agents.registry import register_critic
from collm.algorithms import MAACConfig
from collm.algorithms.learning.critic_learner import CriticLearner
from collm.algorithms.maac import MAAC
from collm.algorithms.runs.assembly.trainers import make_critics
from collm.algorithms.runs.loggers import read_lines
from collm.benchmarks.cli import main
from collm.envs.core import Message, Transcript
from collm.envs.vectors.vector import SyncVector

RNG = np.random.default_rng(0)


def history(*texts):
    return Transcript([Message("user", text) for text in texts])


def episodes(count=60, seed=0, turns=3):
    """Inputs and targets of episodes in which each "ok" before the last turn raises the chance of success."""
    rng = np.random.default_rng(seed)
    inputs, returns = [], []
    for _ in range(count):
        heard = rng.choice(["ok", "bad"], size=turns)
        noise = rng.choice(["tower", "glass", "roof"], size=turns)
        texts = ["go", *(f"{word} {noun}" for word, noun in zip(heard, noise, strict=True))]
        inputs.append(CriticInput(tuple(history(*texts[: turn + 1]) for turn in range(turns))))
        returns.append(float(rng.random() < 0.1 + 0.8 * np.mean(heard[:-1] == "ok")))
    return inputs, [torch.full((turns,), each) for each in returns]


@pytest.mark.parametrize(("num_examples", "num_words"), [(80, 7), (20, 70)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_gradient_of_the_penalized_cross_entropy_is_zero(num_examples, num_words, scale):
    features = torch.from_numpy(RNG.poisson(1.0, size=(num_examples, num_words)).astype(float))
    targets = torch.from_numpy(RNG.random(num_examples))
    penalties = torch.from_numpy(scale * RNG.uniform(0.5, 2.0, num_words))
    weight, bias = logistic_regression(features, targets, penalties)
    error = (features @ weight + bias).sigmoid() - (num_examples * targets + 0.5) / (num_examples + 1)
    zeros = torch.zeros(num_words + 1, dtype=torch.float64)
    found = torch.cat([features.T @ error + penalties * weight, error.sum()[None]])
    torch.testing.assert_close(found, zeros, atol=1e-4, rtol=0)


def test_words_are_counted_and_without_a_penalty_predict_the_mean_of_each_group():
    assert counted(history("Tower glass, tower!", "OK")) == {"tower": 2, "glass": 1, ",": 1, "!": 1, "ok": 1}
    features = torch.tensor([[0.0]] * 4 + [[1.0]] * 4, dtype=torch.float64)
    targets = torch.tensor([0, 0, 0, 1, 1, 1, 1, 0.5], dtype=torch.float64)
    weight, bias = logistic_regression(features, targets, torch.zeros(1, dtype=torch.float64))
    means = [(8 * mean + 0.5) / 9 for mean in (0.25, 0.875)]
    assert [bias.sigmoid().item(), (bias + weight[0]).sigmoid().item()] == pytest.approx(means, abs=1e-5)


def test_a_fit_ranks_other_episodes_by_the_word_that_matters():
    critic = BagOfWordsCritic(penalty=3.0)
    inputs, targets = episodes(400)
    critic.fit(inputs, targets)
    others, returns = episodes(200, seed=1)
    values, told = critic.values(others).reshape(200, 3), torch.stack(returns)
    explained = [1 - float((told - values)[:, t].var() / told[:, t].var()) for t in range(3)]
    attainable = [0.0, 0.16, 0.32]  # of the chance's variance: 0.1 + 0.8 * share of two "ok"
    assert explained == pytest.approx(attainable, abs=0.09)


def test_values_follow_the_trend_of_the_returns_to_the_next_update():
    ages = np.repeat(np.arange(41, 0, -1), 10)
    chances = 1 / (1 + np.exp(-(1.5 - 0.08 * ages)))
    inputs = [CriticInput((history("go"),))] * len(ages)
    targets = [torch.tensor([float(each)]) for each in np.random.default_rng(3).random(len(ages)) < chances]
    critic, blind = BagOfWordsCritic(), BagOfWordsCritic()
    critic.fit(inputs, targets, ages.tolist())
    blind.fit(inputs, targets)
    upcoming = 1 / (1 + np.exp(-1.5))
    assert critic.values(inputs[:1]).item() == pytest.approx(upcoming, abs=0.08)  # the trend is shrunk
    assert blind.values(inputs[:1]).item() == pytest.approx(chances.mean(), abs=0.05)
    assert upcoming - chances.mean() > 0.25


def test_values_before_a_fit_of_equal_targets_and_after_early_ends():
    critic = BagOfWordsCritic()
    inputs, targets = episodes(8)
    assert critic.values(inputs).tolist() == [0.0] * 24
    assert critic.fit(inputs, [torch.full((3,), 7.0)] * 8) == {"value_loss": 0.0}
    assert critic.values(inputs).tolist() == [7.0] * 24
    critic.fit(inputs, targets)
    longer = CriticInput((*inputs[0].histories, inputs[0].histories[-1]))
    values = critic.values([longer])
    assert values[3] == values[2]
    assert critic.values([CriticInput((history("never seen"),))]).isfinite().all()
    inputs, targets = [], []
    for number in range(90):
        length = 1 if number % 3 == 0 else 2
        inputs.append(CriticInput(tuple(history(*["a"] * (turn + 1)) for turn in range(length))))
        targets.append(torch.tensor([10.0, 4.0])[:length])
    critic = BagOfWordsCritic()
    critic.fit(inputs, targets)
    assert critic.values([inputs[1]]).tolist() == pytest.approx([10.0, 4.0], abs=0.1)


def test_checkpoints_and_folders_keep_the_fit(tmp_path):
    critic = BagOfWordsCritic(penalty=5.0)
    inputs, targets = episodes(30)
    critic.fit(inputs, targets)
    twin = BagOfWordsCritic(penalty=5.0)
    twin.load_state_dict(copy.deepcopy(critic.state_dict()))
    critic.save(tmp_path / "critic")
    read = BagOfWordsCritic.load(tmp_path / "critic")
    fresh = BagOfWordsCritic()
    fresh.load_state_dict(BagOfWordsCritic().state_dict())  # a checkpoint before the first fit
    assert fresh.values(inputs).tolist() == [0.0] * 90
    for each in (twin, read):
        assert torch.equal(each.values(inputs), critic.values(inputs))
        assert each.penalty == 5.0


def test_with_own_rewards_each_agent_has_a_fit(tmp_path):
    (inputs, first), (_, second) = episodes(), episodes(seed=3)
    both = [torch.stack(pair, dim=1) for pair in zip(first, second, strict=True)]
    critic, alone = BagOfWordsPerAgent(2, 5.0), [BagOfWordsCritic(5.0) for _ in range(2)]
    losses = [each.fit(inputs, targets)["value_loss"] for each, targets in zip(alone, (first, second), strict=True)]
    assert critic.fit(inputs, both)["value_loss"] == pytest.approx(sum(losses) / 2)
    expected = torch.stack([each.values(inputs) for each in alone], dim=1)
    assert torch.equal(critic.values(inputs), expected)
    twin = BagOfWordsPerAgent(2)
    twin.load_state_dict(copy.deepcopy(critic.state_dict()))
    assert torch.equal(twin.values(inputs), expected)
    critic.save(tmp_path)
    assert torch.equal(BagOfWordsCritic.load(tmp_path / "1").values(inputs), expected[:, 1])


def test_its_learner_fits_the_replay_buffer_in_reward_units():
    inputs, targets = episodes(40)
    learner = CriticLearner(BagOfWordsCritic(), MAACConfig(critic_replay=2), torch.Generator())
    for start in (0, 10, 20, 30):
        learner.learn(inputs[start : start + 10], torch.cat(targets[start : start + 10]))
    whole = BagOfWordsCritic()
    whole.fit(inputs[20:], targets[20:], [2] * 10 + [1] * 10)
    assert torch.equal(learner.values(inputs), whole.values(inputs).float())
    assert float(learner.moments.count) == 0
    assert not learner.is_actor_head


@pytest.mark.parametrize("algorithm", ["maac", pytest.param("iac", marks=pytest.mark.slow)])
def test_it_trains_and_resumes_exactly(algorithm, tmp_path):
    settings = {"env": "collm/MiniShift-v0", "env_kwargs": {"max_turns": 2, "reward": "terminal"}, "progress": False}
    settings |= {"critic_model_name_or_path": "bag_of_words", "critic_warmup": 1, "rollout_buffer_size": 4}
    settings |= {"max_new_tokens": 4, "eval_num_samples": 1}
    collm.train(algorithm, num_updates=3, out=tmp_path / "whole", **settings)
    collm.train(algorithm, num_updates=2, out=tmp_path / "part", **settings)
    assert main(["resume", str(tmp_path / "part"), "--num-updates", "3"]) == 0
    told = [read_lines(tmp_path / name / "metrics.jsonl") for name in ("whole", "part")]
    kept = [[(row["return"], row["value_mean"], row["value_loss"]) for row in rows] for rows in told]
    assert kept[0] == kept[1]
    assert kept[0][-1][1] > 0
    started = collm.train(algorithm, num_updates=2, out=tmp_path / "started", init_from=tmp_path / "whole", **settings)
    assert started.metrics[0]["value_mean"] == 0  # the replay buffer is not copied


@pytest.mark.parametrize(
    ("env", "settings", "reason"),
    [
        ("collm/MiniShift-v0", {"critic_type": "q"}, "critic_model_name_or_path='bag_of_words'"),
        ("collm/MiniShift-v0", {"turns_per_update": 8}, "turns_per_update=8"),
        ("collm/MiniShift-v0", {"critic_lora_rank": 2}, "critic_lora_rank"),
        ("gymnasium/CartPole-v1", {}, "observe vectors"),
    ],
)
def test_settings_that_contradict_it_are_refused(env, settings, reason, tmp_path):
    with pytest.raises(ValueError, match=reason):
        collm.train("maac", env, critic_model_name_or_path="bag_of_words", out=tmp_path / "run", **settings)


def test_the_penalty_is_the_settings_and_the_name_is_taken():
    with pytest.raises(ValueError, match="must look like"):
        register_critic("bag_of_words", lambda seat: BagOfWordsCritic())
    vector = SyncVector(lambda: TextProbe("constant"), 2)
    policies = {agent: word_policy(number) for number, agent in enumerate(vector.possible_agents)}
    config = MAACConfig(critic_model_name_or_path="bag_of_words", critic_l2=7.0)
    assert make_critics(MAAC(config), policies, vector)["joint"].critic.penalty == 7.0
