"""Rollout speed: the collector against one environment at a time through transformers' `generate`.

Both play the same environment with the same model and sampling. Every repeat lets the contestants play in turn; rates
are environment steps (joint turns) per CPU second of this process, medians over the repeats.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..agents.core import Completion
from ..agents.decoding import Decoder
from ..agents.encoding import TokenTrace
from ..agents.language import LanguagePolicy
from ..agents.loading import ModelConfig, load_policies
from ..algorithms.rollout import Plan, RolloutCollector
from ..envs.registration import make
from ..envs.vector import SyncVector
from .stopwatch import Stopwatch

ENV = "collm/MiniWriting-v0"
BATCHES = (1, 8, 32, 128)


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """One way of playing."""

    name: str
    steps_per_s: float  # joint turns per CPU second
    tokens_per_s: float  # sampled tokens per CPU second


def measure(env: str = ENV, *, repeats: int = 3, max_new_tokens: int = 48) -> list[RolloutRow]:
    """Play with `generate`, then with the collector at growing numbers of copies.

    Returns:
        A row each; the first is `generate`'s, which the others are compared with.
    """
    config = ModelConfig(max_new_tokens=max_new_tokens)
    agents = make(env).possible_agents
    policies = load_policies(config, agents)
    contestants: dict[str, Callable[[int], tuple[int, int]]] = {
        "generate, 1 copy": lambda repeat: play_by_generate(env, policies, num_episodes=16, first_seed=1000 * repeat)
    }
    for num_envs in BATCHES:
        contestants[f"collector, {num_envs} copies"] = _collecting(SyncVector(env, num_envs), policies)
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    for repeat in range(repeats + 1):
        for name, play in contestants.items():
            start = time.process_time()
            steps, tokens = play(repeat)
            seconds = time.process_time() - start
            if repeat:  # the first round warms caches and is not counted
                rates[name].append((steps / seconds, tokens / seconds))
    return [
        RolloutRow(name, statistics.median(s for s, _ in pairs), statistics.median(t for _, t in pairs))
        for name, pairs in rates.items()
    ]


def phases(env: str = ENV, *, num_envs: int = 32, repeats: int = 3, max_new_tokens: int = 48) -> dict[str, float]:
    """CPU seconds of a joint turn of one copy, by what they were spent on; means over the repeats."""
    policies = load_policies(ModelConfig(max_new_tokens=max_new_tokens), make(env).possible_agents)
    vector = SyncVector(env, num_envs)
    play = _collecting(vector, policies)
    play(0)
    stopwatch = Stopwatch()
    stopwatch.watch("environment", vector, "send_reset")
    stopwatch.watch("environment", vector, "send")
    stopwatch.watch("environment", vector, "ready")
    for policy in policies.values():
        stopwatch.watch("text", policy.language_model.encoder, "prompt")
        stopwatch.watch("text", policy.language_model.encoder, "text")
        decoder = policy.language_model.generator
        assert isinstance(decoder, Decoder)
        stopwatch.watch("prompts", decoder._engine, "prefill")
        stopwatch.watch("new tokens", decoder._engine, "step")
        stopwatch.watch("sampling", decoder, "generate")
    start = time.process_time()
    steps = sum(play(repeat)[0] for repeat in range(1, repeats + 1))
    total = time.process_time() - start
    seconds = dict(stopwatch.seconds)
    seconds["rest"] = total - sum(seconds.values())
    return {phase: spent / steps for phase, spent in seconds.items()}


def phase_table(seconds: Mapping[str, float], env: str, num_envs: int = 32) -> str:
    """As Markdown."""
    total = sum(seconds.values())
    lines = [
        f"{env}, {num_envs} copies, CPU milliseconds of a joint turn:",
        "",
        "| phase | ms | share |",
        "|---|---|---|",
    ]
    lines += [f"| {phase} | {1000 * spent:.2f} | {spent / total:.0%} |" for phase, spent in seconds.items()]
    return "\n".join(lines)


def _collecting(vector: SyncVector, policies: Mapping[str, LanguagePolicy]) -> Callable[[int], tuple[int, int]]:
    collector = RolloutCollector(vector, policies)

    def play(repeat: int) -> tuple[int, int]:
        episodes = collector.collect([Plan(1000 * repeat + i) for i in range(max(16, vector.num_envs))])
        tokens = sum(len(turn.completion.logprobs) for e in episodes for track in e.tracks.values() for turn in track)
        return sum(episode.num_turns for episode in episodes), tokens

    return play


def play_by_generate(
    env_id: str, policies: Mapping[str, LanguagePolicy], *, num_episodes: int, first_seed: int = 0
) -> tuple[int, int]:
    """One copy of the environment, one call of `generate` for each reply; returns joint turns and tokens."""
    env: Any = make(env_id)
    steps = tokens = 0
    for episode in range(num_episodes):
        observations, _ = env.reset(seed=first_seed + episode)
        previous: dict[str, Completion] = {}
        while env.agents:
            actions = {}
            for agent in env.agents:
                previous[agent] = _generated(policies[agent], observations[agent], previous.get(agent))
                actions[agent] = previous[agent].action
                tokens += len(previous[agent].trace.completion_ids)
            observations, *_ = env.step(actions)
            steps += 1
    return steps, tokens


def _generated(policy: LanguagePolicy, observation: str, previous: Completion | None) -> Completion:
    model = policy.language_model
    prompt, is_extension = model.encoder.prompt(observation, previous)
    ids = torch.from_numpy(prompt)[None]
    base: Any = model.base
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
    sampled = output[0, len(prompt) :].numpy()
    return Completion(model.encoder.text(sampled), trace=TokenTrace(prompt, sampled, is_extension, observation))
