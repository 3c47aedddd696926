"""Trainer: the one training loop (collect, value, credit, update). No algorithm has a loop of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...agents.core import Divergence, TrainablePolicy
from ...agents.numeric.moments import RunningMoments
from ...envs.vectors.faults import EnvironmentFault
from ..algorithm import Algorithm, check_warmup_budget
from ..config import TrainConfig
from ..distribution.group import current
from ..rollout.ahead import Ahead
from ..rollout.collector import RolloutCollector
from ..rollout.episode import Episode
from ..rollout.orders import Delivery, Order, Weights
from ..rollout.players import Players
from ..rollout.plays import Plan, grouped_plans
from ..rollout.side_by_side import Task
from ..rollout.summary import episode_metrics
from .crediting import Credit, CriticBatch, assign_credit, critic_metrics
from .critic_learner import CriticLearner
from .crossing import crossed
from .curriculum import curriculum
from .finiteness import reward_range
from .offloading import Turns
from .policy_learner import PolicyLearner, TurnBatch
from .shaping import RewardProcessor, reward_rule, with_penalties, with_rewards, with_team_rewards

Rewarder = Callable[[Sequence[Episode]], Sequence[Episode]]
Recorder = Callable[[int, Sequence[Episode], Mapping[str, Credit]], None]
"""Keeps the episodes of an update, with the credit of each agent's turns."""
MAX_SEED = 2**31


def task_seeds(seed: int, update: int, count: int) -> list[int]:
    """Seeds of an update's tasks: a function of the run's seed and the update, so that a resumed run draws the same."""
    drawn = np.random.SeedSequence([seed, update]).generate_state(count, np.uint64)
    return [int(value % MAX_SEED) for value in drawn]


def agent_learning_rates(config: TrainConfig, agents: Sequence[str]) -> dict[str, float | None]:
    """Learning rate of each agent's policy; None where the policy's own default applies.

    Raises:
        ValueError: if a rate is given for an agent that the environment does not have.
    """
    unknown = [name for name in config.agent_learning_rates if name not in agents]
    if unknown:
        raise ValueError(f"agent_learning_rates names {unknown}, but the agents are {list(agents)}")
    return {agent: config.agent_learning_rates.get(agent, config.agent_learning_rate) for agent in agents}


