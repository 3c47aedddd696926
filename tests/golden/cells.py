"""Cells of the golden record: short trainings that cover each algorithm, kind of weights and way of training.

The grid is each of `ALGORITHMS` x every kind of weights x every variant of `VARIANTS`. These combinations
are refused by the settings and have no cell:

- "turns" with magrpo, mareinforce, marloo and maremax: `turns_per_update` needs a critic.
- "cross" with the six actor-critics: `joint_mode` is a setting of the other four.
- "heads" and "fitted" with magrpo, mareinforce, marloo and maremax: they have no critic.
- "heads" with maac, mappo and collm-cc: a joint critic is no head on an actor.

`EXTRA` has single cells for further settings whose bits a change of the training step could alter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from collm.agents.config import ModelConfig
from collm.agents.numeric.config import NetworkConfig
from collm.algorithms.config import ActorCriticConfig, IACConfig
from collm.algorithms.registry import algorithm_spec
from collm.algorithms.runs.assembly.experiment import Experiment

NUM_UPDATES = 3
ALGORITHMS = ("iac", "maac", "ippo", "mappo", "magrpo", "mareinforce", "marloo", "maremax", "collm-cc", "collm-dc")
WEIGHTS = ("own", "shared", "adapters")
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "deterministic": {"deterministic": True},
    "stale": {"max_staleness": 1},
    "turns": {"turns_per_update": 2, "num_envs": 3},
    "offload": {"offload": "learner"},
    "ranks": {},
    "cross": {"joint_mode": "cross"},
    "heads": {"use_separate_critic": False},
    "fitted": {"critic_model_name_or_path": "bag_of_words"},
    "kl-reward": {"reference_kl_coef": 0.1, "reference_kl_in": "reward"},
    "kl-loss": {"reference_kl_coef": 0.1, "reference_kl_in": "loss"},
}
"""Changed settings; a cell of "ranks" is trained by 2 processes that communicate with gloo."""
NUM_RANKS = 2

BUILD, WRITING = "collm/MiniBuild-v0", "collm/MiniWriting-v2"
DENSE = {"reward": "dense", "max_turns": 2}
"""Rewards in every turn, so that no advantage is 0 by chance."""
COMMON = {
    "num_updates": NUM_UPDATES,
    "rollout_buffer_size": 4,
    "agent_learning_rate": 1e-3,
    "mini_batch_size": 2,
    "max_batch_tokens": 2048,
    "entropy_coef": 0.01,
    "eval_num_samples": 1,
    "eval_on_start": False,
    "save_interval": 2,
}
CRITIC = {"critic_warmup": 1, "critic_batch_size": 3, "critic_learning_rate": 1e-3}
"""With the published algorithms, which have no warm-up, the first update already changes the policies."""


@dataclass(frozen=True)
class Cell:
    """Settings of one training of the record."""

    algorithm: str
    weights: str
    variant: str
    env: str = BUILD
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the algorithm that differ from `COMMON` and `CRITIC`."""
    model: dict[str, Any] = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=dict)
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment; empty: `DENSE` for MiniBuild."""

    @property
    def name(self) -> str:
        return f"{self.algorithm}-{self.weights}-{self.variant}"

    @property
    def num_ranks(self) -> int:
        return NUM_RANKS if self.variant == "ranks" else 1

    def experiment(self) -> Experiment:
        spec = algorithm_spec(self.algorithm)
        config: dict[str, Any] = dict(COMMON)
        if issubclass(spec.config, ActorCriticConfig):
            config |= CRITIC
            if self.algorithm.startswith("collm-"):
                config["critic_warmup"] = 0
        else:
            config["num_generations"] = 2
        is_text = self.env.startswith("collm/")
        return Experiment(
            algorithm=self.algorithm,
            config=spec.config(**(config | self.settings)),
            env=self.env,
            env_kwargs=self.env_kwargs or (DENSE if self.env == BUILD else {}),
            model=ModelConfig(
                weights=self.weights,
                device="cpu",
                **({"max_new_tokens": 6} if is_text else {}),
                **({"lora_rank": 2} if self.weights == "adapters" else {}),
                **self.model,
            ),
            network=NetworkConfig(**({} if is_text else {"hidden_dims": (8,)} | self.network)),
        )


def is_allowed(algorithm: str, variant: str) -> bool:
    """Whether the settings allow a variant of an algorithm; the module's docstring says which they refuse."""
    config = algorithm_spec(algorithm).config
    return {
        "turns": issubclass(config, ActorCriticConfig),
        "fitted": issubclass(config, ActorCriticConfig),
        "heads": issubclass(config, IACConfig),
        "cross": not issubclass(config, ActorCriticConfig),
    }.get(variant, True)


