"""What an update reports of policies and critics, by loops and NumPy from what went into it."""

import math

import numpy as np
import pytest
import torch
from cases import case
from fakes import WeightlessCritic
from torch import nn

from collm.agents.core import Completion, CriticInput, Evaluation, TrainablePolicy
from collm.agents.numeric.moments import RunningMoments
from collm.algorithms import IAC, IPPO, IACConfig, IPPOConfig, MAACConfig
from collm.algorithms.learning.credit import critic_metrics
from collm.algorithms.learning.critic_learner import CriticBatch, CriticLearner
from collm.algorithms.learning.policy_learner import PolicyLearner, TurnBatch


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
# Row, tokens, and log-probabilities at sampling (of an older policy), of each turn of each track.
TRACKS = [[(0, [1, 2], [-0.9, -1.1]), (1, [0], [-1.3])], [(1, [2, 0, 1], [-0.8, -1.0, -1.6])], [(0, [0], [-2.2])]]
ADVANTAGES = [1.0, -0.5, 2.0, -1.5]
TARGETS = [1.0, 0.0, -1.0, 0.5]
REFERENCE = [-1.0, -1.4, -0.6, -0.9, -1.2, -2.0, -1.7]
TURNS = [turn for track in TRACKS for turn in track]
TURN_OF = [number for number, turn in enumerate(TURNS) for _ in turn[1]]
SAMPLED = [logprob for turn in TURNS for logprob in turn[2]]


def log_softmax(row):
    return [logit - math.log(sum(math.exp(other) for other in row)) for logit in row]


NOW = [log_softmax(LOGITS[row])[token] for row, tokens, _ in TURNS for token in tokens]


def completions_of(tracks):
    return [
        [Completion("", np.array(sampled, np.float32), tokens=(row, tokens)) for row, tokens, sampled in track]
        for track in tracks
    ]


def updated(config, algorithm=IPPO, old_values=None):
    """Metrics of an update by a policy that stands still, so that all of its steps see the same numbers."""
    learner = PolicyLearner(Table(LOGITS, ROW_VALUES), algorithm(config), torch.Generator().manual_seed(0))
    numbers = torch.tensor(ADVANTAGES), torch.tensor(TARGETS), old_values
    return learner.prepare(TurnBatch(completions_of(TRACKS), *numbers, reference_logprobs=torch.tensor(REFERENCE)))()


def still(**settings):
    return {"agent_learning_rate": 0.0, "mini_batch_size": None, "ppo_epochs": 1, **settings}


@case("policy_loss", "clip_fraction")
@pytest.mark.parametrize(("low", "high"), [(0.2, None), (0.1, 0.5), (1.0, None), (1.5, 0.05), (30.0, None)])
@pytest.mark.parametrize("credit", ["turn", "token"])
def test_the_policy_s_loss_and_the_share_of_what_the_clip_cut_by_a_loop(credit, low, high):
    """A low side of 1 or more cuts nothing: no ratio is below 0."""
    metrics = updated(IPPOConfig(**still(clip_range=low, clip_range_high=high, credit=credit)))
    gaps = [now - old for now, old in zip(NOW, SAMPLED, strict=True)]
    items = [(gap, ADVANTAGES[turn]) for gap, turn in zip(gaps, TURN_OF, strict=True)]
    if credit == "turn":
        sums = [sum(gap for gap, turn in zip(gaps, TURN_OF, strict=True) if turn == each) for each in range(len(TURNS))]
        items = list(zip(sums, ADVANTAGES, strict=True))
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
    settings = {"reference_kl_coef": 0.3, "use_separate_critic": False, "max_batch_tokens": max_batch_tokens}
    metrics = updated(IPPOConfig(**still(**settings)))
    # KL(sampler || policy now), from the sampler's samples: the ratio - 1 - its logarithm
    ratios = [math.exp(now - old) for now, old in zip(NOW, SAMPLED, strict=True)]
    assert metrics["kl_to_sampler"] == pytest.approx(np.mean([r - 1 - math.log(r) for r in ratios]), rel=1e-5)
    assert metrics["logprob_error"] == pytest.approx(max(abs(a - b) for a, b in zip(NOW, SAMPLED, strict=True)))
    distances = [(now - anchor) ** 2 / 2 for now, anchor in zip(NOW, REFERENCE, strict=True)]
    assert metrics["reference_kl"] == pytest.approx(sum(distances) / len(TURNS), rel=1e-5)
    errors = [(ROW_VALUES[row] - target) ** 2 for (row, *_), target in zip(TURNS, TARGETS, strict=True)]
    assert metrics["value_loss"] == pytest.approx(np.mean(errors), rel=1e-5)
    assert metrics["optimizer_steps"] == 1


