"""Settings of every algorithm. This module imports no heavy library, so that `--help` is fast.

A subclass that changes only the default of a setting inherits the setting's docstring, which is also the help text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from .._ranges import (
    Advanced,
    Also,
    Checked,
    Coefficient,
    Count,
    CountOrZero,
    Decay,
    Finite,
    InRange,
    LearningRate,
    NotNegative,
    Parts,
    Positive,
    Seed,
    Share,
)

AdvantageNormalization = Literal["batch", "agent", "turn", "agent_turn", "none"]
CriticKnowledge = Literal["joint", "privileged"]
EvalMetric = Literal["nash_conv"]
Estimator = Literal["td", "n_step", "gae", "monte_carlo"]
KLEstimator = Literal["k1", "k2", "k3"]
RewardModelPays = Literal["end", "differences"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Checked):
    """Settings that all algorithms share."""

    # Collecting.

    num_updates: Annotated[Count, Also("max_steps")] = 100
    """Number of updates. Each update collects episodes and learns from them."""
    max_environment_steps: Advanced[Count | None] = None
    """Budget in environment steps (joint turns). The update that uses up the budget is the last. None: no budget."""
    max_sampled_tokens: Advanced[Count | None] = None
    """Budget in sampled tokens. The update that uses up the budget is the last. None: no budget."""
    rollout_buffer_size: Count = 32
    """Number of episodes collected per update."""
    num_generations: Count = 1
    """Group size: number of rollouts per task. The rollouts of a task start from the same seed."""
    turns_per_update: Advanced[Count | None] = None
    """Joint turns per update and environment copy. The next update continues open episodes. None: whole episodes."""
    num_envs: Count | None = None
    """Number of environment copies that step together. Changes results by rounding, except with `deterministic`. None:
    one copy per episode of an update, at most 64."""
    num_workers: CountOrZero = 0
    """Number of worker processes that step the environment copies, for slow environments. 0: no extra process."""
    timeout_s: Advanced[Positive | None] = None
    """Time limit per turn of an environment, in seconds; needs `num_workers`. A process that exceeds the limit is
    replaced, and its episodes are replayed up to that turn. An episode that fails twice is skipped. The start of a
    process does not count. None: no limit."""
    early_termination_threshold: Advanced[Finite | None] = None
    """Team reward of one turn above which a training episode terminates. None: no threshold."""
    difficulty_schedule: Advanced[str | None] = None
    """Curriculum: difficulty of the training tasks. "3" or "2-4": the whole training. "0: 1, 0.3: 1-3, 0.7: 1-5":
    stages, each after the fraction of `num_updates` at which it begins. "linear: 1-5": a range that increases linearly.
    None: the environment's own difficulty, which evaluations always use."""

    # Asynchronous and distributed collection.

    max_staleness: Advanced[Annotated[CountOrZero, Also("max_off_policy_steps")]] = 0
    """Staleness bound: maximum number of updates between the weights that play an episode and the weights that learn
    from this episode. With n > 0, a copy of the models plays the episodes of the next n updates during each update.
    Results are independent of speed. 0: playing and learning alternate."""
    importance_cap: Advanced[Positive | None] = 2.0
    """Cap of importance weights. The gradient of an off-policy turn is multiplied by an importance weight: the turn's
    present probability divided by its probability at sampling, at most this cap. Turns are off-policy if older weights
    sampled them (`max_staleness`), and always with `server_logprobs server`. Not used with `clip_range`, because PPO's
    ratio already corrects the gradient. None: no weights."""
    collectors: Advanced[str | None] = None
    """Ray cluster whose actors play the episodes: "ray" starts one on this machine, "ray://HOST:PORT" joins the cluster
    of `ray start --head` at that port (6379 by default). Needs collm[ray]. Results are the same. None: the training
    process plays the episodes."""
    num_collectors: Advanced[Count] = 2
    """Number of Ray actors that play episodes; needs `collectors`."""
    collector_options: Advanced[Mapping[str, bool | int | float | str]] = field(default_factory=dict)
    """Options of each Ray actor of `collectors`, as in `ray.remote`, for example `num_cpus 4 num_gpus 1`. num_cpus is 1
    by default. working_dir is a folder that Ray copies to every machine, for example with an environment's module."""

    # Optimizing.

    agent_learning_rate: Annotated[LearningRate | None, Also("learning_rate", "lr")] = None
    """AdamW's learning rate for the policies. None: 5e-4 for perceptrons and models of fewer than 10 million weights,
    such as the embedded model; 1e-4 for adapters; for full weights 1e-5 below 300 million weights, else 1e-6. A resumed
    run keeps its rate."""
    agent_learning_rates: Advanced[Mapping[str, LearningRate]] = field(default_factory=dict)
    """Learning rates of single agents, which replace `agent_learning_rate`. 0 freezes an agent."""
    learning_rate_schedule: Advanced[Annotated[Literal["constant", "linear", "cosine"], Also("lr_scheduler_type")]] = (
        "constant"
    )
    """Schedule of the learning rates after the warm-up: constant, or a linear or cosine decay to 0."""
    warmup_updates: Advanced[Annotated[CountOrZero, Also("warmup_steps")]] = 0
    """Warm-up: number of updates over which the learning rates rise linearly from 0."""
    adam: Advanced[Annotated[tuple[Decay, Decay, Positive], Parts("adam_beta1", "adam_beta2", "adam_epsilon")]] = (
        0.9,
        0.999,
        1e-8,
    )
    """AdamW's beta1 and beta2, the decays of the means of gradients and of squared gradients, and epsilon."""
    weight_decay: Advanced[NotNegative] = 0.0
    """AdamW's decoupled weight decay."""
    max_grad_norm: Advanced[Positive] = 1.0
    """Largest L2 norm of each model's gradient; larger gradients are clipped."""
    ppo_epochs: Annotated[Count, Also("num_iterations")] = 1
    """Epochs per update: passes over the episodes. More than 1 needs `clip_range` (IPPO and MAPPO warn without it)."""
    mini_batch_size: Count | None = None
    """Mini-batch size per optimizer step, in episodes (in turns, for vector observations). None: the whole update."""
    max_batch_tokens: Advanced[Count | None] = None
    """Maximum tokens per forward pass. Limits memory; changes results by rounding, except with `deterministic`. None:
    2,048 on a CPU, 16,384 on other devices, and fewer if the memory plan requires it."""
    offload: Advanced[Literal["none", "moments", "learner"]] = "none"
    """Offloading to host memory. "none": no offloading. "moments": AdamW's moments, except in the optimizer step.
    "learner": also the weights of all models except the model that learns. Same results. No effect on a CPU."""
    fsdp: Advanced[bool] = False
    """FSDP2 (fully sharded data parallelism): under torchrun each rank keeps a shard of language models' weights,
    gradients and AdamW moments. For decoding, each rank has a whole copy in `compute_dtype`, or uses vLLM servers
    (`server`). Models with adapters are not sharded. False: no sharding."""

    # Credit.

    discount: Annotated[Share, Also("gamma")] = 1.0
    """Discount factor gamma per turn, 0..1."""
    credit: Advanced[Annotated[Literal["turn", "token"], Also("loss_unit")]] = "turn"
    """Unit that has one log-probability and one ratio in the policy's loss: a completion ("turn") or a "token"."""
    clip_range: Annotated[Positive | None, Also("epsilon")] = None
    """PPO's clip range epsilon of the ratio per turn or token (see `credit`). None: plain policy gradient."""
    clip_range_high: Advanced[Annotated[Positive | None, Also("epsilon_high")]] = None
    """Upper clip range of the probability ratio (clip-higher, DAPO, arXiv:2503.14476). None: `clip_range`."""
    divide_by_length: Advanced[bool] = False
    """Division by a completion's number of tokens. With credit="turn" the log-probability is divided, as in GSPO
    (arXiv:2507.18071). With credit="token" the loss is divided, so that all completions have the same weight."""
    loss_denominator: Advanced[Literal["fixed", "sampled"]] = "fixed"
    """Denominator of the policy's loss. "sampled": the number of sampled turns, or of sampled tokens with
    credit="token". This number depends on the actions, which biases the gradient of small batches (Dr. GRPO,
    arXiv:2503.20783). "fixed": the number of episodes times the environment's turn limit (1 without a limit); with
    credit="token" also times the largest number of tokens per turn."""
    target_kl: Advanced[NotNegative | None] = None
    """KL divergence from the sampling policy, in nats per token, that ends the epochs of an update. None: no limit."""
    advantage_normalization: Advanced[AdvantageNormalization] = "batch"
    """Normalization of advantages to mean 0 and standard deviation 1: over all agents and turns ("batch"), per agent,
    per turn, per agent and turn, or none. A single advantage is divided by the batch's root mean square instead."""

    # Rewards.

    credited_reward: Advanced[Literal["team", "own"] | None] = None
    """Reward that is credited to an agent's turns. "team": the mean reward of all agents, also after the agent has
    left. "own": the agent's own reward; a joint critic then has one value per agent. None: "team" if the environment
    declares common interests (`TextParallelEnv.interests`) or a reward model computes the rewards, else "own"."""
    reward_model: Advanced[Annotated[str | None, Also("reward_model_name")]] = None
    """Reward model, a folder or hub name of a sequence classifier: its score of the joint history replaces the
    environment's reward in learning. None: the environment's reward."""
    reward_model_pays: Advanced[RewardModelPays] = "end"
    """Turns whose reward the reward model computes. "end": the last turn, from the score of the whole episode.
    "differences": each turn, as the score after the turn minus the score before the turn."""
    reward_scale: Advanced[Finite] = 1.0
    """Factor by which every reward is multiplied before learning."""
    reward_shift: Advanced[Finite] = 0.0
    """Constant added to the reward of every turn before scaling, for example minus the best possible reward."""
    entropy_coef: Annotated[Coefficient, Also("ent_coef")] = 0.0
    """Entropy coefficient: the mean entropy per token, in nats, times this coefficient is subtracted from the loss.
    Entropies are averaged per turn first, except with credit="token" or loss_denominator="sampled"."""
    reference_kl_coef: Annotated[NotNegative, Also("beta", "kl_coef")] = 0.0
    """KL coefficient: penalty per nat of divergence from the starting model. 0: no penalty, no copy of this model."""
    reference_kl_in: Advanced[Literal["reward", "loss"]] = "loss"
    """Place of the KL penalty. "reward": subtracted from the agent's rewards, in the rewards' unit; if a joint critic
    learns the team's reward, the sum of all agents' penalties is subtracted from this reward. "loss": added to each
    policy's loss, in the unit of the normalized advantages."""
    reference_kl_estimator: Advanced[KLEstimator | None] = None
    """Estimator of the KL divergence in the penalty. None: k1 in the reward, which is unbiased, and k2 in the loss. The
    gradient of k2 omits the effect of a token on the divergence of later tokens."""
    reference_device: Advanced[str | None] = None
    """Device of the copies of the starting models, for the KL divergence. None: the device of each policy."""

    # Evaluating and saving.

    eval_interval: Annotated[CountOrZero, Also("eval_steps")] = 0
    """Number of updates between evaluations on held-out tasks. 0: only before the first and after the last update."""
    eval_on_start: Advanced[bool] = True
    """Evaluation before the first update. Its results are equal for all runs with the same initial weights."""
    eval_num_samples: Count | None = None
    """Number of episodes per evaluation and decoding mode (sampled, greedy). None: 64, or 8 if a model has more than
    50 million weights."""
    eval_max_turns: Advanced[Count | None] = None
    """Joint turns after which an evaluation episode is truncated. None: the environment's limit, or 1,000
    if it has no limit."""
    eval_metrics: Advanced[tuple[EvalMetric, ...]] = ()
    """Further metrics of evaluations. "nash_conv": sum of what the agents gain with exact best responses, in games of
    OpenSpiel that are small enough to enumerate."""
    save_interval: Advanced[Annotated[CountOrZero, Also("save_steps")]] = 0
    """Number of updates between checkpoints for resuming. 0: checkpoints only by time (`save_interval_minutes`)."""
    save_interval_minutes: Advanced[NotNegative] = 5.0
    """Minutes between checkpoints, in addition to `save_interval`. Checkpoints are also saved at the end, at Ctrl-C and
    at SIGTERM. 0: no checkpoints by time."""
    side_by_side: Advanced[Annotated[bool | None, Also("parallel_training")]] = None
    """Parallel threads: agents with separate models decode and learn at the same time, and so do separate critics.
    Models on one CPU share torch's threads (`--threads`), which changes results by rounding, except with
    `deterministic`. None: on if models are on different devices, or if the CPU has a core for each of their threads."""
    deterministic: Advanced[bool] = False
    """Bit-for-bit equal results for any `num_envs`, `num_workers` and `max_batch_tokens`, and after interruptions.
    Decoding and learning use fixed shapes, which is slower. The machine, libraries and number of threads must be equal.
    Tested only on CPUs. False: these settings change results by rounding."""
    seed: Seed = 0
    """Seed of tasks, sampling, initial weights of critics and heads, and the order of mini-batches."""


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(TrainConfig):
    """Settings of algorithms with a critic, in addition to the settings of `TrainConfig`."""

    # Advantages.

    estimator: Annotated[Estimator, Also("advantage_estimator")] = "gae"
    """Advantage estimator: one-step temporal difference ("td"), n-step return ("n_step"), generalized advantage
    estimation ("gae"), or Monte Carlo return ("monte_carlo")."""
    trace: Annotated[Share, Also("gae_lambda")] = 0.9
    """GAE lambda, 0..1. 0: one-step TD errors. 1: Monte Carlo return minus the critic's value."""
    num_steps: Advanced[Annotated[Count, Also("n_step")]] = 3
    """Number of turns n that the n-step estimator looks ahead."""

    # Critic.

    critic_target: Advanced[Estimator] = "monte_carlo"
    """Estimator of the critic's regression targets. On sparse rewards "td" can collapse: an untrained critic then
    learns from its own estimates."""
    critic_type: Advanced[Literal["v", "q"]] = "v"
    """Type of critic: "v" for V(h); "q" for V(h) and Q(h, a), whose difference is the advantage (no `estimator`)."""
    critic_model_name_or_path: str = "small"
    """Model of a separate critic: a folder, a hub name, or a name registered by `register_critic`. "small": random
    weights, 64 wide, 1 layer, the actors' tokenizer. "actor": the first actor's weights and tokenizer. "bag_of_words":
    one logistic regression per turn on word counts, fitted to the whole replay at each update. This critic needs far
    fewer episodes, and has no learning rate, steps or batches."""
    critic_l2: Advanced[NotNegative] = 50.0
    """L2 penalty of the bag-of-words critic: half of this value times the sum of the squared weights is added to the
    cross-entropy, which is summed over the replay. A critic of one agent's history needs a smaller penalty than
    a joint critic."""
    critic_device: Advanced[str | None] = None
    """Device of separate critics. None: the device of the agent, or of the first agent for a joint critic."""
    critic_lora_rank: Advanced[Count | None] = None
    """Rank of LoRA adapters on a separate, pretrained critic with frozen weights. None: all weights learn."""
    critic_learning_rate: LearningRate = 1e-3
    """AdamW's learning rate for separate critics."""
    critic_steps: Advanced[Count] = 2
    """Optimizer steps of a separate critic per update."""
    critic_batch_size: Advanced[Count] = 64
    """Mini-batch size of a separate critic's step, in replayed episodes (in turns, for vector observations)."""
    critic_replay: Advanced[Count] = 16
    """Replay length of a separate critic: number of recent updates whose episodes the critic learns from."""
    critic_warmup: CountOrZero | None = None
    """Updates at the start in which only a separate critic learns. If not 0, this warm-up comes back while all returns
    that the critic replays are equal. None: 5, or half of `num_updates` if `num_updates` <= 5."""
    value_loss_coef: Advanced[Annotated[NotNegative, Also("vf_coef")]] = 0.6
    """Value loss coefficient: weight of the loss of a value head on an actor."""
    value_clip_range: Advanced[Positive | None] = None
    """PPO's clip range of the value around its prediction before the update, in normalized units. None: no clip."""
    value_normalization: Advanced[bool] = True
    """Value normalization: the critic's targets are normalized by their running mean and standard deviation."""
    value_head_hidden_dim: Advanced[Count | None] = None
    """Width of a tanh layer in the value heads of separate critics or of actors. None: linear heads."""


