"""Search for settings with which a training fits into device memory. Used by `Experiment` and `collm doctor`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import AutoConfig

from ..._errors import UserError
from ...agents.batching import default_max_tokens
from ...agents.config import BAG_OF_WORDS, MAX_NEW_TOKENS, ModelConfig
from ...agents.core import Workplace
from ...agents.decoding.cpu import compiler, is_onednn_faster
from ...agents.language.compact_tokenizer import NUM_OWN_WORDS
from ...agents.language.model_files import adapter_settings, model_config
from ...agents.language.shape import FLOAT32, KNOWN, ModelShape, small_config
from ...agents.loading import device_named, named_policy, where_of
from ...agents.registry import registered_critic
from ..algorithm import Algorithm
from ..config import TrainConfig
from ..learning.optimizer import tokens_per_pass
from ..rollout.side_by_side import SideBySide
from .devices import GIB, USABLE_HOST
from .plan import Member, MemoryPlan, Work, kv_bytes, plan, within

MAX_CUT = 4  # Largest divisor of the tokens per pass before activations are recomputed, which takes a third more time
CHARS_PER_TOKEN = 3
EXACT_PINNED = "pinned_max_cached_size_mb"  # Option of PyTorch's allocator: larger pinned tensors have exact sizes
Capacity = Callable[[str], int]  # Bytes that a training can use on the device with this name


class NoRoom(UserError):
    """Error for a training that does not fit into the memory of its devices."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Options with which a training fits into memory, and the memory plan of each device."""

    recomputes: bool
    max_tokens: int | None  # Tokens per pass. None: the device's default.
    plans: Mapping[str, MemoryPlan]
    kv_memory: float | None  # KV-cache memory per model in GiB. None: no limit.


@dataclass(frozen=True, slots=True)
class TrainingSize:
    agents: tuple[str, ...]
    prompt_letters: int  # Length of the longest first prompt of an agent, in characters
    max_turns: int
    num_ranks: int = 1  # Number of processes that train together

    def row_length(self, model: ModelConfig) -> int:
        """Estimate the tokens of the longest sequence. Observations are assumed to be as long as completions."""
        return self.prompt_letters // CHARS_PER_TOKEN + self.later_length(model)

    def later_length(self, model: ModelConfig) -> int:
        """Estimate the tokens of the longest sequence after its first prompt."""
        return (2 * self.max_turns - 1) * (model.max_new_tokens or MAX_NEW_TOKENS)


def members_of(algorithm: Algorithm[Any], model: ModelConfig, task: TrainingSize) -> dict[str, list[Member]]:
    """Return the language models of a training per device. Registered policies, whose size is unknown, are omitted."""
    config = algorithm.config
    agents = task.agents
    num_shares = task.num_ranks if config.fsdp else 1
    compute = FLOAT32 if model.compute_dtype == "float32" else 2
    named = dict(zip(agents, zip(model.names(len(agents)), model.devices(len(agents)), strict=True), strict=True))
    named = {agent: pair for agent, pair in named.items() if named_policy(pair[0]) is None}
    found: dict[str, list[Member]] = {}
    if not named:
        return found
    has_reference = config.reference_kl_coef > 0
    place = config.reference_device
    for group in [list(named)] if model.weights != "own" else [[agent] for agent in named]:
        name, device = named[group[0]]
        is_adapted = model.weights == "adapters"
        member = Member(
            name=", ".join(group),
            shape=shape_of(name),
            compute=compute,
            num_adapters=len(group) if is_adapted else 0,
            rank=_adapter_rank(name, model) if is_adapted else 0,
            num_agents=len(group),
            has_reference=has_reference and place is None,
            num_shares=num_shares,
            is_served=model.server is not None,
        )
        found.setdefault(device, []).append(member)
        if config.max_staleness and config.collectors is None:
            player = replace(member, name=f"copy of {member.name} that plays", learns=False, has_reference=False)
            found[device].append(player)
        if has_reference and place is not None:
            copy = replace(member, name=f"reference of {member.name}", num_agents=0, learns=False)
            found.setdefault(place, []).append(copy)
    first_name, first_device = next(iter(named.values()))
    if algorithm.critic_reads != "nothing" and not algorithm.has_actor_heads:
        shape = _critic_shape(config.critic_model_name_or_path, first_name)
        is_one = algorithm.critic_reads == "joint" or model.weights == "shared"
        places = {f"critic of {agent}": device for agent, (_, device) in named.items()}
        for label, device in ({"critic": first_device} if is_one else places).items():
            if shape is not None:
                critic = Member(name=label, shape=shape, compute=compute, num_agents=0, num_shares=num_shares)
                found.setdefault(config.critic_device or device, []).append(critic)
    if config.reward_model is not None:
        shape = shape_of(config.reward_model).backbone()
        judge = Member(name="reward model", shape=shape, compute=compute, num_agents=0, learns=False)
        found.setdefault(first_device, []).append(judge)
    return found


