"""Settings and spaces → policies and critics: language models where agents write, else perceptrons.

The trainer sees no difference between the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from gymnasium.spaces import Text
from transformers import AutoModel, AutoTokenizer

from ..agents.core import Critic, TrainablePolicy
from ..agents.critics import ActorHead, TextCritic
from ..agents.features import Features
from ..agents.language import LanguagePolicy
from ..agents.loading import ModelConfig, load_policies, model_folder
from ..agents.loading import load_team as load_language_team
from ..agents.numeric import SETTINGS_FILE, NumericPolicy
from ..agents.numeric_config import NetworkConfig
from ..agents.numeric_critics import NumericActorHead, NumericCritic
from ..envs.vector import VectorEnv
from .algorithm import Algorithm
from .config import ActorCriticConfig, TrainConfig
from .critic_learner import CriticLearner
from .iac import IACConfig


def writes_text(env: Any) -> bool:
    """Whether the agents of an environment (or of its copies) act by text."""
    return all(isinstance(env.action_space(agent), Text) for agent in env.possible_agents)


def has_actor_heads(config: TrainConfig) -> bool:
    """Whether the critics are value heads on the actors."""
    return isinstance(config, IACConfig) and not config.use_separate_critic


def make_policies(
    config: TrainConfig, vector: VectorEnv, model: ModelConfig, network: NetworkConfig
) -> dict[str, TrainablePolicy]:
    """A policy for each agent, by what its spaces are."""
    agents = vector.possible_agents
    if writes_text(vector):
        hidden_dim = config.value_head_hidden_dim if isinstance(config, ActorCriticConfig) else None
        return dict(
            load_policies(
                model,
                agents,
                has_value_head=has_actor_heads(config),
                value_head_hidden_dim=hidden_dim,
                seed=config.seed,
            )
        )

    def perceptron(number: int) -> NumericPolicy:
        return NumericPolicy.for_spaces(
            vector.observation_space(agents[number]),
            vector.action_space(agents[number]),
            is_squashed=network.is_squashed,
            initial_log_std=network.initial_log_std,
            hidden_dims=network.hidden_dims,
            activation=network.activation,
            normalizes_observations=network.normalizes_observations,
            has_value_head=has_actor_heads(config),
            seed=config.seed + 1000 * number,
            device=device_of(model),
        )

    if model.weights == "shared":
        return dict.fromkeys(agents, perceptron(0))
    return {agent: perceptron(number) for number, agent in enumerate(agents)}


def check_team(env: Any, model: ModelConfig) -> None:
    """Refuse a team that cannot be made, before a weight is loaded.

    Raises:
        ValueError: if there is no policy for the agents' spaces, or if agents of different spaces share weights.
        FileNotFoundError: if a language model is not there.
    """
    agents = env.possible_agents
    if writes_text(env):
        model.check(len(agents))
        return
    spaces = {agent: (env.observation_space(agent), env.action_space(agent)) for agent in agents}
    for observation_space, action_space in spaces.values():
        NumericPolicy.for_spaces(observation_space, action_space, hidden_dims=(1,))
    if model.weights == "adapters":
        raise ValueError("weights='adapters' is for language models; perceptrons are 'own' or 'shared'")
    unlike = [agent for agent in agents if spaces[agent] != spaces[agents[0]]]
    if model.weights == "shared" and unlike:
        raise ValueError(
            f"weights='shared', but {unlike[0]!r} has other spaces than {agents[0]!r}: {spaces[unlike[0]]} and "
            f"{spaces[agents[0]]}; use weights='own'"
        )


def make_critics(
    algorithm: Algorithm[Any],
    policies: Mapping[str, TrainablePolicy],
    vector: VectorEnv | None = None,
    network: NetworkConfig | None = None,
) -> dict[str, CriticLearner]:
    """The critics that the algorithm reads: one a policy, one "joint", or none.

    Args:
        vector, network: needed where agents act by vectors.
    """
    config = algorithm.config
    if not isinstance(config, ActorCriticConfig):
        return {}
    generator = torch.Generator().manual_seed(config.seed)
    if algorithm.critic_reads == "joint":
        first = next(iter(policies.values()))
        joint: Critic = (
            text_critic(config, first, seed=config.seed)
            if isinstance(first, LanguagePolicy)
            else _joint_perceptron(config, vector, network, device_of_policy(first))
        )
        return {"joint": CriticLearner(joint, config, generator)}
    learners: dict[int, CriticLearner] = {}
    for number, (agent, policy) in enumerate(policies.items()):
        if id(policy) not in learners:
            critic = _own_critic(config, agent, policy, number, vector, network)
            learners[id(policy)] = CriticLearner(critic, config, generator)
    return {agent: learners[id(policy)] for agent, policy in policies.items()}


def text_critic(config: ActorCriticConfig, actor: LanguagePolicy, *, seed: int) -> TextCritic:
    """A critic of its own for text, by the name in the settings."""
    name = config.critic_model_name_or_path
    hidden_dim = config.critic_value_head_hidden_dim
    model = actor.language_model
    if name == "small":
        return TextCritic.small(model.encoder.tokenizer, head_hidden_dim=hidden_dim, seed=seed, device=model.device)
    where: Any = model.base.name_or_path if name == "actor" else (model_folder(name) or name)
    loaded: Any = AutoModel.from_pretrained(where, dtype=torch.float32)
    body = loaded.to(model.device)
    return TextCritic(body, AutoTokenizer.from_pretrained(where), head_hidden_dim=hidden_dim)


def load_team(directory: Path, agents: Sequence[str], *, device: str = "auto") -> dict[str, TrainablePolicy]:
    """The policies that a run saved, one folder an agent, of either kind."""
    if (directory / agents[0] / SETTINGS_FILE).is_file():
        where = device_of(ModelConfig(device=device))
        return {agent: NumericPolicy.load(directory / agent, where) for agent in agents}
    return dict(load_language_team(directory, agents, device=device))


def device_of(model: ModelConfig) -> torch.device:
    """Where perceptrons compute: on the CPU, unless a device is named; they are too small for more."""
    return torch.device("cpu" if model.device == "auto" else model.device)


def device_of_policy(policy: TrainablePolicy) -> torch.device:
    """Where a policy computes."""
    return policy.parameters()[0].device


def _own_critic(
    config: ActorCriticConfig,
    agent: str,
    policy: TrainablePolicy,
    number: int,
    vector: VectorEnv | None,
    network: NetworkConfig | None,
) -> Critic:
    if isinstance(policy, LanguagePolicy):
        return ActorHead(policy) if has_actor_heads(config) else text_critic(config, policy, seed=config.seed + number)
    assert isinstance(policy, NumericPolicy) and vector is not None and network is not None
    if has_actor_heads(config):
        return NumericActorHead(policy)
    actions = [Features.of(vector.action_space(agent))] if config.critic_type == "q" else []
    return NumericCritic(
        policy.observation,
        actions,
        hidden_dims=network.hidden_dims,
        activation=network.activation,
        normalizes_observations=network.normalizes_observations,
        seed=config.seed + 1000 * number + 500,
        device=device_of_policy(policy),
    )


def _joint_perceptron(
    config: ActorCriticConfig, vector: VectorEnv | None, network: NetworkConfig | None, device: torch.device
) -> NumericCritic:
    assert vector is not None and network is not None
    agents = vector.possible_agents
    vector.reset(0, seed=config.seed)
    if vector.state(0) is not None and vector.state_space is not None:
        observation = Features.of(vector.state_space)
    else:  # as the collector joins what the agents observe
        observation = Features(num_numbers=sum(Features.of(vector.observation_space(agent)).size for agent in agents))
    actions = [Features.of(vector.action_space(agent)) for agent in agents] if config.critic_type == "q" else []
    return NumericCritic(
        observation,
        actions,
        hidden_dims=network.hidden_dims,
        activation=network.activation,
        normalizes_observations=network.normalizes_observations,
        seed=config.seed + 500,
        device=device,
    )