def grid() -> list[Cell]:
    return [
        Cell(algorithm, weights, variant, WRITING if variant == "cross" else BUILD, settings)
        for algorithm in ALGORITHMS
        for weights in WEIGHTS
        for variant, settings in VARIANTS.items()
        if is_allowed(algorithm, variant)
    ]


SPREAD = "mpe2.simple_spread_v3:parallel_env"
MOMENTS = {"network": {"normalizes_observations": True}, "env_kwargs": {"max_cycles": 5}}
EXTRA = [
    Cell("maac", "own", "float16", model={"compute_dtype": "float16"}),
    Cell("iac", "shared", "bfloat16", model={"compute_dtype": "bfloat16"}),
    Cell("maac", "own", "q-critic", settings={"critic_type": "q"}),
    Cell("iac", "shared", "q-critic", settings={"critic_type": "q"}),
    Cell("maac", "own", "warmup", settings={"critic_warmup": 2}),
    Cell("maac", "own", "privileged", settings={"critic_input": "privileged"}),
    Cell("mappo", "own", "target-kl", settings={"target_kl": 1e-4}),
    Cell("ippo", "shared", "target-kl", settings={"target_kl": 1e-4, "use_separate_critic": False}),
    Cell("ippo", "own", "clipped-heads", settings={"use_separate_critic": False, "value_clip_range": 0.1}),
    Cell("mappo", "own", "stale-turns", settings={"max_staleness": 1, "turns_per_update": 2, "num_envs": 3}),
    Cell("iac", "own", "deterministic-stale", settings={"max_staleness": 1, "deterministic": True}),
    Cell("magrpo", "own", "token", settings={"credit": "token", "divide_by_length": True}),
    Cell("magrpo", "shared", "clipped", settings={"ppo_epochs": 2, "clip_range": 0.2, "clip_range_high": 0.3}),
    Cell("iac", "own", "own-reward", settings={"credited_reward": "own", "reward_scale": 2.0, "reward_shift": -0.5}),
    Cell("maac", "own", "own-joint", "collm/Advice-v0"),
    Cell("iac", "own", "schedule", settings={"learning_rate_schedule": "cosine", "warmup_updates": 2}),
    Cell("iac", "own", "narrow-passes", settings={"max_batch_tokens": 256, "rollout_buffer_size": 6}),
    Cell("iac", "own", "recomputed", model={"recomputes_activations": True}),
    *(Cell(name, "own", "numbers", SPREAD, {"mini_batch_size": 8}, **MOMENTS) for name in ("iac", "mappo", "magrpo")),
    *(Cell(name, "shared", "numbers", SPREAD, {"mini_batch_size": 8}, **MOMENTS) for name in ("iac", "mappo")),
    Cell("iac", "own", "numbers-kl", SPREAD, {"reference_kl_coef": 0.1, "reference_kl_in": "reward"}, **MOMENTS),
    Cell("ippo", "own", "numbers-turns", SPREAD, {"turns_per_update": 4, "num_envs": 2}, **MOMENTS),
]
CELLS = {cell.name: cell for cell in (*grid(), *EXTRA)}
QUICK = (
    "iac-own-default",
    "maac-shared-deterministic",
    "magrpo-adapters-kl-loss",
    "mappo-own-stale-turns",
    "mappo-own-numbers",
    "maac-own-own-joint",
)
"""Cells that the quick suite compares too."""
