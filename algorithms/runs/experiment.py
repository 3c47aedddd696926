"""An experiment: names and settings → environment, policies, critics, trainer."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.utils.deterministic
from pettingzoo import ParallelEnv

from ..._cluster import Cluster
from ..._errors import UserError
from ...agents.config import BAG_OF_WORDS, CHAT, ModelConfig
from ...agents.core import Policy, TrainablePolicy
from ...agents.language.files import check_critic_model, check_reward_model
from ...agents.language.reward_model import RewardModel
from ...agents.loading import check_device, where_of
from ...agents.numeric.config import NetworkConfig
from ...agents.registry import PolicySpec, register_policy, registered_critic, registered_policy
from ...envs.core import TextParallelEnv
from ...envs.registration.registry import EnvSpec, make, registry, spec
from ...envs.vectors.hosts import HostVector
from ...envs.vectors.processes import ProcessVector
from ...envs.vectors.vector import SyncVector, VectorEnv
from ...envs.views import with_truth
from ...envs.wrappers import Shares
from ..algorithm import Algorithm
from ..config import TrainConfig
from ..distribution.group import current
from ..distribution.launch import ranks_on
from ..learning.curriculum import check_curriculum
from ..learning.passes import tokens_per_pass
from ..learning.preferences import ModelRewards
from ..learning.shaping import RewardProcessor
from ..learning.trainer import Trainer, agent_learning_rates
from ..memory.devices import capacity
from ..memory.fitting import Task, canonical, check_fit
from ..registry import AlgorithmSpec, algorithm_spec, register_algorithm
from ..rollout.actors import Actors
from ..rollout.collector import RolloutCollector
from ..rollout.verification import Verifier
from .files import CONFIG_FILE, read_config
from .starting import StartingWeights
from .teams import CriticSource, check_team, device_of_policy, make_collector, make_policies, make_trainer, writes_text

Kind = TypeVar("Kind", TrainConfig, ModelConfig, NetworkConfig)

MAX_DEFAULT_ENVS = 64


class UntrustedCodeError(UserError):
    """A run directory names code to import or a server to send a key to, and nobody said that it is trusted."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Settings that determine a run."""

    algorithm: str
    """Name of a registered algorithm."""
    config: TrainConfig
    """Settings of the algorithm, of its own class."""
    env: str
    """Id of a registered environment."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the environment."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Language models, where agents write."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """Perceptrons, where agents act by vectors."""

    def to_json(self) -> dict[str, Any]:
        """The experiment as config.json holds it."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Experiment:
        """The experiment that `to_json` wrote.

        Raises:
            UnknownAlgorithmError: if the package that registers its algorithm is neither imported nor installed.
            UserError: if a setting is missing, unknown to this version, or out of its range.
        """
        _refuse_parts(saved)
        return cls(
            algorithm=saved["algorithm"],
            config=_settings(algorithm_spec(saved["algorithm"]).config, saved["config"]),
            env=saved["env"],
            env_kwargs=saved["env_kwargs"],
            model=_settings(ModelConfig, _with_tuples(saved["model"])),
            network=_settings(NetworkConfig, _with_tuples(saved.get("network", {}))),
        )

    @property
    def team_model(self) -> ModelConfig:
        """Settings of the language models, with the environment's length of replies where they name none."""
        return self.model if self.model.max_new_tokens else replace(self.model, max_new_tokens=reply_limit(self.env))

    def make_algorithm(self) -> Algorithm[Any]:
        """The algorithm with its settings.

        Raises:
            UnknownAlgorithmError: if there is no such algorithm.
            ValueError: if its settings contradict each other, or belong to another algorithm.
        """
        spec = algorithm_spec(self.algorithm)
        if not isinstance(self.config, spec.config):
            raise ValueError(
                f"{self.algorithm!r} takes settings of the class {spec.config.__name__}, got a "
                f"{type(self.config).__name__}"
            )
        return spec.make(self.config)

    def env_kwargs_of(self, split: str) -> dict[str, Any]:
        """Arguments of the environment, with the split where the environment has splits."""
        takes_split = "split" in inspect.signature(spec(self.env).constructor()).parameters
        return dict(self.env_kwargs) | ({"split": split} if takes_split else {})

    def make_env(self, split: str = "train") -> ParallelEnv[str, Any, Any]:
        """One environment, on the tasks of a split."""
        return make(self.env, **(self.env_kwargs_of(split) if split != "train" else self.env_kwargs))

    def make_vector(self, split: str, num_envs: int, *, has_shares: bool = False) -> VectorEnv:
        """Environment copies on the tasks of a split, in this process, in worker processes or on hosts.

        Args:
            split: of the environment's tasks.
            num_envs: copies.
            has_shares: tell each agent's share of the return in the infos, where agents write; see
                `collm.envs.wrappers.Shares`.
        """
        kwargs = self.env_kwargs_of(split) if split != "train" else dict(self.env_kwargs)
        # Bound here, as an environment's arguments may have the same names as the vector's own.
        build = partial(_made, spec(self.env), kwargs, self.make_algorithm().reads_truth, has_shares)
        config = self.config
        if config.env_hosts is not None:
            return HostVector(
                build,
                num_envs,
                address=config.env_hosts,
                num_hosts=config.num_env_hosts,
                files=config.collector_files,
                timeout_s=config.timeout_s,
            )
        if config.num_workers:
            return ProcessVector(build, num_envs, num_workers=config.num_workers, timeout_s=config.timeout_s)
        return SyncVector(build, num_envs)

    def check(self) -> None:
        """Refuse settings that would fail later, before a model is loaded."""
        self._checked()

    def task(self) -> Task:
        """What the environment says of the training's size."""
        env = make(self.env, **self.env_kwargs)
        try:
            return _task(env, self.config.seed)
        finally:
            env.close()

    def _checked(self) -> Experiment:
        """The experiment with what is left to the memory plan filled in."""
        algorithm = self.make_algorithm()
        _check_workers(self.config)
        _check_collecting(self.config, self.model)
        _check_devices(algorithm, self.model)
        _check_deterministic(self.config, self.model)
        _check_fsdp(algorithm, self.model)
        env = make(self.env, **self.env_kwargs)
        try:
            check_team(env, self.team_model, self.config.seed, self.network.images)
            agent_learning_rates(self.config, env.possible_agents)
            _check_joint_mode(algorithm, env)
            _check_reward_model(algorithm, env)
            check_curriculum(self.config.difficulty_schedule, env.metadata)
            _check_filters(algorithm, env, self.model)
            if algorithm.reads_truth:
                with_truth(env)
            task = _task(env, self.config.seed) if writes_text(env) else None
        finally:
            env.close()
        make(self.env, **self.env_kwargs_of("test")).close()  # evaluation comes late; its tasks must be there now
        if algorithm.critic_reads != "nothing":
            critic: str = algorithm.config.critic_model_name_or_path
            if critic == BAG_OF_WORDS and task is None:
                raise ValueError(
                    f"critic_model_name_or_path={BAG_OF_WORDS!r} reads texts, but these agents observe vectors; leave "
                    "it out"
                )
            is_new = critic in ("small", BAG_OF_WORDS)
            if algorithm.config.critic_lora_rank is not None and (is_new or algorithm.has_actor_heads):
                raise ValueError(
                    "critic_lora_rank puts adapters on a pretrained critic, but this one is small and learns whole; "
                    "name a model in critic_model_name_or_path, or leave critic_lora_rank out"
                )
            if critic not in ("small", "actor", BAG_OF_WORDS) and registered_critic(critic) is None:
                check_critic_model(where_of(critic))
        return self if task is None else self._fitted(algorithm, task)

    def _fitted(self, algorithm: Algorithm[Any], task: Task) -> Experiment:
        model = replace(
            self.team_model, device=",".join(canonical(name) for name in self.model.devices(len(task.agents)))
        )
        found = current().agreed(check_fit(algorithm, model, task, _room))
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
            policies: policies by agent, in place of those that the settings name.
            critics: objects or a factory, in place of those that the settings name.
            reward_processor: applied to every reward before learning.
            start: weights to begin with, in place of the models'.
        """
        if policies is None:
            return self._checked()._trainer(None, critics, reward_processor, start)
        self.check()
        return self._trainer(policies, critics, reward_processor, start)

    def _trainer(
        self,
        policies: Mapping[str, Policy] | None,
        critics: CriticSource | None,
        reward_processor: RewardProcessor | None,
        start: StartingWeights | None,
    ) -> Trainer:
        algorithm = self.make_algorithm()
        config = self.config
        players = None
        num_envs = config.num_envs or min(config.rollout_buffer_size, MAX_DEFAULT_ENVS)
        if config.collectors is not None:
            if policies is not None:
                raise ValueError(
                    f"collectors={config.collectors!r} make the policies that the settings name, but some are given as "
                    "objects; register them by name (collm.register_policy), and give that as the model"
                )
            players = partial(self._actors, num_envs)
            num_envs = 1 if not algorithm.crosses_rollouts else num_envs
        vector = self.make_vector("train", num_envs, has_shares=config.log_shares)
        policies = make_policies(algorithm, vector, self.team_model, self.network, policies)
        if config.deterministic:
            fix_shapes(policies)
        if start is not None:
            start.give_policies(policies)  # before references are made of them
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
            network=self.network,
            rewarder=rewarder,
            reward_processor=reward_processor,
            players=players,
        )
        if start is not None:
            start.give_critics(trainer.unique_critics())
        return trainer

    def make_collector(self, num_envs: int) -> RolloutCollector:
        """A collector of training episodes, with models and environments of its own."""
        algorithm = self.make_algorithm()
        vector = self.make_vector("train", num_envs, has_shares=self.config.log_shares)
        policies = make_policies(algorithm, vector, self.team_model, self.network)
        if self.config.deterministic:
            fix_shapes(policies)
        return make_collector(algorithm, vector, policies, is_judged=self.config.reward_model is not None)

    def _actors(self, num_envs: int) -> Actors:
        config = self.config
        blueprint = Blueprint.of(self, max(1, -(-num_envs // config.num_collectors)))
        judge = Verifier(self.make_collector(1), config.verify_share) if config.verify_share else None
        return Actors(blueprint, cluster_of(config), judge)


@dataclass(frozen=True)
class Blueprint:
    """What another process makes a run's collector of: its settings, and what only this process has registered."""

    experiment: Experiment
    num_envs: int
    env: EnvSpec | None
    algorithm: AlgorithmSpec
    policies: Mapping[str, PolicySpec]

    @classmethod
    def of(cls, experiment: Experiment, num_envs: int) -> Blueprint:
        """The blueprint of an experiment, with so many environment copies."""
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


