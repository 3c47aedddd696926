"""Connections to Ray clusters, and the options of their actors."""

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
ANSWER_S = 10.0  # Timeout in seconds for the first connection to the head of a cluster
PASSED_ON = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "HF_HOME", "HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM")
"""Environment variables that are copied from this process to Ray's processes."""

_num_members = 0  # `join` calls minus `leave` calls, if this process was connected by `join`; else 0


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A Ray cluster and the resources of its actors."""

    address: str = LOCAL  # "ray": a new cluster on this machine. "ray://HOST:PORT": the cluster with this head.
    num_actors: int = 2
    num_cpus: float = 1.0  # CPU cores per actor
    num_gpus: float = 0.0  # GPUs per actor; may be a fraction
    files: str | None = None  # Folder of modules that actors import (`working_dir`)
    options: Mapping[str, Any] = field(default_factory=dict)  # Further options of `ray.remote` for each actor

    def actor_options(self) -> dict[str, Any]:
        return {
            "num_cpus": self.num_cpus,
            "num_gpus": self.num_gpus,
            "scheduling_strategy": "SPREAD",
            **self.options,
            # Ray would restart a failed actor and repeat its tasks there. At 0, other actors get the tasks immediately.
            "max_restarts": 0,
            "runtime_env": surroundings(),
        }

    def check(self) -> None:
        """Check the cluster settings without connecting to a cluster.

        Raises `UserError` if the address is malformed, the folder `files` is missing, or Ray rejects the options.
        Raises `ModuleNotFoundError` with the install command if Ray is not installed.
        """
        refuse_password(self.address)
        host, _, port = self.address.removeprefix(PREFIX).rpartition(":")
        if self.address != LOCAL and not (self.address.startswith(PREFIX) and host and port.isdecimal()):
            raise UserError(f'the address of a cluster must be "{LOCAL}" or "{PREFIX}HOST:PORT", got {self.address!r}')
        if self.files is not None and not os.path.isdir(self.files):
            raise UserError(f"there is no folder {self.files!r}; give the folder of the modules that actors import")
        for name in {"max_restarts", "runtime_env"} & self.options.keys():
            raise UserError(f"the actor option {name} is set by collm; leave it out")
        require("ray")
        import ray

        try:
            ray.remote(**self.actor_options())(_Probe)
        except (TypeError, ValueError) as error:
            raise UserError(f"Ray rejects the actor options {dict(self.options)}: {first_line(error)}") from error

    def join(self) -> None:
        """Connect this process to the Ray cluster, or use an existing connection. Call `leave` once per `join`.

        Raises `UserError` if no Ray cluster responds at the address.
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
        if self.address == LOCAL:  # without an address, Ray would use the environment variable RAY_ADDRESS
            cores = max(os.cpu_count() or 1, math.ceil(self.num_actors * self.num_cpus))
            options |= {"address": "local", "num_cpus": cores, "include_dashboard": False}
        else:
            options["address"] = self.address.removeprefix(PREFIX)
        try:
            if self.address != LOCAL:
                host, _, port = options["address"].rpartition(":")
                socket.create_connection((host, int(port)), ANSWER_S).close()  # Ray itself retries for minutes
            ray.init(**options)
        except (OSError, RuntimeError) as error:
            raise UserError(
                f"no Ray cluster answers at {self.address!r} ({first_line(error)}); give the port of `ray start "
                f'--head` (6379 by default; not 10001, the port of Ray\'s client), or "{LOCAL}" for this machine'
            ) from error
        _num_members = 1


class _Probe:
    """Empty class with which Ray checks the actor options."""


def leave() -> None:
    """Undo one `Cluster.join`. The last call disconnects this process from Ray, if `Cluster.join` connected it."""
    import ray

    global _num_members
    if _num_members == 0:
        return
    _num_members -= 1
    if _num_members == 0 and ray.is_initialized():
        ray.shutdown()


def surroundings() -> dict[str, Any]:
    return {"env_vars": {name: os.environ[name] for name in PASSED_ON if name in os.environ}}


def import_from(paths: Sequence[str]) -> None:
    """Append the folders `paths` of another process's `sys.path` to this `sys.path`, if they exist on this machine."""
    sys.path += [path for path in paths if path not in sys.path and os.path.isdir(path)]


def first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
