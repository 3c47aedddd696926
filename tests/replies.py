"""What scripted teams write, for tests of environments."""

from __future__ import annotations

import random


def any_replies(env, rng):
    """Reference replies: whole, with words left out, exchanged, of some only, of all at once, without lines."""
    kind = rng.randrange(6)
    found = {agent: env.reference_reply(agent) for agent in env.agents}
    if kind == 1:
        found = {agent: " ".join(w for w in text.split(" ") if rng.random() < 0.8) for agent, text in found.items()}
    elif kind == 2:
        found = dict(zip(found, reversed(found.values()), strict=True))
    elif kind == 3:
        found = {agent: text if rng.random() < 0.5 else "" for agent, text in found.items()}
    elif kind == 4:
        found = dict.fromkeys(found, "\n\n".join(found.values()))
    elif kind == 5:
        found = {agent: "\n".join(x for x in text.splitlines() if rng.random() < 0.9) for agent, text in found.items()}
    return found


def played(env, seed):
    """All that an episode of such teams brings: what it begins with, each step, and the state before and after."""
    rng = random.Random(seed)
    record = [env.reset(seed=seed), env.state()]
    while env.agents:
        record += [env.step(any_replies(env, rng)), env.state()]
    return record
