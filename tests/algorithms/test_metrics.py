"""Every number that a run logs is held to a case by hand: `@case(names)` says which test computes which, by loops and
NumPy, from what the code had before it. A new name without such a test fails the last test."""

from __future__ import annotations

import json
import math
from dataclasses import fields

import numpy as np
import pytest
import scipy.stats
import torch
from probes import AGENTS, TextProbe, word_policy
from torch import nn

from collm.agents.core import Completion, Critic, CriticInput, Evaluation, TrainablePolicy
from collm.agents.encoding import TokenRecord
from collm.algorithms import IAC, IPPO, IACConfig, IPPOConfig, MAACConfig, algorithm_specs, train
from collm.algorithms.algorithm import PolicyBatch
from collm.algorithms.config import ActorCriticConfig
from collm.algorithms.learning.crediting import CriticBatch, critic_metrics
from collm.algorithms.learning.critic_learner import CriticLearner
from collm.algorithms.learning.policy_learner import PolicyLearner, TurnBatch
from collm.algorithms.learning.trainer import Trainer
from collm.algorithms.rollout.collector import RolloutCollector
from collm.algorithms.rollout.episode import Episode, Turn
from collm.algorithms.rollout.summary import episode_metrics
from collm.algorithms.runs.evaluation import FIRST_EVALUATION_SEED
from collm.algorithms.runs.teams import make_trainer
from collm.benchmarks.comparison.diagnostics import TurnDiagnostics, diagnostics
from collm.envs.core import Outcome, TextParallelEnv
from collm.envs.vectors.vector import SyncVector

CASES: dict[str, str] = {}


def case(*names):
    """Marks the test that computes these metrics on its own."""

    def marked(test):
        CASES.update(dict.fromkeys(names, test.__name__))
        return test

    return marked


# Of one update of a policy: a table of logits, whose log-probabilities and gradients fit on a line


class Table(TrainablePolicy):
    """Each token is drawn from the row of logits that its turn names; its value head is a number per row."""

    def __init__(self, logits, values):
        self.logits = nn.Parameter(torch.tensor(logits))
        self.row_values = nn.Parameter(torch.tensor(values))

    def evaluate(self, tracks):
        turns = [turn for track in tracks for turn in track]
        rows = torch.tensor([turn.tokens[0] for turn in turns for _ in turn.tokens[1]])
        ids = torch.tensor([token for turn in turns for token in turn.tokens[1]])
        logprobs = self.logits.log_softmax(1)[rows]
        return Evaluation(
            logprobs.gather(1, ids[:, None])[:, 0],
            -(logprobs.exp() * logprobs).sum(1),
            torch.tensor([number for number, turn in enumerate(turns) for _ in turn.tokens[1]]),
            self.row_values[torch.tensor([turn.tokens[0] for turn in turns])],
        )

    def num_tokens(self, track):
        return sum(len(turn.tokens[1]) for turn in track)

    def parameters(self):
        return [self.logits, self.row_values]

    def act(self, requests, *, greedy=False):
        raise NotImplementedError

    reference = save = load_state_dict = state_dict = act


LOGITS = [[0.0, 1.0, -0.5], [0.3, -0.7, 0.2]]
ROW_VALUES = [0.4, -0.2]
# The row and the tokens of each turn of each track, and the log-probabilities that they were sampled with: not those of
# the policy now, which has moved since.
TRACKS = [
    [(0, [1, 2], [-0.9, -1.1]), (1, [0], [-1.3])],
    [(1, [2, 0, 1], [-0.8, -1.0, -1.6])],
    [(0, [0], [-2.2])],
]
ADVANTAGES = [1.0, -0.5, 2.0, -1.5]
TARGETS = [1.0, 0.0, -1.0, 0.5]
REFERENCE = [-1.0, -1.4, -0.6, -0.9, -1.2, -2.0, -1.7]
TURNS = [turn for track in TRACKS for turn in track]
TURN_OF = [number for number, turn in enumerate(TURNS) for _ in turn[1]]
SAMPLED = [logprob for turn in TURNS for logprob in turn[2]]


