"""Settings of every algorithm. Nothing heavy is imported here, so that a command line can show them at once.

A class that gives a setting another default does not repeat the setting's docstring: help texts take it from the class
that declares the setting first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal

from .._ranges import (
    Advanced,
    Also,
    Checked,
    Coefficient,
    Count,
    CountOrZero,
    Decay,
    Finite,
    LearningRate,
    NotNegative,
    Parts,
    Positive,
    Seed,
    Share,
)

AdvantageNormalization = Literal["batch", "agent", "turn", "agent_turn", "none"]
CriticKnowledge = Literal["joint", "privileged"]
Estimator = Literal["td", "n_step", "gae", "monte_carlo"]
KLEstimator = Literal["k1", "k2", "k3"]
RewardModelPays = Literal["end", "differences"]
OLDER_VALUES: Mapping[str, Any] = MappingProxyType({"loss_denominator": "sampled"})
"""Values of settings that a run's config.json lacks because it is older than they are, if not their defaults."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Checked):
    """Settings that all algorithms share."""

    # Collecting.

    num_updates: Annotated[Count, Also("max_steps")] = 100
    """Number of updates; each collects episodes and learns from them."""
    max_environment_steps: Advanced[Count | None] = None
    """Budget in environment steps (joint turns): the update that reaches it is the last. None: `num_updates` alone
    decides."""
    max_sampled_tokens: Advanced[Count | None] = None
    """Budget in sampled tokens: the update that reaches it is the last. None: `num_updates` alone decides."""
    rollout_buffer_size: Count = 32
    """Episodes collected per update."""
    num_generations: Count = 1
    """Group size: rollouts per task, all started from one seed."""
    turns_per_update: Advanced[Count | None] = None
    """Joint turns that each environment copy plays per update, continuing where the last update stopped. None: whole
    episodes."""
    num_envs: Count | None = None
    """Environment copies that are played side by side; changes results by rounding (not with `deterministic`). None:
    one per episode of an update, at most 64."""
    num_workers: CountOrZero = 0
    """Worker processes in which the environment copies step. 0: this process steps them; workers pay where a turn takes
    long."""
    timeout_s: Advanced[Positive | None] = None
    """Time limit per turn of an environment, in seconds, with `num_workers`: a process that takes longer is replaced,
    and its episodes are replayed up to there; an episode that fails twice is skipped. None: no limit, so that a turn
    that never ends stops the run."""
    early_termination_threshold: Advanced[Finite | None] = None
    """Team reward per turn above which a training episode ends, as if the game did. None: never."""
    difficulty_schedule: Advanced[str | None] = None
    """Curriculum: difficulty of training's tasks by the share of `num_updates` that is done. A number or a range for
    all of training ("3", "2-4"), stages with the share at which each begins ("0: 1, 0.3: 1-3, 0.7: 1-5"), or a range
    gone through evenly ("linear: 1-5"). Evaluations keep the environment's own difficulty. None: training does too."""

    # Collecting elsewhere and ahead.

    max_staleness: Advanced[Annotated[CountOrZero, Also("max_off_policy_steps")]] = 0
    """Staleness bound: updates between the weights that play an episode and those that learn from it. With n, the
    episodes of the next n updates are played while this one is learned from, by a copy of the models; results do not
    depend on how fast either is. An agent then learns against its partners as they were n updates ago. 0: playing and
    learning take turns."""
    importance_cap: Advanced[Positive | None] = 2.0
    """Cap of truncated importance weights: an off-policy turn's (or token's, see `credit`) part of the policy gradient
    is multiplied by its probability now over that at sampling, at most by this. Off-policy are turns of older weights
    (`max_staleness`), and all turns with `server_logprobs server`; others have weight 1. The weights correct the change
    of the agent's own policy in this turn, not that of its partners or of earlier turns. `clip_range`, whose ratio is
    to the sampling policy already, replaces the weights. None: no weights."""
    collectors: Advanced[str | None] = None
    """Ray cluster whose actors play the episodes: "ray" starts one on this machine, "ray://HOST:PORT" joins the one of
    `ray start --head` at that port (6379 unless told otherwise). Needs collm[ray]. Results are the same. None: this
    process plays."""
    num_collectors: Advanced[Count] = 2
    """Actors that play, with `collectors`."""
    collector_options: Advanced[Mapping[str, bool | int | float | str]] = field(default_factory=dict)
    """Options of each actor of `collectors`, as `ray.remote` takes them, for example `num_cpus 4 num_gpus 1`; num_cpus
    is 1 if it is not given. working_dir is a folder that Ray copies to every machine and whose modules actors import,
    such as a user's environment."""

    # Optimizing.

    agent_learning_rate: Annotated[LearningRate | None, Also("learning_rate", "lr")] = None
    """AdamW's learning rate for the policies. None: by the model, 5e-4 for perceptrons and for models of fewer than 10
    million weights, as the embedded one, 1e-4 for adapters, and 1e-6 for full weights."""
    agent_learning_rates: Advanced[Mapping[str, LearningRate]] = field(default_factory=dict)
    """Learning rates by agent, for agents that differ from `agent_learning_rate`. 0 freezes an agent."""
    learning_rate_schedule: Advanced[Annotated[Literal["constant", "linear", "cosine"], Also("lr_scheduler_type")]] = (
        "constant"
    )
    """Schedule by which the learning rates fall to 0 over the updates, after the warm-up."""
    warmup_updates: Advanced[Annotated[CountOrZero, Also("warmup_steps")]] = 0
    """Updates over which the learning rates rise linearly from 0."""
    adam: Advanced[Annotated[tuple[Decay, Decay, Positive], Parts("adam_beta1", "adam_beta2", "adam_epsilon")]] = (
        0.9,
        0.999,
        1e-8,
    )
    """AdamW's beta1 and beta2, the decays of the running means of gradients and squared gradients, and epsilon, which
    is added to the root of the latter."""
    weight_decay: Advanced[NotNegative] = 0.0
    """AdamW's decoupled weight decay."""
    max_grad_norm: Advanced[Positive] = 1.0
    """Clip each model's gradient to this L2 norm."""
    ppo_epochs: Annotated[Count, Also("num_iterations")] = 1
    """Epochs per update: passes over the collected episodes. More than 1 needs `clip_range`; IPPO and MAPPO only warn
    without it."""
    mini_batch_size: Count | None = None
    """Mini-batch size per optimizer step, in episodes (in turns, for vector observations). None: the whole update in
    one step."""
    max_batch_tokens: Advanced[Count | None] = None
    """Tokens per forward pass: a bound on memory, which changes results by rounding (not with `deterministic`). None:
    2,048 on a CPU, 16,384 elsewhere, and fewer where the memory plan has no room for them."""
    offload: Advanced[Literal["none", "moments", "learner"]] = "none"
    """Offload to host memory: nothing ("none"); AdamW's moments, but for the step itself ("moments"); or also the
    weights of all policies and critics but the one that learns ("learner"). Results are the same; on a CPU nothing
    moves."""

    fsdp: Advanced[bool] = False
    """FSDP2 (fully sharded data parallelism): under torchrun each rank keeps a share of the weights, gradients and
    AdamW's moments of language models, critics and references, and decodes with a whole copy in `compute_dtype`, or by
    vLLM servers (`server`) without one. Models with adapters stay whole. False: each rank keeps all of them, as one
    process does in any case."""

    # Credit.

    discount: Annotated[Share, Also("gamma")] = 1.0
    """Discount factor gamma per turn, 0..1."""
    credit: Advanced[Annotated[Literal["turn", "token"], Also("loss_unit")]] = "turn"
    """Unit that has its own log-probability and ratio: a whole completion ("turn") or each token ("token")."""
    clip_range: Annotated[Positive | None, Also("epsilon")] = None
    """PPO's clip range epsilon of the probability ratio per turn or token (see `credit`). None: no ratio, plain policy
    gradient."""
    clip_range_high: Advanced[Annotated[Positive | None, Also("epsilon_high")]] = None
    """Upper clip range of the probability ratio, where it differs from the lower one (clip-higher, DAPO,
    arXiv:2503.14476). None: `clip_range` on both sides."""
    divide_by_length: Advanced[bool] = False
    """Divide by a completion's number of tokens: its log-probability with credit="turn", which makes the clipped ratio
    GSPO's (arXiv:2507.18071); its weight in the loss with credit="token", so that completions of any length count the
    same."""
    loss_denominator: Advanced[Literal["fixed", "sampled"]] = "fixed"
    """Denominator of the policy's loss with all its terms: a constant ("fixed"), or the number of turns that were
    sampled, of tokens with credit="token" ("sampled"). The constant is the number of episodes times the largest number
    of turns that the environment declares (1 if it declares none); with credit="token" also times the largest number
    of tokens per turn. A sampled number depends on the actions if episodes or replies differ in length, which biases
    the gradient of small batches (as Dr. GRPO shows for tokens, arXiv:2503.20783)."""
    target_kl: Advanced[NotNegative | None] = None
    """KL divergence from the sampling policy, in nats per token, above which the remaining epochs are skipped. None:
    never."""
    advantage_normalization: Advanced[AdvantageNormalization] = "batch"
    """Normalization of advantages to mean 0 and standard deviation 1: over all agents and turns ("batch"), per agent,
    per turn, per agent and turn, or none. A group of one turn is divided by the root mean square of the whole batch.
    The standard deviation is the population's (divisor n, not n - 1)."""

    # Rewards.

    credited_reward: Advanced[Literal["team", "own"]] = "team"
    """Reward that an agent's turn is credited with: the team's ("team"), which is the mean over all agents and goes on
    after an agent has left; or the agent's own reward ("own"), which constant-sum games need. A joint critic has one
    value for the whole team, so "own" is refused for MAAC and MAPPO."""
    reward_model: Advanced[Annotated[str | None, Also("reward_model_name")]] = None
    """Reward model, a folder or hub name of a sequence classifier: its score of the joint history replaces the
    environment's reward in learning. None: the environment's reward."""
    reward_model_pays: Advanced[RewardModelPays] = "end"
    """Turns that the reward model pays: the last one, with its score of the whole episode ("end"), or each, with the
    score after it minus the score before it ("differences")."""
    reward_scale: Advanced[Finite] = 1.0
    """Factor on every reward before learning."""
    reward_shift: Advanced[Finite] = 0.0
    """Constant added to the reward of every turn before scaling, for example minus the best possible one."""
    entropy_coef: Annotated[Coefficient, Also("ent_coef")] = 0.0
    """Entropy coefficient: weight of the entropy bonus, loss -= this x mean entropy per token in nats. The mean is
    taken per turn first, except with credit="token" or loss_denominator="sampled"."""
    reference_kl_coef: Annotated[NotNegative, Also("beta", "kl_coef")] = 0.0
    """KL coefficient: price per nat of divergence from the starting model. 0 keeps no copy of that model."""
    reference_kl_in: Advanced[Literal["reward", "loss"]] = "loss"
    """Place where the KL coefficient is charged. "reward": an agent's turn pays for the agent's own divergence; with a
    joint critic the team's reward pays for the sum of all agents' divergences (not the mean), so that a nat costs the
    coefficient in either case, in the unit of the rewards. "loss": each policy's loss pays for the policy's own
    divergence, in the unit of the normalized advantages."""
    reference_kl_estimator: Advanced[KLEstimator | None] = None
    """KL estimator of that divergence. None: k1 in the reward (exact on average), k2 in the loss, whose gradient leaves
    out the effect of a token on the divergence of later tokens (0.3 % of the gradient in an enumerated game)."""
    reference_device: Advanced[str | None] = None
    """Device of the copies of the starting models that the KL divergence is measured from. None: beside each policy."""

    # Evaluating and saving.

    eval_interval: Annotated[CountOrZero, Also("eval_steps")] = 0
    """Updates between evaluations on held-out tasks. 0: only before the first and after the last update."""
    eval_on_start: Advanced[bool] = True
    """Evaluate before the first update too. Runs that begin with the same weights find the same there."""
    eval_num_samples: Count = 64
    """Episodes per evaluation and way of playing (sampled, greedy)."""
    eval_max_turns: Advanced[Count | None] = None
    """Joint turns after which an episode of an evaluation is truncated. None: the environment's own limit, or 1,000 if
    the environment declares none."""
    save_interval: Advanced[Annotated[CountOrZero, Also("save_steps")]] = 0
    """Updates between checkpoints that training can resume from. 0: by time alone (`save_interval_minutes`)."""
    save_interval_minutes: Advanced[NotNegative] = 5.0
    """Minutes between checkpoints, beside those at the end, at Ctrl-C and at SIGTERM. 0: only those and
    `save_interval`'s."""
    side_by_side: Advanced[Annotated[bool | None, Also("parallel_training")]] = None
    """Let agents with models of their own decode and learn at the same time, in a thread per model, and likewise
    critics of their own learn. Models on one CPU divide torch's threads among them (`--threads`), so that results
    differ by rounding from one after the other where there is more than one; with `deterministic` each has all
    threads, and the results are the same. None: where their models lie on different devices, or where the CPU has a
    core for each thread of each model."""
    deterministic: Advanced[bool] = False
    """Bit-for-bit results whatever `num_envs`, `num_workers`, `max_batch_tokens` and interruptions, at some cost in
    speed: decoding and learning compute in fixed shapes. The same machine, libraries and number of threads are needed
    in any case. Tested on CPUs only; on a GPU nobody has compared the bytes. False: the same settings give the same
    results, other ones differ by rounding."""
    seed: Seed = 0
    """Seed of tasks, sampling, initial weights of critics and heads, and the order of mini-batches."""


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(TrainConfig):
    """Settings that algorithms with a critic add."""

    # Advantages.

    estimator: Annotated[Estimator, Also("advantage_estimator")] = "gae"
    """Advantage estimator: one-step temporal difference ("td"), n-step return ("n_step"), generalized advantage
    estimation ("gae"), or Monte Carlo return ("monte_carlo")."""
    trace: Annotated[Share, Also("gae_lambda")] = 0.9
    """GAE lambda, 0..1: 0 trusts the critic, 1 the return."""
    num_steps: Advanced[Annotated[Count, Also("n_step")]] = 3
    """Turns that the n-step estimator looks ahead."""

    # Critic.

    critic_target: Advanced[Estimator] = "monte_carlo"
    """Estimator of the critic's regression targets. On sparse rewards "td" can collapse: an untrained critic then
    learns from its own estimates."""
    critic_type: Advanced[Literal["v", "q"]] = "v"
    """Kind of critic: V(h), or Q(h, a) beside it for the advantage Q(h, a) - V(h), which replaces `estimator`'s."""
    critic_model_name_or_path: str = "small"
    """Model of a separate critic: "small" (random weights, 64 wide, 1 layer, the actors' tokenizer), "actor" (the first
    actor's weights and tokenizer), a folder, a hub name, or a name given to `register_critic`; or "bag_of_words",
    logistic regressions on the counts of words, one per turn, fitted anew to the whole replay at each update, which
    need far fewer episodes and have no learning rate, steps or batches."""
    critic_l2: Advanced[NotNegative] = 50.0
    """L2 penalty of the bag-of-words critic: half of it times the squared weights is added to the cross-entropy, which
    is summed over the replay. Joint histories have more words than own ones, whose critics do with less of it."""
    critic_device: Advanced[str | None] = None
    """Device of separate critics. None: that of the agent, or of the first agent for a joint critic."""
    critic_lora_rank: Advanced[Count | None] = None
    """Rank of LoRA adapters on a separate critic that starts from a pretrained model, whose own weights stay as they
    are. None: all its weights learn."""
    critic_learning_rate: LearningRate = 1e-3
    """AdamW's learning rate for separate critics."""
    critic_steps: Advanced[Count] = 2
    """Optimizer steps of a separate critic per update."""
    critic_batch_size: Advanced[Count] = 64
    """Mini-batch size per step of a separate critic, in episodes (in turns, for vector observations), drawn from its
    replay."""
    critic_replay: Advanced[Count] = 16
    """Replay length of a separate critic: most recent updates whose episodes it learns from."""
    critic_warmup: CountOrZero | None = None
    """Critic warm-up: updates at the start in which only a separate critic learns. None: 5, or half of `num_updates` if
    these are no more than 5."""
    value_loss_coef: Advanced[Annotated[NotNegative, Also("vf_coef")]] = 0.6
    """Value loss coefficient: weight of the value loss beside the policy's, where both share weights."""
    value_clip_range: Advanced[Positive | None] = None
    """PPO's clip range of the value around its estimate before the update, in units of normalized values. None: no
    clip."""
    value_normalization: Advanced[bool] = True
    """Value normalization: the critic predicts in units of the running mean and deviation of its targets."""
    value_head_hidden_dim: Advanced[Count | None] = None
    """Width of a tanh layer in the value heads: of separate critics, or those on the actors. None: linear heads."""


