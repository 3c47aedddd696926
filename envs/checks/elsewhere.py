"""Plays an episode in a process of its own: reads what to play from standard input, writes the record to the output."""

from __future__ import annotations

import contextlib
import pickle
import sys

from ..registration.registry import EnvSpec
from .play import recorded, replay

if __name__ == "__main__":
    text, seed, actions = pickle.load(sys.stdin.buffer)
    with contextlib.redirect_stdout(sys.stderr):  # what an environment prints must not mix with the answer
        record = recorded(replay(EnvSpec.from_json(text).make(), seed, actions))
    pickle.dump(record, sys.stdout.buffer)