def _adapter_rank(name: str, model: ModelConfig) -> int:
    """Return the rank of new adapters, or of the saved adapter that a training continues."""
    settings = None if name in KNOWN else adapter_settings(where_of(name))
    return model.lora_rank if settings is None else int(settings["r"])


def shape_of(name: str) -> ModelShape:
    try:
        where = where_of(name)
    except FileNotFoundError:
        if name not in KNOWN:
            raise
        return ModelShape.of(AutoConfig.for_model(**KNOWN[name]))
    return ModelShape.of(model_config(where))


def fit(algorithm: Algorithm[Any], model: ModelConfig, task: TrainingSize, capacity: Capacity) -> Fit | None:
    """Find the tokens per pass, and if necessary recomputation, with which a training fits. None: it does not fit."""
    members = members_of(algorithm, model, task)
    for recomputes, divisor in _choices(algorithm, model):
        works: dict[str, Work] = {}
        for device, own in members.items():
            work = work_of(algorithm, model, task, members, device, recomputes, divisor)
            if model.kv_memory is not None:
                num_actors = sum(1 for each in own if each.decodes)
                work = replace(work, max_kv=int(model.kv_memory * GIB) * num_actors)
            fitted = within(own, work, capacity(device))
            if fitted is None:
                break
            works[device] = fitted
        else:
            return Fit(
                recomputes,
                None if divisor == 1 else min(work.tokens for work in works.values()),
                {device: plan(members[device], work) for device, work in works.items()},
                model.kv_memory if model.kv_memory is not None else _cut(members, works),
            )
    return None


def tightest(algorithm: Algorithm[Any], model: ModelConfig, task: TrainingSize) -> dict[str, MemoryPlan]:
    """Return the memory plan of each device with the options that need the least memory, even if it does not fit."""
    members = members_of(algorithm, model, task)
    recomputes, divisor = list(_choices(algorithm, model))[-1]
    return {
        device: plan(own, replace(work_of(algorithm, model, task, members, device, recomputes, divisor), max_kv=0))
        for device, own in members.items()
    }


def remedies(algorithm: Algorithm[Any], model: ModelConfig, task: TrainingSize, capacity: Capacity) -> list[str]:
    """Return command-line options with which the training would fit into memory, the smallest changes first."""
    small: dict[str, Any] = {}
    if algorithm.critic_reads != "nothing" and not algorithm.has_actor_heads:
        small = {"critic_model_name_or_path": "small"}
    is_split = len(set(model.names(len(task.agents)))) > 1 or len(set(model.devices(len(task.agents)))) > 1
    half: dict[str, Any] = {} if model.compute_dtype != "float32" else {"compute_dtype": "bfloat16"}
    ways: list[dict[str, Any]] = [{"offload": "none"}, {"side_by_side": False}, {"offload": "moments"}]
    if not algorithm.config.fsdp:
        ways += [{"fsdp": True}] if task.num_ranks > 1 and not is_split else []
        ways += [{"offload": "learner"}]
    tries = [(of_model, way) for of_model in ({}, half) for way in ways]
    tries += [({"weights": "adapters", **half}, {}), ({"weights": "adapters", **half}, small)]
    has_no_adapters = is_split or model.server or algorithm.config.reference_device
    found: dict[str, str] = {}  # keys: values of `ModelConfig.weights`; values: command-line options
    for of_model, of_config in tries:
        changed = replace(model, **of_model)
        if changed.weights == "adapters" and has_no_adapters:
            continue
        other = type(algorithm)(replace(algorithm.config, **of_config))
        if changed.weights not in found and fit(other, changed, task, capacity) is not None:
            given = {**of_model, **{k: v for k, v in of_config.items() if v != "none"}}
            words = [
                f"--{name.replace('_', '-')}{'' if value is True else f' {value}'}" for name, value in given.items()
            ]
            found[changed.weights] = " ".join(words)
    return [each for each in found.values() if each]


def check_fit(algorithm: Algorithm[Any], model: ModelConfig, task: TrainingSize, capacity: Capacity) -> Fit:
    """Find options with which a training fits into memory. Raises `NoRoom`, which suggests settings, if none fits."""
    found = fit(algorithm, model, task, capacity)
    if found is not None:
        return found
    device, least = max(
        tightest(algorithm, model, task).items(), key=lambda each: each[1].peak.total - capacity(each[0])
    )
    others = remedies(algorithm, model, task, capacity)
    mend = f"it fits with {', or '.join(others)}" if others else "give a smaller model, or more devices (--device)"
    raise NoRoom(
        f"the training needs {least.peak.total / GIB:.1f} GiB on {device} ({least.peak.name}), which has "
        f"{capacity(device) / GIB:.1f}; {mend}"
    )


