"""RolloutCollector: many copies of a parallel environment, decided in one batched call a policy.

It knows nothing of text. Every tick it asks each policy once for all agents of all running copies that it plays, steps
those copies, and starts the next episode in the place of one that ended.
"""

from __future__ import annotations

import copy
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..agents.core import Completion, Policy, Request
from ..agents.features import Features
from ..envs.vector import SyncVector, VectorEnv
from .episode import Episode, Turn


@dataclass(frozen=True, slots=True)
class Plan:
    """An episode to be played."""

    seed: int
    group: int = 0
    task: Any = None
    """What `reset(options={"task": ...})` gets; None lets the environment draw one from the seed."""


def grouped_plans(seeds: Iterable[int], group_size: int) -> list[Plan]:
    """G rollouts of each seed's task, one group a seed."""
    return [Plan(seed, group) for group, seed in enumerate(seeds) for _ in range(group_size)]


@dataclass(slots=True)
class _Play:
    """An episode under way."""

    plan: Plan
    index: int
    place: int
    observations: dict[str, Any]
    agents: list[str]
    states: list[Any]
    tracks: dict[str, list[Turn]]
    previous: dict[str, Completion] = field(default_factory=dict)
    finals: dict[str, Any] = field(default_factory=dict)
    is_terminated: dict[str, bool] = field(default_factory=dict)
    infos: list[dict[str, float]] = field(default_factory=list)
    num_turns: int = 0
    earlier_return: float = 0.0


