"""Assembly of a trainer: collector, critics and reference policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, TypeAlias

import torch
from transformers import AutoModel

from ....agents.config import BAG_OF_WORDS
from ....agents.core import Critic, FittedCritic, Policy, TrainablePolicy
from ....agents.language.bag_of_words import BagOfWordsCritic, BagOfWordsPerAgent
from ....agents.language.critics import ActorHead, TextCritic, add_lora
from ....agents.language.model_files import tokenizer_of
from ....agents.language.policy import LanguagePolicy
from ....agents.language.pretrained import load_model
from ....agents.loading import device_named, where_of
from ....agents.numeric.config import NetworkConfig
from ....agents.numeric.critics import NumericActorHead, NumericCritic
from ....agents.numeric.features import Features
from ....agents.numeric.policy import NumericPolicy
from ....agents.registry import CriticSeat, registered_critic
from ....envs.vectors.vector import VectorEnv
from ...algorithm import Algorithm
from ...config import ActorCriticConfig
from ...distribution.group import current
from ...learning.critic_learner import CriticLearner
from ...learning.rewards import Rewarder, RewardProcessor
from ...learning.trainer import Trainer
from ...rollout.collector import RolloutCollector
from ...rollout.side_by_side import SideBySide
from ...rollout.sources import LocalWorker, RolloutWorker
from .policies import device_of, device_of_policy


def make_trainer(
    algorithm: Algorithm[Any],
    vector: VectorEnv,
    policies: Mapping[str, Policy],
    *,
    critics: CriticSource | None = None,
    network: NetworkConfig | None = None,
    rewarder: Rewarder | None = None,
    reward_processor: RewardProcessor | None = None,
    worker: Callable[[], RolloutWorker] | None = None,
) -> Trainer:
    """Assemble a trainer with its collector, critics and reference policies.

    Args:
        algorithm: algorithm with its settings.
        vector: copies of the training environment.
        policies: policy of each agent. Only instances of `TrainablePolicy` learn.
        critics: critics or a factory of critics, which replace the critics of the settings.
        network: settings of perceptron critics, for vector observations.
        rewarder: replaces the rewards of episodes, for example with a reward model. Reads the joint histories.
        reward_processor: function that is applied to every reward before learning.
        worker: factory of the rollout worker. None: `policies` play in this process. With `max_staleness`, copies
            of `policies` play.
    """
    algorithm = algorithm.resolved(vector.interests)
    config = algorithm.config
    is_judged = rewarder is not None
    collector = make_collector(algorithm, vector, policies, is_judged=is_judged)

    def local_worker() -> RolloutWorker:
        # The worker uses the trainer's environments, because the trainer then plays no episodes.
        return LocalWorker(make_collector(algorithm, vector, deepcopy(dict(policies)), is_judged=is_judged))

    if worker is None and config.max_staleness:
        worker = local_worker
    references: dict[str, TrainablePolicy] = {}
    if config.reference_kl_coef:
        learning = {agent: policy for agent, policy in policies.items() if isinstance(policy, TrainablePolicy)}
        device = None if config.reference_device is None else device_named(config.reference_device)
        frozen = {id(policy): policy.reference(device) for policy in dict.fromkeys(learning.values())}
        for reference in frozen.values():
            current().share_out(reference, shards=config.fsdp)
        references = {agent: frozen[id(policy)] for agent, policy in learning.items()}
    return Trainer(
        algorithm,
        collector,
        make_critics(algorithm, policies, vector, network, critics),
        references=references,
        rewarder=rewarder,
        reward_processor=reward_processor,
        worker=worker() if worker is not None and current().is_writer else None,
    )


def make_collector(
    algorithm: Algorithm[Any], vector: VectorEnv, policies: Mapping[str, Policy], *, is_judged: bool
) -> RolloutCollector:
    """Make the collector of training episodes. With `is_judged`, a reward model reads the joint histories."""
    config = algorithm.config
    return algorithm.make_collector(
        vector,
        policies,
        reads_state=algorithm.critic_reads == "joint" or is_judged,
        early_termination_threshold=config.early_termination_threshold,
        side_by_side=SideBySide.of(config),
    )


CriticSource: TypeAlias = Critic | Mapping[str, Critic] | Callable[[CriticSeat], Critic]
"""Critic of the joint history, critics as a dict with agents as keys, or a factory of critics."""


def make_critics(
    algorithm: Algorithm[Any],
    policies: Mapping[str, Policy],
    vector: VectorEnv | None = None,
    network: NetworkConfig | None = None,
    source: CriticSource | None = None,
) -> dict[str, CriticLearner]:
    """Make the critic learners: one per trainable policy, one critic learner named "joint", or none.

    Vector observations need `vector` and `network`. `source` replaces the critics of the settings. Raises `ValueError`
    if a critic is missing, or critics are given to an algorithm without critics.
    """
    config = algorithm.config
    if algorithm.critic_reads == "nothing":
        if source is not None:
            raise ValueError(f"critics are given, but {type(algorithm).__name__} has no critics; leave critics out")
        return {}
    generator = torch.Generator().manual_seed(config.seed)
    learning = {agent: policy for agent, policy in policies.items() if isinstance(policy, TrainablePolicy)}
    num_agents = len(policies) if algorithm.critic_reads == "joint" and not algorithm.has_team_critic else None
    make = _critic_maker(algorithm, vector, network, source, num_agents)
    if algorithm.critic_reads == "joint":
        first = next(iter(learning.values()))
        return {"joint": CriticLearner(make(None, first, 0), config, generator, num_agents)}
    learners: dict[int, CriticLearner] = {}
    for number, (agent, policy) in enumerate(learning.items()):
        if id(policy) not in learners:
            learners[id(policy)] = CriticLearner(make(agent, policy, number), config, generator)
    return {agent: learners[id(policy)] for agent, policy in learning.items()}


def text_critic(
    config: ActorCriticConfig, actor: LanguagePolicy, *, seed: int, num_agents: int | None = None
) -> TextCritic | FittedCritic:
    name = config.critic_model_name_or_path
    if name == BAG_OF_WORDS:
        l2 = config.critic_l2
        return BagOfWordsCritic(l2) if num_agents is None else BagOfWordsPerAgent(num_agents, l2)
    hidden_dim = config.value_head_hidden_dim
    model = actor.language_model
    device = model.device if config.critic_device is None else device_named(config.critic_device)
    if name == "small":
        return TextCritic.small(
            model.encoder.tokenizer,
            head_hidden_dim=hidden_dim,
            num_agents=num_agents,
            seed=seed,
            device=device,
            compute_dtype=model.compute_dtype,
        )
    where: Any = model.base.name_or_path if name == "actor" else where_of(name)
    backbone = load_model(where, AutoModel).to(device)
    if config.critic_lora_rank is not None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            add_lora(backbone, config.critic_lora_rank)
    return TextCritic(
        backbone,
        tokenizer_of(where, backbone.config),
        head_hidden_dim=hidden_dim,
        num_agents=num_agents,
        compute_dtype=model.compute_dtype,
        recomputes_activations=model.recomputes_activations,
    )


def _critic_maker(
    algorithm: Algorithm[Any],
    vector: VectorEnv | None,
    network: NetworkConfig | None,
    source: CriticSource | None,
    num_agents: int | None,
) -> Callable[[str | None, TrainablePolicy, int], Critic]:
    """Return a factory of critics. Factory arguments: agent (None: joint history), the agent's policy and index."""
    config: ActorCriticConfig = algorithm.config
    registered = registered_critic(config.critic_model_name_or_path)
    factory = registered if source is None else source

    def make(agent: str | None, policy: TrainablePolicy, number: int) -> Critic:
        if isinstance(factory, Critic):
            if agent is not None:
                raise ValueError(
                    "one critic is given, but each agent has its own critic; give a dict agent -> critic, or a factory"
                )
            return factory
        if isinstance(factory, Mapping):
            if (agent or "joint") not in factory:
                raise ValueError(f"critics has no key {agent or 'joint'!r}, only {sorted(factory)}; add this key")
            return factory[agent or "joint"]
        if factory is not None:
            return factory(_critic_seat(config, agent, policy, number, vector, num_agents))
        if isinstance(policy, LanguagePolicy):
            if algorithm.has_actor_heads:
                return ActorHead(policy)
            return text_critic(config, policy, seed=config.seed + number, num_agents=num_agents)
        if isinstance(policy, NumericPolicy) and vector is not None and network is not None:
            if algorithm.has_actor_heads:
                return NumericActorHead(policy)
            return _perceptron_critic(config, agent, policy, number, vector, network, num_agents)
        raise ValueError(
            f"there is no critic for the policy class {type(policy).__name__}; give critics=…, or register a critic "
            "(register_critic) and set critic_model_name_or_path to its name"
        )

    return make


