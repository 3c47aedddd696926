"""Folder of a run: preparation, clearing, and settings that may differ when the run is resumed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..._ownership import ForeignFileError, refuse_foreign_folder, temporary
from .assembly.trust import run_command
from .checkpoint import CHECKPOINTS, RECORDS, START, STATE_FILES, has_checkpoint
from .files import CONFIG_FILE, RunFolderError, only_one, read_config
from .loggers.sinks import WANDB_FILE

PICTURES = "pictures"
_FOLDERS = (CHECKPOINTS, "agents", "critics", START, "tensorboard", PICTURES, "failures", "wandb")
_LOGGED: Mapping[str, tuple[str, ...]] = {
    "": (*RECORDS, WANDB_FILE),
    "tensorboard": ("events.out.tfevents.*",),
    PICTURES: ("update-*.gif",),
    CHECKPOINTS: (temporary(Path("*")).name, temporary(Path("*"), "old").name),
}
"""Files that a run writes before its first checkpoint, with folders as keys."""
_SETTINGS: Mapping[str, tuple[str, ...]] = {
    START: STATE_FILES,
    "": (temporary(Path(START)).name, temporary(Path(START), "old").name, CONFIG_FILE),
}
"""Files with settings and starting weights, with folders as keys. The last file is config.json, the settings."""


def prepare_directory(directory: Path) -> None:
    """Make a run's folder. Raises `OSError` if it is not writable, `ForeignFileError` if it has files of others."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _refuse_links(directory)
        with only_one(directory):
            probe = temporary(directory / "probe")
            probe.touch()
            probe.unlink()
    except (ForeignFileError, RunFolderError):
        raise
    except (NotADirectoryError, FileExistsError) as error:
        raise NotADirectoryError(f"{directory} cannot be a run's folder: {error}; give another --out") from error
    except OSError as error:
        raise PermissionError(f"{directory} is not writable: {error}; give another --out") from error


def check_is_free(directory: Path, config: Mapping[str, Any]) -> None:
    """Raise `FileExistsError` if a folder contains a run, or files that collm did not write.

    A run without a checkpoint may be overwritten. If it has logged metrics, its settings must equal `config`.
    """
    refuse_foreign_folder(directory)
    is_run = has_checkpoint(directory) or (directory / "agents").exists()
    if not is_run and _has_lines(directory / "metrics.jsonl"):
        try:
            saved = read_config(directory)  # also has the default learning rates of the models
            is_run = saved | json.loads(json.dumps(config)) != saved
        except (FileNotFoundError, ValueError):
            is_run = True
    if is_run:
        raise FileExistsError(
            f"{directory} already contains a run; give another --out, or resume it: {run_command('resume', directory)}"
        )


def clear(directory: Path, *, keeps_settings: bool = False) -> bool:
    """Delete the files of a run without a checkpoint. Returns True if the run had logged anything."""
    had_lines = any(_has_lines(directory / name) for name in RECORDS)
    # Delete settings last, because a folder with records and without settings is treated as a run.
    for files in (_LOGGED, *(() if keeps_settings else (_SETTINGS,))):
        for folder, patterns in files.items():
            for path in [path for pattern in patterns for path in (directory / folder).glob(pattern)]:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            if folder and (directory / folder).is_dir() and not any((directory / folder).iterdir()):
                (directory / folder).rmdir()
    return had_lines


def _refuse_links(directory: Path) -> None:
    inside = [path for name in (CHECKPOINTS, PICTURES) for path in (directory / name).glob("*")]
    for path in [*(directory / name for name in (*_FOLDERS, *RECORDS)), *inside]:
        if path.is_symlink():
            raise ForeignFileError(
                f"{path} is a symbolic link, and collm does not write through links in a run's folder; link the whole "
                f"folder {directory} instead"
            )


def _has_lines(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


FREE = (
    *("num_updates", "max_environment_steps", "max_sampled_tokens"),
    *("eval_interval", "eval_max_turns", "eval_metrics", "save_interval", "save_interval_minutes"),
    *("num_envs", "num_workers", "timeout_s", "collectors", "num_collectors", "collector_options"),
    *("device", "critic_device", "reference_device", "side_by_side", "offload", "fsdp"),
    *("max_batch_tokens", "kv_memory", "recomputes_activations"),
)
"""Settings that may differ when a run is resumed: budgets, intervals, processes, devices and memory."""


def changes(saved: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Compare the saved settings of a run with the given settings, both from `Experiment.to_json`.

    Returns a dict. Keys: settings that differ. Values: the saved and the given value. Raises `ValueError` if a setting
    that must stay the same when a run is resumed differs.
    """
    found = {name: (old, new) for name, old, new in _differences(saved, given)}
    fixed = {name: values for name, values in found.items() if not _may_change(name, saved["config"])}
    if fixed:
        listed = ", ".join(f"{name} = {old!r}, not {new!r}" for name, (old, new) in fixed.items())
        reason = ""
        if "num_updates" in fixed:
            reason = " (the learning rate or the difficulty depends on the fraction of num_updates that is done)"
        raise ValueError(
            f"the run was trained with {listed}{reason}; resume it with these settings, or give another --out"
        )
    return found


def _may_change(name: str, config: Mapping[str, Any]) -> bool:
    if name == "num_updates":
        return bool(config["learning_rate_schedule"] == "constant" and config["difficulty_schedule"] is None)
    if name == "num_envs":
        return config["turns_per_update"] is None  # otherwise each environment copy has an unfinished episode
    return name in FREE


def _differences(saved: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for part in sorted(saved.keys() | given.keys()):
        old, new = (json.loads(json.dumps(each.get(part))) for each in (saved, given))  # JSON has no tuples
        if not isinstance(old, dict) or not isinstance(new, dict):
            old, new = {part: old}, {part: new}
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield f"env_kwargs {name}" if part == "env_kwargs" else name, old.get(name), new.get(name)
