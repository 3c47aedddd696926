"""Replies and episodes of scripted teams, for tests of environments."""

import hashlib
import random

from collm.envs import players
from collm.envs.players import scripted_player

SIZES = (20, 90, 250, 3_000)
SHAPES = {
    "brackets": lambda n: f"    return {'[' * n}{']' * n}",
    "parentheses": lambda n: f"    return {'(' * n}x{')' * n}",
    "dictionaries": lambda n: f"    return {'{0: ' * n}0{'}' * n}",
    "calls": lambda n: f"    return {'x(' * n}{')' * n}",
    "methods": lambda n: f"    return x{'.strip()' * n}",
    "subscripts": lambda n: f"    return x{'[0]' * n}",
    "sum": lambda n: f"    return {' + '.join(['x'] * (n + 1))}",
    "signs": lambda n: f"    return {'-' * n}1",
    "negations": lambda n: f"    return {'not ' * n}x",
    "conditions": lambda n: f"    return {'1 if x else ' * n}0",
    "lambdas": lambda n: f"    return {'lambda: ' * n}0",
    "comprehensions": lambda n: f"    return {'[' * n}x{' for x in y]' * n}",
    "f-strings": lambda n: f"    return {nested_text(n)}",
    "elif": lambda n: "    if 0:\n        return 0\n" + "    elif 1:\n        return 0\n" * n,
    "functions": lambda n: "".join(f"{' ' * i}def f():\n" for i in range(4, n + 4)) + " " * (n + 4) + "return 0",
    "loops": lambda n: "".join(f"{' ' * i}for y in x:\n" for i in range(4, n + 4)) + " " * (n + 4) + "return y",
    "statements": lambda n: "    x = x\n" * n + "    return x",
    "line": lambda n: f"    return [{'x, ' * n}]",
    "text": lambda n: f"    return '{'x' * n}'",
    "number": lambda n: f"    return {'9' * n}",
    "null": lambda n: f"    return '{chr(0) * n}'",
}
"""Name -> function that returns a Python function body of size n: the depth of nesting, or (last items) the length."""


def nested_text(n):
    text = "x"
    for quote in ("'", '"', "'''", '"""', *["'"] * n)[:n]:
        text = f"f{quote}{{{text}}}{quote}"
    return text


def called_from(depth, function):
    return called_from(depth - 1, function) if depth else function()


def references(env):
    return {agent: env.unwrapped.reference_reply(agent) for agent in env.agents}


def begun(env, **reset):
    """Reset an environment and return it."""
    env.reset(**reset)
    return env


def steps_of(env, replies=references, *, seed=0, task=None):
    """Yield the result of each step of an episode with the actions `replies(env)`."""
    env.reset(seed=seed, options=None if task is None else {"task": task})
    while env.agents:
        yield env.step(replies(env))


def rewards_of(env, replies=references, **reset):
    """Return the first agent's reward of each step of an episode, with replies as in `steps_of`."""
    return [rewards[env.possible_agents[0]] for _, rewards, *_ in steps_of(env, replies, **reset)]


def share(env, player, num_episodes):
    """Return a scripted team's return over seeds from 0, scaled to 0 for empty replies and 1 for the reference."""
    earned = {}
    for name in (player, "reference", "empty"):
        decide = scripted_player(env, name)
        earned[name] = sum(players.played(env, decide, seed)[0] for seed in range(num_episodes))
    return (earned[player] - earned["empty"]) / (earned["reference"] - earned["empty"])


def any_replies(env, rng):
    """Return reference replies: unchanged, without some words or lines, swapped, for some agents, or all joined."""
    kind = rng.randrange(6)
    found = references(env)
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


def earned_and_read(env, num_episodes):
    """Return the sum of the first agent's rewards over episodes of `any_replies`, and a hash of the joint histories."""
    rng, total, read = random.Random(1), 0.0, hashlib.sha256()
    for seed in range(num_episodes):
        env.reset(seed=seed)
        read.update(str(env.state()).encode())
        while env.agents:
            total += env.step(any_replies(env, rng))[1][env.possible_agents[0]]
        read.update(str(env.state()).encode())
    return total, read.hexdigest()[:16]
