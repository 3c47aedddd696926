"""Multi-agent text environments: PettingZoo parallel environments that read and write text."""

from .checks.checker import CheckFailure, check_env
from .core import Message, Outcome, TextParallelEnv, Transcript, messages_of
from .registration.builtin import register_built_in
from .registration.registry import (
    EnvSpec,
    UnknownEnvironmentError,
    make,
    pprint_registry,
    register,
    registry,
    spec,
    specs,
)
from .spaces import OpenText
from .vectors.faults import EnvironmentFault
from .vectors.processes import ProcessVector
from .vectors.vector import SyncVector, VectorEnv

register_built_in()

__all__ = [
    "CheckFailure",
    "EnvSpec",
    "EnvironmentFault",
    "Message",
    "OpenText",
    "Outcome",
    "ProcessVector",
    "SyncVector",
    "TextParallelEnv",
    "Transcript",
    "UnknownEnvironmentError",
    "VectorEnv",
    "check_env",
    "make",
    "messages_of",
    "pprint_registry",
    "register",
    "registry",
    "spec",
    "specs",
]