def log_softmax(row):
    return [logit - math.log(sum(math.exp(other) for other in row)) for logit in row]


NOW = [log_softmax(LOGITS[row])[token] for row, tokens, _ in TURNS for token in tokens]


def updated(config, algorithm=IPPO):
    """Metrics of an update by a policy that stands still, so that all of its steps see the same numbers."""
    learner = PolicyLearner(Table(LOGITS, ROW_VALUES), algorithm(config), torch.Generator().manual_seed(0))
    tracks = [
        [Completion("", np.array(sampled, np.float32), tokens=(row, tokens)) for row, tokens, sampled in track]
        for track in TRACKS
    ]
    return learner.update(
        TurnBatch(
            tracks,
            torch.tensor(ADVANTAGES),
            torch.tensor(TARGETS),
            reference_logprobs=torch.tensor(REFERENCE),
        )
    )


def still(**settings):
    return {"agent_learning_rate": 0.0, "mini_batch_size": None, "ppo_epochs": 1, **settings}


@case("policy_loss", "clip_fraction")
@pytest.mark.parametrize(("low", "high"), [(0.2, None), (0.1, 0.5), (1.0, None), (1.5, 0.05), (30.0, None)])
@pytest.mark.parametrize("credit", ["turn", "token"])
def test_the_policy_s_loss_and_the_share_of_what_the_clip_cut_by_a_loop(credit, low, high):
    """A low side of 1 or more cuts nothing: no ratio is below 0."""
    metrics = updated(IPPOConfig(**still(clip_range=low, clip_range_high=high, credit=credit)))
    items = [
        (sum(now - old for now, old, turn in zip(NOW, SAMPLED, TURN_OF, strict=True) if turn == number), advantage)
        for number, advantage in enumerate(ADVANTAGES)
    ]
    if credit == "token":
        items = [(now - old, ADVANTAGES[turn]) for now, old, turn in zip(NOW, SAMPLED, TURN_OF, strict=True)]
    total = cut = 0.0
    for log_ratio, advantage in items:
        ratio = math.exp(log_ratio)
        clipped = min(max(ratio, 1 - low), 1 + (high or low))
        total -= min(ratio * advantage, clipped * advantage)
        cut += clipped * advantage < ratio * advantage
    assert metrics["policy_loss"] == pytest.approx(total / len(items), rel=1e-5)
    assert metrics["clip_fraction"] == pytest.approx(cut / len(items))


@case("kl_to_sampler", "logprob_error", "reference_kl", "value_loss", "optimizer_steps")
@pytest.mark.parametrize("max_batch_tokens", [1, 100])
def test_how_far_the_policy_is_from_its_sampler_and_reference_by_a_loop(max_batch_tokens):
    metrics = updated(
        IPPOConfig(**still(reference_kl_coef=0.3, use_separate_critic=False, max_batch_tokens=max_batch_tokens))
    )
    # KL(sampler || policy now), from the sampler's samples: the ratio - 1 - its logarithm
    ratios = [math.exp(now - old) for now, old in zip(NOW, SAMPLED, strict=True)]
    assert metrics["kl_to_sampler"] == pytest.approx(np.mean([r - 1 - math.log(r) for r in ratios]), rel=1e-5)
    assert metrics["logprob_error"] == pytest.approx(max(abs(a - b) for a, b in zip(NOW, SAMPLED, strict=True)))
    distances = [(now - anchor) ** 2 / 2 for now, anchor in zip(NOW, REFERENCE, strict=True)]
    assert metrics["reference_kl"] == pytest.approx(sum(distances) / len(TURNS), rel=1e-5)
    errors = [(ROW_VALUES[row] - target) ** 2 for (row, *_), target in zip(TURNS, TARGETS, strict=True)]
    assert metrics["value_loss"] == pytest.approx(np.mean(errors), rel=1e-5)
    assert metrics["optimizer_steps"] == 1


