"""Ray clusters: how a process joins one, and what processes of Ray need to know of it."""

from __future__ import annotations

import math
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ._errors import UserError
from ._extras import require
from ._ranges import refuse_password

LOCAL = "ray"
PREFIX = "ray://"
ANSWER_S = 10.0
"""Seconds in which the head of a cluster must answer."""
PASSED_ON = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "HF_HOME", "HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM")
"""Environment variables that processes of Ray are to have as this one has them."""

_num_members = 0  # users of the connection that was made here; 0 where there is none, or somebody else made it


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where actors or tasks of Ray run, and what each of them takes."""

    address: str = LOCAL
    """"ray": one of its own on this machine; "ray://HOST:PORT": the one whose head listens there."""
    num_actors: int = 2
    num_cpus: float = 1.0
    """Cores per actor."""
    num_gpus: float = 0.0
    """GPUs, or a share of one, per actor."""
    files: str | None = None
    """Folder whose modules actors import; None: none."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of each actor, as `ray.remote` takes them."""

    def actor_options(self) -> dict[str, Any]:
        """Options of an actor, as `ray.remote` takes them."""
        return {
            "num_cpus": self.num_cpus,
            "num_gpus": self.num_gpus,
            "scheduling_strategy": "SPREAD",
            **self.options,
            # Ray's own restarts would give the same actor its tasks again; here any actor may take them over at once.
            "max_restarts": 0,
            "runtime_env": surroundings(),
        }

    def check(self) -> None:
        """Refuse what cannot be joined, before anything is started.

        Raises:
            UserError: if the address is none, the folder is not there, or Ray does not take the options.
            ModuleNotFoundError: without Ray, with the command that installs it.
        """
        refuse_password(self.address)
        host, _, port = self.address.removeprefix(PREFIX).rpartition(":")
        if self.address != LOCAL and not (self.address.startswith(PREFIX) and host and port.isdecimal()):
            raise UserError(f'a cluster is "{LOCAL}" or "{PREFIX}HOST:PORT", got {self.address!r}')
        if self.files is not None and not os.path.isdir(self.files):
            raise UserError(f"there is no folder {self.files!r} for actors to import from")
        for name in {"max_restarts", "runtime_env"} & self.options.keys():
            raise UserError(f"the option {name} of actors is set by collm; leave it out")
        require("ray")
        import ray

        try:
            ray.remote(**self.actor_options())(_Probe)
        except (TypeError, ValueError) as error:
            raise UserError(f"Ray does not take these options of actors: {first_line(error)}") from error

    def join(self) -> None:
        """Connect this process, which then also has to `leave`; where it is connected already, that connection serves.

        Raises:
            UserError: if nothing answers at the address.
        """
        import ray

        global _num_members
        if ray.is_initialized():
            _num_members += 1 if _num_members else 0
            return
        options: dict[str, Any] = {
            "include_dashboard": None,
            "log_to_driver": False,
            "logging_level": "error",
            "runtime_env": {"working_dir": self.files} if self.files is not None else None,
        }
        if self.address == LOCAL:  # said outright, as an address in the environment would otherwise be taken
            cores = max(os.cpu_count() or 1, math.ceil(self.num_actors * self.num_cpus))
            options |= {"address": "local", "num_cpus": cores, "include_dashboard": False}
        else:
            options["address"] = self.address.removeprefix(PREFIX)
        try:
            if self.address != LOCAL:
                host, _, port = options["address"].rpartition(":")
                socket.create_connection((host, int(port)), ANSWER_S).close()  # Ray itself would try for minutes
            ray.init(**options)
        except (OSError, RuntimeError) as error:
            raise UserError(
                f"no Ray cluster answers at {self.address!r} ({first_line(error)}); give the port of "
                "`ray start --head` (6379 unless told otherwise; not that of Ray's client, 10001), or "
                f'"{LOCAL}" for one on this machine'
            ) from error
        _num_members = 1


class _Probe:
    """Class whose options Ray checks before anything is started."""


def leave() -> None:
    """Undo a `join`: the last of this process's members to leave disconnects it, where its first one connected it."""
    import ray

    global _num_members
    if _num_members == 0:
        return
    _num_members -= 1
    if _num_members == 0 and ray.is_initialized():
        ray.shutdown()


def surroundings() -> dict[str, Any]:
    """Ray's `runtime_env` of actors and tasks: what they find in their environment."""
    return {"env_vars": {name: os.environ[name] for name in PASSED_ON if name in os.environ}}


def import_from(paths: Sequence[str]) -> None:
    """Import also from where another process does, as far as its folders are here too."""
    sys.path += [path for path in paths if path not in sys.path and os.path.isdir(path)]


def first_line(error: Exception) -> str:
    """What an error of Ray's says, without the lines of details that follow."""
    return str(error).strip().splitlines()[0]