def test_a_value_head_s_loss_is_clipped_around_the_old_values_by_a_loop():
    config = IACConfig(**still(use_separate_critic=False, value_clip_range=0.2))
    errors = []
    for (row, *_), target in zip(TURNS, TARGETS, strict=True):
        near = min(max(ROW_VALUES[row], -0.2), 0.2)
        errors.append(max((ROW_VALUES[row] - target) ** 2, (near - target) ** 2))
    metrics = updated(config, IAC, old_values=torch.zeros(len(TURNS)))
    assert metrics["value_loss"] == pytest.approx(np.mean(errors), rel=1e-5)


@case("kl_after_update")
@pytest.mark.parametrize("max_batch_tokens", [1, 100])
@pytest.mark.parametrize("copies", [1, 6])
def test_how_far_an_update_moved_the_policy_by_a_loop_over_every_eighth_track(copies, max_batch_tokens):
    config = IPPOConfig(**still(agent_learning_rate=0.5, max_batch_tokens=max_batch_tokens))
    policy = Table(LOGITS, ROW_VALUES)
    learner = PolicyLearner(policy, IPPO(config), torch.Generator())
    metrics = learner.prepare(TurnBatch(completions_of(copies * TRACKS), torch.tensor(copies * ADVANTAGES)))()
    moved = [log_softmax(row) for row in policy.logits.tolist()]
    assert not np.allclose(moved, [log_softmax(row) for row in LOGITS], atol=0.1)
    gaps = []
    for track in (copies * TRACKS)[::8]:
        for row, tokens, sampled in track:
            gaps += [moved[row][token] - old for token, old in zip(tokens, sampled, strict=True)]
    assert metrics["kl_after_update"] == pytest.approx(np.mean([math.exp(g) - 1 - g for g in gaps]), rel=1e-5)


@case("grad_norm")
def test_the_norm_of_the_gradient_by_hand_before_it_is_clipped():
    """Each token adds -A (one-hot - probabilities) over the number of turns."""
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
    """One track per step; the error against the sampler is that of the first step."""
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


class Line(WeightlessCritic):
    """V(h) = slope h + height."""

    def __init__(self, slope, height):
        self.weights = nn.Parameter(torch.tensor([slope, height]))

    def values(self, inputs):
        histories = torch.tensor([float(history) for each in inputs for history in each.histories])
        return self.weights[0] * histories + self.weights[1]

    def parameters(self):
        return [self.weights]


def line_learner(**settings):
    config = MAACConfig(value_normalization=False, **settings)
    return CriticLearner(Line(2.0, -1.0), config, torch.Generator().manual_seed(0))


@case("value_loss", "critic_grad_norm")
@pytest.mark.parametrize("max_batch_tokens", [1, 100])
def test_the_critic_s_loss_and_gradient_by_hand(max_batch_tokens):
    settings = {"critic_learning_rate": 0.0, "critic_steps": 3, "max_grad_norm": 1e-3}
    learner = line_learner(max_batch_tokens=max_batch_tokens, **settings)
    seen = [CriticInput((0.0, 1.0)), CriticInput((3.0,))]
    targets = torch.tensor([1.0, 1.5, 4.0])
    metrics = learner.learn(seen, targets)
    errors = np.array([-1.0 - 1.0, 1.0 - 1.5, 5.0 - 4.0])
    assert metrics["value_loss"] == pytest.approx((errors**2).mean())
    slopes = [2 * (errors * np.array([0.0, 1.0, 3.0])).mean(), 2 * errors.mean()]
    assert metrics["critic_grad_norm"] == pytest.approx(np.hypot(*slopes), rel=1e-6)


def test_the_critic_s_loss_is_the_mean_over_its_steps():
    """Two runs of one step are a run of two."""
    seen, targets = [CriticInput((0.0, 1.0, 3.0))], torch.tensor([1.0, 1.5, 4.0])
    alone, twice, rows = line_learner(critic_steps=1), line_learner(critic_steps=2), []
    for _ in range(2):
        alone.replay.clear()
        rows.append(alone.learn(seen, targets))
    assert rows[0]["value_loss"] != rows[1]["value_loss"]
    for name, mean in twice.learn(seen, targets).items():
        assert mean == pytest.approx((rows[0][name] + rows[1][name]) / 2, rel=1e-5)


@case("explained_variance", "value_mean", "target_mean")
def test_what_the_critics_foresaw_by_hand():
    pieces = [([1.0, 4.0], [1.0, 2.0]), ([7.0], [3.0])]  # targets and values of two critics
    batches = [CriticBatch(None, [], *map(torch.tensor, piece), RunningMoments.empty()) for piece in pieces]
    # targets 1, 4, 7 vary by 6; what is left of them, 0, 2, 4, by 8/3
    expected = {"explained_variance": 1 - (8 / 3) / 6, "value_mean": 2.0, "target_mean": 4.0}
    assert critic_metrics(batches) == pytest.approx(expected, rel=1e-6)
    assert critic_metrics([]) == {}
