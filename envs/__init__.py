"""Multi-agent text environments: PettingZoo parallel environments that read and write text."""

from .core import Message, Outcome, TextParallelEnv, Transcript, messages_of
from .registration import EnvSpec, UnknownEnvironmentError, make, pprint_registry, register, registry, spec, specs
from .spaces import OpenText

__all__ = [
    "EnvSpec",
    "Message",
    "OpenText",
    "Outcome",
    "TextParallelEnv",
    "Transcript",
    "UnknownEnvironmentError",
    "make",
    "messages_of",
    "pprint_registry",
    "register",
    "registry",
    "spec",
    "specs",
]
