"""Rollout collector: plays episodes in vectorized environments, with one batched call per model and decision.

Environment copies in worker processes step while the policies decide for other copies. A `Plan` describes an episode to
play, a `Play` is a running episode, and an `Episode` is the result.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..._progress import advance, expect, phase
from ...agents.core import Policy, Request
from ...agents.numeric.features import Features
from ...envs.core import Transcript, joint_reading, messages_of
from ...envs.vectors.faults import EnvironmentFault, StepResult
from ...envs.vectors.vector import VectorEnv
from ...envs.wrappers.recording import mean_info
from ..distribution.group import current
from .episode import Episode, Turn
from .plays import Plan, Play, grouped_plans, replayed_play
from .side_by_side import ModelTask, SideBySide

__all__ = ["Plan", "RolloutCollector", "grouped_plans"]

HALF_WAIT_FACTOR = 1.0
"""Maximum wait if fewer than half of the environment copies are ready. Unit: duration of the last decision."""
ALL_WAIT_FACTOR = 0.25
"""Maximum wait after half of the environment copies are ready. Unit: duration of the last decision. A smaller value is
faster if steps take as long as decisions, and slower if decisions take most of the time."""
MAX_SKIPPED = 0.1
"""Largest fraction of a `collect` call's episodes (at least one) that may be skipped because their processes failed."""


class Played(NamedTuple):
    """Episodes that one rank or worker played: a subset of the episodes of one `collect` call."""

    done: list[Episode]
    lost: set[int]  # indices of the groups in which an episode was skipped
    skipped: list[EnvironmentFault]


