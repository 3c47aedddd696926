"""Environments with every kind of fault. Worker processes import this module, so it does not import torch."""

import os
import sys
import time

import gymnasium
import numpy as np
from pettingzoo import ParallelEnv

from collm.envs import EnvironmentFault, Outcome, SyncVector, TextParallelEnv
from collm.envs.vectors.faults import Course

AGENTS = ("a_0", "b_0")
TURN = 2  # turn of the fault, from 1


class Texts(TextParallelEnv):
    """Text environment with a fault `kind` in `reset` or in turn `TURN`. b_0 leaves after 3 of 4 turns."""

    def __init__(self, kind: str = "sound"):
        super().__init__(AGENTS, 4)
        self.kind = kind

    def deal(self, task):
        if self.kind == "reset raises":
            raise KeyError("no post")
        wrong = {"deal lacks an agent": {"a_0": "hello"}, "deal returns text": "hello"}
        wrong |= {"deal returns a number": dict.fromkeys(AGENTS, 7)}
        return wrong.get(self.kind) or {agent: f"hello {self.rng.random()}" for agent in AGENTS}

    def play(self, replies):
        finished = frozenset({"b_0"}) if self.turn + 1 == 3 else frozenset()
        sound = Outcome(0.5, dict.fromkeys(replies, "next"), finished=finished)
        if self.turn + 1 != TURN:
            return sound
        match self.kind:
            case "step raises":
                raise ZeroDivisionError("a fault\nof the author")
            case "step exits":
                sys.exit(3)
            case "dies":
                os._exit(7)
            case "hangs":
                time.sleep(600)
            case kind if kind in REWARDS:
                return Outcome({"a_0": 0.5, "b_0": REWARDS[kind]}, dict.fromkeys(replies, "next"))
        found = {
            "play returns a number": 1.0,
            "play returns nothing": None,
            "reward lacks an agent": Outcome({"a_0": 0.5}),
        }
        found |= {"feedback is a number": Outcome(0.5, {"b_0": 3}), "feedback to a stranger": Outcome(0.5, {"z_0": ""})}
        return found.get(self.kind, sound)

    def step(self, actions):
        result = super().step(actions)
        return spoiled(result, self.kind, self) if self.turn == TURN else result

    def state(self):
        if self.kind == "state raises" and self.turn == TURN:
            raise RuntimeError("no state")
        return 5 if self.kind == "state is a number" and self.turn == TURN else super().state()


class Numbers(ParallelEnv):
    """Numeric environment with two actions, and with agents, turns and faults as in `Texts`."""

    metadata = {"name": "numbers_v0", "render_modes": []}  # noqa: RUF012  # as PettingZoo has it
    render_mode = None

    def __init__(self, kind: str = "sound"):
        self.kind = kind
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []

    def observation_space(self, agent):
        return gymnasium.spaces.Box(-1, 1, (3,), np.float32)

    def action_space(self, agent):
        return gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.turn = 0
        self.agents = list(AGENTS)
        observations = {agent: np.zeros(3, np.float32) for agent in AGENTS}
        if self.kind == "reset returns observations alone":
            return observations
        if self.kind == "reset returns no agent":
            return {}, {}
        return observations, {agent: {} for agent in AGENTS}

    def step(self, actions):
        self.turn += 1
        movers = list(self.agents)
        is_over = {agent: self.turn >= (3 if agent == "b_0" else 4) for agent in movers}
        self.agents = [agent for agent in movers if not is_over[agent]]
        result = (
            {agent: np.full(3, self.turn / 4, np.float32) for agent in movers},
            dict.fromkeys(movers, 0.5),
            is_over,
            dict.fromkeys(movers, False),
            {agent: {} for agent in movers},
        )
        if self.kind == "joins again" and self.turn == 4:
            self.agents = ["b_0"]
            result[0]["b_0"] = np.zeros(3, np.float32)
        return spoiled(result, self.kind, self) if self.turn == TURN else result

    def state(self):
        raise NotImplementedError

    def close(self):
        pass


REWARDS = {f"reward {number}": float(number) for number in ("nan", "inf", "-inf", "1e30")}
REWARDS |= {"reward none": None, "reward text": "good", "reward digits": "1", "reward list": [1.0]}
REWARDS |= {"reward array": np.ones(2), "reward float32": np.float32(0.5), "reward complex": 1j}
REWARDS |= {"reward int": 1, "reward bool": True}
OBSERVATIONS = {"observation none": None, "observation text": "hello", "observation number": 3}
OBSERVATIONS |= {f"observation {n}": np.array([0, float(n), 0], np.float32) for n in ("nan", "inf")}
OBSERVATIONS |= {"observation of four": np.zeros(4, np.float32), "observation ragged": [[1.0], [1.0, 2.0]]}
OBSERVATIONS |= {"observation of another shape": np.zeros((3, 1), np.float32)}


def spoiled(result, kind, env):
    """Return the result of a step with a fault `kind`. Faults of a single agent concern b_0."""
    observations, rewards, terminations, truncations, infos = (dict(part) for part in result)
    if kind in REWARDS and not isinstance(env, Texts):
        rewards["b_0"] = REWARDS[kind]
    if kind in OBSERVATIONS:
        observations["b_0"] = OBSERVATIONS[kind]
    parts = {"observation": observations, "reward": rewards, "termination": terminations, "truncation": truncations}
    if kind.startswith("lacks a "):
        del parts[kind.removeprefix("lacks a ")]["b_0"]
    values = {"termination none": (terminations, "b_0", None), "truncation text": (truncations, "b_0", "no")}
    values |= {"info text": (infos, "b_0", "fine"), "metric text": (infos, "b_0", {"metric/words": "many"})}
    values |= {"a stranger": (observations, "z_0", observations.get("a_0"))}
    if kind in values:
        part, agent, value = values[kind]
        part[agent] = value
    results = {"no value": None, "four values": (observations, rewards, terminations, infos)}
    results |= {"infos none": (observations, rewards, terminations, truncations, None)}
    results |= {"rewards list": (observations, [0.5, 0.5], terminations, truncations, infos)}
    return results.get(kind, (observations, rewards, terminations, truncations, infos))


class Losing(SyncVector):
    """Vector environment that loses the episodes of some seeds, as if their worker processes had died twice."""

    def __init__(self, bad, world=lambda: Texts("")):
        super().__init__(world, 3)
        self.bad = bad
        self.given_up = {}

    def send(self, actions):
        bad = {place for place in actions if self.courses[place].seed in self.bad}
        for place in bad:
            fault = self.given_up[place] = EnvironmentFault("gave up")
            fault.course = Course(self.courses[place].seed)
        super().send({place: joint for place, joint in actions.items() if place not in bad})

    def lost(self):
        lost, self.given_up = self.given_up, {}
        return lost
