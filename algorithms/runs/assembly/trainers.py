"""An algorithm, environments and policies → collector and trainer, whoever made the policies.

The trainer treats language models and perceptrons alike, and so what a user registers or passes as objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any

from ....agents.core import Policy, TrainablePolicy
from ....agents.loading import device_named
from ....agents.numeric.config import NetworkConfig
from ....envs.vectors.vector import VectorEnv
from ...algorithm import Algorithm
from ...distribution.group import current
from ...learning.rewards import Rewarder, RewardProcessor
from ...learning.trainer import Trainer
from ...rollout.collector import RolloutCollector
from ...rollout.side_by_side import SideBySide
from ...rollout.sources import LocalWorker, RolloutWorker
from .critics import CriticSource, make_critics


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
    """Assemble a trainer: a collector on the environments, the critics that the algorithm reads, references.

    Args:
        algorithm: the algorithm to train with.
        vector: copies of the training environment.
        policies: policy of each agent; trainable ones learn, others only play.
        critics: objects or a factory, in place of those that the settings name.
        network: widths of perceptron critics, for vector observations.
        rewarder: replaces the episodes' rewards, as by a reward model's; needs the joint histories.
        reward_processor: applied to every reward before learning.
        worker: makes the worker that plays the episodes with copies of the policies. None: the policies themselves
            play, or with `max_staleness` copies of them in this process.
    """
    config = algorithm.config
    is_judged = rewarder is not None
    collector = make_collector(algorithm, vector, policies, is_judged=is_judged)
    if worker is None and config.max_staleness:
        worker = partial(_local_worker, algorithm, vector, policies, is_judged)
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
        worker=worker() if worker is not None and current().is_writer else None,
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
        side_by_side=SideBySide.of(config),
    )


def _local_worker(
    algorithm: Algorithm[Any], vector: VectorEnv, policies: Mapping[str, Policy], is_judged: bool
) -> RolloutWorker:
    """A worker with copies of the policies, in the trainer's environments, which the trainer then does not step."""
    return LocalWorker(make_collector(algorithm, vector, deepcopy(dict(policies)), is_judged=is_judged))
