"""Experiment: settings of a run, and functions that make its environments, policies, critics and trainer."""

from __future__ import annotations

import inspect
import os
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.utils.deterministic
from pettingzoo import ParallelEnv

from ...._errors import UserError
from ...._settings import settings_of, sorted_out
from ....agents.chat_template import DATE
from ....agents.config import CHAT, MAX_NEW_TOKENS, TINY, ModelConfig
from ....agents.core import Policy, TrainablePolicy
from ....agents.language.reward_model import RewardModel
from ....agents.loading import chat_encoders, chat_lines, named_policy, start_lines, where_of
from ....agents.numeric.config import NetworkConfig
from ....agents.registry import PolicySpec, register_policy, registered_policy
from ....envs.core import TextParallelEnv, declared_interests
from ....envs.players import HELD_OUT, PLAYERS, partners_of
from ....envs.registration.registry import EnvSpec, make, registry, spec, versioned, with_explanation
from ....envs.registration.turn_limit import declared_turn_limit
from ....envs.vectors.processes import ProcessVector
from ....envs.vectors.vector import SyncVector, VectorEnv
from ....envs.views.privileged import wrapped_env
from ...algorithm import Algorithm
from ...config import TrainConfig
from ...distribution.group import current
from ...distribution.launch import ranks_on
from ...learning.learners import agent_learning_rates
from ...learning.preferences import ModelRewards
from ...learning.rewards import RewardProcessor
from ...learning.trainer import Trainer
from ...memory.devices import capacity
from ...memory.fitting import TrainingSize, canonical, check_fit, check_host, shape_of
from ...registry import AlgorithmSpec, algorithm_spec, register_algorithm
from ...rollout.collector import RolloutCollector
from ...rollout.ray_worker import RayWorker
from ..checkpoint import StartingWeights
from ..files import CONFIG_FILE, read_config
from .checks import check_critic, check_environment, check_settings, check_team, cluster_of
from .policies import device_of_policy, make_policies, writes_text
from .trainers import CriticSource, make_collector, make_trainer
from .without_effect import Setup, settings_without_effect

Kind = TypeVar("Kind", TrainConfig, ModelConfig, NetworkConfig)

