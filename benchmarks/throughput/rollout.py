"""Rollout speed of collm's collector, and of one environment that calls transformers' `generate` for each reply.

Both have the same environment, model and sampling, and alternate in every round. Rates are joint turns per CPU second
of this process, or per second on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch

from ...agents.config import ModelConfig
from ...agents.core import Completion
from ...agents.encoding import TokenRecord
from ...agents.language.policy import LanguagePolicy
from ...agents.loading import load_policies
from ...algorithms.rollout.collector import Plan, RolloutCollector
from ...algorithms.rollout.side_by_side import SideBySide
from ...envs.registration.registry import make
from ...envs.spaces import movers_of
from ...envs.vectors.vector import SyncVector
from ..markdown import markdown_table
from .timing import Spread, clock_of, timed_rounds, unit_of

ENV = "collm/MiniWriting-v2"
BATCHES = (1, 8, 32, 128)
MAX_NEW_TOKENS = 48
Workload = Callable[[], tuple[int, int]]  # returns joint turns and tokens


@dataclass(frozen=True, slots=True)
class RolloutRow:
    name: str
    steps_per_s: Spread
    tokens_per_s: Spread


def measure(env: str = ENV, *, repeats: int = 3, device: str = "cpu") -> list[RolloutRow]:
    """Measure `generate`, which is the reference, and the collector with 1 to 128 copies of the environment."""
    policies = _policies(env, MAX_NEW_TOKENS, device)
    workloads = {"generate, 1 copy": _generating(env, policies)}
    for num_envs in BATCHES:
        name = "collector, 1 copy" if num_envs == 1 else f"collector, {num_envs} copies"
        workloads[name] = _collecting(SyncVector(env, num_envs), policies)
    rows = []
    for name, rounds in timed_rounds(workloads, repeats, clock=clock_of(device)).items():
        steps_per_s = Spread.of([steps / seconds for (steps, _), seconds in rounds])
        tokens_per_s = Spread.of([tokens / seconds for (_, tokens), seconds in rounds])
        rows.append(RolloutRow(name, steps_per_s, tokens_per_s))
    return rows


def table(rows: Sequence[RolloutRow], env: str, device: str = "cpu") -> str:
    ratios = [f"{row.steps_per_s.median / rows[0].steps_per_s.median:.1f}x" for row in rows]
    cells = [
        (row.name, row.steps_per_s.shown(".1f"), row.tokens_per_s.shown(), ratio)
        for row, ratio in zip(rows, ratios, strict=True)
    ]
    header = ("", "environment steps", "tokens", "ratio")
    return f"{env}, rates per {unit_of(device)}:\n\n{markdown_table(header, cells)}"


def _policies(env: str, max_new_tokens: int, device: str) -> Mapping[str, LanguagePolicy]:
    config = ModelConfig(max_new_tokens=max_new_tokens, device=device)
    return load_policies(config, make(env).possible_agents)


def _collecting(vector: SyncVector, policies: Mapping[str, LanguagePolicy]) -> Workload:
    collector = RolloutCollector(vector, policies, side_by_side=SideBySide(False))
    first_seeds = count(step=1000)

    def play() -> tuple[int, int]:
        first_seed = next(first_seeds)
        episodes = collector.collect([Plan(first_seed + i) for i in range(max(16, vector.num_envs))])
        tokens = sum(len(turn.completion.logprobs) for e in episodes for track in e.tracks.values() for turn in track)
        return sum(episode.num_turns for episode in episodes), tokens

    return play


def _generating(env_id: str, policies: Mapping[str, LanguagePolicy]) -> Workload:
    env: Any = make(env_id)
    seeds = count()

    def play() -> tuple[int, int]:
        steps = tokens = 0
        for _ in range(16):
            observations, infos = env.reset(seed=next(seeds))
            previous: dict[str, Completion] = {}
            while env.agents:
                movers = movers_of(env.agents, infos)
                for agent in movers:
                    previous[agent] = _generated(policies[agent], observations[agent], previous.get(agent))
                    tokens += len(previous[agent].tokens.completion_ids)
                observations, *_, infos = env.step({agent: previous[agent].action for agent in movers})
                steps += 1
        return steps, tokens

    return play


def _generated(policy: LanguagePolicy, observation: str, previous: Completion | None) -> Completion:
    model = policy.language_model
    prompt, is_extension = model.encoder.prompt(observation, previous)
    base: Any = model.base
    ids = torch.from_numpy(prompt)[None].to(base.device)
    output = base.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=True,
        temperature=policy.sampling.temperature,
        top_k=0,
        top_p=1.0,
        max_new_tokens=policy.max_new_tokens,
        eos_token_id=sorted(model.encoder.stop_ids),
        pad_token_id=model.encoder.end_id,
    )
    sampled = output[0, len(prompt) :].cpu().numpy()
    return Completion(
        model.encoder.text(sampled, prompt), tokens=TokenRecord(prompt, sampled, is_extension, observation)
    )
