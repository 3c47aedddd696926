"""Environment steps per second in one process, on one host or collector of Ray, and on two."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count

from ...._cluster import Cluster, leave
from ....agents.config import ModelConfig
from ....algorithms.registry import algorithm_spec
from ....algorithms.rollout.actors import Actors
from ....algorithms.rollout.orders import Order, Weights
from ....algorithms.rollout.plays import grouped_plans
from ....algorithms.runs.assembly.experiment import Blueprint, Experiment
from ....envs.core import TextParallelEnv
from ....envs.registration.registry import make
from ....envs.vectors.hosts import HostVector
from ....envs.vectors.vector import SyncVector, VectorEnv
from ...errors import UserError
from ...markdown import markdown_table
from ..timing import Spread, timed_rounds

NUM_PROCESSES = (1, 2)
NUM_ENVS = 16


@dataclass(frozen=True, slots=True)
class Rate:
    """Joint turns per second of wall time, of one way to step."""

    name: str
    steps_per_s: Spread
    reference: str
    """Name of the way in one process that it is compared with."""


def measure(env: str, *, repeats: int = 5, num_envs: int = NUM_ENVS, max_new_tokens: int = 48) -> list[Rate]:
    """Let the environment step by scripted replies, here and on hosts; then play with models, here and on collectors.

    Args:
        env: id of a text environment that knows reference replies.
        repeats: rounds in which the ways take turns.
        num_envs: copies, and episodes per round.
        max_new_tokens: tokens per reply of the embedded model.

    Raises:
        UserError: if agents of the environment do not write.
    """
    replies = scripted(env, num_envs)
    config = algorithm_spec("magrpo").config(num_generations=2, rollout_buffer_size=num_envs, num_envs=num_envs)
    model = ModelConfig(max_new_tokens=max_new_tokens, device="cpu")
    experiment = Experiment(algorithm="magrpo", config=config, env=env, model=model)
    with ExitStack() as stack:
        Cluster(num_actors=sum(NUM_PROCESSES)).join()  # with a core for each collector, as all are there at once
        stack.callback(leave)
        ways: dict[str, Callable[[], int]] = {}
        ways["environments alone, this process"] = partial(
            stepped, stack.enter_context(SyncVector(env, num_envs)), replies
        )
        for number in NUM_PROCESSES:
            vector = stack.enter_context(HostVector(env, num_envs, num_hosts=number))
            ways[f"environments alone, {_counted(number, 'host')}"] = partial(stepped, vector, replies)
        trainer = experiment.make_trainer()
        stack.callback(trainer.close)
        weights, firsts = trainer.weights(), count(step=num_envs)

        def here() -> int:
            return sum(each.num_turns for each in trainer.collector.collect(_order(next(firsts), num_envs).plans))

        ways["with models, this process"] = here
        for number in NUM_PROCESSES:
            actors = Actors(Blueprint.of(experiment, -(-num_envs // number)), Cluster(num_actors=number))
            stack.callback(actors.close)
            while actors.num_ready < number:
                _collected(actors, weights, firsts, num_envs)
            ways[f"with models, {_counted(number, 'collector')}"] = partial(
                _collected, actors, weights, firsts, num_envs
            )
        rounds = timed_rounds(ways, repeats, clock=time.perf_counter)
    return [
        Rate(name, Spread.of([steps / seconds for steps, seconds in found]), f"{name.partition(',')[0]}, this process")
        for name, found in rounds.items()
    ]


def scripted(env: str, num_envs: int) -> Sequence[Mapping[str, str]]:
    """For each copy the reference's replies to the task of its seed, which its number is."""
    made = make(env)
    if not isinstance(made, TextParallelEnv):
        raise UserError(f"agents of {env!r} do not write; give --env a text environment")
    found = []
    for seed in range(num_envs):
        made.reset(seed=seed)
        found.append({agent: made.reference_reply(agent) or "" for agent in made.possible_agents})
    made.close()
    return found


def stepped(vector: VectorEnv, replies: Sequence[Mapping[str, str]]) -> int:
    """Play an episode in every copy, each turn by the same replies; returns the joint turns."""
    for index in range(vector.num_envs):
        vector.send_reset(index, seed=index)
    num_running, num_turns = vector.num_envs, 0
    while num_running:
        for index, (_, rewards, *_) in vector.ready().items():
            num_turns += bool(rewards)  # a reset pays nobody
            agents = vector.agents(index)
            if agents:
                vector.send({index: {agent: replies[index][agent] for agent in agents}})
            else:
                num_running -= 1
    return num_turns


def table(rates: Sequence[Rate], env: str) -> str:
    """Rates, and their ratios to the same in one process, as Markdown."""
    median = {rate.name: rate.steps_per_s.median for rate in rates}
    cells = [
        (rate.name, rate.steps_per_s.shown(".1f"), f"{rate.steps_per_s.median / median[rate.reference]:.2f}x")
        for rate in rates
    ]
    found = markdown_table(("", "environment steps per second", "ratio"), cells)
    return f"{env}, wall time on {os.cpu_count()} cores:\n\n{found}"


def _collected(actors: Actors, weights: Weights, firsts: count[int], num_envs: int) -> int:
    return sum(each.num_turns for each in actors.play(_order(next(firsts), num_envs), weights).episodes)


def _order(first: int, num_envs: int) -> Order:
    plans = tuple(grouped_plans(range(first, first + num_envs // 2), 2))
    return Order(update=0, version=0, plans=plans, first=first)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}"
