"""Credit fidelity: correlation of assigned advantages with exact counterfactual advantages, in games of few replies.

The exact counterfactual advantage of agent i's reply a_i in a joint turn after the joint history h is

    A_i = Q(h, a) - sum over replies r of pi_i(r | h_i) * Q(h, (a_-i, r))

Q(h, a) is the expected team return after the joint action a, by enumeration of all later replies. The environment's
random numbers are those of the episode's seed. Source: credit fidelity of C3 (arXiv:2603.06859).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from math import exp, prod
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoTokenizer

from ..._ownership import owned, write_text
from ...agents.core import Completion, Evaluation, Request, TrainablePolicy
from ...agents.language.critics import TextCritic
from ...agents.registry import CriticSeat
from ...agents.tiny import TINY_DIRECTORY
from ...algorithms.config import ActorCriticConfig
from ...algorithms.registry import algorithm_spec
from ...algorithms.rollout.episode import Episode
from ...algorithms.rollout.intervals import bootstrap_interval
from ...algorithms.runs.assembly.experiment import Experiment
from ...envs import make
from ...envs.core import TextParallelEnv
from ...envs.games.talk.tiny_hanabi import ACTIONS
from ..markdown import markdown_table

FILES = ("credit.json", "README.md", "credit.png")
NUM_EPISODES = 96  # per update; a multiple of the group size of every algorithm
NOTE = f"""\
`collm benchmark credit` correlates each algorithm's advantages with exact counterfactual advantages, over all turns of
the second half of the updates. An update has {NUM_EPISODES} episodes, or base episodes of `c3`. The policies are random
tables that do not learn; critics learn. Brackets: 95 % bootstrap intervals over seeds,
widened for few seeds ([how](../../../docs/learn/report.md)). Replies and environment steps are those of one update,
without the replays of `difference`."""


class EnumerableGame(NamedTuple):
    """Environment with few replies after each observation."""

    id: str
    replies: Callable[[str], Sequence[str]]
    kwargs: Mapping[str, Any]


def _listed_parts(observation: str) -> Sequence[str]:
    words = observation.rpartition("goal ")[2].split()
    return [*map(" ".join, zip(words[::2], words[1::2], strict=True)), "wait"]


GAMES = {
    "TinyHanabi": EnumerableGame("collm/TinyHanabi-v0", lambda observation: ACTIONS, {"game": "E"}),
    "MiniShift": EnumerableGame("collm/MiniShift-v0", _listed_parts, {"max_turns": 2, "reward": "terminal"}),
}


class ReplyTable(TrainablePolicy):
    """Policy with fixed random probabilities of the replies after each observation. Replies are always sampled."""

    reads_turns_alone = True

    def __init__(self, replies: Callable[[str], Sequence[str]], seed: int):
        self.replies, self.seed = replies, seed
        self._known: dict[str, dict[str, float]] = {}
        self._weight = nn.Parameter(torch.zeros(()))

    def probabilities(self, observation: str) -> dict[str, float]:
        """Return the probability of each reply: the softmax of pseudo-random normal numbers."""
        if observation not in self._known:
            rng = Random(f"{self.seed} {observation}")
            weights = {reply: exp(rng.gauss(0, 1)) for reply in self.replies(observation)}
            self._known[observation] = {reply: each / sum(weights.values()) for reply, each in weights.items()}
        return self._known[observation]

    def act(self, requests: Sequence[Request], *, greedy: bool = False) -> list[Completion]:
        found = []
        for request in requests:
            chances = self.probabilities(request.observation)
            (reply,) = Random(str(request.stream)).choices(list(chances), list(chances.values()))
            logprobs = np.log([chances[reply]], dtype=np.float32)
            found.append(Completion(reply, logprobs, np.zeros(1, dtype=np.float32), tokens=request.observation))
        return found

    def reply_logprobs(self, requests: Sequence[tuple[Completion, str]]) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return np.log([self.probabilities(completion.tokens).get(reply, 0.0) for completion, reply in requests])

    def evaluate(self, tracks: Sequence[Sequence[Completion]]) -> Evaluation:
        turns = [turn for track in tracks for turn in track]
        logprobs = torch.from_numpy(np.concatenate([turn.logprobs for turn in turns])) + 0 * self._weight
        return Evaluation(logprobs, torch.zeros(len(turns)), torch.arange(len(turns)))

    def num_tokens(self, track: Sequence[Completion]) -> int:
        return len(track)

    def parameters(self) -> list[nn.Parameter]:
        return [self._weight]

    def reference(self, device: torch.device | None = None) -> ReplyTable:
        return self

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        pass

    def save(self, directory: Path) -> None:
        pass


class ExactAdvantages:
    """Counterfactual advantages of a team of tables, by enumeration of all replies."""

    def __init__(self, env: TextParallelEnv, policies: Mapping[str, ReplyTable]):
        self.env, self.policies = env, policies
        self._values: dict[tuple[Any, ...], float] = {}

    def of_episode(self, episode: Episode) -> dict[str, list[float]]:
        """Return the advantages of each agent's turns."""
        joints: list[dict[str, str]] = [{} for _ in range(episode.num_turns)]
        for agent, track in (episode.played or episode).tracks.items():
            for turn in track:
                joints[turn.time][agent] = turn.completion.action
        env, past = deepcopy(self.env), (episode.seed,)
        env.reset(seed=episode.seed)
        found: dict[str, list[float]] = {agent: [] for agent in episode.tracks}
        for time, joint in enumerate(joints):
            for agent, track in episode.tracks.items():
                for turn in (each for each in track if each.time == time):
                    chances = self.policies[agent].probabilities(turn.observation)
                    values = {reply: self.value(env, past, {**joint, agent: reply}) for reply in chances}
                    baseline = sum(chance * values[reply] for reply, chance in chances.items())
                    found[agent].append(values[turn.completion.action] - baseline)
            past = _extended(past, joint)
            env.step(joint)
        return found

    def value(self, env: TextParallelEnv, past: tuple[Any, ...], joint: Mapping[str, str]) -> float:
        """Return the expected team return from a joint action on. `past` is the seed and the joint actions before."""
        past = _extended(past, joint)
        if past not in self._values:
            env = deepcopy(env)
            observations, rewards = env.step(dict(joint))[:2]
            total = sum(rewards.values()) / len(env.possible_agents)
            if env.agents:
                tables = {agent: self.policies[agent].probabilities(observations[agent]) for agent in env.movers}
                for replies in product(*tables.values()):
                    chance = prod(table[reply] for table, reply in zip(tables.values(), replies, strict=True))
                    total += chance * self.value(env, past, dict(zip(tables, replies, strict=True)))
            self._values[past] = total
        return self._values[past]