def cluster_of(config: TrainConfig) -> Cluster:
    """The cluster whose actors play a run's episodes."""
    assert config.collectors is not None  # who asks has looked
    return Cluster(
        address=config.collectors,
        num_actors=config.num_collectors,
        num_cpus=config.collector_cpus,
        num_gpus=config.collector_gpus,
        files=config.collector_files,
    )


def load_experiment(directory: Path, *, trust: bool = False) -> Experiment:
    """The experiment of a run directory.

    Args:
        directory: folder of a run, one's own or somebody else's.
        trust: let its settings name code to import.

    Raises:
        FileNotFoundError, ValueError: if the folder holds no run, or settings that are damaged.
        UntrustedCodeError: if its environment is no registered one but "package.module:name", or if a chat server that
            it names would be sent a key.
    """
    saved = read_config(directory)
    _refuse_parts(saved)
    if not trust and names_code(saved["env"], saved["env_kwargs"]):
        raise UntrustedCodeError(
            f"{directory / CONFIG_FILE} names the environment {saved['env']!r} with {dict(saved['env_kwargs'])}, which "
            "imports and runs code that is not registered; if you trust this folder, say so: --trust (trust=True)"
        )
    if not trust and sends_key(saved.get("model")):
        raise UntrustedCodeError(
            f"{directory / CONFIG_FILE} sends the key in the environment variable {saved['model']['chat_key']!r} to "
            f"the chat server of {saved['model']['model']!r}; if you trust this folder, say so: --trust (trust=True)"
        )
    return Experiment.from_json(saved)


