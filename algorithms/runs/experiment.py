"""An experiment: names and settings → environment, policies, critics, trainer."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from pettingzoo import ParallelEnv

from ...agents.config import ModelConfig
from ...agents.core import Policy, TrainablePolicy
from ...agents.language.reward_model import RewardModel
from ...agents.loading import model_folder
from ...agents.numeric.config import NetworkConfig
from ...agents.registry import registered_critic
from ...envs.core import TextParallelEnv
from ...envs.registration.registry import EnvSpec, make, spec
from ...envs.vectors.processes import ProcessVector
from ...envs.vectors.vector import SyncVector, VectorEnv
from ...envs.views import with_truth
from ...envs.wrappers import Shares
from ..algorithm import Algorithm
from ..config import TrainConfig
from ..learning.preferences import ModelRewards
from ..learning.shaping import RewardProcessor
from ..learning.trainer import Trainer, agent_learning_rates
from ..registry import algorithm_spec
from .teams import CriticSource, check_team, device_of_policy, make_policies, make_trainer, writes_text

MAX_DEFAULT_ENVS = 64


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Settings that determine a run."""

    algorithm: str
    """Name of a registered algorithm."""
    config: TrainConfig
    """Settings of the algorithm, of its own class."""
    env: str
    """Id of a registered environment."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the environment."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Language models, where agents write."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """Perceptrons, where agents act by vectors."""

    def to_json(self) -> dict[str, Any]:
        """The experiment as config.json holds it."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Experiment:
        """The experiment that `to_json` wrote.

        Raises:
            UnknownAlgorithmError: if the package that registers its algorithm is neither imported nor installed.
        """
        config_class = algorithm_spec(saved["algorithm"]).config
        return cls(
            algorithm=saved["algorithm"],
            config=config_class(**saved["config"]),
            env=saved["env"],
            env_kwargs=saved["env_kwargs"],
            model=ModelConfig(**saved["model"]),
            network=NetworkConfig(**_with_tuples(saved.get("network", {}))),
        )

    def make_algorithm(self) -> Algorithm[Any]:
        """The algorithm with its settings.

        Raises:
            UnknownAlgorithmError: if there is no such algorithm.
            ValueError: if its settings contradict each other, or belong to another algorithm.
        """
        spec = algorithm_spec(self.algorithm)
        if not isinstance(self.config, spec.config):
            raise ValueError(
                f"{self.algorithm!r} takes settings of the class {spec.config.__name__}, got a "
                f"{type(self.config).__name__}"
            )
        return spec.make(self.config)

    def env_kwargs_of(self, split: str) -> dict[str, Any]:
        """Arguments of the environment, with the split where the environment has splits."""
        takes_split = "split" in inspect.signature(spec(self.env).constructor()).parameters
        return dict(self.env_kwargs) | ({"split": split} if takes_split else {})

    def make_vector(self, split: str, num_envs: int, *, has_shares: bool = False) -> VectorEnv:
        """Environment copies on the tasks of a split, in this process or in worker processes.

        Args:
            split: of the environment's tasks.
            num_envs: copies.
            has_shares: tell each agent's share of the return in the infos, where agents write; see
                `collm.envs.wrappers.Shares`.
        """
        kwargs = self.env_kwargs_of(split) if split != "train" else dict(self.env_kwargs)
        # Bound here, as an environment's arguments may have the same names as the vector's own.
        build = partial(_made, spec(self.env), kwargs, self.make_algorithm().reads_truth, has_shares)
        if self.config.num_workers:
            return ProcessVector(build, num_envs, num_workers=self.config.num_workers)
        return SyncVector(build, num_envs)

    def check(self) -> None:
        """Refuse settings that would fail later, before a model is loaded."""
        algorithm = self.make_algorithm()
        _check_workers(self.config)
        env = make(self.env, **self.env_kwargs)
        try:
            check_team(env, self.model)
            agent_learning_rates(self.config, env.possible_agents)
            _check_joint_mode(algorithm, env)
            _check_reward_model(algorithm, env)
            if algorithm.reads_truth:
                with_truth(env)
        finally:
            env.close()
        make(self.env, **self.env_kwargs_of("test")).close()  # evaluation comes late; its tasks must be there now
        if algorithm.critic_reads != "nothing":
            critic: str = algorithm.config.critic_model_name_or_path
            if critic not in ("small", "actor") and registered_critic(critic) is None:
                model_folder(critic)

    def make_trainer(
        self,
        *,
        policies: Mapping[str, Policy] | None = None,
        critics: CriticSource | None = None,
        reward_processor: RewardProcessor | None = None,
    ) -> Trainer:
        """Load the models and assemble the trainer.

        Args:
            policies: policies by agent, in place of those that the settings name.
            critics: objects or a factory, in place of those that the settings name.
            reward_processor: applied to every reward before learning.
        """
        self.check()
        algorithm = self.make_algorithm()
        config = self.config
        num_envs = config.num_envs or min(config.rollout_buffer_size, MAX_DEFAULT_ENVS)
        vector = self.make_vector("train", num_envs, has_shares=config.log_shares)
        policies = make_policies(algorithm, vector, self.model, self.network, policies)
        rewarder = None
        if config.reward_model is not None:
            learning = [policy for policy in policies.values() if isinstance(policy, TrainablePolicy)]
            device = device_of_policy(learning[0]) if learning else "cpu"
            rewarder = ModelRewards(RewardModel.load(model_folder(config.reward_model) or config.reward_model, device))
        return make_trainer(
            algorithm,
            vector,
            policies,
            critics=critics,
            network=self.network,
            rewarder=rewarder,
            reward_processor=reward_processor,
        )


def _made(env: EnvSpec, kwargs: Mapping[str, Any], is_privileged: bool, has_shares: bool) -> ParallelEnv[str, Any, Any]:
    made = make(env, **kwargs)
    if is_privileged:
        made = with_truth(made)
    # Of environments of others nobody knows whether a copy plays as the original does.
    return Shares(made) if has_shares and isinstance(made.unwrapped, TextParallelEnv) else made


def _check_reward_model(algorithm: Algorithm[Any], env: ParallelEnv[str, Any, Any]) -> None:
    config = algorithm.config
    if config.reward_model is None:
        return
    if not writes_text(env):
        raise ValueError(f"reward_model={config.reward_model!r} judges texts, but these agents act by vectors")
    if algorithm.crosses_rollouts:
        raise ValueError(
            "joint_mode='cross' has the environment score every joint action, whose rewards a reward_model replaces; "
            "use joint_mode='aligned'"
        )
    if algorithm.reads_truth:
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


def _check_joint_mode(algorithm: Algorithm[Any], env: ParallelEnv[str, Any, Any]) -> None:
    if algorithm.crosses_rollouts:
        max_turns = env.max_turns if isinstance(env, TextParallelEnv) else None
        if max_turns != 1:
            raise ValueError(
                f"joint_mode='cross' exchanges the completions of one prompt and needs a game of one turn, but this "
                f"environment has {max_turns or 'any number of'} turns; use joint_mode='aligned'"
            )


def _with_tuples(saved: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no tuples; settings have no lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()}
