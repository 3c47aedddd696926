"""Changes of settings where a run goes on: what does not change its past may change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

FREE = (
    "num_updates",
    "max_environment_steps",
    "max_sampled_tokens",
    "eval_interval",
    "eval_max_turns",
    "save_interval",
    "save_interval_minutes",
    "num_envs",
    "num_workers",
    "timeout_s",
    "max_batch_tokens",
    "side_by_side",
    "collectors",
    "num_collectors",
    "collector_options",
    "kv_memory",
    "device",
    "critic_device",
    "reference_device",
    "recomputes_activations",
    "offload",
    "fsdp",
)
"""Settings that may change: how long a run goes on, what it writes when, and where it computes."""


def changes(saved: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings that differ, by name: the run's value and the given one.

    Args:
        saved: an experiment as `Experiment.to_json` gives it.
        given: another one.

    Raises:
        ValueError: if one of them shaped what the run has done already; names it, with both values.
    """
    found = {name: (old, new) for name, old, new in _differences(saved, given)}
    fixed = {name: values for name, values in found.items() if not _may_change(name, saved["config"])}
    if fixed:
        listed = ", ".join(f"{name} = {old!r}, not {new!r}" for name, (old, new) in fixed.items())
        reason = (
            " (the learning rate or the difficulty goes by the share of num_updates that is done)"
            if "num_updates" in fixed
            else ""
        )
        raise ValueError(
            f"the run was trained with {listed}{reason}; resume it with its own settings, or give another --out"
        )
    return found


def _may_change(name: str, config: Mapping[str, Any]) -> bool:
    if name == "num_updates":
        return bool(config["learning_rate_schedule"] == "constant" and config["difficulty_schedule"] is None)
    if name == "num_envs":
        return config["turns_per_update"] is None  # else each copy has an episode under way
    return name in FREE


def _differences(saved: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for part in sorted(saved.keys() | given.keys()):
        old, new = (json.loads(json.dumps(each.get(part))) for each in (saved, given))  # JSON has no tuples
        if not isinstance(old, dict) or not isinstance(new, dict):
            old, new = {part: old}, {part: new}
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield f"env_kwargs {name}" if part == "env_kwargs" else name, old.get(name), new.get(name)
