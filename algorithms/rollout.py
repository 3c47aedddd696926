"""RolloutCollector: many copies of a parallel environment, decided in one batched call a policy.

It knows nothing of text. It asks each policy once for all agents of all copies that wait for a decision, lets those
copies step, and starts the next episode in the place of one that ended. Copies in worker processes step while it
decides for others.
"""

from __future__ import annotations

import copy
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..agents.core import Policy, Request
from ..agents.features import Features
from ..envs.vector import StepResult, SyncVector, VectorEnv
from .episode import Episode, Turn
from .plays import Plan, Play, grouped_plans, mean_info

__all__ = ["Plan", "RolloutCollector", "grouped_plans"]

PATIENCE = 1.0
"""How long the next decision waits for half of the running copies, in times of the last decision: to decide for a few
takes almost as long as for many. With halves, one half steps while the other is decided for."""
GRACE = 0.25
"""How long it waits for the other half, in the same unit: where turns are quick, all are decided for together. Less of
it gains more where turns take as long as decisions, and loses more where decisions take most of the time."""


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
        self._decision_s = 0.0  # how long the last one took
        self._unfinished: dict[int, Play] = {}
        self._features: dict[str, Features] = {}  # of observations, where the environment has no state of its own

    def collect(self, plans: Sequence[Plan], *, greedy: bool = False) -> list[Episode]:
        """Play every plan to its end; the episodes come back in the order of the plans."""
        first = self.next_index
        self.next_index += len(plans)
        waiting = deque(zip(range(first, self.next_index), plans, strict=True))
        free = deque(range(self.vector.num_envs))
        running: dict[int, Play] = {}
        stepping: set[int] = set()
        done: dict[int, Episode] = {}
        last = time.perf_counter()
        while waiting or running:
            start = time.perf_counter()
            while waiting and free:
                index, plan = waiting.popleft()
                place = free.popleft()
                self.vector.send_reset(place, plan.seed, plan.options())
                running[place] = Play(plan, index, place)
                stepping.add(place)
            num_deciding = len(running) - len(stepping)
            rest = last + self._patience_s(num_deciding, len(running)) - start
            for play in self._ended(running, stepping, max(0.0, rest) if num_deciding else None):
                done[play.index] = play.episode()
                del running[play.place]
                free.append(play.place)
            now = time.perf_counter()
            self.seconds["environment"] += now - start
            deciding = [play for place, play in running.items() if place not in stepping]
            is_time = not stepping or now - last >= self._patience_s(len(deciding), len(running))
            if deciding and is_time and not (waiting and free):
                actions = self._decided(deciding, greedy)
                last = time.perf_counter()
                self._decision_s = last - now
                self.vector.send(actions)
                stepping |= actions.keys()
                self.seconds["environment"] += time.perf_counter() - last
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
            for play in self._tick(self._unfinished):
                segments.append(play.episode())
                self._unfinished[play.place] = self._started(play.place, self._indexed(), Plan(next(draw)))
        for place, play in self._unfinished.items():
            if play.infos:
                segments.append(play.episode(is_complete=False))
                self._unfinished[place] = play.continued()
        return segments

    def _indexed(self) -> int:
        self.next_index += 1
        return self.next_index - 1

    def _started(self, place: int, index: int, plan: Plan) -> Play:
        start = time.perf_counter()
        play = Play(plan, index, place)
        observations, _ = self.vector.reset(place, plan.seed, plan.options())
        self._begin(play, observations)
        self.seconds["environment"] += time.perf_counter() - start
        return play

    def _begin(self, play: Play, observations: dict[str, Any]) -> None:
        play.observations = observations
        play.agents = list(observations)
        play.tracks = {agent: [] for agent in play.agents}
        if self.reads_state:
            play.states.append(self._state(play))

    def _patience_s(self, num_deciding: int, num_running: int) -> float:
        """Seconds from one decision to the next in which others may come in."""
        return self._decision_s * (GRACE if 2 * num_deciding >= num_running else PATIENCE)

    def _ended(self, running: Mapping[int, Play], stepping: set[int], timeout_s: float | None) -> list[Play]:
        """Take in what copies have done, and strike them off those that are stepping; returns plays that ended."""
        arrived = self.vector.ready(timeout_s) if stepping else {}
        ended = []
        for place in stepping & arrived.keys():  # what else arrives is of a call that was broken off
            stepping.remove(place)
            play = running[place]
            if not play.agents:
                self._begin(play, arrived[place][0])
            elif self._stepped(play, arrived[place]):
                ended.append(play)
        return ended

    def _tick(self, running: Mapping[int, Play]) -> list[Play]:
        """One joint turn of every running copy; returns those that ended."""
        actions = self._decided(list(running.values()), greedy=False)
        start = time.perf_counter()
        results = self.vector.step(actions)
        ended = [play for place, play in running.items() if self._stepped(play, results[place])]
        self.seconds["environment"] += time.perf_counter() - start
        return ended

    def _decided(self, plays: Sequence[Play], greedy: bool) -> dict[int, dict[str, Any]]:
        """What all agents do in these plays' next joint turn, by place."""
        start = time.perf_counter()
        asked: dict[object, list[tuple[Policy, Request, Play]]] = defaultdict(list)
        for play in plays:
            play.decided = {}
            for agent in play.agents:
                policy = self.policies[agent]
                stream = (play.plan.seed, play.index, self._number[agent], play.num_turns)
                request = Request(agent, play.observations[agent], stream, play.previous.get(agent))
                asked[policy.batch_key()].append((policy, request, play))
        for asks in asked.values():
            answers = asks[0][0].act_together([(policy, request) for policy, request, _ in asks], greedy=greedy)
            for (_, request, play), completion in zip(asks, answers, strict=True):
                play.decided[request.agent] = completion
        self.seconds["decoding"] += time.perf_counter() - start
        return {play.place: {agent: answer.action for agent, answer in play.decided.items()} for play in plays}

    def _stepped(self, play: Play, result: StepResult) -> bool:
        observations, rewards, terminations, truncations, infos = result
        if self._is_good_enough([rewards[agent] for agent in play.agents]):
            terminations = dict.fromkeys(terminations, True)
        for agent in play.agents:
            completion = play.decided[agent]
            turn = Turn(play.observations[agent], completion, float(rewards[agent]), len(play.infos))
            play.tracks.setdefault(agent, []).append(turn)
            play.previous[agent] = completion
            if terminations[agent] or truncations[agent]:
                play.finals[agent] = observations[agent]
                play.is_terminated[agent] = bool(terminations[agent])
        play.infos.append(mean_info(infos))
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

    def _state(self, play: Play) -> Any:
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
