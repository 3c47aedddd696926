"""Partners: who sits in some agents' seats without learning, as scripted players or as frozen models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..._errors import UserError
from ...envs.players import PLAYERS
from .assembly.experiment import Experiment


def with_partners(experiment: Experiment, partners: Mapping[str, str]) -> Experiment:
    """An experiment in which some agents do not learn.

    Args:
        experiment: experiment without them.
        partners: by agent, "reference", "random" or "empty"; else a model's folder or name, which plays frozen.

    Raises:
        UserError: if there is no such agent, or nobody would learn.
    """
    env = experiment.make_env()
    try:
        agents = list(env.possible_agents)
    finally:
        env.close()
    if unknown := [agent for agent in partners if agent not in agents]:
        raise UserError(f"there is no agent {unknown[0]!r} for a partner; the agents are {', '.join(agents)}")
    if len(partners) == len(agents):
        raise UserError(f"partners sit in all seats, {', '.join(agents)}; leave one to learn")
    scripted = {agent: name for agent, name in partners.items() if name in PLAYERS}
    frozen = {agent: name for agent, name in partners.items() if name not in PLAYERS}
    if scripted:
        experiment = replace(experiment, env_kwargs={**experiment.env_kwargs, "partners": scripted})
    names = dict(zip(agents, experiment.model.names(len(agents)), strict=True)) | frozen
    left = [names[agent] for agent in agents if agent not in scripted]
    rates = {**experiment.config.agent_learning_rates, **dict.fromkeys(frozen, 0.0)}
    return replace(
        experiment,
        model=replace(experiment.model, model=left[0] if len(set(left)) == 1 else ",".join(left)),
        config=replace(experiment.config, agent_learning_rates=rates),
    )
