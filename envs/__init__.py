"""Multi-agent text environments: PettingZoo parallel environments that read and write text."""

from .checker import CheckFailure, check_env
from .core import Message, Outcome, TextParallelEnv, Transcript, messages_of
from .registration import EnvSpec, UnknownEnvironmentError, make, pprint_registry, register, registry, spec, specs
from .spaces import OpenText

__all__ = [
    "CheckFailure",
    "EnvSpec",
    "Message",
    "OpenText",
    "Outcome",
    "TextParallelEnv",
    "Transcript",
    "UnknownEnvironmentError",
    "check_env",
    "make",
    "messages_of",
    "pprint_registry",
    "register",
    "registry",
    "spec",
    "specs",
]
