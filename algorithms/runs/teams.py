"""Settings and spaces → policies, critics, trainer: language models where agents write text, else perceptrons.

The trainer treats both alike, and so policies and critics that a user registers or passes as objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

import torch
from gymnasium.spaces import Text
from pettingzoo import ParallelEnv
from transformers import AutoModel, AutoTokenizer

from ..._errors import UserError
from ...agents.config import BAG_OF_WORDS, ModelConfig
from ...agents.core import Critic, Policy, TrainablePolicy
from ...agents.language.critics import ActorHead, TextCritic, add_lora
from ...agents.language.policy import LanguagePolicy
from ...agents.language.words import BagOfWordsCritic
from ...agents.loading import (
    check_device,
    check_models,
    check_room,
    check_servers,
    device_named,
    load_policies,
    named_policy,
    set_float32_precision,
    where_of,
)
from ...agents.loading import load_team as load_language_team
from ...agents.numeric.config import Images, NetworkConfig
from ...agents.numeric.critics import NumericActorHead, NumericCritic
from ...agents.numeric.features import Features
from ...agents.numeric.policy import SETTINGS_FILE, NumericPolicy
from ...agents.registry import CriticSeat, Seat, registered_critic
from ...envs.vectors.vector import VectorEnv
from ..algorithm import Algorithm
from ..config import ActorCriticConfig
from ..distribution.group import current
from ..learning.critic_learner import CriticLearner
from ..learning.shaping import RewardProcessor
from ..learning.trainer import Rewarder, Trainer
from ..rollout.collector import RolloutCollector
from ..rollout.players import Copies, Players
from ..rollout.side_by_side import SideBySide

CriticSource: TypeAlias = Critic | Mapping[str, Critic] | Callable[[CriticSeat], Critic]
"""One critic (of the joint history), critics by agent, or a factory of critics."""


def writes_text(env: Any) -> bool:
    """Whether the agents of an environment (or of its copies) act by text."""
    return all(isinstance(env.action_space(agent), Text) for agent in env.possible_agents)


def make_trainer(
    algorithm: Algorithm[Any],
    vector: VectorEnv,
    policies: Mapping[str, Policy],
    *,
    critics: CriticSource | None = None,
    network: NetworkConfig | None = None,
    rewarder: Rewarder | None = None,
    reward_processor: RewardProcessor | None = None,
    players: Callable[[], Players] | None = None,
) -> Trainer:
    """Assemble a trainer: a collector on the environments, the critics that the algorithm reads, references.

    Args:
        algorithm: the algorithm to train with.
        vector: copies of the training environment.
        policies: policy of each agent; trainable ones learn, others only play.
        critics: objects or a factory, in place of those that the settings name.
        network: widths of perceptron critics, for vector observations.
        rewarder: replaces the episodes' rewards, as by a reward model's; needs the joint histories.
        reward_processor: applied to every reward before learning.
        players: makes who plays the episodes, with copies of the policies. None: the policies themselves play, or
            copies of them in this process where `max_staleness` asks for it.
    """
    config = algorithm.config
    is_judged = rewarder is not None
    collector = make_collector(algorithm, vector, policies, is_judged=is_judged)
    if players is None and config.max_staleness:
        players = partial(_copies, algorithm, vector, policies, is_judged)
    references: dict[str, TrainablePolicy] = {}
    if config.reference_kl_coef:
        learning = {agent: policy for agent, policy in policies.items() if isinstance(policy, TrainablePolicy)}
        place = None if config.reference_device is None else device_named(config.reference_device)
        frozen = {id(policy): policy.reference(place) for policy in dict.fromkeys(learning.values())}
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
        players=players() if players is not None and current().is_writer else None,
    )


def make_collector(
    algorithm: Algorithm[Any], vector: VectorEnv, policies: Mapping[str, Policy], *, is_judged: bool
) -> RolloutCollector:
    """A collector of the episodes that an algorithm learns from.

    Args:
        is_judged: a reward model reads the joint histories.
    """
    config = algorithm.config
    return RolloutCollector(
        vector,
        policies,
        reads_state=algorithm.critic_reads == "joint" or is_judged,
        early_termination_threshold=config.early_termination_threshold,
        side_by_side=SideBySide(config.side_by_side),
    )


def _copies(algorithm: Algorithm[Any], vector: VectorEnv, policies: Mapping[str, Policy], is_judged: bool) -> Players:
    """Players with copies of policies, in the environments that the trainer itself then leaves alone."""
    return Copies(make_collector(algorithm, vector, deepcopy(dict(policies)), is_judged=is_judged))


def make_policies(
    algorithm: Algorithm[Any],
    env: VectorEnv | ParallelEnv[str, Any, Any],
    model: ModelConfig,
    network: NetworkConfig,
    given: Mapping[str, Policy] | None = None,
) -> dict[str, Policy]:
    """Policy of each agent: the given one, else the one registered under the model's name, else one for its spaces.

    Raises:
        ValueError: if a policy is given for an agent that does not exist.
    """
    set_float32_precision(model)
    agents = env.possible_agents
    config = algorithm.config
    made: dict[str, Policy] = dict(given or {})
    if unknown := [agent for agent in made if agent not in agents]:
        raise ValueError(f"policies are given for {unknown}, but the agents are {agents}")
    made |= _named_policies(env, model, [agent for agent in agents if agent not in made], algorithm)
    others = [agent for agent in agents if agent not in made]
    if others and writes_text(env):
        hidden_dim = config.value_head_hidden_dim if algorithm.has_actor_heads else None
        made |= load_policies(
            _part(model, agents, others),
            others,
            has_value_head=algorithm.has_actor_heads,
            value_head_hidden_dim=hidden_dim,
            seed=config.seed,
            loaded=lambda policy: current().share_out(policy, shards=config.fsdp),
        )
    elif others:
        made |= _perceptrons(algorithm, env, model, network, others)
    return {agent: made[agent] for agent in agents}


def playing_team(env: Any, model: ModelConfig, seed: int = 0) -> dict[str, Policy]:
    """Policy of each agent where nobody learns: what its model's name says, in an environment of texts.

    Args:
        env: environment that they will play.
        model: settings of the team's models; names as in `ModelConfig.model`.
        seed: draws new weights.

    Raises:
        UserError: if an agent acts otherwise than by text.
    """
    if not writes_text(env):
        raise UserError("language models write texts, but these agents act otherwise; give a trained team or a player")
    agents = list(env.possible_agents)
    made = _named_policies(env, model, agents)
    if others := [agent for agent in agents if agent not in made]:
        made |= load_policies(_part(model, agents, others), others, seed=seed)
    return {agent: made[agent] for agent in agents}


def _named_policies(
    env: Any, model: ModelConfig, agents: Sequence[str], algorithm: Algorithm[Any] | None = None
) -> dict[str, Policy]:
    """Policies of those of the agents whose models' names are registered ones or a chat server's."""
    made: dict[str, Policy] = {}
    shared: Policy | None = None
    for agent, name in zip(env.possible_agents, model.names(len(env.possible_agents)), strict=True):
        spec = named_policy(name)
        if spec is not None and agent in agents:
            if shared is None or model.weights != "shared":
                shared = spec.make(seat_of(env, agent, model, algorithm))
            made[agent] = shared
    return made


def seat_of(env: Any, agent: str, model: ModelConfig, algorithm: Algorithm[Any] | None = None) -> Seat:
    """Seat of a registered policy: agent, spaces and settings. Without an algorithm the policy only plays."""
    return Seat(
        agent=agent,
        observation_space=env.observation_space(agent),
        action_space=env.action_space(agent),
        model=model,
        has_value_head=algorithm is not None and algorithm.has_actor_heads,
        seed=0 if algorithm is None else algorithm.config.seed + 1000 * list(env.possible_agents).index(agent),
    )


def check_team(env: Any, model: ModelConfig, seed: int = 0, images: Images = "auto", *, learns: bool = True) -> None:
    """Refuse a team that cannot be made, before a weight is loaded.

    Args:
        env: environment that the team will play, which is reset.
        model: settings of the team's models.
        seed: seed of the episode whose first prompts must fit into the models' contexts.
        images: how perceptrons read images, as in `NetworkConfig.images`.
        learns: the team is to learn, so that servers must take weights.

    Raises:
        ValueError: if there is no policy for the agents' spaces, or if agents with different spaces share weights.
        FileNotFoundError: if a language model is missing.
    """
    agents = env.possible_agents
    check_names(agents)
    names = model.names(len(agents))
    specs = {agent: named_policy(name) for agent, name in zip(agents, names, strict=True)}
    for agent, spec in specs.items():
        if spec is not None and spec.check is not None:
            spec.check(seat_of(env, agent, model))
    others = [agent for agent, spec in specs.items() if spec is None]
    if len(others) < len(agents) and model.weights == "adapters":
        raise ValueError(f"weights='adapters' is for language models, but {model.model!r} is registered; use 'own'")
    if not others:
        return
    if writes_text(env):
        part = _part(model, agents, others)
        check_models(part, len(others))
        check_servers(part, len(others), learns=learns)
        check_room(part, others, env.reset(seed=seed)[0])
        return
    for device in model.devices(len(agents)):
        check_device(device)
    spaces = {agent: (env.observation_space(agent), env.action_space(agent)) for agent in others}
    for observation_space, action_space in spaces.values():
        NumericPolicy.for_spaces(observation_space, action_space, hidden_dims=(1,), images=images)
    if model.weights == "adapters":
        raise ValueError("weights='adapters' is for language models; perceptrons are 'own' or 'shared'")
    unlike = [agent for agent in others if spaces[agent] != spaces[others[0]]]
    if model.weights == "shared" and unlike:
        raise ValueError(
            f"weights='shared', but {unlike[0]!r} has other spaces than {others[0]!r}: {spaces[unlike[0]]} and "
            f"{spaces[others[0]]}; use weights='own'"
        )


def check_names(agents: Sequence[str]) -> None:
    """Refuse agents that cannot name the folders of their policies and critics: those would lie elsewhere.

    Raises:
        UserError: naming the first.
    """
    for agent in agents:
        if not isinstance(agent, str) or not re.fullmatch(r"\w(?:[\w .,:+-]*\w)?", agent) or len(agent) > 100:
            raise UserError(
                f"the environment calls an agent {agent!r}, which cannot name the folder of its policy; agents need "
                'names of letters and digits, with " _ . , : + -" between them'
            )


def make_critics(
    algorithm: Algorithm[Any],
    policies: Mapping[str, Policy],
    vector: VectorEnv | None = None,
    network: NetworkConfig | None = None,
    source: CriticSource | None = None,
) -> dict[str, CriticLearner]:
    """Critics that the algorithm reads: one per trainable policy, one "joint", or none.

    Args:
        vector: needed where agents act by vectors.
        network: likewise.
        source: critics as objects or a factory; None: those that the settings name.

    Raises:
        ValueError: if critics are given that the algorithm does not read, or are missing.
    """
    config = algorithm.config
    if algorithm.critic_reads == "nothing":
        if source is not None:
            raise ValueError(f"critics are given, but {type(algorithm).__name__} reads none; leave them out")
        return {}
    generator = torch.Generator().manual_seed(config.seed)
    learning = {agent: policy for agent, policy in policies.items() if isinstance(policy, TrainablePolicy)}
    make = _critic_maker(algorithm, vector, network, source)
    if algorithm.critic_reads == "joint":
        first = next(iter(learning.values()))
        return {"joint": CriticLearner(make(None, first, 0), config, generator)}
    learners: dict[int, CriticLearner] = {}
    for number, (agent, policy) in enumerate(learning.items()):
        if id(policy) not in learners:
            learners[id(policy)] = CriticLearner(make(agent, policy, number), config, generator)
    return {agent: learners[id(policy)] for agent, policy in learning.items()}


def text_critic(config: ActorCriticConfig, actor: LanguagePolicy, *, seed: int) -> TextCritic | BagOfWordsCritic:
    """A separate critic for text, by the name in the settings."""
    name = config.critic_model_name_or_path
    if name == BAG_OF_WORDS:
        return BagOfWordsCritic(config.critic_l2)
    hidden_dim = config.critic_value_head_hidden_dim
    model = actor.language_model
    device = model.device if config.critic_device is None else device_named(config.critic_device)
    if name == "small":
        return TextCritic.small(
            model.encoder.tokenizer,
            head_hidden_dim=hidden_dim,
            seed=seed,
            device=device,
            compute_dtype=model.compute_dtype,
        )
    where: Any = model.base.name_or_path if name == "actor" else where_of(name)
    loaded: Any = AutoModel.from_pretrained(where, dtype=torch.float32)
    backbone = loaded.to(device)
    if config.critic_lora_rank is not None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            add_lora(backbone, config.critic_lora_rank)
    return TextCritic(
        backbone,
        AutoTokenizer.from_pretrained(where),
        head_hidden_dim=hidden_dim,
        compute_dtype=model.compute_dtype,
        recomputes_activations=model.recomputes_activations,
    )


def saved_team(directory: Path, env: Any, model: ModelConfig) -> dict[str, Policy]:
    """Policies that a run saved, one folder per agent; those that did not learn are made anew.

    Args:
        directory: the run's `agents/`.
        env: environment that they will play, or one with the same spaces.
        model: settings of the run's models.
    """
    set_float32_precision(model)
    agents = list(env.possible_agents)
    check_names(agents)
    team: dict[str, Policy] = {}
    places = model.devices(len(agents))
    for agent, name, place in zip(agents, model.names(len(agents)), places, strict=True):
        spec = named_policy(name)
        if spec is not None:
            seat = seat_of(env, agent, model)
            saved = directory / agent
            team[agent] = spec.load(saved, seat) if spec.load is not None and saved.is_dir() else spec.make(seat)
        elif (directory / agent / SETTINGS_FILE).is_file():
            team[agent] = NumericPolicy.load(directory / agent, device_of(place))
        else:
            team |= load_language_team(directory, [agent], device=place)
    return team


def device_of(name: str) -> torch.device:
    """Device of a perceptron: the CPU unless a device is named, as small networks gain nothing from a GPU."""
    return torch.device("cpu" if name == "auto" else name)


def device_of_policy(policy: TrainablePolicy) -> torch.device:
    """Device of a policy's weights."""
    return policy.parameters()[0].device


