"""Policies of a team: language models for text, perceptrons for vectors, or policies of the user."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from gymnasium.spaces import Text
from pettingzoo import ParallelEnv

from ...._errors import UserError
from ....agents.config import ModelConfig
from ....agents.core import Policy, TrainablePolicy
from ....agents.loading import check_device, load_policies, named_policy
from ....agents.loading import load_team as load_language_team
from ....agents.numeric.config import NetworkConfig
from ....agents.numeric.policy import SETTINGS_FILE, NumericPolicy
from ....agents.registry import Seat
from ....envs.core import TextParallelEnv
from ....envs.vectors.vector import VectorEnv
from ...algorithm import Algorithm
from ...distribution.group import current
from ...rollout.protocols import with_protocol


def writes_text(env: Any) -> bool:
    return all(isinstance(env.action_space(agent), Text) for agent in env.possible_agents)


def make_policies(
    algorithm: Algorithm[Any],
    env: VectorEnv | ParallelEnv[str, Any, Any],
    model: ModelConfig,
    network: NetworkConfig,
    given: Mapping[str, Policy] | None = None,
) -> dict[str, Policy]:
    """Return the policy of each agent. Agents without a policy in `given` get a new policy.

    A model name can select a registered policy or a chat server. Other agents get a language model if actions are text,
    else a perceptron. Raises `ValueError` if `given` has an agent that does not exist.
    """
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
            part_of(model, agents, others),
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
    """Make untrained policies for a text environment. Raises `UserError` if an action space is not text."""
    if not writes_text(env):
        raise UserError(
            "language models need text actions, which this environment lacks; give a trained team or a scripted player"
        )
    agents = list(env.possible_agents)
    made = _named_policies(env, model, agents)
    if others := [agent for agent in agents if agent not in made]:
        made |= load_policies(part_of(model, agents, others), others, seed=seed)
    team = {agent: made[agent] for agent in agents}
    if model.protocol == "parallel":
        return team
    world = env.unwrapped
    told = world.protocol_instructions.get(model.protocol) if isinstance(world, TextParallelEnv) else None
    return with_protocol(team, model.protocol, told)


def saved_team(directory: Path, env: Any, model: ModelConfig) -> dict[str, Policy]:
    """Load policies from the folder `agents/` of a run. Policies that were not trained are made from the settings."""
    agents = list(env.possible_agents)
    check_names(agents)
    team: dict[str, Policy] = {}
    names, devices = model.names(len(agents)), model.devices(len(agents))
    for agent, name, device in zip(agents, names, devices, strict=True):
        check_device(device)
        spec = named_policy(name)
        if spec is not None:
            seat = seat_of(env, agent, model)
            saved = directory / agent
            team[agent] = spec.load(saved, seat) if spec.load is not None and saved.is_dir() else spec.make(seat)
        elif (directory / agent / SETTINGS_FILE).is_file():
            team[agent] = NumericPolicy.load(directory / agent, device_of(device))
        else:
            team |= load_language_team(directory, [agent], device=device)
    return team


def check_names(agents: Sequence[str]) -> None:
    """Raise `UserError` if an agent's name is not a safe folder name. Each policy is saved in a folder of this name."""
    for agent in agents:
        if not isinstance(agent, str) or not re.fullmatch(r"\w(?:[\w .,:+-]*\w)?", agent) or len(agent) > 100:
            raise UserError(
                f"the agent name {agent!r} is not a safe folder name, but its policy is saved in a folder of this "
                'name; use letters and digits, with " _ . , : + -" between them'
            )


def seat_of(env: Any, agent: str, model: ModelConfig, algorithm: Algorithm[Any] | None = None) -> Seat:
    """Return the arguments for the factory of a registered policy. `algorithm`: None if the policy is not trained."""
    return Seat(
        agent=agent,
        observation_space=env.observation_space(agent),
        action_space=env.action_space(agent),
        model=model,
        has_value_head=algorithm is not None and algorithm.has_actor_heads,
        seed=0 if algorithm is None else algorithm.config.seed + 1000 * list(env.possible_agents).index(agent),
    )


def part_of(model: ModelConfig, agents: Sequence[str], some: Sequence[str]) -> ModelConfig:
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


def device_of(name: str) -> torch.device:
    """Return the device of a perceptron. "auto" selects the CPU, because small networks are not faster on a GPU."""
    return torch.device("cpu" if name == "auto" else name)


def device_of_policy(policy: TrainablePolicy) -> torch.device:
    return policy.parameters()[0].device


def _named_policies(
    env: Any, model: ModelConfig, agents: Sequence[str], algorithm: Algorithm[Any] | None = None
) -> dict[str, Policy]:
    made: dict[str, Policy] = {}
    shared: Policy | None = None
    for agent, name in zip(env.possible_agents, model.names(len(env.possible_agents)), strict=True):
        spec = named_policy(name)
        if spec is not None and agent in agents:
            if shared is None or model.weights != "shared":
                shared = spec.make(seat_of(env, agent, model, algorithm))
            made[agent] = shared
    return made


def _perceptrons(
    algorithm: Algorithm[Any], env: Any, model: ModelConfig, network: NetworkConfig, agents: Sequence[str]
) -> dict[str, Policy]:
    devices = dict(zip(env.possible_agents, model.devices(len(env.possible_agents)), strict=True))

    def perceptron(agent: str) -> NumericPolicy:
        return NumericPolicy.for_spaces(
            env.observation_space(agent),
            env.action_space(agent),
            is_squashed=network.gaussian == "squashed",
            has_state_std=network.gaussian == "state",
            hidden_dims=network.hidden_dims,
            activation=network.activation,
            images=network.images,
            normalizes_observations=network.normalizes_observations,
            has_value_head=algorithm.has_actor_heads,
            seed=algorithm.config.seed + 1000 * env.possible_agents.index(agent),
            device=device_of(devices[agent]),
        )

    if model.weights == "shared":
        return dict.fromkeys(agents, cast(Policy, perceptron(agents[0])))
    return {agent: perceptron(agent) for agent in agents}