def _critic_seat(
    config: ActorCriticConfig,
    agent: str | None,
    policy: Policy,
    number: int,
    vector: VectorEnv | None,
    num_agents: int | None,
) -> CriticSeat:
    spaces = {}
    if config.critic_type == "q" and vector is not None:
        spaces = {name: vector.action_space(name) for name in ([agent] if agent else vector.possible_agents)}
    return CriticSeat(
        agent=agent,
        policy=policy,
        observation_space=None if vector is None or agent is None else vector.observation_space(agent),
        action_spaces=spaces,
        head_hidden_dim=config.value_head_hidden_dim,
        num_agents=num_agents,
        seed=config.seed + number,
    )


def _perceptron_critic(
    config: ActorCriticConfig,
    agent: str | None,
    policy: NumericPolicy,
    number: int,
    vector: VectorEnv,
    network: NetworkConfig,
    num_agents: int | None,
) -> NumericCritic:
    agents = vector.possible_agents if agent is None else [agent]
    actions = [Features.of(vector.action_space(each)) for each in agents] if config.critic_type == "q" else []
    observation = _joint_features(vector, config.seed) if agent is None else policy.observation
    return NumericCritic(
        observation,
        actions,
        hidden_dims=network.hidden_dims,
        activation=network.activation,
        images=network.images if observation.image else "flat",  # concatenated observations are not an image
        normalizes_observations=network.normalizes_observations,
        num_agents=num_agents,
        seed=config.seed + 1000 * number + 500,
        device=device_of_policy(policy) if config.critic_device is None else device_of(config.critic_device),
    )


def _joint_features(vector: VectorEnv, seed: int) -> Features:
    """Return the features of the environment's state, or of the observations that the collector concatenates."""
    vector.reset(0, seed=seed)
    if vector.state(0) is not None and vector.state_space is not None:
        return Features.of(vector.state_space)
    sizes = (Features.of(vector.observation_space(agent)).size for agent in vector.possible_agents)
    return Features(num_numbers=sum(sizes))