@case("grad_norm")
def test_the_norm_of_the_gradient_by_hand_before_it_is_clipped():
    """The plain policy gradient of a table: of each token -A (one-hot - probabilities), over the number of turns."""
    config = IACConfig(**still(use_separate_critic=False, value_loss_coef=0.6, max_grad_norm=1e-3))
    gradient, of_values = np.zeros((2, 3)), np.zeros(2)
    for (row, tokens, _), advantage, target in zip(TURNS, ADVANTAGES, TARGETS, strict=True):
        for token in tokens:
            gradient[row] -= advantage * (np.eye(3)[token] - np.exp(log_softmax(LOGITS[row]))) / len(TURNS)
        of_values[row] += 0.6 * 2 * (ROW_VALUES[row] - target) / len(TURNS)
    expected = math.sqrt((gradient**2).sum() + (of_values**2).sum())
    # a reference costs nothing unless it has a price
    assert updated(config, IAC)["grad_norm"] == pytest.approx(expected, rel=1e-5)


def test_metrics_of_an_update_are_means_over_its_steps():
    """One track per step: means over the tracks, twice; but the error against the sampler is that of the first."""
    metrics = updated(IPPOConfig(**still(mini_batch_size=1, ppo_epochs=2, use_separate_critic=False)))
    by_track, start = [], 0
    for track in TRACKS:
        length = sum(len(tokens) for _, tokens, _ in track)
        ratios = np.exp(np.subtract(NOW, SAMPLED))[start : start + length]
        by_track.append(np.mean(ratios - 1 - np.log(ratios)))
        start += length
    assert metrics["optimizer_steps"] == 6
    assert metrics["kl_to_sampler"] == pytest.approx(np.mean(by_track), rel=1e-5)
    errors = np.abs(np.subtract(NOW, SAMPLED))
    firsts = [errors[:3].max(), errors[3:6].max(), errors[6:].max()]
    assert any(metrics["logprob_error"] == pytest.approx(each, rel=1e-5) for each in firsts)
    squares = [(ROW_VALUES[row] - target) ** 2 for (row, *_), target in zip(TURNS, TARGETS, strict=True)]
    assert metrics["value_loss"] == pytest.approx(np.mean([np.mean(squares[:2]), squares[2], squares[3]]), rel=1e-5)


# Of one update of a critic


class Line(Critic):
    """V(h) = slope h + height."""

    def __init__(self, slope, height):
        self.weights = nn.Parameter(torch.tensor([slope, height]))

    def values(self, inputs):
        histories = torch.tensor([float(history) for each in inputs for history in each.histories])
        return self.weights[0] * histories + self.weights[1]

    def num_tokens(self, item):
        return len(item.histories)

    def parameters(self):
        return [self.weights]

    def state_dict(self):
        raise NotImplementedError

    load_state_dict = save = state_dict


@case("value_loss", "critic_grad_norm")
@pytest.mark.parametrize("max_batch_tokens", [1, 100])
def test_the_critic_s_loss_and_gradient_by_hand(max_batch_tokens):
    config = MAACConfig(
        critic_learning_rate=0.0,
        critic_steps=3,
        max_grad_norm=1e-3,
        value_normalization=False,
        max_batch_tokens=max_batch_tokens,
    )
    learner = CriticLearner(Line(2.0, -1.0), config, torch.Generator().manual_seed(0))
    seen = [CriticInput((0.0, 1.0)), CriticInput((3.0,))]
    targets = torch.tensor([1.0, 1.5, 4.0])
    metrics = learner.learn(seen, targets, learner.values(seen))
    errors = np.array([-1.0 - 1.0, 1.0 - 1.5, 5.0 - 4.0])
    assert metrics["value_loss"] == pytest.approx((errors**2).mean())
    slopes = [2 * (errors * np.array([0.0, 1.0, 3.0])).mean(), 2 * errors.mean()]
    assert metrics["critic_grad_norm"] == pytest.approx(np.hypot(*slopes), rel=1e-6)