def check_host(plans: Mapping[str, MemoryPlan], memory: int) -> int:
    """Return the pinned host memory of a training in bytes. Raises `NoRoom` if a rank's `memory` has no room for it."""
    needed, allowed = sum(each.pinned for each in plans.values()), USABLE_HOST * memory
    if needed > allowed:
        raise NoRoom(
            f"offload needs {needed / GIB:.1f} GiB of pinned host memory, but only {allowed / GIB:.1f} GiB "
            "may be pinned; use a smaller model or fewer ranks, or PYTORCH_ALLOC_CONF=expandable_segments:True,"
            f"{EXACT_PINNED}:64 (slower), with which PyTorch does not round sizes up to powers of two"
        )
    return needed


def _learned_tokens(config: TrainConfig, model: ModelConfig, task: TrainingSize) -> int | None:
    """Return the tokens of an agent's episodes in an update, with one prompt per group. None: segments of episodes."""
    if config.turns_per_update is not None:
        return None
    num_rows = -(-config.rollout_buffer_size // task.num_ranks)
    num_prompts = -(-num_rows // config.num_generations)
    return num_rows * task.later_length(model) + num_prompts * (task.row_length(model) - task.later_length(model))


def _rounds_pinned() -> bool:
    return not any(EXACT_PINNED in os.environ.get(f"PYTORCH_{name}ALLOC_CONF", "") for name in ("", "CUDA_"))


def _choices(algorithm: Algorithm[Any], model: ModelConfig) -> Iterator[tuple[bool, int]]:
    """Yield options in the order of preference: recomputation (bool), and the divisor of the tokens per pass."""
    config = algorithm.config
    is_free = config.max_batch_tokens is None and not config.deterministic
    for recomputes in (False, True) if model.recomputes_activations is None else (model.recomputes_activations,):
        divisor = 1
        while divisor == 1 or (is_free and divisor <= (32 if recomputes else MAX_CUT)):
            yield recomputes, divisor
            divisor *= 2


def _cut(members: Mapping[str, Sequence[Member]], works: Mapping[str, Work]) -> float | None:
    """Return the KV-cache memory per model in GiB. None: every device has enough memory for all sequences."""
    cuts = []
    for device, work in works.items():
        actors = [each for each in members[device] if each.decodes]
        if actors and work.max_kv is not None and work.max_kv < kv_bytes(actors, replace(work, max_kv=None)):
            cuts.append(work.max_kv / len(actors) / GIB)
    return min(cuts, default=None)


def work_of(
    algorithm: Algorithm[Any],
    model: ModelConfig,
    task: TrainingSize,
    members: Mapping[str, Sequence[Member]],
    device: str,
    recomputes: bool,
    divisor: int,
) -> Work:
    """Return the sizes of the model passes on a device. `divisor` divides the default number of tokens per pass."""
    config = algorithm.config
    kind = torch.device("cuda" if device.startswith("cuda") else "cpu")
    is_given = config.max_batch_tokens is not None or config.deterministic
    tokens = tokens_per_pass(config, kind) if is_given else default_max_tokens(kind) // divisor
    learners = [(each, where) for where, own in members.items() for each in own if each.learns]
    actors = [where for each, where in learners if each.num_agents]
    critics = [where for each, where in learners if not each.num_agents]
    return Work(
        tokens=tokens,
        row_length=task.row_length(model),
        learned=_learned_tokens(config, model, task),
        num_rows=-(-(config.num_envs or min(algorithm.max_parallel_episodes, 64)) // task.num_ranks),
        shares_prompts=config.num_generations > 1,
        recomputes=recomputes,
        offload=config.offload,
        rounds_pinned=_rounds_pinned(),
        kind=kind.type,
        fuses=kind.type == "cpu" and compiler() is not None,
        packs=kind.type == "cpu" and is_onednn_faster(),
        side_by_side=_are_side_by_side(config, task, actors),
        critics_side_by_side=_are_side_by_side(config, task, critics),
    )


def _are_side_by_side(config: TrainConfig, task: TrainingSize, devices: Sequence[str]) -> bool:
    if config.offload == "learner" or task.num_ranks > 1:
        return False
    places = [Workplace(number, device_named(device)) for number, device in enumerate(devices)]
    return SideBySide.of(config).uses_threads(places)


def _critic_shape(name: str, actor: str) -> ModelShape | None:
    if name == BAG_OF_WORDS or registered_critic(name) is not None:
        return None
    if name == "small":
        words = shape_of(actor).vocabulary + NUM_OWN_WORDS
        return ModelShape.of(small_config(words, hidden_dim=64, num_layers=1, max_tokens=4096)).backbone()
    return shape_of(actor if name == "actor" else name).backbone()


def canonical(device: str) -> str:
    """Return a device's name with its index. "auto" and "cuda" become the current device, on a rank the rank's GPU."""
    found = device_named(device)
    return str(found) if found.type == "cpu" or found.index is not None else f"{found.type}:0"
