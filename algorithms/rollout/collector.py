"""RolloutCollector: many copies of a parallel environment, with one batched call per policy and decision.

The collector knows nothing of text. It calls each policy once for all agents of all copies that are ready, lets those
copies step, and starts the next episode in the place of one that ended. Copies in worker processes step while the
policies decide for others.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...agents.core import Completion, Policy, Request
from ...agents.numeric.features import Features
from ...envs.vectors.faults import EnvironmentFault, StepResult
from ...envs.vectors.vector import VectorEnv
from ..distribution.group import current
from .episode import Episode, Turn
from .plays import Plan, Play, ReplayError, grouped_plans, is_same, masks_of, mean_info, replayed
from .side_by_side import ModelTask, SideBySide

__all__ = ["Plan", "RolloutCollector", "grouped_plans"]

HALF_WAIT_FACTOR = 1.0
"""While fewer than half of the running copies are ready, wait at most this multiple of the last decision's duration
before deciding. A decision for few copies takes almost as long as one for many; with halves, one half steps while the
policies decide for the other."""
ALL_WAIT_FACTOR = 0.25
"""Once half of the running copies are ready, wait at most this multiple of the last decision's duration for the rest.
Where turns are quick, one decision then serves all copies. A smaller factor gains more where turns take as long as
decisions, and loses more where decisions take most of the time."""
MAX_SKIPPED = 0.1
"""Largest share of the episodes of one call that may be skipped (one always may), as their worker processes died or
hung twice. More of them are a fault of the environment or the machine, which skipping would hide."""

UNREPEATABLE = (
    "it is played again: its environment does not repeat itself for the same seed and actions (`collm check` says "
    "where), or has changed; training with whole episodes (turns_per_update=None) needs no replay"
)


class Played(NamedTuple):
    """A share of the episodes of a call."""

    done: list[Episode]
    lost: set[int]
    """Groups of episodes that were given up."""
    skipped: list[EnvironmentFault]


class RolloutCollector:
    """Collects episodes with given policies, each rank its share of them.

    An episode depends on its seed, its index and the weights, not on the number of copies that run side by side: its
    texts and rewards exactly, recorded log-probabilities up to rounding, and exactly where the policies compute in
    fixed shapes (`Policy.fix_shapes`).

    Attributes:
        seconds: by phase, since the caller last cleared them.
        skipped: faults of the episodes that the last `collect` gave up.
        version: version of the policies' weights, which their completions are marked with.
        before_turn: called before each decision; may raise, to leave the call. None: nothing is called.
        max_turns: joint turns after which `collect` truncates an episode. None: the environment alone ends it.
        keeps_vectors: keep observations that are no texts, and the tokens of decisions on them. False where nothing
            learns from the episodes: memory then does not grow with the number of turns.
        num_planned: episodes of the present or last `collect` that this rank plays.
        num_ended: number of them that have ended.
        num_decided: joint turns that this rank has decided in it.

    Args:
        vector: copies of the environment.
        policies: policy of each possible agent; several agents may share one.
        reads_state: keep the joint history before each turn, for a centralized critic. Where the environment has no
            `state()`, all agents' observations in a row take its place.
        early_termination_threshold: team reward per turn (the mean over all agents) above which an episode ends;
            None: never.
        side_by_side: decides whether policies with models of their own compute at the same time; None: where it pays.

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
        side_by_side: SideBySide | None = None,
    ):
        missing = [agent for agent in vector.possible_agents if agent not in policies]
        if missing:
            raise ValueError(f"no policy for {missing}; give one for each of {vector.possible_agents}")
        self.vector = vector
        self.policies = {agent: policies[agent] for agent in vector.possible_agents}
        self.reads_state = reads_state
        self.early_termination_threshold = early_termination_threshold
        self.side_by_side = side_by_side or SideBySide()
        self.seconds: dict[str, float] = defaultdict(float)
        self.skipped: list[EnvironmentFault] = []
        self._number = {agent: i for i, agent in enumerate(vector.possible_agents)}
        self.before_turn: Callable[[], None] | None = None
        self.max_turns: int | None = None
        self.keeps_vectors = True
        self.num_planned = self.num_ended = self.num_decided = 0
        self.next_index = 0
        self.version = 0
        self._kept_state: dict[str, Any] | None = None  # from before the call that is under way, or was left off
        self._decision_s = 0.0  # duration of the last decision
        self._unfinished: dict[int, Play] = {}
        self._features: dict[str, Features] = {}  # by agent, of its observations, where the environment has no state

    def collect(self, plans: Sequence[Plan], *, greedy: bool = False) -> list[Episode]:
        """Play every plan to its end; returns the episodes in the order of the plans.

        An episode that the vector gave up is left out, with its whole group, as baselines compare the rollouts of one.

        Raises:
            EnvironmentFault: if an environment raises or breaks its contract, or too many episodes were given up.
        """
        group = current()
        self._make_ready()
        with self._whole():
            share = group.shard(list(enumerate(plans, start=self.next_index)))
            self.next_index += len(plans)
            parts = group.together(lambda: self.play(share, len(plans), greedy=greedy))
        self.skipped = [fault for part in parts for fault in part.skipped]
        return together(parts, len(plans))

    def _make_ready(self) -> None:
        for policy in dict.fromkeys(self.policies.values()):
            policy.make_ready(current())

    def play(self, share: Sequence[tuple[int, Plan]], num_plans: int, *, greedy: bool = False) -> Played:
        """Play some of the plans of a call, given with the indices of their episodes, without the other ranks.

        Args:
            share: indices and plans.
            num_plans: plans of the whole call.

        Raises:
            EnvironmentFault: if an environment raises or breaks its contract, or too many episodes were given up.
        """
        running: dict[int, Play] = {}
        self.skipped = []
        with self._telling(running):
            return self._played(share, num_plans, running, greedy)

    def _played(
        self, share: Sequence[tuple[int, Plan]], num_plans: int, running: dict[int, Play], greedy: bool
    ) -> Played:
        waiting = deque(share)
        free = deque(range(self.vector.num_envs))
        stepping: set[int] = set()
        done: dict[int, Episode] = {}
        lost: set[int] = set()  # groups
        self.num_planned, self.num_ended, self.num_decided = len(share), 0, 0
        last = time.perf_counter()
        while waiting or running:
            start = time.perf_counter()
            while waiting and free:
                index, plan = waiting.popleft()
                place = free.popleft()
                running[place] = Play(plan, index, place, num_agents=len(self._number))
                self.vector.send_reset(place, plan.seed, plan.options())
                stepping.add(place)
            num_deciding = len(running) - len(stepping)
            rest = last + self._wait_s(num_deciding, len(running)) - start
            for play in self._ended(running, stepping, max(0.0, rest) if num_deciding else None):
                done[play.index] = self._episode(play)
                del running[play.place]
                free.append(play.place)
                self.num_ended += 1
            for place, fault in self.vector.lost().items():
                stepping.discard(place)
                free.append(place)
                play = running.pop(place)
                lost.add(play.plan.group)
                self._skip(play, fault, num_plans)
            now = time.perf_counter()
            self.seconds["environment"] += now - start
            deciding = [play for place, play in running.items() if place not in stepping]
            is_time = not stepping or now - last >= self._wait_s(len(deciding), len(running))
            if deciding and is_time and not (waiting and free):
                actions = self._decided(deciding, greedy)
                last = time.perf_counter()
                self._decision_s = last - now
                self.vector.send(actions)
                stepping |= actions.keys()
                self.seconds["environment"] += time.perf_counter() - last
        return Played(list(done.values()), lost, self.skipped)

    def _skip(self, play: Play, fault: EnvironmentFault, num_plans: int) -> None:
        fault.episode = play.index
        self.skipped.append(fault)
        if len(self.skipped) > _max_skipped(num_plans):
            raise fault

    @contextmanager
    def _telling(self, running: Mapping[int, Play]) -> Iterator[None]:
        """Let a fault of an environment tell the number of its episode."""
        try:
            yield
        except EnvironmentFault as fault:
            if fault.episode is None and fault.copy is not None and fault.copy in running:
                fault.episode = running[fault.copy].index
            raise

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Let the state to resume from be that of before the block, until it has come to its end."""
        self._kept_state = self.state_dict()
        yield
        self._kept_state = None

    def collect_turns(
        self, num_turns: int, seeds: Iterable[int], *, difficulty: int | str | None = None
    ) -> list[Episode]:
        """Play a number of joint turns per copy, continuing where the last call stopped.

        Args:
            num_turns: joint turns per copy.
            seeds: seeds of the episodes that start; only as many as needed are drawn.
            difficulty: difficulty of those episodes. None: the environment's own.

        Returns:
            Segments: each ends with its episode or, incomplete, with this call, where the value of its last history is
            to bootstrap it.

        Raises:
            EnvironmentFault: if an environment raises or breaks its contract.
        """
        plans = (Plan(seed, difficulty=difficulty) for seed in seeds)
        self._make_ready()
        with self._whole():
            # One rank alone: which episode a copy starts next depends on when those of all others end.
            return current().by_writer(lambda: self.play_turns(num_turns, plans))

    def play_turns(self, num_turns: int, draw: Iterator[Plan]) -> list[Episode]:
        """Play a number of joint turns per copy as `collect_turns` does, without the other ranks."""
        with self._telling(self._unfinished):
            return self._segments(num_turns, draw)

    def _segments(self, num_turns: int, draw: Iterator[Plan]) -> list[Episode]:
        segments: list[Episode] = []
        for place in range(self.vector.num_envs):
            if place not in self._unfinished:
                self._start(place, next(draw))
        for _ in range(num_turns):
            for play in self._tick(self._unfinished):
                segments.append(play.episode())
                self._start(play.place, next(draw))
        for place, play in self._unfinished.items():
            if play.infos:
                segments.append(play.episode(is_complete=False))
                self._unfinished[place] = play.continued()
        return segments

    def _start(self, place: int, plan: Plan) -> None:
        start = time.perf_counter()
        play = self._unfinished[place] = Play(plan, self.next_index, place, num_agents=len(self._number))
        self.next_index += 1
        observations, infos = self.vector.reset(place, plan.seed, plan.options())
        self._begin(play, observations, infos)
        self.seconds["environment"] += time.perf_counter() - start

    def _begin(self, play: Play, observations: dict[str, Any], infos: Mapping[str, Any]) -> None:
        play.observations, play.masks = observations, masks_of(infos)
        play.agents = list(observations)
        play.tracks = {agent: [] for agent in play.agents}
        if self.reads_state:
            play.states.append(self._state(play))

    def _wait_s(self, num_ready: int, num_running: int) -> float:
        """Longest time from one decision to the next, in seconds, in which further copies may become ready."""
        return self._decision_s * (ALL_WAIT_FACTOR if 2 * num_ready >= num_running else HALF_WAIT_FACTOR)

    def _ended(self, running: Mapping[int, Play], stepping: set[int], timeout_s: float | None) -> list[Play]:
        """Receive the results of copies that have stepped; returns the plays that ended."""
        arrived = self.vector.ready(timeout_s) if stepping else {}
        ended = []
        for place in stepping & arrived.keys():  # other results belong to a call that was interrupted
            stepping.remove(place)
            play = running[place]
            if not play.agents:
                self._begin(play, arrived[place][0], arrived[place][4])
            elif self._stepped(play, arrived[place]) or play.num_turns == self.max_turns:
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
        """Actions of all agents in these plays' next joint turn, by place."""
        if self.before_turn is not None:
            self.before_turn()
        start = time.perf_counter()
        asked: dict[object, list[tuple[Policy, Request, Play]]] = defaultdict(list)
        for play in plays:
            play.decided = {}
            for agent in play.agents:
                policy = self.policies[agent]
                stream = (play.plan.seed, play.index, self._number[agent], play.num_turns)
                request = Request(
                    agent, play.observations[agent], stream, play.previous.get(agent), play.masks.get(agent)
                )
                asked[policy.batch_key()].append((policy, request, play))
        tasks = []
        for asks in asked.values():
            first, requests = asks[0][0], [(policy, request) for policy, request, _ in asks]
            tasks.append(ModelTask(first.workplace(), partial(first.act_together, requests, greedy=greedy)))
        for asks, answers in zip(asked.values(), self.side_by_side.results(tasks), strict=True):
            for (_, request, play), completion in zip(asks, answers, strict=True):
                play.decided[request.agent] = _stamped(completion, self.version)
        self.seconds["decoding"] += time.perf_counter() - start
        self.num_decided += len(plays)
        return {play.place: {agent: answer.action for agent, answer in play.decided.items()} for play in plays}

    def _stepped(self, play: Play, result: StepResult) -> bool:
        observations, rewards, terminations, truncations, infos = result
        if self._is_good_enough([rewards[agent] for agent in play.agents]):
            terminations = dict.fromkeys(terminations, True)
        for agent in play.agents:
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
        play.observations, play.masks = observations, masks_of(infos)
        play.agents = [agent for agent in observations if agent not in play.is_terminated]
        if self.reads_state:
            play.states.append(self._state(play))
        return not play.agents

    def _episode(self, play: Play) -> Episode:
        """The episode of a play that has ended, without observations that are not kept."""
        episode = play.episode(is_cut=bool(play.agents))
        if self.keeps_vectors:
            return episode
        finals = {agent: final if self._is_kept(final) else None for agent, final in episode.finals.items()}
        return replace(episode, finals=finals)

    def _is_kept(self, observation: Any) -> bool:
        return self.keeps_vectors or isinstance(observation, str)

    def _is_good_enough(self, rewards: Sequence[float]) -> bool:
        threshold = self.early_termination_threshold
        return threshold is not None and sum(rewards) / len(self._number) > threshold

    def state_dict(self) -> dict[str, Any]:
        """State to resume from: the count of episodes, and the plays that `collect_turns` has under way.

        An environment is not saved: its episode is, as its seed, its options and the joint actions so far. Where a
        call was left off in its middle, the state is that of before the call.
        """
        if self._kept_state is not None:
            return self._kept_state
        return {"next_index": self.next_index, "unfinished": [self._kept(play) for play in self._unfinished.values()]}

    def _kept(self, play: Play) -> dict[str, Any]:
        return {
            "place": play.place,
            "index": play.index,
            "seed": play.plan.seed,
            "group": play.plan.group,
            "task": play.plan.task,
            "difficulty": play.plan.difficulty,
            "agents": play.agents,
            "observations": play.observations,
            "previous": dict(play.previous),
            "num_turns": play.num_turns,
            "earlier_return": play.earlier_return,
            "actions": list(self.vector.courses[play.place].actions),
            "rewards": list(play.paid),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from what `state_dict` returned; episodes that were under way are played again.

        Raises:
            ReplayError: if one of them takes another course than the recorded one.
        """
        self.next_index = state["next_index"]
        self._unfinished = {kept["place"]: self._brought_back(kept) for kept in state["unfinished"]}

    def _brought_back(self, kept: Mapping[str, Any]) -> Play:
        play = Play(
            Plan(kept["seed"], kept["group"], kept["task"], kept["difficulty"]),
            kept["index"],
            kept["place"],
            agents=list(kept["agents"]),
            tracks={agent: [] for agent in kept["agents"]},
            previous=dict(kept["previous"]),
            num_turns=kept["num_turns"],
            earlier_return=kept["earlier_return"],
            num_agents=len(self._number),
            paid=list(kept["rewards"]),
        )
        name = f"episode {play.index} (seed {play.plan.seed})"
        steps = replayed(self.vector, play.place, play.plan, kept["actions"])
        begun = next(steps)
        play.observations, play.masks = begun[0], masks_of(begun[4])
        for turn, (paid, result) in enumerate(zip(play.paid, steps, strict=True), start=1):
            found = {agent: float(result[1][agent]) for agent in paid}
            if not is_same(found, paid):
                raise ReplayError(f"{name} paid {paid} in turn {turn}, but pays {found} when {UNREPEATABLE}")
            play.observations, play.masks = result[0], masks_of(result[4])
        if not is_same(play.observations, kept["observations"]):
            when = f"after turn {len(play.paid)}" if play.paid else "at reset"
            raise ReplayError(f"{name} shows other observations {when} when {UNREPEATABLE}")
        if self.reads_state:
            play.states.append(self._state(play))
        return play

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


def together(parts: Sequence[Played], num_plans: int) -> list[Episode]:
    """The episodes of all shares in the order of their plans, without the groups of those that were given up.

    Raises:
        EnvironmentFault: if too many were given up.
    """
    done = {episode.index: episode for part in parts for episode in part.done}
    lost = {number for part in parts for number in part.lost}
    skipped = [fault for part in parts for fault in part.skipped]
    kept = [done[index] for index in sorted(done) if done[index].group not in lost]
    if len(skipped) > _max_skipped(num_plans) or (lost and not kept):
        raise skipped[-1]
    return kept


def _stamped(completion: Completion, version: int) -> Completion:
    return completion if completion.version == version else replace(completion, version=version)


def _max_skipped(num_plans: int) -> float:
    return max(1, MAX_SKIPPED * num_plans)
