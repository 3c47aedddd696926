"""An experiment: names and settings → environment, policies, critics, trainer."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from pettingzoo import ParallelEnv
from transformers import AutoModel, AutoTokenizer

from ..agents.critics import ActorHead, TextCritic
from ..agents.language import LanguagePolicy
from ..agents.loading import ModelConfig, load_policies, model_folder
from ..envs.core import TextParallelEnv
from ..envs.registration import make, spec
from ..envs.vector import SyncVector
from . import ALGORITHMS
from .algorithm import Algorithm
from .config import ActorCriticConfig, TrainConfig
from .critic_learner import CriticLearner
from .iac import IACConfig
from .reinforce import ReinforceConfig
from .rollout import RolloutCollector
from .shaping import RewardProcessor
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
    """The language models."""

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

    def make_vector(self, split: str, num_envs: int) -> SyncVector:
        """Copies of the environment on a split's tasks."""
        kwargs = self.env_kwargs_of(split) if split != "train" else dict(self.env_kwargs)
        return SyncVector(self.env, num_envs, **kwargs)

    def check(self) -> None:
        """Refuse what would fail later, before a model is loaded."""
        self.make_algorithm()
        env = make(self.env, **self.env_kwargs)
        try:
            self.model.check(len(env.possible_agents))
            agent_learning_rates(self.config, env.possible_agents)
            _check_joint_mode(self.config, env)
        finally:
            env.close()
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
        has_heads = isinstance(config, IACConfig) and not config.use_separate_critic
        policies = load_policies(
            self.model,
            vector.possible_agents,
            has_value_head=has_heads,
            value_head_hidden_dim=config.value_head_hidden_dim if isinstance(config, ActorCriticConfig) else None,
            seed=config.seed,
        )
        collector = RolloutCollector(
            vector,
            policies,
            reads_state=algorithm.critic_reads == "joint",
            early_termination_threshold=config.early_termination_threshold,
        )
        references: dict[str, LanguagePolicy] = {}
        if config.reference_kl_coef:
            frozen = {id(policy): policy.reference() for policy in policies.values()}
            references = {agent: frozen[id(policy)] for agent, policy in policies.items()}
        return Trainer(
            algorithm,
            collector,
            make_critics(algorithm, policies),
            references=references,
            reward_processor=reward_processor,
        )


def _check_joint_mode(config: TrainConfig, env: ParallelEnv[str, Any, Any]) -> None:
    if isinstance(config, ReinforceConfig) and config.joint_mode == "cross":
        max_turns = env.max_turns if isinstance(env, TextParallelEnv) else None
        if max_turns != 1:
            raise ValueError(
                f"joint_mode='cross' exchanges the completions of one prompt and needs a game of one turn, but this "
                f"environment has {max_turns or 'any number of'} turns; use joint_mode='aligned'"
            )


def make_critics(algorithm: Algorithm[Any], policies: Mapping[str, LanguagePolicy]) -> dict[str, CriticLearner]:
    """The critics that the algorithm reads: one a policy, one "joint", or none."""
    config = algorithm.config
    if not isinstance(config, ActorCriticConfig):
        return {}
    generator = torch.Generator().manual_seed(config.seed)
    if algorithm.critic_reads == "joint":
        first = next(iter(policies.values()))
        return {"joint": CriticLearner(make_critic(config, first, seed=config.seed), config, generator)}
    learners: dict[int, CriticLearner] = {}
    for number, policy in enumerate(policies.values()):
        if id(policy) not in learners:
            on_actor = isinstance(config, IACConfig) and not config.use_separate_critic
            critic = ActorHead(policy) if on_actor else make_critic(config, policy, seed=config.seed + number)
            learners[id(policy)] = CriticLearner(critic, config, generator)
    return {agent: learners[id(policy)] for agent, policy in policies.items()}


def make_critic(config: ActorCriticConfig, actor: LanguagePolicy, *, seed: int) -> TextCritic:
    """A critic of its own, by the name in the settings."""
    name = config.critic_model_name_or_path
    hidden_dim = config.critic_value_head_hidden_dim
    model = actor.language_model
    if name == "small":
        return TextCritic.small(model.encoder.tokenizer, head_hidden_dim=hidden_dim, seed=seed, device=model.device)
    where: Any = model.base.name_or_path if name == "actor" else (model_folder(name) or name)
    loaded: Any = AutoModel.from_pretrained(where, dtype=torch.float32)
    body = loaded.to(model.device)
    return TextCritic(body, AutoTokenizer.from_pretrained(where), head_hidden_dim=hidden_dim)
