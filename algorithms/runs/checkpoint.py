"""Run directories: settings, metrics, episodes, models, and checkpoints from which training resumes bit for bit.

config.json         the experiment
metrics.jsonl       one line per update
episodes.jsonl      one line per episode: transcripts, rewards, token ids
evaluation.jsonl    one line per evaluation
checkpoint.pt       state that training resumes from
agents/<agent>/     the policies, in Hugging Face format
critics/<name>/     the critics
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..._json import read_json
from ..learning.trainer import Trainer

CONFIG_FILE = "config.json"
CHECKPOINT_FILE = "checkpoint.pt"


def prepare_directory(directory: Path) -> None:
    """Make a folder for a new run, and check that it is writable.

    Raises:
        FileExistsError: if the folder holds a run already.
        PermissionError, NotADirectoryError: if nothing can be written there.
    """
    if (directory / CONFIG_FILE).exists():
        raise FileExistsError(f"{directory} already holds a run; give another --out, or --resume to go on with it")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / ".writable"
        probe.touch()
        probe.unlink()
    except (NotADirectoryError, FileExistsError) as error:
        raise NotADirectoryError(f"{directory} cannot be a run's folder: {error}; give another --out") from error
    except PermissionError as error:
        raise PermissionError(f"nothing can be written to {directory}: {error}; give another --out") from error
    except OSError as error:
        raise PermissionError(f"nothing can be written to {directory}: {error}; give another --out") from error


def write_config(directory: Path, config: Mapping[str, Any]) -> None:
    """Write the experiment's settings."""
    (directory / CONFIG_FILE).write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n")


def read_config(directory: Path) -> dict[str, Any]:
    """Read the experiment's settings.

    Raises:
        FileNotFoundError: if the folder holds no run.
        UserError: if the file is damaged.
    """
    file = directory / CONFIG_FILE
    if not file.is_file():
        raise FileNotFoundError(f"{directory} holds no run: {CONFIG_FILE} is missing; give the --out of `collm train`")
    return read_json(file)


def save_checkpoint(directory: Path, trainer: Trainer) -> None:
    """Write a checkpoint; a crash while writing leaves the previous one."""
    temporary = directory / f"{CHECKPOINT_FILE}.new"
    torch.save(trainer.state_dict(), temporary)
    os.replace(temporary, directory / CHECKPOINT_FILE)


def check_checkpoint(directory: Path) -> None:
    """Refuse a folder without a checkpoint.

    Raises:
        FileNotFoundError: if there is none.
    """
    if not (directory / CHECKPOINT_FILE).is_file():
        raise FileNotFoundError(f"{directory} has no {CHECKPOINT_FILE}; train with save_interval > 0 to write some")


def load_checkpoint(directory: Path, trainer: Trainer) -> None:
    """Restore the trainer from the checkpoint, a pickle of Python objects: load only your own.

    Raises:
        FileNotFoundError: if there is none.
    """
    check_checkpoint(directory)
    trainer.load_state_dict(torch.load(directory / CHECKPOINT_FILE, map_location="cpu", weights_only=False))


def save_models(directory: Path, trainer: Trainer) -> None:
    """Write the policies, one folder per agent, and the critics, one folder each."""
    for agent, learner in trainer.learners.items():
        learner.policy.save(directory / "agents" / agent)
    for name, critic in trainer.unique_critics().items():
        critic.critic.save(directory / "critics" / name)
