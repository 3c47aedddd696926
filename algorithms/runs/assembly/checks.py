"""Checks of settings and teams before models are loaded."""

from __future__ import annotations

from typing import Any

import torch
from pettingzoo import ParallelEnv

from ...._cluster import Cluster
from ....agents.config import BAG_OF_WORDS, ModelConfig
from ....agents.language.model_files import check_critic_model, check_reward_model
from ....agents.loading import (
    check_device,
    check_models,
    check_room,
    check_servers,
    check_template_kwargs,
    named_policy,
    where_of,
)
from ....agents.numeric.config import Images
from ....agents.numeric.policy import NumericPolicy
from ....agents.registry import registered_critic
from ....envs.core import TextParallelEnv
from ....envs.views import with_truth
from ...algorithm import Algorithm
from ...config import TrainConfig
from ...distribution.group import current
from ...learning.optimizer import tokens_per_pass
from ...memory.devices import check_counts
from ...rollout.curriculum import check_curriculum
from ..exploitability import game_tree
from .policies import check_names, part_of, seat_of, writes_text


def check_settings(algorithm: Algorithm[Any], model: ModelConfig) -> None:
    """Raise `ValueError` if settings contradict each other or make learning impossible."""
    config = algorithm.config
    if model.protocol != "parallel":
        raise ValueError(
            f"protocol={model.protocol!r} is for teams that do not learn; use protocol='parallel' to train, or "
            "`collm evaluate --model` to evaluate a protocol"
        )
    if config.reward_scale == 0:
        raise ValueError("reward_scale=0 makes every reward 0, so that nothing is learned; give another factor")
    if config.warmup_updates > config.num_updates:
        raise ValueError(
            f"warmup_updates={config.warmup_updates} is more than num_updates={config.num_updates}, so the learning "
            "rates never reach their peak; lower warmup_updates or raise num_updates"
        )
    if config.max_staleness > config.num_updates:
        raise ValueError(
            f"max_staleness={config.max_staleness} is more than num_updates={config.num_updates}, so the first weights "
            "would play all episodes; lower max_staleness"
        )
    if config.timeout_s is not None and not config.num_workers:
        raise ValueError(f"timeout_s={config.timeout_s:g} needs worker processes; set num_workers to at least 1")
    if config.collectors is not None:
        cluster_of(config).check()
        if config.turns_per_update is not None:
            raise ValueError(
                f"turns_per_update={config.turns_per_update} continues unfinished episodes in one process, but "
                f"collectors={config.collectors!r} play whole episodes; leave one of them out"
            )
    num_episodes = config.rollout_buffer_size
    counts = {name: getattr(config, name, None) or 0 for name in ("eval_num_samples", "num_envs", "critic_steps")}
    counts["num_alternatives"] = num_episodes * getattr(config, "num_alternatives", 0)
    check_counts({"rollout_buffer_size": num_episodes, **counts})
    tokens_per_pass(config, torch.device("cpu"))
    _check_servers(config, model)
    critic_device = getattr(config, "critic_device", None)
    for device in (config.reference_device, critic_device):
        if device is not None:
            check_device(device)
    if config.reference_device is not None and model.weights == "adapters":
        raise ValueError(
            f"reference_device={config.reference_device!r} is for a copy of the policy, but with weights='adapters' "
            "the base model is the reference; leave reference_device out"
        )
    if critic_device is not None and algorithm.has_actor_heads:
        raise ValueError(
            f"critic_device={critic_device!r} is for separate critics, but the critics are value heads of the actors; "
            "leave critic_device out, or set use_separate_critic=True"
        )
    if config.fsdp and current().size > 1:
        _check_fsdp(config, model, critic_device)


def _check_servers(config: TrainConfig, model: ModelConfig) -> None:
    if model.server is not None:
        if config.max_staleness or config.collectors:
            name = "collectors" if config.collectors else "max_staleness"
            raise ValueError(
                f"{name}={getattr(config, name)!r} plays with copies of the models, but server={model.server!r} has "
                "only one version of the weights; leave one of them out"
            )
        if config.deterministic:
            raise ValueError(
                f"deterministic=True needs models that sample in this process, but the batches of "
                f"server={model.server!r} depend on timing; leave one of them out"
            )
    if model.server_logprobs == "server" and config.importance_cap is None and config.clip_range is None:
        raise ValueError(
            "server_logprobs='server' is for importance weights, which importance_cap=None turns off; set "
            "importance_cap (2 is usual), or leave server_logprobs out"
        )


def _check_fsdp(config: TrainConfig, model: ModelConfig, critic_device: str | None) -> None:
    if config.offload == "learner":
        raise ValueError(
            "offload='learner' moves whole weights, but fsdp=True shards them; use offload='moments' or offload='none'"
        )
    device = model.device if "," in model.device else None
    named = {"device": device, "critic_device": critic_device, "reference_device": config.reference_device}
    elsewhere = [f"{name}={value!r}" for name, value in named.items() if value is not None]
    if elsewhere:
        raise ValueError(f"fsdp=True uses one device per rank, got {', '.join(elsewhere)}; leave this setting out")


