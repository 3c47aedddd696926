"""Settings of training: what all algorithms share, and what those with a critic add."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .advantages import Estimator

AdvantageNormalization = Literal["batch", "agent", "turn", "agent_turn", "none"]
KLEstimator = Literal["k1", "k2", "k3"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """What every algorithm is told."""

    num_updates: int = 100
    """Rounds of collecting and learning."""
    max_environment_steps: int | None = None
    """The update that reaches so many joint turns is the last; None: `num_updates` alone decides."""
    max_sampled_tokens: int | None = None
    """The update that reaches so many sampled tokens is the last; None: `num_updates` alone decides."""
    rollout_buffer_size: int = 32
    """Episodes collected for each update."""
    num_generations: int = 1
    """Rollouts of each task, all from one seed: the size of a group."""
    turns_per_update: int | None = None
    """Joint turns that each copy plays for an update, going on where the last stopped; None: whole episodes."""
    num_envs: int | None = None
    """Copies of the environment side by side; None: as many as there are episodes in an update, 64 at most."""
    num_workers: int = 0
    """Processes in which the copies step while others are decided for, where turns take long; 0: none but this one."""
    agent_learning_rate: float = 5e-4
    """Of AdamW, for policies; models beyond the embedded one want 1e-6 to 1e-5 for all weights, 1e-4 for adapters."""
    agent_learning_rates: Mapping[str, float] = field(default_factory=dict)
    """By agent, for those that learn at another rate than `agent_learning_rate`; 0 freezes one."""
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rates fall to 0 over the updates."""
    warmup_updates: int = 0
    """Updates over which the learning rates rise from 0."""
    adam_beta1: float = 0.9
    """Of AdamW: the mean of gradients fades with it."""
    adam_beta2: float = 0.999
    """Of AdamW: the mean of squared gradients fades with it."""
    adam_epsilon: float = 1e-8
    """Of AdamW: added to the root of the squares."""
    weight_decay: float = 0.0
    """Of AdamW."""
    max_grad_norm: float = 1.0
    """Gradients of a policy (of a critic) longer than this are shortened to it."""
    ppo_epochs: int = 1
    """How often each update goes over its episodes."""
    mini_batch_size: int | None = None
    """Episodes of an optimizer step (turns, for vectors); None: all of the update's."""
    max_batch_tokens: int | None = None
    """Tokens of one forward pass; changes memory and speed, not the result. None: 2,048 on a CPU, 16,384 elsewhere."""
    discount: float = 1.0
    """Of one turn, gamma."""
    credit: Literal["turn", "token"] = "turn"
    """What has a log-probability of its own: a whole completion, or each of its tokens."""
    clip_range: float | None = None
    """PPO's clip of the probability ratio, of each turn or token by `credit`; None: no ratio, plain policy gradient."""
    target_kl: float | None = None
    """An update ends before all its epochs once the policy is so many nats a token from the sampler; None: never."""
    advantage_normalization: AdvantageNormalization = "batch"
    """Bring advantages to mean 0 and deviation 1: over all agents and turns ("batch"), each agent's, each turn's, each
    turn's of each agent; or not."""
    reward_model: str | None = None
    """A folder or hub name of a sequence-classification model whose score of the joint history after each turn is
    learned from in place of the environment's reward; None: none."""
    reward_scale: float = 1.0
    """Rewards are multiplied with it before learning."""
    reward_shift: float = 0.0
    """Added to every turn's reward before it is scaled, such as minus the best possible one."""
    entropy_coef: float = 0.0
    """Reward, in units of advantage, for a nat of entropy of the mean token."""
    reference_kl_coef: float = 0.0
    """Price of a nat of divergence from the starting model; 0 keeps no copy of it."""
    reference_kl_in: Literal["reward", "loss"] = "loss"
    """Where that price is paid."""
    reference_kl_estimator: KLEstimator | None = None
    """Of the divergence; None: k1 in the reward (unbiased), k2 in the loss (its gradient is the divergence's own)."""
    early_termination_threshold: float | None = None
    """A training episode whose team reward in a turn is above it ends there, as if the game did; None: never."""
    eval_interval: int = 0
    """Updates between evaluations on held-out tasks; 0: none but the last."""
    eval_num_samples: int = 64
    """Episodes of an evaluation."""
    save_interval: int = 0
    """Updates between checkpoints from which training can resume; 0: only the end."""
    seed: int = 0
    """Of tasks, sampling, weights of critics and heads, and the order of mini-batches."""


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(TrainConfig):
    """What algorithms with a critic are told besides."""

    estimator: Estimator = "gae"
    """Of advantages: td (one step), n_step, gae, monte_carlo."""
    trace: float = 0.9
    """Lambda of gae: 0 trusts the critic, 1 the return."""
    num_steps: int = 3
    """Turns that n_step looks ahead."""
    critic_target: Estimator = "monte_carlo"
    """What the critic learns to predict, made by that estimator; on sparse rewards an untrained critic's own estimates
    (td) can collapse."""
    critic_type: Literal["v", "q"] = "v"
    """V(h); or Q(h, a) as well, for the advantage Q(h, a) - V(h), which takes the place of `estimator`'s."""
    critic_learning_rate: float = 1e-3
    """Of AdamW, for critics of their own."""
    value_loss_coef: float = 0.6
    """Weight of the value loss beside the policy's, where they share weights."""
    value_clip_range: float | None = None
    """PPO's clip of the value around its estimate at collection, in units of normalized values; None: no clip."""
    value_normalization: bool = True
    """Let the critic predict in units of the running mean and deviation of its targets."""
    critic_steps: int = 2
    """Optimizer steps of a critic of its own in an update."""
    critic_batch_size: int = 64
    """Episodes (turns, for vectors) of each of these steps, drawn from the replay."""
    critic_replay: int = 16
    """Updates whose episodes a critic of its own goes on learning from."""
    critic_warmup: int = 5
    """Updates at the start in which only a critic of its own learns."""
    value_head_hidden_dim: int | None = None
    """Of a tanh layer in the value head on an actor; None: linear."""
    critic_value_head_hidden_dim: int | None = None
    """Of a tanh layer in the head of a critic of its own; None: linear."""
    critic_model_name_or_path: str = "small"
    """Body of a critic of its own: "small" (random weights, 64 wide, 1 layer, the actors' tokenizer), a folder, a hub
    name, or "actor" (the first actor's weights and tokenizer)."""
