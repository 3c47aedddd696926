"""An experiment: names and settings → environment, policies, critics, trainer."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from pettingzoo import ParallelEnv

from ..agents.core import TrainablePolicy
from ..agents.loading import ModelConfig, model_folder
from ..agents.numeric_config import NetworkConfig
from ..agents.reward_model import RewardModel
from ..envs.core import TextParallelEnv
from ..envs.process_vector import ProcessVector
from ..envs.registration import EnvSpec, make, spec
from ..envs.vector import SyncVector, VectorEnv
from ..envs.views import with_truth
from . import ALGORITHMS
from .algorithm import Algorithm
from .config import ActorCriticConfig, TrainConfig
from .maac import MAACConfig
from .preferences import ModelRewards
from .reinforce import ReinforceConfig
from .rollout import RolloutCollector
from .shaping import RewardProcessor
from .teams import check_team, device_of_policy, make_critics, make_policies, writes_text
from .trainer import Trainer, agent_learning_rates

MAX_DEFAULT_ENVS = 64


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that decides a run."""

    algorithm: str
    """A name in `ALGORITHMS`."""
    config: TrainConfig
    """The algorithm's settings, of its own class."""
    env: str
    """A registered id."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Given to the environment."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The language models, where agents write."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """The perceptrons, where agents act by vectors."""

    def to_json(self) -> dict[str, Any]:
        """As it is written to config.json."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Experiment:
        """What `to_json` wrote."""
        _, config_class = ALGORITHMS[saved["algorithm"]]
        return cls(
            algorithm=saved["algorithm"],
            config=config_class(**saved["config"]),
            env=saved["env"],
            env_kwargs=saved["env_kwargs"],
            model=ModelConfig(**saved["model"]),
            network=NetworkConfig(**_with_tuples(saved.get("network", {}))),
        )

    def make_algorithm(self) -> Algorithm[Any]:
        """The credit rule with its settings.

        Raises:
            ValueError: if there is no such algorithm, or if its settings contradict each other.
        """
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"there is no algorithm {self.algorithm!r}; choose one of {', '.join(ALGORITHMS)}")
        algorithm_class, _ = ALGORITHMS[self.algorithm]
        return algorithm_class(self.config)

    def env_kwargs_of(self, split: str) -> dict[str, Any]:
        """The environment's arguments for a split, where it has splits."""
        takes_split = "split" in inspect.signature(spec(self.env).constructor()).parameters
        return dict(self.env_kwargs) | ({"split": split} if takes_split else {})

    def make_vector(self, split: str, num_envs: int) -> VectorEnv:
        """Copies of the environment on a split's tasks, in this process or in workers."""
        kwargs = self.env_kwargs_of(split) if split != "train" else dict(self.env_kwargs)
        # Bound here, as arguments of an environment may be called as the vector's own are.
        build = partial(_make_privileged if is_privileged(self.config) else make, spec(self.env), **kwargs)
        if self.config.num_workers:
            return ProcessVector(build, num_envs, num_workers=self.config.num_workers)
        return SyncVector(build, num_envs)

    def check(self) -> None:
        """Refuse what would fail later, before a model is loaded."""
        self.make_algorithm()
        _check_workers(self.config)
        env = make(self.env, **self.env_kwargs)
        try:
            check_team(env, self.model)
            agent_learning_rates(self.config, env.possible_agents)
            _check_joint_mode(self.config, env)
            _check_reward_model(self.config, env)
            if is_privileged(self.config):
                with_truth(env)
        finally:
            env.close()
        make(self.env, **self.env_kwargs_of("test")).close()  # evaluation comes late; its tasks must be there now
        config = self.config
        if isinstance(config, ActorCriticConfig) and config.critic_model_name_or_path not in ("small", "actor"):
            model_folder(config.critic_model_name_or_path)

    def make_trainer(self, *, reward_processor: RewardProcessor | None = None) -> Trainer:
        """Load the models and put everything together."""
        self.check()
        algorithm = self.make_algorithm()
        config = self.config
        num_envs = config.num_envs or min(config.rollout_buffer_size, MAX_DEFAULT_ENVS)
        vector = self.make_vector("train", num_envs)
        policies = make_policies(config, vector, self.model, self.network)
        collector = RolloutCollector(
            vector,
            policies,
            reads_state=algorithm.critic_reads == "joint" or config.reward_model is not None,
            early_termination_threshold=config.early_termination_threshold,
        )
        references: dict[str, TrainablePolicy] = {}
        if config.reference_kl_coef:
            frozen = {id(policy): policy.reference() for policy in set(policies.values())}
            references = {agent: frozen[id(policy)] for agent, policy in policies.items()}
        rewarder = None
        if config.reward_model is not None:
            device = device_of_policy(next(iter(policies.values())))
            rewarder = ModelRewards(RewardModel.load(model_folder(config.reward_model) or config.reward_model, device))
        return Trainer(
            algorithm,
            collector,
            make_critics(algorithm, policies, vector, self.network),
            references=references,
            rewarder=rewarder,
            reward_processor=reward_processor,
        )


def is_privileged(config: TrainConfig) -> bool:
    """Whether a critic is told what is hidden from the agents."""
    return isinstance(config, MAACConfig) and config.critic_input == "privileged"


def _make_privileged(env: EnvSpec, **kwargs: Any) -> ParallelEnv[str, Any, Any]:
    return with_truth(make(env, **kwargs))


def _check_reward_model(config: TrainConfig, env: ParallelEnv[str, Any, Any]) -> None:
    if config.reward_model is None:
        return
    if not writes_text(env):
        raise ValueError(f"reward_model={config.reward_model!r} judges texts, but these agents act by vectors")
    if isinstance(config, ReinforceConfig) and config.joint_mode == "cross":
        raise ValueError(
            "joint_mode='cross' has the environment score every joint action, which a reward_model is in place of; "
            "use joint_mode='aligned'"
        )
    if is_privileged(config):
        raise ValueError(
            f"critic_input='privileged' would show reward_model={config.reward_model!r} what is hidden too, as "
            "both read the same history; use critic_input='joint'"
        )
    model_folder(config.reward_model)


def _check_workers(config: TrainConfig) -> None:
    if config.num_workers < 0:
        raise ValueError(f"num_workers must be at least 0, got {config.num_workers}; 0 plays in this process")
    if config.num_workers and config.turns_per_update is not None:
        raise ValueError(
            f"turns_per_update={config.turns_per_update} leaves episodes under way, which cannot be saved from worker "
            f"processes; use num_workers=0 instead of {config.num_workers}, or turns_per_update=None (whole episodes)"
        )


def _check_joint_mode(config: TrainConfig, env: ParallelEnv[str, Any, Any]) -> None:
    if isinstance(config, ReinforceConfig) and config.joint_mode == "cross":
        max_turns = env.max_turns if isinstance(env, TextParallelEnv) else None
        if max_turns != 1:
            raise ValueError(
                f"joint_mode='cross' exchanges the completions of one prompt and needs a game of one turn, but this "
                f"environment has {max_turns or 'any number of'} turns; use joint_mode='aligned'"
            )


def _with_tuples(saved: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no tuples; settings have no lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()}