def _part(model: ModelConfig, agents: Sequence[str], some: Sequence[str]) -> ModelConfig:
    """Model settings of some of the agents."""
    if len(some) == len(agents):
        return model
    names = dict(zip(agents, model.names(len(agents)), strict=True))
    servers = dict(zip(agents, model.servers(len(agents)), strict=True))
    devices = dict(zip(agents, model.devices(len(agents)), strict=True))
    addresses = dict.fromkeys("+".join(servers[agent]) for agent in some if servers[agent])
    return replace(
        model,
        model=",".join(names[agent] for agent in some),
        server=",".join(addresses) or None,
        device=",".join(devices[agent] for agent in some),
    )


def _perceptrons(
    algorithm: Algorithm[Any], env: Any, model: ModelConfig, network: NetworkConfig, agents: Sequence[str]
) -> dict[str, Policy]:
    places = dict(zip(env.possible_agents, model.devices(len(env.possible_agents)), strict=True))

    def perceptron(agent: str) -> NumericPolicy:
        return NumericPolicy.for_spaces(
            env.observation_space(agent),
            env.action_space(agent),
            is_squashed=network.is_squashed,
            initial_log_std=network.initial_log_std,
            has_state_std=network.has_state_std,
            log_std_bounds=network.log_std_bounds,
            hidden_dims=network.hidden_dims,
            activation=network.activation,
            images=network.images,
            normalizes_observations=network.normalizes_observations,
            has_value_head=algorithm.has_actor_heads,
            seed=algorithm.config.seed + 1000 * env.possible_agents.index(agent),
            device=device_of(places[agent]),
        )

    if model.weights == "shared":
        return dict.fromkeys(agents, cast(Policy, perceptron(agents[0])))
    return {agent: perceptron(agent) for agent in agents}