def test_the_critic_s_loss_is_the_mean_over_its_steps():
    """Steepest descent would be harder to follow than to believe: two runs of one step are a run of two."""
    seen, targets = [CriticInput((0.0, 1.0, 3.0))], torch.tensor([1.0, 1.5, 4.0])
    alone = CriticLearner(Line(2.0, -1.0), MAACConfig(critic_steps=1, value_normalization=False), torch.Generator())
    twice = CriticLearner(Line(2.0, -1.0), MAACConfig(critic_steps=2, value_normalization=False), torch.Generator())
    rows = []
    for _ in range(2):
        alone.replay.clear()
        rows.append(alone.learn(seen, targets, torch.zeros(3)))
    assert rows[0]["value_loss"] != rows[1]["value_loss"]
    for name, mean in twice.learn(seen, targets, torch.zeros(3)).items():
        assert mean == pytest.approx((rows[0][name] + rows[1][name]) / 2, rel=1e-5)


@case("explained_variance", "value_mean", "target_mean")
def test_what_the_critics_foresaw_by_hand():
    """Over all critics together."""
    pieces = [([1.0, 2.0], [1.0, 4.0]), ([3.0], [7.0])]  # values, targets
    batches = [(None, CriticBatch([], torch.tensor(targets), torch.tensor(values))) for values, targets in pieces]
    # targets 1, 4, 7 vary by 6; what is left of them, 0, 2, 4, by 8/3
    expected = {"explained_variance": 1 - (8 / 3) / 6, "value_mean": 2.0, "target_mean": 4.0}
    assert critic_metrics(batches) == pytest.approx(expected, rel=1e-6)
    assert critic_metrics([]) == {}


# Of the episodes of an update


def turn(reward, logprobs, entropies, time, *, is_cut=False, is_extension=None):
    tokens = None if is_extension is None else TokenRecord(np.zeros(1, int), np.zeros(1, int), is_extension, "")
    numbers = np.array(logprobs, np.float32), np.array(entropies, np.float32)
    return Turn("", Completion("", *numbers, is_cut, tokens), reward, time)


def played(rewards, infos, *, earlier=0.0, is_complete=True, **track):
    """Two agents that get the same; the second is scripted."""
    own = [turn(reward, time=time, **track) for time, reward in enumerate(rewards)]
    scripted = [turn(reward, [], [], time) for time, reward in enumerate(rewards)]
    ends = dict.fromkeys(("a", "b"), True)
    tracks = {"a": tuple(own), "b": tuple(scripted)}
    return Episode(0, 0, 0, tracks, (), {}, ends, tuple(infos), is_complete, earlier)


@case("return", "return_std", "num_episodes", "reward/*", "metric/*", "turns", "completion_tokens", "entropy")
@case("cut_share", "reencoded_share")
def test_means_over_episodes_by_hand():
    """A segment whose episode goes on has no return yet, and one whose episode began before has the earlier part too;
    entropy is that of the mean token, not of the mean completion; scripted agents sample nothing."""
    episodes = [
        played(
            [1.0, 2.0],
            [{"reward/hit": 1.0}, {"reward/hit": 2.0, "metric/size": 5.0}],
            logprobs=[-1.0],
            entropies=[0.5],
            is_extension=True,
        ),
        played(
            [4.0],
            [{"metric/size": 1.0}],
            logprobs=[-1.0, -2.0, -1.0],
            entropies=[1.0, 2.0, 1.0],
            earlier=2.0,
            is_cut=True,
            is_extension=False,
        ),
        played([100.0, 100.0], [{}, {}], logprobs=[-1.0], entropies=[0.5], is_complete=False, is_extension=False),
    ]
    assert episode_metrics(episodes) == pytest.approx(
        {
            "num_episodes": 2,
            "return": (3 + 6) / 2,
            "return_std": 1.5,
            "reward/hit": 3.0,
            "metric/size": (5 + 1) / 2,
            "turns": (2 + 1 + 2) / 3,
            "completion_tokens": (1 + 1 + 3 + 1 + 1) / 5,
            "entropy": (0.5 + 0.5 + 4.0 + 0.5 + 0.5) / 7,
            "cut_share": 1 / 5,
            "reencoded_share": 1 / 2,
        }
    )  # fmt: skip
    only_cut = episode_metrics(episodes[2:])
    assert only_cut["num_episodes"] == 0 and "return" not in only_cut
    vectors = [played([1.0], [{}], logprobs=[-1.0], entropies=[0.3])]
    assert "reencoded_share" not in episode_metrics(vectors)


# Of a trainer


