"""Teams that cannot be made, refused before a weight is loaded."""

from __future__ import annotations

from typing import Any

from ....agents.config import ModelConfig
from ....agents.loading import check_device, check_models, check_room, check_servers, named_policy
from ....agents.numeric.config import Images
from ....agents.numeric.policy import NumericPolicy
from .policies import check_names, part_of, seat_of, writes_text


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
        part = part_of(model, agents, others)
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
