"""Run directories of others: what in their settings would run code or send a key, and the experiment, if trusted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...._errors import UserError
from ....agents.config import CHAT
from ....envs.registration.registry import registry
from ..files import CONFIG_FILE, read_config
from .experiment import Experiment, refuse_parts


class UntrustedCodeError(UserError):
    """A run directory names code to import or a server to send a key to, and nobody said that it is trusted."""


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
    refuse_parts(saved)
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


def needs_trust(saved: Mapping[str, Any]) -> bool:
    """Whether commands on a run of these saved settings, which may be damaged, need `--trust`."""
    env, kwargs = saved.get("env"), saved.get("env_kwargs")
    is_code = isinstance(env, str) and isinstance(kwargs, Mapping) and names_code(env, kwargs)
    return is_code or sends_key(saved.get("model"))


def sends_key(model: object) -> bool:
    """Whether saved settings of models would send what an environment variable holds to a server that they name."""
    return isinstance(model, Mapping) and model.get("chat_key") is not None and CHAT in str(model.get("model"))


def names_code(env: str, env_kwargs: Mapping[str, Any]) -> bool:
    """Whether making an environment would import what its id or arguments say, in place of what is registered."""
    judges = env_kwargs.get("reward_funcs") or ()
    if any(":" in str(each) for each in (judges.values() if isinstance(judges, Mapping) else judges)):
        return True
    if env in registry:
        return False
    # An argument "env" would take the place of the id of Gymnasium's, and may name a module to import.
    return ":" in env or ":" in str(env_kwargs.get("env", ""))