MAX_DEFAULT_ENVS = 64
UNDO_SHARE = 1 / 6  # largest share of host memory for a copy of the state before an update
EVAL_EPISODES, LARGE_EVAL_EPISODES = 64, 8  # defaults of `eval_num_samples` for small and large models
LARGE = 50_000_000  # number of weights of a large model


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Settings that determine a run."""

    algorithm: str
    """Name of a registered algorithm."""
    config: TrainConfig
    """Settings of the algorithm; an instance of its config class."""
    env: str
    """Id of a registered environment."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the environment."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Language models, if actions are text."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """Perceptrons, if actions are vectors."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "env", versioned(self.env))  # config.json stores the id with its version

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Experiment:
        """Make an experiment from a config.json. Raises `UserError` for invalid files."""
        refuse_parts(saved)
        return cls(
            algorithm=saved["algorithm"],
            config=_settings(algorithm_spec(saved["algorithm"]).config, saved["config"]),
            env=saved["env"],
            env_kwargs=saved["env_kwargs"],
            model=_settings(ModelConfig, saved["model"]),
            network=_settings(NetworkConfig, saved["network"]),
        )

    @property
    def team_model(self) -> ModelConfig:
        """Settings of the language models. The environment has defaults for `max_new_tokens` and the model "tiny"."""
        known = spec(self.env)
        names = [known.start or TINY if name == TINY else name for name in self.model.model.split(",")]
        limit = self.model.max_new_tokens or known.max_new_tokens
        return replace(self.model, model=",".join(names), max_new_tokens=limit)

    @property
    def num_envs(self) -> int:
        return self.config.num_envs or min(self.make_algorithm().max_parallel_episodes, MAX_DEFAULT_ENVS)

    def make_algorithm(self) -> Algorithm[Any]:
        """Make the algorithm. Raises `ValueError` if settings contradict each other or are of another algorithm."""
        spec = algorithm_spec(self.algorithm)
        if not isinstance(self.config, spec.config):
            raise ValueError(
                f"{self.algorithm!r} takes settings of class {spec.config.__name__}, got {type(self.config).__name__}"
            )
        return spec.make(self.config)

    def env_kwargs_of(self, split: str) -> dict[str, Any]:
        """Return the environment's arguments. Adds `split` if it is not "train" and the constructor accepts it."""
        takes_split = split != "train" and "split" in inspect.signature(spec(self.env).constructor()).parameters
        return dict(self.env_kwargs) | ({"split": split} if takes_split else {})

    def make_env(self, split: str = "train") -> ParallelEnv[str, Any, Any]:
        return make(self.env, **self.env_kwargs_of(split))

    def make_vector(self, split: str, num_envs: int, *, has_shares: bool = False) -> VectorEnv:
        """Make environment copies, in this process or in worker processes.

        With `has_shares`, text environments report each agent's share of the return in `infos` (see `wrappers.Shares`).
        """
        # A partial, because an environment's arguments may have the same names as the vector's.
        algorithm = self.make_algorithm()
        has_shares |= algorithm.reads_shares and split == "train"
        build = partial(wrapped_env, spec(self.env), self.env_kwargs_of(split), algorithm.reads_truth, has_shares)
        config = self.config
        if config.num_workers:
            return ProcessVector(build, num_envs, num_workers=config.num_workers, timeout_s=config.timeout_s)
        return SyncVector(build, num_envs)

    def check(self) -> None:
        self._checked()

    def resolved(self) -> Experiment:
        """Return the experiment with defaults set that depend on the environment and on the size of the models."""
        config = self.config
        if config.credited_reward is None:
            with closing(self.make_env()) as env:
                config = self.make_algorithm().resolved(declared_interests(env)).config
        if config.eval_num_samples is None:
            config = replace(config, eval_num_samples=LARGE_EVAL_EPISODES if self._is_large else EVAL_EPISODES)
        return replace(self, config=config)

    @property
    def _is_large(self) -> bool:
        names = [name for name in self.team_model.model.split(",") if named_policy(name) is None]
        return max((shape_of(name).num_weights for name in names), default=0) > LARGE

    def notices(self, named: Collection[str] = ()) -> list[str]:
        """Return lines about settings without effect (see `settings_without_effect`), adapters, and the rollouts."""
        with closing(self.make_env()) as env:
            setup = Setup(self.make_algorithm(), self.model, self.network, env, self.num_envs)
            lines = start_lines(self.team_model) if writes_text(env) else []
            if writes_text(env) and self._is_large:
                config, length = self.config, self.team_model.max_new_tokens or MAX_NEW_TOKENS
                num_replies = len(env.possible_agents) * (declared_turn_limit(env) or 1)
                first = f"evaluation{' before update 1' if config.eval_on_start else ''}"
                lines.append(
                    f"{first}: 2 x {config.eval_num_samples} episodes, sampled and greedy; each update: "
                    f"{config.rollout_buffer_size} episodes; each episode: at most {num_replies} replies of {length} "
                    f"tokens. To play less: {'--no-eval-on-start, or ' if config.eval_on_start else ''}smaller "
                    "--eval-num-samples, --rollout-buffer-size, --max-new-tokens"
                )
            return settings_without_effect(setup, named) + lines

    def task(self) -> TrainingSize:
        with closing(self.make_env()) as env:
            return _task(env, self.config.seed)

    def _checked(self) -> Experiment:
        """Check all settings before models are loaded. Return the experiment with the memory plan's limits."""
        algorithm = self.make_algorithm()
        check_settings(algorithm, self.model)
        with closing(self.make_env()) as env:
            check_team(env, self.team_model, self.config.seed, self.network.images)
            agent_learning_rates(self.config, env.possible_agents)
            check_environment(algorithm, env, self.model)
            task = _task(env, self.config.seed) if writes_text(env) else None
        self.make_env("test").close()  # the test tasks must exist before training
        check_critic(algorithm, is_text=task is not None)
        if task is None:
            return self
        devices = [canonical(name) for name in self.model.devices(len(task.agents))]
        model = replace(self.team_model, device=",".join(devices))
        found = current().agreed(check_fit(algorithm, model, task, _room))
        check_host(found.plans, _room("cpu"))
        return replace(
            self,
            model=replace(self.model, recomputes_activations=found.recomputes, kv_memory=found.kv_memory),
            config=replace(self.config, max_batch_tokens=found.max_tokens or self.config.max_batch_tokens),
        )

    def make_trainer(
        self,
        *,
        policies: Mapping[str, Policy] | None = None,
        critics: CriticSource | None = None,
        reward_processor: RewardProcessor | None = None,
        start: StartingWeights | None = None,
    ) -> Trainer:
        """Load the models and assemble the trainer.

        Args:
            policies: dict with agents as keys; these policies replace the policies of the settings.
            critics: critics or a factory of critics, which replace the critics of the settings.
            reward_processor: function that is applied to every reward before learning.
            start: starting weights. They replace the models' weights.
        """
        checked = self._checked()
        # The memory plan does not apply to policies that are passed as objects.
        experiment = checked if policies is None else self
        algorithm = experiment.make_algorithm()
        config = experiment.config
        worker = None
        num_envs = experiment.num_envs
        if config.collectors is not None:
            if policies is not None:
                raise ValueError(
                    f"collectors={config.collectors!r} make policies from the settings, but policies were given as "
                    "objects; register each policy (collm.register_policy), and set model to the registered name"
                )
            blueprint = Blueprint.of(experiment, max(1, -(-num_envs // config.num_collectors)))
            worker = partial(RayWorker, blueprint, cluster_of(config))
            num_envs = 1 if not algorithm.crosses_rollouts else num_envs
        vector, policies = experiment._made_team(algorithm, num_envs, policies)
        if start is not None:
            start.give_policies(policies)  # before the reference policies are copied from these policies
        rewarder = None
        if config.reward_model is not None:
            learning = [policy for policy in policies.values() if isinstance(policy, TrainablePolicy)]
            device = device_of_policy(learning[0]) if learning else "cpu"
            computes = learning[0].compute_dtype if learning else None
            judge = RewardModel.load(where_of(config.reward_model), device, computes)
            rewarder = ModelRewards(judge, config.reward_model_pays)
        trainer = make_trainer(
            algorithm,
            vector,
            policies,
            critics=critics,
            network=experiment.network,
            rewarder=rewarder,
            reward_processor=reward_processor,
            worker=worker,
        )
        trainer.undo_bytes = int(UNDO_SHARE * _room("cpu"))
        if start is not None:
            start.give_critics(trainer.unique_critics)
        return trainer

    def make_collector(self, num_envs: int) -> RolloutCollector:
        algorithm = self.make_algorithm()
        vector, policies = self._made_team(algorithm, num_envs)
        return make_collector(algorithm, vector, policies, is_judged=self.config.reward_model is not None)

    def _made_team(
        self, algorithm: Algorithm[Any], num_envs: int, given: Mapping[str, Policy] | None = None
    ) -> tuple[VectorEnv, dict[str, Policy]]:
        vector = self.make_vector("train", num_envs)
        policies = make_policies(algorithm, vector, self.team_model, self.network, given)
        if self.config.deterministic:
            fix_shapes(policies)
        return vector, policies


@dataclass(frozen=True)
class Blueprint:
    """Picklable factory of a run's collector, for other processes, with the registrations of this process."""

    experiment: Experiment
    num_envs: int
    env: EnvSpec | None
    algorithm: AlgorithmSpec
    policies: Mapping[str, PolicySpec]

    @classmethod
    def of(cls, experiment: Experiment, num_envs: int) -> Blueprint:
        named = {name: registered_policy(name) for name in experiment.model.model.split(",")}
        return cls(
            experiment,
            num_envs,
            registry.get(experiment.env),
            algorithm_spec(experiment.algorithm),
            {name: policy for name, policy in named.items() if policy is not None},
        )

    def __call__(self) -> RolloutCollector:
        if self.env is not None:
            registry.setdefault(self.env.id, self.env)
        algorithm = self.algorithm
        register_algorithm(
            algorithm.name, algorithm.entry_point, algorithm.config, summary=algorithm.summary, replace=True
        )
        for name, policy in self.policies.items():
            register_policy(name, policy.make, load=policy.load, replace=True)
        return self.experiment.make_collector(self.num_envs)


def refuse_parts(saved: Mapping[str, Any]) -> None:
    """Raise `UserError` if a config.json lacks a part of an experiment, or a part has a wrong type."""
    kinds = {"algorithm": str, "config": dict, "env": str, "env_kwargs": dict, "model": dict, "network": dict}
    for name, kind in kinds.items():
        if name not in saved:
            raise UserError(f"the run's config.json has no {name!r}; give the folder of a run of `collm train`")
        if not isinstance(saved[name], kind):
            expected = "text" if kind is str else "an object"
            raise UserError(f"the run's config.json has {name}={saved[name]!r:.80}; {name} must be {expected}")


def fix_shapes(policies: Mapping[str, Policy]) -> None:
    """Make policies deterministic for any batch size. Raises `ValueError` if a policy does not support this."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # PyTorch reads it when it first uses a CUDA device
    torch.use_deterministic_algorithms(True)
    # No result depends on uninitialized memory, and filling it costs time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # set by a property
    for policy in {id(policy): policy for policy in policies.values()}.values():
        policy.fix_shapes()


def _task(env: ParallelEnv[str, Any, Any], seed: int) -> TrainingSize:
    observations = env.reset(seed=seed)[0].values()
    letters = max((len(each.encode()) for each in observations if isinstance(each, str)), default=0)
    return TrainingSize(
        agents=tuple(env.possible_agents),
        prompt_letters=letters,
        max_turns=env.max_turns if isinstance(env, TextParallelEnv) else 1,
        num_ranks=current().size,
    )


def _room(device: str) -> int:
    found = torch.device(device)
    return capacity(found) // ranks_on(found)


def _settings(kind: type[Kind], saved: Mapping[str, Any]) -> Kind:
    for name in sorted(saved.keys() - settings_of(kind).keys()):
        raise UserError(
            f"the run's config.json has the setting {name}={saved[name]!r:.80}, which is not in {kind.__name__}; load "
            "the run with the version of collm that wrote it"
        )
    # JSON has no tuples; settings have no lists.
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()}
    (sorted_values,) = sorted_out(values, [kind], "the run's config.json")
    return kind(**sorted_values)


def for_chat(experiment: Experiment, resumed: Path | None = None) -> tuple[Experiment, list[str]]:
    """Adapt an experiment to models with chat templates. Return it with notices for the user.

    If all models are chat models, the environment explains itself (`is_explained`). Templates that print today's date
    get a fixed date. A run in the folder `resumed` keeps its prompts.
    """
    model = experiment.team_model
    encoders = chat_encoders(model)
    notices = chat_lines(model, encoders)
    is_chat = all(name in encoders or name.startswith(CHAT) for name in model.model.split(","))
    if not encoders and not is_chat:
        return experiment, []
    with closing(experiment.make_env()) as env:
        if not writes_text(env):
            return experiment, []
        has_turns = not isinstance(env, TextParallelEnv) or env.max_turns > 1
    saved = read_config(resumed) if resumed is not None and (resumed / CONFIG_FILE).is_file() else None
    is_kept = saved is not None and "is_explained" not in saved["env_kwargs"]
    if is_chat and not is_kept:
        experiment = replace(experiment, env_kwargs=with_explanation(experiment.env, experiment.env_kwargs))
    for name, encoder in encoders.items():
        if not encoder.keeps_history and model.history_tokens == "extended" and has_turns:
            notices.append(
                f"the chat template of {name!r} renders earlier replies in another form, for example without thoughts; "
                "prompts keep the sampled tokens (history_tokens='rewritten': as the template renders them)"
            )
    if any(encoder.template and encoder.template.prints_date for encoder in encoders.values()):
        day = datetime.now().date().isoformat() if saved is None else saved["model"]["template_kwargs"][DATE]
        notices.append(f"a chat template prints the date: {day} in the whole run (template_kwargs {DATE})")
        arguments = {**experiment.model.template_kwargs, DATE: day}
        experiment = replace(experiment, model=replace(experiment.model, template_kwargs=arguments))
    return experiment, notices


def with_partners(experiment: Experiment, partners: Mapping[str, str]) -> Experiment:
    """Return the experiment with partners, which are agents that do not learn.

    `partners` maps an agent to "reference", "random", "empty", a partner of the environment, or the folder of a frozen
    model. Raises `UserError` if an agent does not exist, no agent would learn, or a partner is for tests only.
    """
    with closing(experiment.make_env()) as env:
        agents = list(env.possible_agents)
        players = [*PLAYERS, *partners_of(env)]
    if held_out := [name for name in partners.values() if name in players and name.endswith(HELD_OUT)]:
        raise UserError(f"the partner {held_out[0]!r} is for tests only; choose one of {', '.join(players)}")
    if unknown := [agent for agent in partners if agent not in agents]:
        raise UserError(f"there is no agent {unknown[0]!r} for a partner; the agents are {', '.join(agents)}")
    if len(partners) == len(agents):
        raise UserError(f"all agents ({', '.join(agents)}) have partners, so no agent learns; leave out a partner")
    scripted = {agent: name for agent, name in partners.items() if name in players}
    frozen = {agent: name for agent, name in partners.items() if name not in players}
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