@case("update", "environment_steps", "sampled_tokens", "tokens_per_second", "seconds/decoding", "seconds/environment")
@case("seconds/learning", "seconds/update", "seconds/total")
def test_counts_and_seconds_of_updates_add_up():
    config = IACConfig(rollout_buffer_size=4, num_updates=2, critic_warmup=0, use_separate_critic=False)
    policies = {agent: word_policy(i, max_new_tokens=2, has_value_head=True) for i, agent in enumerate(AGENTS)}
    trainer = make_trainer(IAC(config), SyncVector(lambda: TextProbe("delayed"), 2), policies)
    turns = tokens = seconds = 0
    for update in (1, 2):
        episodes, metrics = trainer.step()
        sampled = sum(len(t.completion.logprobs) for e in episodes for track in e.tracks.values() for t in track)
        turns += 3 * len(episodes)
        tokens += sampled
        seconds += metrics["seconds/update"]
        assert (metrics["update"], metrics["environment_steps"], metrics["sampled_tokens"]) == (update, turns, tokens)
        assert metrics["seconds/total"] == pytest.approx(seconds)
        collecting = metrics["seconds/update"] - metrics["seconds/learning"]
        assert metrics["tokens_per_second"] * collecting == pytest.approx(sampled)
        phases = metrics["seconds/decoding"] + metrics["seconds/environment"]
        assert 0.5 * collecting < phases <= collecting
        assert min(metrics["seconds/decoding"], metrics["seconds/environment"], metrics["seconds/learning"]) > 0


def test_metrics_of_a_team_are_means_over_its_policies():
    """An update of two policies reports the mean of what each one's own learner reports."""
    policies = {agent: word_policy(i, max_new_tokens=2) for i, agent in enumerate(AGENTS)}
    collector = RolloutCollector(SyncVector(lambda: TextProbe("delayed"), 2), policies)
    algorithm = next(spec for spec in algorithm_specs() if spec.name == "mareinforce")
    config = algorithm.config(rollout_buffer_size=4, num_generations=4, agent_learning_rate=0.0, reward_shift=1.0)
    trainer = Trainer(algorithm.make(config), collector)
    rows = []
    for learner in trainer.learners.values():
        learner.update = lambda batch, update=learner.update: rows.append(update(batch)) or rows[-1]
    _, metrics = trainer.step()
    assert len(rows) == 2 and rows[0]["grad_norm"] != rows[1]["grad_norm"]
    for name in rows[0]:
        assert metrics[name] == pytest.approx((rows[0][name] + rows[1][name]) / 2)


# Of an evaluation


class Lottery(TextParallelEnv):
    """Pays by the seed alone, over two turns."""

    def __init__(self):
        super().__init__(AGENTS, 2)

    def deal(self, task):
        self.prize = self.rng.random()
        return dict.fromkeys(AGENTS, "say")

    def play(self, replies):
        ends = self.turn == 1
        metrics = {"metric_turn": float(self.turn)}
        return Outcome(self.prize, {} if ends else dict.fromkeys(AGENTS, "next"), {"prize": self.prize}, metrics)


def prize(seed):
    env = Lottery()
    env.reset(seed=seed)
    return env.prize


@case("evaluation/*/return", "evaluation/*/return_low", "evaluation/*/return_high", "evaluation/*/reward/*")
@case("evaluation/*/metric/*")
def test_an_evaluation_s_numbers_by_hand(tmp_path):
    """Held-out returns against the prizes of the seeds, and the interval against SciPy's percentile bootstrap."""
    train(
        "magrpo",
        Lottery,
        out=tmp_path / "run",
        policies={agent: word_policy(i) for i, agent in enumerate(AGENTS)},
        num_updates=1,
        rollout_buffer_size=2,
        num_generations=2,
        eval_num_samples=12,
        progress=False,
    )
    rows = [json.loads(line) for line in (tmp_path / "run" / "evaluation.jsonl").read_text().splitlines()]
    returns = [2 * prize(FIRST_EVALUATION_SEED + number) for number in range(12)]
    found = scipy.stats.bootstrap((returns,), np.mean, method="percentile", n_resamples=20_000, rng=0)
    low, high = found.confidence_interval
    assert len(rows) == 2
    for row in rows:
        for how in ("greedy", "sampled"):
            assert row[f"evaluation/{how}/return"] == pytest.approx(np.mean(returns))
            assert row[f"evaluation/{how}/return_low"] == pytest.approx(low, abs=0.03 * (high - low))
            assert row[f"evaluation/{how}/return_high"] == pytest.approx(high, abs=0.03 * (high - low))
            assert row[f"evaluation/{how}/reward/prize"] == pytest.approx(np.mean(returns))
            assert row[f"evaluation/{how}/metric/metric_turn"] == pytest.approx(0.5)