@dataclass(frozen=True, kw_only=True)
class IACConfig(ActorCriticConfig):
    """Settings of IAC."""

    use_separate_critic: bool = True
    """Separate model for each critic. False: a value head on each actor, trained with it."""


@dataclass(frozen=True, kw_only=True)
class MAACConfig(ActorCriticConfig):
    """Settings of MAAC."""

    critic_input: CriticKnowledge = "joint"
    """Input of the critic: "joint", all that the agents read and wrote; "privileged", in addition what the environment
    hides from them (`TextParallelEnv.truth`; for vectors the environment's own state)."""


@dataclass(frozen=True, kw_only=True)
class PPODefaults(ActorCriticConfig):
    """Defaults that IPPO and MAPPO share."""

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
    """Division by the sample standard deviation (divisor G - 1) of the group's returns, as in GRPO and TRL. It weights
    tasks by their difficulty (arXiv:2503.20783). MAREINFORCE, which has no baseline, divides by the root mean square of
    the returns."""
    joint_mode: Literal["aligned", "cross"] = "aligned"
    """Combination of the completions of a group: those of one rollout ("aligned"), or every joint action of the group
    ("cross"), at num_generations ** agents environment steps; needs games of one turn."""


@dataclass(frozen=True, kw_only=True)
class MARLOOConfig(ReinforceConfig):
    """Settings of MARLOO. Normalized to unit standard deviation, MARLOO's advantages would equal MAGRPO's."""

    advantage_normalization: AdvantageNormalization = "none"
