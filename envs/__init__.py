"""Multi-agent text environments: PettingZoo parallel environments that read and write text."""

from .core import Message, Outcome, TextParallelEnv, Transcript, messages_of
from .spaces import OpenText

__all__ = ["Message", "OpenText", "Outcome", "TextParallelEnv", "Transcript", "messages_of"]