# Of a report


@case(*(f"diagnostics/{field.name}" for field in fields(TurnDiagnostics)))
def test_a_report_s_diagnostics_by_hand():
    def record(update, *turns):
        names = ("return_to_go", "value", "raw_advantage")
        return {"update": update, "agents": {"a": {"turns": [dict(zip(names, turn, strict=True)) for turn in turns]}}}

    rows = [record(update, (50.0, 0.0, 50.0)) for update in (1, 2, 3, 4)]  # before the last third
    rows += [record(5, (1.0, 0.5, 2.0)), record(6, (4.0, 1.5, -1.0)), record(6, (7.0, 3.0, 4.0), (9.0, 9.0, 0.5))]
    first, second = diagnostics(rows, has_critic=True)
    # returns 1, 4, 7 vary by 6; less the values 0.5, 2.5, 4 by 37/18
    assert (first.turn, first.return_variance, first.advantage_square) == (0, pytest.approx(6.0), 7.0)
    assert first.explained_variance == pytest.approx(1 - (37 / 18) / 6)
    assert (second.turn, second.return_variance, second.advantage_square) == (1, 0.0, 0.25)


# Of all of them


def pattern_of(name):
    """The name in the table: of an environment's own terms any, and of evaluations either way."""
    parts = name.split("/")
    if parts[0] == "evaluation":
        parts[1] = "*"
    if len(parts) > 1 and parts[-2] in ("reward", "metric"):
        parts[-1] = "*"
    return "/".join(parts)


def logged(name, folder, **settings):
    """Names of all metrics that a run logs."""
    train(
        name,
        lambda: TextProbe("delayed"),
        out=folder,
        policies={agent: word_policy(i, has_value_head=name == "ippo") for i, agent in enumerate(AGENTS)},
        num_updates=1,
        rollout_buffer_size=2,
        eval_num_samples=2,
        reference_kl_coef=0.1,
        entropy_coef=0.1,
        progress=False,
        **settings,
    )
    files = [folder / "metrics.jsonl", folder / "evaluation.jsonl"]
    return {key for file in files for line in file.read_text().splitlines() for key in json.loads(line)}


def test_every_logged_metric_has_a_case_by_hand(tmp_path):
    actor_critic = {"critic_warmup": 0}
    found = logged("magrpo", tmp_path / "magrpo", num_generations=2)
    found |= logged("maac", tmp_path / "maac", **actor_critic)
    found |= logged("ippo", tmp_path / "ippo", use_separate_critic=False, **actor_critic)
    ones = torch.ones(2)
    for spec in algorithm_specs():  # what a loss reports besides
        changes = {"critic_warmup": 0} if issubclass(spec.config, ActorCriticConfig) else {"num_generations": 2}
        for clip_range in (None, 0.2):
            settings = {"ppo_epochs": 1, "clip_range": clip_range, "rollout_buffer_size": 2, **changes}
            algorithm = spec.make(spec.config(**settings))
            found |= algorithm.loss(PolicyBatch(ones, ones, torch.tensor([0, 1]), ones, 2, 2)).metrics.keys()
    found |= {f"diagnostics/{field.name}" for field in fields(TurnDiagnostics)}
    patterns = {pattern_of(name) for name in found}
    assert not patterns - CASES.keys(), f"no test computes {sorted(patterns - CASES.keys())} by hand"
    assert not CASES.keys() - patterns - {"metric/*", "evaluation/*/metric/*"}, "a case of what no run logs"
