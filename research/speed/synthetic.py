"""Synthetic dialogue and random models for measurements of speed: texts are random words with exact lengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import nn
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from collm.agents.language.model import LanguageModel
from collm.agents.language.policy import LanguagePolicy
from collm.algorithms.learning.trainer import Trainer
from collm.algorithms.registry import algorithm_spec
from collm.algorithms.runs.assembly.trainers import make_trainer
from collm.benchmarks.throughput.decode import random_llama
from collm.envs.core import Outcome, TextParallelEnv
from collm.envs.vectors.vector import SyncVector

NUM_WORDS = 2048
PROMPT_WORDS = 64
FEEDBACK_WORDS = 24


class SyntheticDialogue(TextParallelEnv):
    """Dialogue of random words. The team's reward is the mean of `reward` over the agents' replies."""

    metadata: ClassVar[dict[str, Any]] = {"name": "synthetic_dialogue_v0", "render_modes": ["ansi"]}

    def __init__(self, num_agents: int = 2, num_turns: int = 1) -> None:
        super().__init__(tuple(f"speaker_{i}" for i in range(num_agents)), num_turns)

    def deal(self, task: Any) -> dict[str, str]:
        return {agent: self._words(PROMPT_WORDS) for agent in self.possible_agents}

    def play(self, replies: Mapping[str, str]) -> Outcome:
        feedback = {agent: self._words(FEEDBACK_WORDS) for agent in replies}
        return Outcome(sum(reward(reply) for reply in replies.values()) / len(replies), feedback)

    def _words(self, count: int) -> str:
        return " ".join(f"w{self.rng.randrange(NUM_WORDS)}" for _ in range(count))


def reward(reply: str) -> float:
    """Return the number of the reply's first word, scaled to 0..1."""
    first = reply.split(" ", 1)[0]
    return int(first[1:]) / NUM_WORDS if first.startswith("w") else 0.0


def synthetic_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per word."""
    vocabulary = {f"w{i}": i for i in range(NUM_WORDS)} | {"<end>": NUM_WORDS}
    inner = Tokenizer(WordLevel(vocabulary, unk_token="<end>"))
    inner.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<end>", eos_token="<end>", pad_token="<end>")


def synthetic_model(seed: int) -> LlamaForCausalLM:
    """Return a random model whose vocabulary is the words of the dialogue."""
    return random_llama(NUM_WORDS + 1, seed=seed, end_id=NUM_WORDS, pad_id=NUM_WORDS)


def synthetic_trainer(
    algorithm: str,
    num_envs: int,
    *,
    num_agents: int = 2,
    num_turns: int = 1,
    max_new_tokens: int = 64,
    device: str = "cpu",
    **settings: Any,
) -> Trainer:
    """Return a trainer of agents with separate models. One update learns from one episode per environment."""
    spec = algorithm_spec(algorithm)
    rule = spec.make(spec.config(rollout_buffer_size=num_envs, **({"side_by_side": False} | settings)))
    vector = SyncVector(SyntheticDialogue, num_envs, num_agents=num_agents, num_turns=num_turns)
    policies = {
        agent: LanguagePolicy(
            LanguageModel(nn.Module.to(synthetic_model(number), device), synthetic_tokenizer()),
            max_new_tokens=max_new_tokens,
            has_value_head=rule.has_actor_heads,
        )
        for number, agent in enumerate(vector.possible_agents)
    }
    return make_trainer(rule, vector, policies)