class RolloutCollector:
    """Collector that plays episodes with given policies. Each rank plays a subset of the episodes.

    An episode depends on its seed, its index and the weights. With another number of environment copies, results differ
    by rounding, which rarely changes a sampled token; after `Policy.fix_shapes`, results are equal. Raises `ValueError`
    if an agent has no policy.

    Attributes:
        seconds: seconds spent in each phase since the caller last cleared this dict.
        skipped: environment faults of the episodes that the last `collect` skipped.
        version: version of the policies' weights, stored in each completion.
        max_turns: joint turns after which `collect` truncates an episode. None: only the environment ends episodes.
        keeps_vectors: keep vector observations and the `tokens` of their completions, which learning needs.

    Args:
        vector: environment copies.
        policies: policy of each possible agent; several agents may share a policy.
        reads_state: keep the joint history before each turn, for a centralized critic. If the environment has no
            `state()`, the concatenated observations of all agents are used.
        early_termination_threshold: team reward per turn (mean over all agents) above which an episode terminates.
        side_by_side: executor that runs different models concurrently. None: `SideBySide()`.
    """

    def __init__(
        self,
        vector: VectorEnv,
        policies: Mapping[str, Policy],
        *,
        reads_state: bool = False,
        early_termination_threshold: float | None = None,
        side_by_side: SideBySide | None = None,
    ):
        missing = [agent for agent in vector.possible_agents if agent not in policies]
        if missing:
            raise ValueError(f"policies has no policy for {missing}; every agent of {vector.possible_agents} needs one")
        self.vector = vector
        self.policies = {agent: policies[agent] for agent in vector.possible_agents}
        self.reads_state = reads_state
        self.early_termination_threshold = early_termination_threshold
        self.side_by_side = side_by_side or SideBySide()
        self.seconds: dict[str, float] = defaultdict(float)
        self.skipped: list[EnvironmentFault] = []
        self._number = {agent: i for i, agent in enumerate(vector.possible_agents)}
        self.max_turns: int | None = None
        self.keeps_vectors = True
        self.next_index = 0
        self.version = 0
        self._frozen_state: dict[str, Any] | None = None  # state before the current or interrupted call
        self._decision_s = 0.0  # duration of the last decision
        self._unfinished: dict[int, Play] = {}  # keys: indices of environment copies; for `collect_turns`
        self._features: dict[str, Features] = {}  # features of observations, if the environment has no state

    def collect(self, plans: Sequence[Plan], *, greedy: bool = False) -> list[Episode]:
        """Play the episode of every plan to its end or to `max_turns`; returns the episodes in the order of the plans.

        If an episode is skipped, its whole group is left out, because baselines compare the rollouts of a group. Raises
        `EnvironmentFault` if an environment raises an error or violates its API, or too many episodes are skipped.
        """
        group = current()
        with self._call_started():
            own = group.shard(list(enumerate(plans, start=self.next_index)))
            self.next_index += len(plans)
            parts = group.together(lambda: self.play(own, len(plans), greedy=greedy))
        self.skipped = [fault for part in parts for fault in part.skipped]
        return merged(parts, len(plans))

    def play(self, indexed_plans: Sequence[tuple[int, Plan]], num_plans: int, *, greedy: bool = False) -> Played:
        """Play some plans of a `collect` call in this process. The whole call has `num_plans` plans.

        Raises `EnvironmentFault` for the same reasons as `collect`.
        """
        waiting = deque(indexed_plans)
        running: dict[int, Play] = {}  # keys: indices of environment copies
        free = deque(range(self.vector.num_envs))
        stepping: set[int] = set()  # copies whose reset or step is still running
        played = Played([], set(), [])
        self.skipped = played.skipped
        limit = self.vector.turn_limit or 0
        last = time.perf_counter()
        with self._faults_numbered(running), phase("play", "joint turns"):
            expect(len(indexed_plans) * limit)
            while waiting or running:
                start = time.perf_counter()
                # 1. Start waiting episodes in free copies.
                while waiting and free:
                    index, plan = waiting.popleft()
                    place = free.popleft()
                    running[place] = Play(plan, index, place, num_agents=len(self._number))
                    self.vector.send_reset(place, plan.seed, plan.options())
                    stepping.add(place)
                # 2. Receive the results of resets and steps until the next decision is due.
                num_ready = len(running) - len(stepping)
                rest_s = last + self._wait_s(num_ready, len(running)) - start
                for play in self._receive(running, stepping, max(0.0, rest_s) if num_ready else None):
                    played.done.append(self._finished(play))
                    del running[play.place]
                    free.append(play.place)
                    expect(play.num_turns - limit if limit else 0)
                # 3. Skip episodes whose worker process was lost twice, because it died or did not respond.
                for place, fault in self.vector.lost().items():
                    stepping.discard(place)
                    free.append(place)
                    play = running.pop(place)
                    fault.episode = play.index
                    played.lost.add(play.plan.group)
                    played.skipped.append(fault)
                    if len(played.skipped) > _max_skipped(num_plans):
                        raise fault
                now = time.perf_counter()
                self.seconds["environment"] += now - start
                # 4. Decide for all ready copies together, and send their actions.
                ready = [play for place, play in running.items() if place not in stepping]
                is_due = not stepping or now - last >= self._wait_s(len(ready), len(running))
                if ready and is_due and not (waiting and free):
                    advance(len(ready), f"{len(played.done)} of {len(indexed_plans)} episodes ended")
                    actions = self._decide(ready, greedy)
                    last = time.perf_counter()
                    self._decision_s = last - now
                    self.vector.send(actions)
                    stepping |= actions.keys()
                    self.seconds["environment"] += time.perf_counter() - last
        return played

    def collect_turns(
        self, num_turns: int, seeds: Iterable[int], *, difficulty: int | str | None = None
    ) -> list[Episode]:
        """Play `num_turns` joint turns in each environment copy. Continues the unfinished episodes of the last call.

        A new episode takes the next seed of `seeds`. Returns segments of episodes. A segment of an unfinished episode
        has `is_complete=False`, and the critic's value of its last history is the bootstrap value. Raises
        `EnvironmentFault` if an environment raises an error or violates its API.
        """
        plans = (Plan(seed, difficulty=difficulty) for seed in seeds)
        with self._call_started():
            # Only rank 0 plays: the order in which episodes end decides which episode a copy starts next.
            return current().by_writer(lambda: self.play_turns(num_turns, plans))

    def play_turns(self, num_turns: int, plans: Iterator[Plan]) -> list[Episode]:
        """Play joint turns as `collect_turns` does, in this process and without the other ranks."""
        running = self._unfinished
        segments: list[Episode] = []
        with self._faults_numbered(running), phase("play", "joint turns"):
            expect(num_turns * self.vector.num_envs)
            for place in range(self.vector.num_envs):
                if place not in running:
                    self._start(place, next(plans))
            for _ in range(num_turns):
                advance(len(running))
                actions = self._decide(list(running.values()), greedy=False)
                start = time.perf_counter()
                results = self.vector.step(actions)
                ended = [play for place, play in running.items() if self._record_step(play, results[place])]
                self.seconds["environment"] += time.perf_counter() - start
                for play in ended:
                    segments.append(play.episode())
                    self._start(play.place, next(plans))
            for place, play in running.items():
                if play.infos:
                    segments.append(play.episode(is_complete=False))
                    running[place] = play.continued()
        return segments

    @contextmanager
    def _faults_numbered(self, running: Mapping[int, Play]) -> Iterator[None]:
        """Context manager: add the index of the episode to environment faults."""
        try:
            yield
        except EnvironmentFault as fault:
            if fault.episode is None and fault.copy is not None and fault.copy in running:
                fault.episode = running[fault.copy].index
            raise

    @contextmanager
    def _call_started(self) -> Iterator[None]:
        """Context manager: make the policies ready, and freeze `state_dict` until the block succeeds."""
        for policy in dict.fromkeys(self.policies.values()):
            policy.make_ready(current())
        self._frozen_state = self.state_dict()
        yield
        self._frozen_state = None

    def _start(self, place: int, plan: Plan) -> None:
        start = time.perf_counter()
        play = self._unfinished[place] = Play(plan, self.next_index, place, num_agents=len(self._number))
        self.next_index += 1
        observations, infos = self.vector.reset(place, plan.seed, plan.options())
        self._record_reset(play, observations, infos)
        self.seconds["environment"] += time.perf_counter() - start

    def _wait_s(self, num_ready: int, num_running: int) -> float:
        """Return the maximum seconds between two decisions while some environment copies are stepping."""
        return self._decision_s * (ALL_WAIT_FACTOR if 2 * num_ready >= num_running else HALF_WAIT_FACTOR)

    def _receive(self, running: Mapping[int, Play], stepping: set[int], timeout_s: float | None) -> list[Play]:
        """Record the results of finished resets and steps, and return the episodes that ended."""
        arrived = self.vector.ready(timeout_s) if stepping else {}
        ended = []
        for place in stepping & arrived.keys():  # other results are from an interrupted call
            stepping.remove(place)
            play = running[place]
            if not play.agents:
                self._record_reset(play, arrived[place][0], arrived[place][4])
            elif self._record_step(play, arrived[place]) or play.num_turns == self.max_turns:
                ended.append(play)
        return ended

    def _decide(self, plays: Sequence[Play], greedy: bool) -> dict[int, dict[str, Any]]:
        """Return the next joint action of each running episode; keys: environment copies. Calls each model once."""
        start = time.perf_counter()
        batches: dict[object, list[tuple[Policy, Request, Play]]] = defaultdict(list)
        for play in plays:
            script = play.plan.script
            play.decided = dict(script[play.num_turns]) if play.num_turns < len(script) else {}
            for agent in play.movers:
                if agent in play.decided:
                    continue
                policy = self.policies[agent]
                stream = (play.plan.seed, play.index, self._number[agent], play.num_turns)
                request = Request(
                    agent, play.observations[agent], stream, play.previous.get(agent), play.masks.get(agent)
                )
                batches[policy.batch_key()].append((policy, request, play))
        tasks = []
        for batch in batches.values():
            first, requests = batch[0][0], [(policy, request) for policy, request, _ in batch]
            tasks.append(ModelTask(first.workplace(), partial(first.act_together, requests, greedy=greedy)))
        for batch, completions in zip(batches.values(), self.side_by_side.results(tasks), strict=True):
            for (_, request, play), completion in zip(batch, completions, strict=True):
                if completion.version != self.version:
                    completion = replace(completion, version=self.version)
                play.decided[request.agent] = completion
        self.seconds["decoding"] += time.perf_counter() - start
        return {play.place: {agent: each.action for agent, each in play.decided.items()} for play in plays}

    def _record_reset(self, play: Play, observations: dict[str, Any], infos: Mapping[str, Any]) -> None:
        play.observe(list(observations), observations, infos)
        play.tracks = {agent: [] for agent in play.agents}
        if self.reads_state:
            play.states.append(self._state(play))

    def _record_step(self, play: Play, result: StepResult) -> bool:
        """Append a joint turn to a running episode. Returns True if the episode ended."""
        observations, rewards, terminations, truncations, infos = result
        threshold, earned = self.early_termination_threshold, [rewards[agent] for agent in play.agents]
        if threshold is not None and sum(earned) / len(self._number) > threshold:
            terminations = dict.fromkeys(terminations, True)
        for agent in play.agents:
            if agent not in play.movers:
                play.waiting.setdefault(agent, {})[len(play.infos)] = rewards[agent]
            else:
                completion = play.decided[agent]
                seen, kept = play.observations[agent], completion
                if not self._is_kept(seen):
                    seen, kept = None, replace(completion, tokens=None)
                play.tracks.setdefault(agent, []).append(Turn(seen, kept, rewards[agent], len(play.infos)))
                play.previous[agent] = completion
            if terminations[agent] or truncations[agent]:
                play.finals[agent] = observations[agent]
                play.is_terminated[agent] = bool(terminations[agent])
        play.paid.append({agent: float(rewards[agent]) for agent in play.agents})
        play.infos.append(mean_info(infos))
        play.num_turns += 1
        # An agent that has ended acts no more, also in later segments, even if the environment still observes it.
        acting = set(play.agents) - play.is_terminated.keys()
        play.observe([agent for agent in observations if agent in acting], observations, infos)
        if self.reads_state:
            play.states.append(self._state(play))
        return not play.agents

    def _finished(self, play: Play) -> Episode:
        episode = play.episode(is_cut=bool(play.agents))
        finals = {agent: final if self._is_kept(final) else None for agent, final in episode.finals.items()}
        return replace(episode, finals=finals)

    def _is_kept(self, observation: Any) -> bool:
        return self.keeps_vectors or isinstance(observation, str)

    def _state(self, play: Play) -> Any:
        """Return the environment's state. If it has no state: all observations, with zeros for agents that left.

        Text observations are joined as in the joint history of a `TextParallelEnv`.
        """
        state = self.vector.state(play.place)
        if state is not None:
            return state
        texts = {agent: messages_of(it) for agent, it in play.observations.items() if isinstance(it, str)}
        if texts and len(texts) == len(play.observations):
            return Transcript(joint_reading(texts))
        if not self._features:
            spaces = {agent: self.vector.observation_space(agent) for agent in self.vector.possible_agents}
            self._features = {agent: Features.of(space) for agent, space in spaces.items()}
        vectors = []
        for agent, features in self._features.items():
            has_left = agent not in play.observations
            zeros = np.zeros(features.size, dtype=np.float32)
            vectors.append(zeros if has_left else features.vector(play.observations[agent]))
        return np.concatenate(vectors)

    def state_dict(self) -> dict[str, Any]:
        """Return the next episode index and the unfinished episodes of `collect_turns`, as seeds and joint actions.

        If a call was interrupted, the state from before this call is returned.
        """
        if self._frozen_state is not None:
            return self._frozen_state
        courses = self.vector.courses
        unfinished = [play.to_state(courses[place].actions) for place, play in self._unfinished.items()]
        return {"next_index": self.next_index, "unfinished": unfinished}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state by replaying the unfinished episodes. Raises `ReplayError` if a replay differs."""
        self.next_index = state["next_index"]
        self._unfinished = {}
        for kept in state["unfinished"]:
            play = self._unfinished[kept["place"]] = replayed_play(self.vector, kept)
            if self.reads_state:
                play.states.append(self._state(play))


def merged(parts: Sequence[Played], num_plans: int) -> list[Episode]:
    """Merge the episodes of ranks or workers in the order of their plans. Omits groups with skipped episodes.

    Raises `EnvironmentFault` if too many episodes were skipped.
    """
    done = {episode.index: episode for part in parts for episode in part.done}
    lost = {number for part in parts for number in part.lost}
    skipped = [fault for part in parts for fault in part.skipped]
    kept = [done[index] for index in sorted(done) if done[index].group not in lost]
    if len(skipped) > _max_skipped(num_plans) or (lost and not kept):
        raise skipped[-1]
    return kept


def _max_skipped(num_plans: int) -> float:
    return max(1, MAX_SKIPPED * num_plans)