def _critic_maker(
    algorithm: Algorithm[Any], vector: VectorEnv | None, network: NetworkConfig | None, source: CriticSource | None
) -> Callable[[str | None, TrainablePolicy, int], Critic]:
    """Factory of the critic of an agent (None: of the joint history), given its policy and its number."""
    config: ActorCriticConfig = algorithm.config
    registered = registered_critic(config.critic_model_name_or_path)
    factory = registered if source is None else source

    def make(agent: str | None, policy: TrainablePolicy, number: int) -> Critic:
        if isinstance(factory, Critic):
            if agent is not None:
                raise ValueError("one critic is given, but each agent has its own; give a mapping, or a factory")
            return factory
        if isinstance(factory, Mapping):
            if (agent or "joint") not in factory:
                raise ValueError(f"there is no critic for {agent or 'joint'!r} among those given, {sorted(factory)}")
            return factory[agent or "joint"]
        if factory is not None:
            return factory(_critic_seat(config, agent, policy, number, vector))
        if isinstance(policy, LanguagePolicy):
            if algorithm.has_actor_heads:
                return ActorHead(policy)
            return text_critic(config, policy, seed=config.seed + number)
        if isinstance(policy, NumericPolicy) and vector is not None and network is not None:
            if algorithm.has_actor_heads:
                return NumericActorHead(policy)
            return _perceptron_critic(config, agent, policy, number, vector, network)
        raise ValueError(
            f"there is no critic for the policy class {type(policy).__name__}; give critics=…, or register one "
            "(register_critic) and name it in critic_model_name_or_path"
        )

    return make