class Trainer:
    """Trains policies on episodes that they play together.

    Args:
        algorithm: the settings, the credit rule and the loss.
        collector: collector on the training environment; its trainable policies learn.
        critics: critics by agent, one under the name "joint", or none, as `algorithm.critic_reads` says.
        references: frozen copies of the policies, by agent, for a KL penalty; needed if its coefficient is not 0.
        rewarder: replaces the episodes' rewards, as by a reward model's; logged returns stay the environment's.
        reward_processor: applied to every reward before learning.
        players: who plays the episodes, with copies of the policies, on the writer alone; needed with `max_staleness`.
            None: the collector, with the policies themselves.

    Raises:
        ValueError: if no policy can learn, or if a learning rate is given for an agent that does not exist.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any],
        collector: RolloutCollector,
        critics: Mapping[str, CriticLearner] | None = None,
        *,
        references: Mapping[str, TrainablePolicy] | None = None,
        rewarder: Rewarder | None = None,
        reward_processor: RewardProcessor | None = None,
        players: Players | None = None,
    ):
        self.algorithm = algorithm
        self.config = algorithm.config
        self.collector = collector
        self.critics = dict(critics or {})
        self.references = dict(references or {})
        self.rewarder = rewarder
        self.reward_processor = reward_processor
        schedule = self.config.difficulty_schedule
        self.curriculum = None if schedule is None else curriculum(schedule)
        self.generator = torch.Generator().manual_seed(self.config.seed)
        self.update = 0  # updates done
        self.num_turns = 0  # environment steps taken
        self.num_tokens = 0  # tokens sampled
        self.seconds = 0.0  # spent in collecting and learning
        self.credits: Mapping[str, Credit] = {}  # credit of the last update's episodes, by agent
        self.last_metrics: Mapping[str, float] = {}  # of the last update
        self._is_warming_up = False  # in the last update only critics learned
        self._is_elsewhere = self.config.max_staleness > 0 or self.config.collectors is not None
        self._ahead = None
        if players is not None:
            self._ahead = Ahead(players, self.config.max_staleness, self.config.num_updates)
        elif self._is_elsewhere and current().is_writer:
            raise ValueError(
                f"max_staleness={self.config.max_staleness}, collectors={self.config.collectors!r} need players with "
                "copies of the policies; give the trainer some, or train with collm.train"
            )
        self.learners = self._make_learners()
        self._actors = [id(learner) for learner in self._unique_learners()]
        weights = {id(learner): learner.policy.parameters() for learner in self._unique_learners()}
        weights |= {id(critic): critic.critic.parameters() for critic in self.critics.values()}
        self._turns = Turns(weights, moves=self.config.offload == "learner")
        self._turns.only(self._actors)

    def _make_learners(self) -> dict[str, PolicyLearner]:
        """One learner per policy, under the name of each agent that the policy plays."""
        by_policy: dict[int, PolicyLearner] = {}
        learners: dict[str, PolicyLearner] = {}
        rates = agent_learning_rates(self.config, list(self.collector.policies))
        for agent, policy in self.collector.policies.items():
            if isinstance(policy, TrainablePolicy):  # a scripted partner plays but does not learn
                learner = by_policy.get(id(policy))
                if learner is None:
                    learner = PolicyLearner(policy, self.algorithm, self.generator, rates[agent])
                    by_policy[id(policy)] = learner
                elif rates[agent] not in (None, learner.optimizer.learning_rate):
                    raise ValueError(
                        f"agent_learning_rates gives {agent!r} {rates[agent]}, but it shares its weights with another "
                        f"that learns at {learner.optimizer.learning_rate}; give all who share the same rate"
                    )
                learners[agent] = learner
        if not learners:
            raise ValueError("no policy of the collector can learn; give at least one TrainablePolicy")
        return learners

    def step(self, record: Recorder | None = None) -> tuple[list[Episode], dict[str, float]]:
        """One update: collect episodes and learn from them; returns the episodes and the update's metrics.

        Args:
            record: called with the number of the update, its episodes and their credit before a weight changes, so that
                they are kept whatever comes of learning; without credit where there is an error in it.

        Raises:
            ValueError: if the budget is used up before any policy learns.
            EnvironmentFault: if the environment raises or breaks its contract, naming the episode and the update.
            Divergence: if a number is not finite, naming the agent and the update; no weight is then changed by it.
        """
        with self.telling_update(1):
            episodes, self.last_metrics = self._step(record)
        return episodes, dict(self.last_metrics)

    @contextmanager
    def telling_update(self, ahead: int = 0) -> Iterator[None]:
        """Let what goes wrong inside tell its update: the last one that is done, or as many ahead."""
        try:
            yield
        except EnvironmentFault as fault:
            fault.update = self.update + ahead
            raise
        except Divergence as divergence:
            divergence.update = self.update + ahead
            divergence.metrics = self.last_metrics
            learners = [self.learners[agent] for agent in divergence.agents if agent in self.learners]
            if learners and divergence.learning_rate is None:
                divergence.learning_rate = max(learner.optimizer.learning_rate for learner in learners)
            raise

    def _step(self, record: Recorder | None) -> tuple[list[Episode], dict[str, float]]:
        start = time.perf_counter()
        delivery = self._collect()
        episodes = self._scored(delivery.episodes)
        for learner in self._unique_learners():
            learner.policy.rest()
        learning = time.perf_counter()
        metrics = episode_metrics(episodes, self.config.credited_reward) | self._learn(episodes, record)
        end = time.perf_counter()
        self.update += 1
        self.seconds += end - start
        num_tokens = sum(len(turn.completion.logprobs) for e in episodes for t in e.tracks.values() for turn in t)
        self.num_turns += sum(episode.num_turns for episode in episodes)
        self.num_tokens += num_tokens
        if self._is_warming_up:
            check_warmup_budget(self.config, self.num_turns, self.num_tokens)
        phases = {f"seconds/{phase}": seconds for phase, seconds in delivery.seconds.items()}
        if self.collector.skipped:
            metrics["skipped_episodes"] = float(len(self.collector.skipped))
        if self.config.max_staleness:
            metrics["staleness"] = float(np.mean([self.update - 1 - version_of(episode) for episode in episodes]))
            metrics["seconds/waiting"] = learning - start
        return episodes, metrics | phases | {
            "update": self.update,
            "environment_steps": self.num_turns,
            "sampled_tokens": self.num_tokens,
            "tokens_per_second": num_tokens / delivery.wall_s,
            "seconds/learning": end - learning,
            "seconds/update": end - start,
            "seconds/total": self.seconds,
        }

    def _collect(self) -> Delivery:
        """The episodes that this update learns from."""
        self.collector.version = self.update
        if not self._is_elsewhere:
            start = time.perf_counter()
            self.collector.seconds.clear()
            order = self._order(self.update, self.update)
            if order.num_turns is None:
                episodes = self.collector.collect(order.plans)
            else:
                seeds = [plan.seed for plan in order.plans]
                difficulty = order.plans[0].difficulty
                episodes = self.collector.collect_turns(order.num_turns, seeds, difficulty=difficulty)
            return Delivery(episodes, self.collector.skipped, dict(self.collector.seconds), time.perf_counter() - start)
        order, delivery = current().by_writer(self._taken)
        self.collector.skipped = delivery.skipped
        self.collector.next_index = order.first + len(order.plans)
        return delivery

    def _scored(self, episodes: Sequence[Episode]) -> list[Episode]:
        """Episodes with what their players could not compute: see `TrainablePolicy.is_scored_later`."""
        scored = list(episodes)
        for learner in self._unique_learners():
            if not learner.policy.is_scored_later:
                continue
            agents = [agent for agent in self.learners if self.learners[agent] is learner]
            places = [(n, agent) for n, each in enumerate(episodes) for agent in agents if agent in each.tracks]
            found = learner.scored([_track(episodes[n], agent) for n, agent in places]) if places else []
            for (n, agent), completions in zip(places, found, strict=True):
                pairs = zip(scored[n].tracks[agent], completions, strict=True)
                track = tuple(replace(turn, completion=completion) for turn, completion in pairs)
                scored[n] = replace(scored[n], tracks={**scored[n].tracks, agent: track})
        return scored

    def _taken(self) -> tuple[Order, Delivery]:
        assert self._ahead is not None  # the writer has players
        check = self.collector.before_turn or (lambda: None)
        return self._ahead.take(self.update, self._order, self.weights, check)

    def _order(self, update: int, version: int) -> Order:
        """The order of an update's episodes, by weights of a version."""
        config = self.config
        difficulty = None if self.curriculum is None else self.curriculum(update / config.num_updates)
        if config.turns_per_update is not None:
            num_envs = self.collector.vector.num_envs
            seeds = task_seeds(config.seed, update, num_envs * (config.turns_per_update + 1))
            plans = tuple(Plan(seed, difficulty=difficulty) for seed in seeds)
            return Order(update, version, plans, 0, config.turns_per_update)
        num_groups = config.rollout_buffer_size // config.num_generations
        seeds = task_seeds(config.seed, update, num_groups)
        plans = tuple(grouped_plans(seeds, config.num_generations, difficulty))
        return Order(update, version, plans, update * config.rollout_buffer_size)

    def weights(self) -> Weights:
        """A copy of the weights of all policies that learn, as they are now."""
        return {
            name: {key: value.detach().cpu().clone() for key, value in learner.policy.state_dict().items()}
            for name, learner in self.unique_learners().items()
        }

    def close(self) -> None:
        """Give back the environments and the players."""
        if self._ahead is not None:
            self._ahead.close()
        self.collector.vector.close()

    def _learn(self, episodes: Sequence[Episode], record: Recorder | None) -> dict[str, float]:
        for learner in self._unique_learners():
            learner.optimizer.set_progress(self.update)
            # Again from the episodes, whose order does not depend on who was asked together.
            agents = [agent for agent in self.learners if self.learners[agent] is learner]
            seen = [completion for agent in agents for track in _tracks(episodes, agent) for completion in track]
            if seen:
                learner.policy.observe(seen)
        # A frozen partner gets no credit, though its turns are in the joint history.
        agents = [agent for agent in self.learners if any(agent in episode.tracks for episode in episodes)]
        self.credits = {}
        try:
            references = self._reference_logprobs(episodes)
            shaped = self._shaped(episodes, references)
            rewards = reward_range(shaped)
            with self._telling(rewards=rewards), self._turns.turn(self._valuing(), self._actors):
                self.credits, critic_batches = assign_credit(
                    self.algorithm, shaped, agents, self.critics, self.collector.vector.possible_agents
                )
        finally:
            if record is not None:
                record(self.update + 1, episodes, self.credits)
        with self._telling(rewards=rewards):
            return self._learn_from(episodes, agents, references, critic_batches)

    def _learn_from(
        self,
        episodes: Sequence[Episode],
        agents: Sequence[str],
        references: Mapping[str, Sequence[Tensor]],
        critic_batches: Sequence[tuple[CriticLearner, CriticBatch]],
    ) -> dict[str, float]:
        metrics = critic_metrics(critic_batches)
        estimated_in = {id(critic): critic.moments for critic, _ in critic_batches}  # the units of the values so far
        # Where memory is for one, learners take turns; and ranks must meet in one order.
        is_one_by_one = self._turns.moves or current().is_orderly
        regressions = []
        for critic, batch in critic_batches:
            if critic.optimizer is not None:
                critic.optimizer.set_progress(self.update)
            work = partial(self._learned, critic, self._served(critic), critic.prepared(batch.inputs, batch.targets))
            regressions.append(Task(None if is_one_by_one else critic.critic.workplace(), work))
        losses = self.collector.side_by_side.results(regressions)
        metrics |= _means(losses)
        self._is_warming_up = self._has_own_critics() and self.algorithm.warms_up(self.update, metrics)
        if self._is_warming_up:
            # The weights are the same, but a run that resumes here begins without what was computed with them.
            for learner in self._unique_learners():
                learner.policy.forget()
            return metrics
        played = {id(self.learners[agent]): self.learners[agent] for agent in agents}
        tasks = []
        for learner in played.values():
            update = learner.prepared(self._batch(learner, episodes, self.credits, references, estimated_in))
            own = [agent for agent in agents if self.learners[agent] is learner]
            work = partial(self._learned, learner, own, update)
            tasks.append(Task(None if is_one_by_one else learner.policy.workplace(), work))
        updates = self.collector.side_by_side.results(tasks)
        return metrics | _means(updates)

    def _learned(
        self, learner: PolicyLearner | CriticLearner, agents: Sequence[str], update: Callable[[], dict[str, float]]
    ) -> dict[str, float]:
        with self._telling(agents=agents), self._turns.turn([id(learner)], self._actors):
            metrics = update()
            if learner.optimizer is not None:
                learner.optimizer.zero_grad()  # decoding has better use for the memory
            return metrics

    @contextmanager
    def _telling(self, agents: Sequence[str] = (), rewards: tuple[float, float] | None = None) -> Iterator[None]:
        """Let a divergence tell what is known here."""
        try:
            yield
        except Divergence as divergence:
            divergence.agents = divergence.agents or tuple(agents)
            divergence.rewards = divergence.rewards or rewards
            raise

    def _valuing(self) -> list[int]:
        """Owners of the weights that value histories: critics, or actors with heads."""
        return [id(critic) for critic in self.critics.values()] if self._has_own_critics() else self._actors

    def _served(self, critic: CriticLearner) -> list[str]:
        """Names of the agents that the critic serves, or "joint"."""
        return [name for name, each in self.critics.items() if each is critic]

    def _batch(
        self,
        learner: PolicyLearner,
        episodes: Sequence[Episode],
        credits: Mapping[str, Credit],
        references: Mapping[str, Sequence[Tensor]],
        estimated_in: Mapping[int, RunningMoments],
    ) -> TurnBatch:
        agents = [agent for agent in credits if self.learners[agent] is learner]
        targets = old_values = None
        head = self.critics.get(agents[0])
        if head is not None and head.is_actor_head:
            targets = head.moments.normalize(torch.cat([credits[agent].targets for agent in agents]))
            values = torch.cat([credits[agent].values for agent in agents])
            old_values = estimated_in[id(head)].normalize(values)  # what the head itself said
        return TurnBatch(
            tracks=[track for agent in agents for track in _tracks(episodes, agent)],
            advantages=torch.cat([credits[agent].advantages for agent in agents]),
            targets=targets,
            old_values=old_values,
            reference_logprobs=(
                torch.cat([piece for agent in agents for piece in references[agent]]) if references else None
            ),
            max_turns=self._max_joint_turns(episodes) * sum(each is learner for each in self.learners.values()),
            version=self.update,
        )

    def _max_joint_turns(self, episodes: Sequence[Episode]) -> int:
        """Return the largest number of joint turns that so many episodes can have; it depends on no sampled action.

        Episodes without a declared limit count once. Cut rollouts (`turns_per_update`) always have as many joint turns.
        """
        if self.config.turns_per_update is not None:
            return sum(episode.num_turns for episode in episodes)
        return len(episodes) * (self.collector.vector.turn_limit or 1)

    def _reference_logprobs(self, episodes: Sequence[Episode]) -> dict[str, list[Tensor]]:
        if not self.config.reference_kl_coef:
            return {}
        return {
            agent: learner.logprobs(self.references[agent], _tracks(episodes, agent))
            for agent, learner in self.learners.items()
        }

    def _shaped(self, episodes: Sequence[Episode], references: Mapping[str, Sequence[Tensor]]) -> list[Episode]:
        """Episodes with the rewards that are learned from."""
        rule = reward_rule(self.config, self.reward_processor)
        if self.rewarder is not None:
            episodes = self.rewarder(episodes)
        # A joint critic's grid has the team's rewards in any case.
        pays_team = self.config.credited_reward == "team" and self.algorithm.critic_reads != "joint"
        if self.algorithm.crosses_rollouts:
            shaped, num_steps = crossed(episodes, self.collector.vector, rule, pays_team=pays_team)
            self.num_turns += num_steps
        else:
            shaped = with_rewards(episodes, rule)
            if pays_team:
                shaped = with_team_rewards(shaped, self.config.discount)
        if references and self.config.reference_kl_in == "reward":
            is_joint = self.algorithm.critic_reads == "joint"
            shaped = with_penalties(shaped, references, self.config, sums_over_team=is_joint)
        return shaped

    def _unique_learners(self) -> list[PolicyLearner]:
        return list(self.unique_learners().values())

    def unique_learners(self) -> dict[str, PolicyLearner]:
        """Each learner once, under the name of the first agent that it plays."""
        return {self._name_of(learner): learner for learner in self.learners.values()}

    def _name_of(self, learner: PolicyLearner) -> str:
        return next(agent for agent, each in self.learners.items() if each is learner)

    def unique_critics(self) -> dict[str, CriticLearner]:
        """Each critic once, under the name of the first agent that it serves (or "joint")."""
        found: dict[int, tuple[str, CriticLearner]] = {}
        for name, critic in self.critics.items():
            found.setdefault(id(critic), (name, critic))
        return dict(found.values())

    def _has_own_critics(self) -> bool:
        return any(not critic.is_actor_head for critic in self.critics.values())

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Inside the block the writer has all weights and moments, which ranks may share; all ranks enter it."""
        with ExitStack() as stack:
            for learner in self._unique_learners():
                stack.enter_context(learner.policy.whole())
                stack.enter_context(learner.optimizer.whole())
            for critic in self.unique_critics().values():
                stack.enter_context(critic.critic.whole())
                if critic.optimizer is not None:
                    stack.enter_context(critic.optimizer.whole())
            yield

    def state_dict(self) -> dict[str, Any]:
        """State from which training resumes bit for bit; where ranks share weights, inside `whole` only."""
        return {
            "update": self.update,
            "num_turns": self.num_turns,
            "num_tokens": self.num_tokens,
            "seconds": self.seconds,
            "generator": self.generator.get_state(),
            "algorithm": self.algorithm.state_dict(),
            "collector": self.collector.state_dict(),
            **({} if self._ahead is None else {"ahead": self._ahead.state_dict(self.update)}),
            "learners": {
                name: {"policy": learner.policy.state_dict(), "optimizer": learner.optimizer.state_dict()}
                for name, learner in self.unique_learners().items()
            },
            "learner_of": {agent: self._name_of(learner) for agent, learner in self.learners.items()},
            "critics": {name: critic.state_dict() for name, critic in self.unique_critics().items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from what `state_dict` returned, as if never stopped."""
        self.update = state["update"]
        self.num_turns = state["num_turns"]
        self.num_tokens = state["num_tokens"]
        self.seconds = state["seconds"]
        self.generator.set_state(state["generator"])
        self.algorithm.load_state_dict(state.get("algorithm", {}))
        self.collector.load_state_dict(state["collector"])
        if self._ahead is not None and "ahead" in state:
            self._ahead.load_state_dict(state["ahead"])
        for name, learner in self.unique_learners().items():
            learner.policy.load_state_dict(state["learners"][name]["policy"])
            learner.optimizer.load_state_dict(state["learners"][name]["optimizer"])
        for name, critic in self.unique_critics().items():
            critic.load_state_dict(state["critics"][name])


def version_of(episode: Episode) -> int:
    """Version of the weights that played an episode."""
    return next(iter(episode.tracks.values()))[0].completion.version


def _tracks(episodes: Sequence[Episode], agent: str) -> list[tuple[Any, ...]]:
    return [_track(episode, agent) for episode in episodes if agent in episode.tracks]


def _track(episode: Episode, agent: str) -> tuple[Any, ...]:
    return tuple(turn.completion for turn in episode.tracks[agent])


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each metric over policies (or critics)."""
    return {name: sum(row[name] for row in rows) / len(rows) for name in (rows[0] if rows else ())}
