"""Replacements for names that are not settings: removed settings, and settings of other libraries."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

_NEVER_STORED = object()


class Removed(NamedTuple):
    """Replacement for a name that is not a setting."""

    instead: str  # Replacement, as the end of an error message
    default: Any = _NEVER_STORED  # Last default of a removed setting. This value in a config.json is ignored.
    is_now: Mapping[str, Any] = MappingProxyType({})  # Settings equivalent to the value True. Empty: True is an error.

    @property
    def is_stored(self) -> bool:
        return self.default is not _NEVER_STORED


_POLICIES = "give collm.train policies whose heads are GaussianHead or SquashedGaussianHead with this argument"
_CHAT = {
    "key": None,
    "requests": 32,
    "timeout_s": 300.0,
    "retries": 8,
    "seeds": True,
    "prompt_price": 0.0,
    "completion_price": 0.0,
}
REMOVED: Mapping[str, Removed] = MappingProxyType(
    {
        **{f"chat_{name}": Removed(f"write openai:MODEL@URL?{name}=VALUE", value) for name, value in _CHAT.items()},
        "chat_body": Removed("write openai:MODEL@URL?body.NAME=VALUE", {}),
        "allows_tf32": Removed(
            "set the environment variable TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1, or call "
            "torch.set_float32_matmul_precision('high')",
            False,
        ),
        "batch_size": Removed(
            "use rollout_buffer_size (episodes per update) or mini_batch_size (episodes per optimizer step)"
        ),
        "collector_cpus": Removed("use collector_options with num_cpus", 1.0),
        "collector_files": Removed("use collector_options with working_dir", None),
        "collector_gpus": Removed("use collector_options with num_gpus", 0.0),
        "critic_value_head_hidden_dim": Removed("use value_head_hidden_dim", None),
        "critic_warmup_window": Removed("use critic_warmup alone", None),
        "env_hosts": Removed("use collectors, which play whole episodes on other machines", None),
        "fsdp_copy_memory": Removed("the memory plan decides which copies fit; leave it out", 20.0),
        "has_state_std": Removed('use gaussian="state"', False, {"gaussian": "state"}),
        "initial_log_std": Removed(_POLICIES, 0.0),
        "is_squashed": Removed('use gaussian="squashed"', False, {"gaussian": "squashed"}),
        "log_entity": Removed("use the environment variable WANDB_ENTITY"),
        "log_group": Removed("use the environment variable WANDB_RUN_GROUP"),
        "log_name": Removed("use the environment variable WANDB_NAME"),
        "log_project": Removed("use the environment variable WANDB_PROJECT"),
        "log_shares": Removed("train in an environment wrapped by collm.envs.wrappers.Shares", False),
        "log_std_bounds": Removed(_POLICIES, [-20.0, 2.0]),
        "log_tags": Removed("use the environment variable WANDB_TAGS"),
        "normalization_epsilon": Removed("the value is 1e-6; leave it out", 1e-6),
        "num_env_hosts": Removed("use num_collectors", 2),
        "num_train_epochs": Removed(
            "use num_updates, updates of rollout_buffer_size episodes each: there are no epochs, tasks are sampled"
        ),
        "per_device_train_batch_size": Removed(
            "use mini_batch_size (episodes per optimizer step) or max_batch_tokens (tokens per forward pass)"
        ),
        "reward_weights": Removed("give them to the environment: --env-kwargs 'reward_weights=[1, 0.5]'"),
        "run_name": Removed("use the environment variable WANDB_NAME"),
        "server_patience_s": Removed("the time limit is 60 s; leave it out", 60.0),
        "server_weights": Removed("leave it out: vLLM servers load weights from a folder", "folder"),
        "steps": Removed("use num_updates"),
        "verify_share": Removed("collectors are trusted; use a cluster that only trusted people can reach", 0.0),
    }
)


def replacement(name: str) -> str | None:
    found = REMOVED.get(name)
    return None if found is None else found.instead


def without_removed(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored config without the removed settings that have their last default value or a replacement."""
    found = {name: value for name, value in stored.items() if name not in REMOVED or value != REMOVED[name].default}
    for name in found.keys() & REMOVED.keys():
        now = REMOVED[name].is_now
        if found[name] is True and now and not now.keys() & found.keys():
            del found[name]
            found |= now
    return found