def _extended(past: tuple[Any, ...], joint: Mapping[str, str]) -> tuple[Any, ...]:
    return (*past, tuple(sorted(joint.items())))


@dataclass(frozen=True)
class Fidelity:
    """Result of one algorithm, game and seed. Tokens and environment steps are those of one update."""

    algorithm: str
    game: str
    seed: int
    correlation: float
    tokens: float
    environment_steps: float


def measure(name: str, game_name: str, seed: int, num_updates: int) -> Fidelity:
    """Collect updates with fixed policies, in which only the critics learn, and compare the second half of them.

    The correlation is Pearson's, over all turns of all agents; 0 if all advantages are equal.
    """
    game, spec = GAMES[game_name], algorithm_spec(name)
    settings: dict[str, Any] = {"num_updates": num_updates, "rollout_buffer_size": NUM_EPISODES, "seed": seed}
    config = spec.config(agent_learning_rate=0.0, credited_reward="team", **settings)
    experiment = Experiment(algorithm=name, config=config, env=game.id, env_kwargs=game.kwargs)
    env = make(game.id, **game.kwargs).unwrapped
    assert isinstance(env, TextParallelEnv)
    policies = {agent: ReplyTable(game.replies, 1000 * seed + i) for i, agent in enumerate(env.possible_agents)}
    has_critic = isinstance(config, ActorCriticConfig)
    trainer = experiment.make_trainer(policies=policies, critics=_small_critic if has_critic else None)
    exact = ExactAdvantages(env, policies)
    pairs: list[tuple[float, float]] = []
    for update in range(num_updates):
        episodes, metrics = trainer.step()
        if update < num_updates // 2:
            continue
        expected = [exact.of_episode(episode) for episode in episodes]
        for agent, credit in trainer.credits.items():
            of_agent = [value for each in expected for value in each.get(agent, ())]
            pairs += zip(credit.advantages.tolist(), of_agent, strict=True)
    trainer.close()
    assigned, true = np.array(pairs).T
    correlation = float(np.corrcoef(assigned, true)[0, 1]) if assigned.std() and true.std() else 0.0
    cost = [metrics[unit] / num_updates for unit in ("sampled_tokens", "environment_steps")]
    return Fidelity(name, game_name, seed, correlation, *cost)


def _small_critic(seat: CriticSeat) -> TextCritic:
    return TextCritic.small(AutoTokenizer.from_pretrained(TINY_DIRECTORY), num_agents=seat.num_agents, seed=seat.seed)


def read_results(out: Path) -> list[Fidelity]:
    file = out / FILES[0]
    return [Fidelity(**each) for each in json.loads(file.read_text())] if file.is_file() else []


def write(results: Sequence[Fidelity], out: Path) -> str:
    """Write the results, the tables and the figure into a folder. Returns the tables as Markdown."""
    write_text(out, FILES[0], json.dumps([vars(each) for each in results], indent=1) + "\n")
    games = list(dict.fromkeys(each.game for each in results))
    figure = Figure(figsize=(11, 1 + 0.28 * len({each.algorithm for each in results})), layout="constrained")
    tables = []
    for axes, game in zip(figure.subplots(1, len(games), squeeze=False)[0], games, strict=True):
        found: dict[str, list[Fidelity]] = {}
        for each in results:
            if each.game == game:
                found.setdefault(each.algorithm, []).append(each)
        rows = []
        for place, (name, own) in enumerate(found.items()):
            interval = bootstrap_interval([each.correlation for each in own], is_widened=True)
            axes.plot([interval.low, interval.high], [place, place], color="C0", linewidth=2)
            axes.plot(interval.value, place, "o", color="C0")
            costs = (fmean(getattr(each, unit) for each in own) for unit in ("tokens", "environment_steps"))
            shown = str(interval) if len(own) > 1 else f"{interval.value:.3f}"
            rows.append([f"`{name}`", shown, *(f"{cost:.0f}" for cost in costs)])
        table = markdown_table(["algorithm", "correlation", "replies", "environment steps"], rows)
        tables.append(f"## {game}\n\n{table}\n")
        axes.set(title=game, xlabel="correlation with the exact advantage", xlim=(min(0, axes.get_xlim()[0]), 1))
        axes.set_yticks(range(len(found)), found)
        axes.invert_yaxis()
    page = f"# Credit fidelity\n\n{NOTE}\n\n![Credit fidelity by algorithm]({FILES[2]})\n\n" + "\n".join(tables)
    write_text(out, FILES[1], page)
    with owned(out, FILES[2]) as new:
        figure.savefig(new, dpi=120)
    return "\n".join(tables)