def check_environment(algorithm: Algorithm[Any], env: ParallelEnv[str, Any, Any], model: ModelConfig) -> None:
    """Raise `ValueError` if a setting does not fit the environment. Resets `env` if the critic reads hidden state."""
    config = algorithm.config
    is_text = writes_text(env)
    if algorithm.crosses_rollouts:
        max_turns = env.max_turns if isinstance(env, TextParallelEnv) else None
        if max_turns != 1:
            raise ValueError(
                f"joint_mode='cross' combines completions of one prompt, so it needs episodes of one turn, but this "
                f"environment has {max_turns or 'any number of'} turns; use joint_mode='aligned'"
            )
    if algorithm.reads_shares and not isinstance(env.unwrapped, TextParallelEnv):
        raise ValueError(f"{type(algorithm).__name__} repeats replies, but this is not a TextParallelEnv; use marloo")
    if algorithm.replies is not None and not is_text:
        raise ValueError(f"{type(algorithm).__name__} reads replies, but this environment has other actions; use maac")
    if config.reward_model is not None:
        _check_judge(algorithm, is_text)
    elif config.reward_model_pays != "end":
        raise ValueError(f"reward_model_pays={config.reward_model_pays!r} needs a reward_model; set it too")
    if "nash_conv" in config.eval_metrics:
        game_tree(env)  # raises an error if the game cannot be enumerated
    check_curriculum(config.difficulty_schedule, env.metadata)
    filters = {
        name: value for name, value, off in (("top_p", model.top_p, 1), ("top_k", model.top_k, 0)) if value != off
    }
    if filters and not (algorithm.has_baseline or model.learns_filtered) and is_text:
        given = ", ".join(f"{name}={value}" for name, value in filters.items())
        raise ValueError(
            f"{given} changes the sampled distribution, but {type(algorithm).__name__} has no baseline, so its "
            "gradient would have a wrong direction; use learns_filtered=True, or top_p=1 and top_k=0"
        )
    if algorithm.reads_truth:
        with_truth(env).reset(seed=config.seed)  # raises an error if the environment has no hidden state
        world = env.unwrapped
        if isinstance(world, TextParallelEnv) and not world.truth():
            raise ValueError(
                f"truth() of {world} returns no hidden state at the start of an episode, so critic_input='privileged' "
                "adds no information; use critic_input='joint'"
            )


def _check_judge(algorithm: Algorithm[Any], is_text: bool) -> None:
    name = algorithm.config.reward_model
    if not is_text:
        raise ValueError(
            f"reward_model={name!r} judges texts, but this environment has vector actions; leave reward_model out"
        )
    if algorithm.crosses_rollouts:
        raise ValueError(
            "joint_mode='cross' takes the reward of every joint action from the environment, but a reward_model "
            "replaces the environment's rewards; use joint_mode='aligned'"
        )
    if algorithm.reads_truth:
        raise ValueError(
            f"critic_input='privileged' would show the hidden state to reward_model={name!r}, because the critic and "
            "the reward model read the same history; use critic_input='joint'"
        )
    check_reward_model(where_of(name))


def check_critic(algorithm: Algorithm[Any], *, is_text: bool) -> None:
    """Raise `ValueError` if the critic does not fit the observations, or its settings contradict each other."""
    if algorithm.critic_reads == "nothing":
        return
    critic: str = algorithm.config.critic_model_name_or_path
    if critic == BAG_OF_WORDS and not is_text:
        raise ValueError(
            f"critic_model_name_or_path={BAG_OF_WORDS!r} reads texts, but these agents observe vectors; use 'small'"
        )
    is_new = critic in ("small", BAG_OF_WORDS)
    if algorithm.config.critic_lora_rank is not None and (is_new or algorithm.has_actor_heads):
        raise ValueError(
            "critic_lora_rank puts adapters on a pretrained critic, but this critic is not pretrained; "
            "set critic_model_name_or_path to a pretrained model, or leave critic_lora_rank out"
        )
    if critic not in ("small", "actor", BAG_OF_WORDS) and registered_critic(critic) is None:
        check_critic_model(where_of(critic))


def cluster_of(config: TrainConfig) -> Cluster:
    assert config.collectors is not None
    options: dict[str, Any] = dict(config.collector_options)
    return Cluster(
        address=config.collectors,
        num_actors=config.num_collectors,
        num_cpus=options.pop("num_cpus", 1.0),
        num_gpus=options.pop("num_gpus", 0.0),
        files=options.pop("working_dir", None),
        options=options,
    )


def check_team(env: Any, model: ModelConfig, seed: int = 0, images: Images = "auto", *, learns: bool = True) -> None:
    """Check that the policies of a team can be created. Resets the environment with `seed`.

    The first prompts must fit into the models' context lengths. If the team will be trained (`learns`), servers must
    accept new weights. Raises `ValueError` if there is no policy for the agents' spaces, or if agents with different
    spaces share weights. Raises `FileNotFoundError` if a language model is missing.
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
        raise ValueError(f"weights='adapters' needs language models, got model={model.model!r}; use weights='own'")
    if not others:
        return
    if writes_text(env):
        part = part_of(model, agents, others)
        check_models(part, len(others))
        check_template_kwargs(part)
        check_servers(part, len(others), learns=learns)
        check_room(part, others, env.reset(seed=seed)[0])
        return
    for device in model.devices(len(agents)):
        check_device(device)
    spaces = {agent: (env.observation_space(agent), env.action_space(agent)) for agent in others}
    for observation_space, action_space in spaces.values():
        NumericPolicy.for_spaces(observation_space, action_space, hidden_dims=(1,), images=images)
    if model.weights == "adapters":
        raise ValueError("weights='adapters' needs language models; for perceptrons use 'own' or 'shared'")
    unlike = [agent for agent in others if spaces[agent] != spaces[others[0]]]
    if model.weights == "shared" and unlike:
        raise ValueError(
            f"weights='shared', but the spaces of {unlike[0]!r} and {others[0]!r} differ: {spaces[unlike[0]]} and "
            f"{spaces[others[0]]}; use weights='own'"
        )