class RolloutCollector:
    """Plays episodes with given policies and returns them.

    The result of an episode depends on its seed, its index and the weights, not on how many copies run side by side.

    Args:
        vector: copies of the environment.
        policies: who plays each possible agent; several agents may share one policy.
        reads_state: keep the joint history before each turn, for a centralized critic. Where the environment has no
            `state()` it is all agents' observations in a row.
        early_termination_threshold: an episode whose team reward in a turn is above it ends there; None: never.

    Raises:
        ValueError: if an agent has no policy.
    """

    def __init__(
        self,
        vector: VectorEnv,
        policies: Mapping[str, Policy],
        *,
        reads_state: bool = False,
        early_termination_threshold: float | None = None,
    ):
        missing = [agent for agent in vector.possible_agents if agent not in policies]
        if missing:
            raise ValueError(f"no policy for {missing}; give one for each of {vector.possible_agents}")
        self.vector = vector
        self.policies = {agent: policies[agent] for agent in vector.possible_agents}
        self.reads_state = reads_state
        self.early_termination_threshold = early_termination_threshold
        self.seconds: dict[str, float] = defaultdict(float)  # by phase, since the caller last cleared it
        self._number = {agent: i for i, agent in enumerate(vector.possible_agents)}
        self.next_index = 0
        self._unfinished: dict[int, _Play] = {}
        self._features: dict[str, Features] = {}  # of observations, where the environment has no state of its own

    def collect(self, plans: Sequence[Plan], *, greedy: bool = False) -> list[Episode]:
        """Play every plan to its end; the episodes come back in the order of the plans."""
        first = self.next_index
        self.next_index += len(plans)
        waiting = deque(zip(range(first, self.next_index), plans, strict=True))
        running: dict[int, _Play] = {}
        done: dict[int, Episode] = {}
        free = deque(range(self.vector.num_envs))
        while waiting or running:
            while waiting and free:
                index, plan = waiting.popleft()
                place = free.popleft()
                running[place] = self._started(place, index, plan)
            for play in self._tick(running, greedy):
                done[play.index] = _episode(play)
                del running[play.place]
                free.append(play.place)
        return [done[index] for index in sorted(done)]

    def collect_turns(self, num_turns: int, seeds: Iterable[int]) -> list[Episode]:
        """Play each copy for a number of joint turns, going on where the last call stopped.

        Args:
            num_turns: joint turns of each copy.
            seeds: of the episodes that start; as many are drawn as are needed.

        Returns:
            Segments: the end of an episode where it ended, else cut, to be bootstrapped from its last history.
        """
        draw = iter(seeds)
        segments: list[Episode] = []
        for place in range(self.vector.num_envs):
            if place not in self._unfinished:
                self._unfinished[place] = self._started(place, self._indexed(), Plan(next(draw)))
        for _ in range(num_turns):
            for play in self._tick(self._unfinished, greedy=False):
                segments.append(_episode(play))
                self._unfinished[play.place] = self._started(play.place, self._indexed(), Plan(next(draw)))
        for place, play in self._unfinished.items():
            if play.infos:
                segments.append(_episode(play, is_complete=False))
                self._unfinished[place] = _continued(play)
        return segments

    def _indexed(self) -> int:
        self.next_index += 1
        return self.next_index - 1

    def _started(self, place: int, index: int, plan: Plan) -> _Play:
        start = time.perf_counter()
        options = None if plan.task is None else {"task": plan.task}
        observations, _ = self.vector.reset(place, seed=plan.seed, options=options)
        agents = list(observations)
        play = _Play(plan, index, place, observations, agents, [], {agent: [] for agent in agents})
        if self.reads_state:
            play.states.append(self._state(play))
        self.seconds["environment"] += time.perf_counter() - start
        return play

    def _tick(self, running: Mapping[int, _Play], greedy: bool) -> list[_Play]:
        """One joint turn of every running copy; returns those that ended."""
        start = time.perf_counter()
        asked: dict[object, list[tuple[Policy, Request, int]]] = defaultdict(list)
        for place, play in running.items():
            for agent in play.agents:
                policy = self.policies[agent]
                stream = (play.plan.seed, play.index, self._number[agent], play.num_turns)
                request = Request(agent, play.observations[agent], stream, play.previous.get(agent))
                asked[policy.batch_key()].append((policy, request, place))
        completions: dict[int, dict[str, Completion]] = defaultdict(dict)
        for asks in asked.values():
            answers = asks[0][0].act_together([(policy, request) for policy, request, _ in asks], greedy=greedy)
            for (_, request, place), completion in zip(asks, answers, strict=True):
                completions[place][request.agent] = completion
        acted = time.perf_counter()
        self.seconds["decoding"] += acted - start
        results = self.vector.step(
            {place: {agent: answer.action for agent, answer in by.items()} for place, by in completions.items()}
        )
        ended = [running[place] for place in list(running) if self._stepped(running[place], completions, results)]
        self.seconds["environment"] += time.perf_counter() - acted
        return ended

    def _stepped(self, play: _Play, completions: Mapping[int, Mapping[str, Completion]], results: Any) -> bool:
        observations, rewards, terminations, truncations, infos = results[play.place]
        if self._is_good_enough([rewards[agent] for agent in play.agents]):
            terminations = dict.fromkeys(terminations, True)
        for agent in play.agents:
            completion = completions[play.place][agent]
            turn = Turn(play.observations[agent], completion, float(rewards[agent]), len(play.infos))
            play.tracks.setdefault(agent, []).append(turn)
            play.previous[agent] = completion
            if terminations[agent] or truncations[agent]:
                play.finals[agent] = observations[agent]
                play.is_terminated[agent] = bool(terminations[agent])
        play.infos.append(_mean_info(infos))
        play.num_turns += 1
        play.observations = observations
        play.agents = [agent for agent in observations if agent not in play.is_terminated]
        if self.reads_state:
            play.states.append(self._state(play))
        return not play.agents

    def _is_good_enough(self, rewards: Sequence[float]) -> bool:
        threshold = self.early_termination_threshold
        return threshold is not None and sum(rewards) / len(rewards) > threshold

    def state_dict(self) -> dict[str, Any]:
        """Where collecting stands: the count of episodes, and those that `collect_turns` has under way.

        Raises:
            ValueError: if episodes are under way in other processes, from where they cannot be saved.
        """
        state: dict[str, Any] = {"next_index": self.next_index}
        if self._unfinished:
            if not isinstance(self.vector, SyncVector):
                raise ValueError(
                    "episodes are under way in worker processes and cannot be saved; save after whole episodes "
                    "(turns_per_update=None), or use SyncVector"
                )
            state |= {"unfinished": copy.deepcopy(self._unfinished), "envs": copy.deepcopy(self.vector.envs)}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where `state_dict` was taken."""
        self.next_index = state["next_index"]
        self._unfinished = copy.deepcopy(state.get("unfinished", {}))
        if self._unfinished:
            assert isinstance(self.vector, SyncVector)
            self.vector.envs = copy.deepcopy(state["envs"])

    def _state(self, play: _Play) -> Any:
        state = self.vector.state(play.place)
        if state is not None:
            return state
        if not self._features:
            spaces = {agent: self.vector.observation_space(agent) for agent in self.vector.possible_agents}
            self._features = {agent: Features.of(space) for agent, space in spaces.items()}
        vectors = []
        for agent in self.vector.possible_agents:
            features = self._features[agent]
            has_left = agent not in play.observations
            vectors.append(
                np.zeros(features.size, dtype=np.float32) if has_left else features.vector(play.observations[agent])
            )
        return np.concatenate(vectors)


def _mean_info(infos: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    sums: dict[str, list[float]] = defaultdict(list)
    for info in infos.values():
        for name, value in info.items():
            if name.startswith(("reward/", "metric/")):
                sums[name].append(float(value))
    return {name: sum(values) / len(values) for name, values in sums.items()}


def _episode(play: _Play, *, is_complete: bool = True) -> Episode:
    tracks = {agent: tuple(track) for agent, track in play.tracks.items() if track}
    return Episode(
        index=play.index,
        seed=play.plan.seed,
        group=play.plan.group,
        tracks=tracks,
        states=tuple(play.states),
        finals={agent: play.finals.get(agent, play.observations.get(agent)) for agent in tracks},
        is_terminated={agent: play.is_terminated.get(agent, False) for agent in tracks},
        infos=tuple(play.infos),
        is_complete=is_complete,
        earlier_return=play.earlier_return,
    )


def _continued(play: _Play) -> _Play:
    """The same episode, from here on."""
    earned = sum(turn.reward for track in play.tracks.values() for turn in track) / max(1, len(play.tracks))
    return _Play(
        play.plan,
        play.index,
        play.place,
        play.observations,
        play.agents,
        play.states[-1:],
        {agent: [] for agent in play.agents},
        previous=play.previous,
        num_turns=play.num_turns,
        earlier_return=play.earlier_return + earned,
    )