def _refuse_parts(saved: Mapping[str, Any]) -> None:
    missing = [name for name in ("algorithm", "config", "env", "env_kwargs", "model") if name not in saved]
    if missing:
        raise UserError(f"the run's config.json has no {missing[0]!r}; give the folder of a run of `collm train`")


def sends_key(model: object) -> bool:
    """Whether saved settings of models would send what an environment variable holds to a server that they name."""
    return isinstance(model, Mapping) and model.get("chat_key") is not None and CHAT in str(model.get("model"))


def reply_limit(env: str) -> int | None:
    """Tokens of a reply that an environment declares; None where it declares none."""
    return spec(env).max_new_tokens


def names_code(env: str, env_kwargs: Mapping[str, Any]) -> bool:
    """Whether making an environment would import what its id or arguments say, in place of what is registered."""
    judges = env_kwargs.get("reward_funcs") or ()
    if any(":" in str(each) for each in (judges.values() if isinstance(judges, Mapping) else judges)):
        return True
    if env in registry:
        return False
    # An argument "env" would take the place of the id of Gymnasium's, and may name a module to import.
    return ":" in env or ":" in str(env_kwargs.get("env", ""))


def fix_shapes(policies: Mapping[str, Policy]) -> None:
    """Let policies and torch compute every number in one order, whatever is computed beside it.

    Raises:
        ValueError: if a policy cannot.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when a CUDA device is first used
    torch.use_deterministic_algorithms(True)
    # What is not read need not be filled.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # set by a property
    for policy in {id(policy): policy for policy in policies.values()}.values():
        policy.fix_shapes()


def _made(env: EnvSpec, kwargs: Mapping[str, Any], is_privileged: bool, has_shares: bool) -> ParallelEnv[str, Any, Any]:
    made = make(env, **kwargs)
    if is_privileged:
        made = with_truth(made)
    # Of environments of others nobody knows whether a copy plays as the original does.
    return Shares(made) if has_shares and isinstance(made.unwrapped, TextParallelEnv) else made


def _task(env: ParallelEnv[str, Any, Any], seed: int) -> Task:
    observations = env.reset(seed=seed)[0].values()
    letters = max((len(each.encode()) for each in observations if isinstance(each, str)), default=0)
    return Task(
        agents=tuple(env.possible_agents),
        prompt_letters=letters,
        max_turns=env.max_turns if isinstance(env, TextParallelEnv) else 1,
        num_ranks=current().size,
    )


def _room(device: str) -> int:
    """Bytes that this rank may take of a device."""
    place = torch.device(device)
    return capacity(place) // ranks_on(place)


def _check_reward_model(algorithm: Algorithm[Any], env: ParallelEnv[str, Any, Any]) -> None:
    config = algorithm.config
    if config.reward_model is None:
        if config.reward_model_pays != "end":
            raise ValueError(f"reward_model_pays={config.reward_model_pays!r} does nothing without a reward_model")
        return
    if not writes_text(env):
        raise ValueError(f"reward_model={config.reward_model!r} judges texts, but these agents act by vectors")
    if algorithm.crosses_rollouts:
        raise ValueError(
            "joint_mode='cross' has the environment score every joint action, whose rewards a reward_model replaces; "
            "use joint_mode='aligned'"
        )
    if algorithm.reads_truth:
        raise ValueError(
            f"critic_input='privileged' would show reward_model={config.reward_model!r} what is hidden too, as "
            "both read the same history; use critic_input='joint'"
        )
    check_reward_model(where_of(config.reward_model))


def _check_filters(algorithm: Algorithm[Any], env: ParallelEnv[str, Any, Any], model: ModelConfig) -> None:
    filters = {
        name: value for name, value, off in (("top_p", model.top_p, 1), ("top_k", model.top_k, 0)) if value != off
    }
    if filters and not (algorithm.has_baseline or model.learns_filtered) and writes_text(env):
        given = ", ".join(f"{name}={value}" for name, value in filters.items())
        raise ValueError(
            f"{given} draws from another distribution than {type(algorithm).__name__} learns, and without a baseline "
            "its gradient points elsewhere; use learns_filtered=True, or top_p=1 and top_k=0"
        )


def _check_workers(config: TrainConfig) -> None:
    if config.timeout_s is not None and not config.num_workers and config.env_hosts is None:
        raise ValueError(
            f"timeout_s={config.timeout_s:g} needs num_workers of at least 1, or env_hosts: a turn in this process "
            "cannot be stopped"
        )
    if config.env_hosts is None:
        return
    others = {"num_workers": config.num_workers, "collectors": config.collectors}
    for name, value in others.items():
        if value:
            raise ValueError(
                f"env_hosts={config.env_hosts!r} step the environment copies, but {name}={value!r} do so too; leave "
                "one of them out"
            )
    Cluster(address=config.env_hosts, files=config.collector_files).check()


def _check_collecting(config: TrainConfig, model: ModelConfig) -> None:
    if (config.max_staleness or config.collectors) and model.server is not None:
        asked = f"collectors={config.collectors!r}" if config.collectors else f"max_staleness={config.max_staleness}"
        raise ValueError(
            f"{asked} plays with copies of the models, but server={model.server!r} holds one version of them; leave "
            "one of them out"
        )
    if model.server is not None and current().size > 1 and model.server_weights != "folder":
        raise ValueError(
            f"server_weights={model.server_weights!r} sends whole weights of one process, but {current().size} ranks "
            "train; use server_weights='folder', or train in one process"
        )
    if model.server_logprobs == "server" and config.importance_cap is None and config.clip_range is None:
        raise ValueError(
            "server_logprobs='server' are for importance weights, which importance_cap=None turns off; set "
            "importance_cap (2 is usual), or leave one of them out"
        )
    if config.collectors is not None:
        cluster_of(config).check()
        if config.turns_per_update is not None:
            raise ValueError(
                f"turns_per_update={config.turns_per_update} goes on with episodes that are under way in one process, "
                f"but collectors={config.collectors!r} play whole ones; leave one of them out"
            )
    elif config.verify_share:
        raise ValueError(
            f"verify_share={config.verify_share:g} verifies what collectors play; name some, or leave it out"
        )


def _check_devices(algorithm: Algorithm[Any], model: ModelConfig) -> None:
    config = algorithm.config
    if config.reference_device is not None:
        check_device(config.reference_device)
        if model.weights == "adapters":
            raise ValueError(
                f"reference_device={config.reference_device!r} is for copies, but with weights='adapters' the base "
                "itself is the reference; leave it out"
            )
    critic_device = getattr(config, "critic_device", None)
    if critic_device is not None:
        check_device(critic_device)
        if algorithm.has_actor_heads:
            raise ValueError(
                f"critic_device={critic_device!r} is for separate critics, but these are heads on the actors; leave it "
                "out, or use use_separate_critic=True"
            )


def _check_fsdp(algorithm: Algorithm[Any], model: ModelConfig) -> None:
    """Refuse what shares of weights cannot be combined with; one process shares nothing."""
    config = algorithm.config
    if not config.fsdp or current().size == 1:
        return
    if config.offload == "learner":
        raise ValueError(
            "offload='learner' moves whole weights, but with fsdp=True ranks share them; use offload='moments', or none"
        )
    elsewhere = [
        f"{name}={value!r}"
        for name, value in (
            ("device", model.device if "," in model.device else None),
            ("critic_device", getattr(config, "critic_device", None)),
            ("reference_device", config.reference_device),
        )
        if value is not None
    ]
    if elsewhere:
        raise ValueError(
            f"with fsdp=True all models of a rank lie on its own device, but {', '.join(elsewhere)}; leave it out"
        )


def _check_deterministic(config: TrainConfig, model: ModelConfig) -> None:
    tokens_per_pass(config, torch.device("cpu"))
    if config.deterministic and model.server is not None:
        raise ValueError(
            f"deterministic=True needs models that sample in this process, but server={model.server!r} batches "
            "requests as they come; leave one of them out"
        )
    if config.deterministic and model.sampler == "continuous":
        raise ValueError(
            "deterministic=True needs sampler='arena', but sampler='continuous' rounds by what it batches; leave one "
            "of them out"
        )


def _check_joint_mode(algorithm: Algorithm[Any], env: ParallelEnv[str, Any, Any]) -> None:
    if algorithm.crosses_rollouts:
        max_turns = env.max_turns if isinstance(env, TextParallelEnv) else None
        if max_turns != 1:
            raise ValueError(
                f"joint_mode='cross' exchanges the completions of one prompt and needs a game of one turn, but this "
                f"environment has {max_turns or 'any number of'} turns; use joint_mode='aligned'"
            )


def _settings(kind: type[Kind], saved: Mapping[str, Any]) -> Kind:
    """Settings of a class, from a file."""
    known = {each.name for each in fields(kind)}
    if unknown := sorted(set(saved) - known):
        raise UserError(
            f"the run's config.json has the setting {unknown[0]!r}, which {kind.__name__} does not know: another "
            "version of collm wrote it; read the run with that one"
        )
    return kind(**saved)


def _with_tuples(saved: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no tuples; settings have no lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()}
