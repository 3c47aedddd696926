"""Notices about settings that other settings or the environment make ineffective."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from gymnasium.spaces import Box
from pettingzoo import ParallelEnv

from ...._settings import settings_of
from ....agents.config import BAG_OF_WORDS, ModelConfig
from ....agents.loading import chat_encoders, device_named
from ....agents.numeric.config import NetworkConfig
from ....agents.registry import registered_critic, registered_policy
from ...algorithm import ActorCritic, Algorithm
from ...distribution.group import current
from .policies import writes_text


@dataclass(frozen=True)
class Setup:
    """Settings and environment of a run."""

    algorithm: Algorithm[Any]
    model: ModelConfig
    network: NetworkConfig
    env: ParallelEnv[str, Any, Any]
    num_envs: int  # Number of environment copies for training

    @property
    def config(self) -> Any:  # its class may have no fields for critics
        return self.algorithm.config

    @property
    def writes(self) -> bool:
        return writes_text(self.env)

    @property
    def is_registered(self) -> bool:
        return any(registered_policy(name) is not None for name in self.model.model.split(","))

    @property
    def has_own_loss(self) -> bool:
        return type(self.algorithm).loss is not Algorithm.loss

    @property
    def has_bag_of_words(self) -> bool:
        return bool(self.config.critic_model_name_or_path == BAG_OF_WORDS)

    @property
    def has_vector_critic(self) -> bool:
        return not self.writes and registered_critic(self.config.critic_model_name_or_path) is None

    def estimates(self, estimator: str) -> bool:
        config = self.config
        if type(self.algorithm).advantages is not ActorCritic.advantages:
            return True
        used = {config.critic_target} | ({config.estimator} if config.critic_type == "v" else set())
        return estimator in used

    def on_gpu(self) -> bool:
        names = [*self.model.device.split(","), getattr(self.config, "critic_device", None) or "cpu"]
        return any(device_named(name.strip()).type != "cpu" for name in names)

    def has_boxes(self) -> bool:
        return any(isinstance(self.env.action_space(agent), Box) for agent in self.env.possible_agents)

    def has_images(self) -> bool:
        spaces = [self.env.observation_space(agent) for agent in self.env.possible_agents]
        return any(len(space.shape or ()) == 3 for space in spaces)


class Rule(NamedTuple):
    """Condition under which settings have an effect."""

    names: str  # Names of the settings, separated by spaces
    needs: str  # Text of the condition in the notice
    holds: Callable[[Setup], bool]


_OF_TEXT = " ".join(each.name for each in fields(ModelConfig) if each.name not in ("weights", "device"))
_OF_VECTORS = " ".join(each.name for each in fields(NetworkConfig))
_OF_CRITICS = "critic_learning_rate critic_steps critic_batch_size critic_replay critic_warmup"
# A registered policy and an algorithm with its own loss may read any setting.
RULES = (
    Rule("num_collectors collector_options", "collectors", lambda s: s.config.collectors is not None),
    Rule("fsdp", "several processes (torchrun)", lambda s: current().size > 1),
    Rule("offload", "a GPU", Setup.on_gpu),
    Rule(
        "importance_cap",
        "max_staleness or server_logprobs='server', and no clip_range",
        lambda s: (
            s.has_own_loss
            or (s.config.clip_range is None and (s.config.max_staleness > 0 or s.model.server_logprobs == "server"))
        ),
    ),
    Rule("target_kl", "ppo_epochs above 1", lambda s: s.config.ppo_epochs > 1),
    Rule(
        "reference_kl_in reference_kl_estimator reference_device",
        "reference_kl_coef above 0",
        lambda s: s.config.reference_kl_coef > 0,
    ),
    Rule("credit divide_by_length", "agents that write texts", lambda s: s.writes or s.has_own_loss),
    Rule("trace", "estimator='gae' or critic_target='gae'", lambda s: s.estimates("gae")),
    Rule("num_steps", "estimator='n_step' or critic_target='n_step'", lambda s: s.estimates("n_step")),
    Rule("estimator", "critic_type='v'", lambda s: s.config.critic_type == "v"),
    Rule("value_loss_coef", "use_separate_critic=False", lambda s: s.algorithm.has_actor_heads),
    Rule(
        f"critic_model_name_or_path {_OF_CRITICS}",
        "use_separate_critic=True",
        lambda s: not s.algorithm.has_actor_heads,
    ),
    Rule(
        "critic_model_name_or_path",
        "agents that write texts",
        lambda s: s.algorithm.has_actor_heads or not s.has_vector_critic,
    ),
    Rule(
        "value_head_hidden_dim",
        "agents that write texts",
        lambda s: s.writes if s.algorithm.has_actor_heads else not s.has_vector_critic,
    ),
    Rule(
        "critic_learning_rate critic_steps critic_batch_size value_head_hidden_dim value_clip_range",
        f"another critic than {BAG_OF_WORDS!r}",
        lambda s: s.algorithm.has_actor_heads or not s.has_bag_of_words,
    ),
    Rule("critic_l2", f"critic_model_name_or_path={BAG_OF_WORDS!r}", lambda s: s.has_bag_of_words),
    Rule(_OF_TEXT, "agents that write texts", lambda s: s.writes or s.is_registered),
    Rule(_OF_VECTORS, "agents with vector actions", lambda s: not s.writes or s.is_registered),
    Rule("gaussian", "continuous actions", lambda s: s.writes or s.has_boxes()),
    Rule("images", "observations with three axes", lambda s: s.writes or s.has_images()),
    Rule("lora_rank lora_alpha lora_target_modules", "weights='adapters'", lambda s: s.model.weights == "adapters"),
    Rule("template_kwargs", "a chat template", lambda s: bool(chat_encoders(s.model))),
    Rule("learns_filtered", "top_p or top_k", lambda s: s.model.top_p != 1 or s.model.top_k != 0),
    Rule("server_logprobs", "server", lambda s: s.model.server is not None),
)
"""Rules in the order in which they are checked. A setting is reported with its first condition that is not met."""


def settings_without_effect(setup: Setup, named: Collection[str] = ()) -> list[str]:
    """Return notices about settings without effect, and about superfluous workers and environment copies.

    Settings with their default values are reported only if the user wrote their names or aliases (`named`).
    """
    given: dict[str, Any] = {}
    for settings in (setup.config, setup.model, setup.network):
        for name, each in settings_of(type(settings)).items():
            value = getattr(settings, name)
            is_named = not isinstance(value, bool) and not {name, *each.also}.isdisjoint(named)
            if each.is_required or value != each.default or is_named:
                given[name] = value
    lines = []
    reported: set[str] = set()
    for rule in RULES:
        idle = [name for name in rule.names.split() if name in given and name not in reported]
        if idle and not rule.holds(setup):
            reported |= set(idle)
            listed = ", ".join(f"{name}={given[name]!r}" for name in idle)
            has, it, need = ("has", "it", "needs") if len(idle) == 1 else ("have", "they", "need")
            lines.append(f"{listed} {has} no effect: {it} {need} {rule.needs}")
    num_episodes = (setup.algorithm.max_parallel_episodes, "episodes that an update can play at the same time")
    surplus = {"num_workers": (setup.num_envs, "environment copies (num_envs)"), "num_collectors": num_episodes}
    if setup.config.turns_per_update is None:
        surplus["num_envs"] = num_episodes
    for name, (most, what) in surplus.items():
        if name in given and name not in reported and given[name] > most:
            lines.append(f"{name}={given[name]} is more than the {most} {what}: the surplus has no work")
    if setup.config.clip_range is not None and setup.config.clip_range > 1:
        lines.append(f"clip_range={setup.config.clip_range:g} is above 1: it never clips a falling probability ratio")
    return lines