def _critic_seat(
    config: ActorCriticConfig, agent: str | None, policy: Policy, number: int, vector: VectorEnv | None
) -> CriticSeat:
    spaces = {}
    if config.critic_type == "q" and vector is not None:
        spaces = {name: vector.action_space(name) for name in ([agent] if agent else vector.possible_agents)}
    is_own = agent is not None and vector is not None
    return CriticSeat(
        agent=agent,
        policy=policy,
        observation_space=vector.observation_space(agent) if is_own and vector and agent else None,
        action_spaces=spaces,
        head_hidden_dim=config.critic_value_head_hidden_dim,
        seed=config.seed + number,
    )


def _perceptron_critic(
    config: ActorCriticConfig,
    agent: str | None,
    policy: NumericPolicy,
    number: int,
    vector: VectorEnv,
    network: NetworkConfig,
) -> NumericCritic:
    """A separate critic for vectors, on an agent's own observations or on the joint ones."""
    agents = vector.possible_agents if agent is None else [agent]
    actions = [Features.of(vector.action_space(each)) for each in agents] if config.critic_type == "q" else []
    observation = _joint_features(vector, config.seed) if agent is None else policy.observation
    return NumericCritic(
        observation,
        actions,
        hidden_dims=network.hidden_dims,
        activation=network.activation,
        images=network.images if observation.image else "flat",  # observations in a row are no image
        normalizes_observations=network.normalizes_observations,
        seed=config.seed + 1000 * number + 500,
        device=device_of_policy(policy) if config.critic_device is None else device_of(config.critic_device),
    )


def _joint_features(vector: VectorEnv, seed: int) -> Features:
    """Features of a centralized critic: the environment's state, or all observations as the collector joins them."""
    vector.reset(0, seed=seed)
    if vector.state(0) is not None and vector.state_space is not None:
        return Features.of(vector.state_space)
    sizes = (Features.of(vector.observation_space(agent)).size for agent in vector.possible_agents)
    return Features(num_numbers=sum(sizes))