@dataclass(frozen=True, kw_only=True)
class IACConfig(ActorCriticConfig):
    """Settings of IAC."""

    use_separate_critic: bool = True
    """Separate model for each critic. False: a value head on each actor, trained together with the actor."""


@dataclass(frozen=True, kw_only=True)
class MAACConfig(ActorCriticConfig):
    """Settings of MAAC."""

    critic_input: CriticKnowledge = "joint"
    """Input of the critic: "joint", all observations and actions of all agents; "privileged", also the hidden state of
    the environment (`TextParallelEnv.truth`, or `state()` for vectors)."""


@dataclass(frozen=True, kw_only=True)
class PPODefaults(ActorCriticConfig):
    """Default settings that IPPO and MAPPO share."""

    trace: float = 0.95
    ppo_epochs: int = 4
    clip_range: float | None = 0.2


@dataclass(frozen=True, kw_only=True)
class IPPOConfig(PPODefaults, IACConfig):
    """Settings of IPPO."""


@dataclass(frozen=True, kw_only=True)
class MAPPOConfig(PPODefaults, MAACConfig):
    """Settings of MAPPO."""


@dataclass(frozen=True, kw_only=True)
class ReinforceConfig(TrainConfig):
    """Settings of MAREINFORCE, MAGRPO and MAReMax."""

    num_generations: int = 8
    divide_by_std: Advanced[bool] = False
    """Division by the sample standard deviation (divisor G - 1) of the group's returns, as in GRPO and TRL. The
    division weights tasks by their difficulty (arXiv:2503.20783). MAREINFORCE divides by the returns' root mean
    square instead."""
    joint_mode: Literal["aligned", "cross"] = "aligned"
    """Joint actions that are scored in a group of rollouts. "aligned": the joint actions that were played. "cross": all
    combinations of the agents' completions, with num_generations ** agents environment steps, for games of one turn."""


@dataclass(frozen=True, kw_only=True)
class C3Config(ReinforceConfig):
    """Settings of C3. `rollout_buffer_size` counts base episodes, without their branches."""

    num_generations: int = 1
    rollout_buffer_size: Count = 16
    num_alternatives: Annotated[int, InRange(2)] = 4
    """Sampled replies per decision that are compared, with the reply of the base episode."""
    num_decisions: Count | None = 1
    """Decisions per base episode that are repeated. They are drawn at random. None: all decisions."""
    advantage_normalization: AdvantageNormalization = "none"


@dataclass(frozen=True, kw_only=True)
class MARLOOConfig(ReinforceConfig):
    """Settings of MARLOO. Default: no normalization of advantages, which would make them equal to MAGRPO's."""

    advantage_normalization: AdvantageNormalization = "none"
