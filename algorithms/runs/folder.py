"""Folder of a run: refused if it is not free, prepared for a new run, cleared of an attempt without a checkpoint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..._ownership import ForeignFileError, refuse_foreign_folder, temporary
from .assembly.commands import run_command
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
"""Names of the files that an attempt without a checkpoint leaves, by folder."""
_SETTINGS: Mapping[str, tuple[str, ...]] = {
    START: STATE_FILES,
    "": (temporary(Path(START)).name, temporary(Path(START), "old").name, CONFIG_FILE),
}
"""Names of the files that say how a run begins, by folder, the settings last."""


def prepare_directory(directory: Path) -> None:
    """Make a folder for a run, and check that it is writable; nothing is left in it.

    Raises:
        PermissionError, NotADirectoryError: if nothing can be written there.
        RunFolderError: if another process trains there.
        ForeignFileError: if the folder holds something else than a run, or a link in a run's place.
    """
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
        raise PermissionError(f"nothing can be written to {directory}: {error}; give another --out") from error


def check_is_free(directory: Path, config: Mapping[str, Any]) -> None:
    """Refuse a folder that has files of others, or a run. An attempt without a checkpoint may be overwritten.

    Args:
        config: settings of the new run. An attempt of other settings may be overwritten only if it had logged nothing.

    Raises:
        FileExistsError: if the folder is not free.
    """
    refuse_foreign_folder(directory)
    is_run = has_checkpoint(directory) or any((directory / name).exists() for name in ("agents", "checkpoint.pt"))
    if not is_run and _has_lines(directory / "metrics.jsonl"):
        try:
            is_run = read_config(directory) != json.loads(json.dumps(config))
        except (FileNotFoundError, ValueError):
            is_run = True  # its settings are lost
    if is_run:
        raise FileExistsError(
            f"{directory} already holds a run; give another --out, or go on with it: {run_command('resume', directory)}"
        )


def clear(directory: Path, *, keeps_settings: bool = False) -> bool:
    """Delete the files of an attempt without a checkpoint, and no others; returns whether it had logged anything.

    Args:
        keeps_settings: keep the settings and the weights that it began with, to begin again.
    """
    had_lines = any(_has_lines(directory / name) for name in RECORDS)
    # The settings go last: records without settings would be taken for a run whose settings are lost.
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
    """Refuse links in a run's folder that the run would write through."""
    inside = [path for name in (CHECKPOINTS, PICTURES) for path in (directory / name).glob("*")]
    for path in [*(directory / name for name in (*_FOLDERS, *RECORDS)), *inside]:
        if path.is_symlink():
            raise ForeignFileError(
                f"{path} is a symbolic link, through which collm does not write; put the whole folder {directory} "
                "there, and link that"
            )


def _has_lines(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
