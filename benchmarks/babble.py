"""A game without sense, of exact lengths, for timing: prompts of so many words, replies of so many tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from ..agents.language import LanguageModel, LanguagePolicy
from ..algorithms import ALGORITHMS
from ..algorithms.rollout import RolloutCollector
from ..algorithms.teams import has_actor_heads, make_critics
from ..algorithms.trainer import Trainer
from ..envs.core import Outcome, TextParallelEnv
from ..envs.vector import SyncVector
from .timed_model import timed_llama

NUM_WORDS = 2048
PROMPT_WORDS = 64
FEEDBACK_WORDS = 24


class Babble(TextParallelEnv):
    """Each agent reads random words, says some, and reads more; what is said first is what counts."""

    metadata: ClassVar[dict[str, Any]] = {"name": "babble_v0", "render_modes": ["ansi"]}

    def __init__(self, num_agents: int = 2, num_turns: int = 1) -> None:
        super().__init__(tuple(f"babbler_{i}" for i in range(num_agents)), num_turns)

    def deal(self, task: Any) -> dict[str, str]:
        return {agent: self._words(PROMPT_WORDS) for agent in self.possible_agents}

    def play(self, replies: Mapping[str, str]) -> Outcome:
        feedback = {agent: self._words(FEEDBACK_WORDS) for agent in replies}
        return Outcome(sum(reward(reply) for reply in replies.values()) / len(replies), feedback)

    def _words(self, count: int) -> str:
        return " ".join(f"w{self.rng.randrange(NUM_WORDS)}" for _ in range(count))


def reward(reply: str) -> float:
    """0..1, the number of the first word."""
    first = reply.split(" ", 1)[0]
    return int(first[1:]) / NUM_WORDS if first.startswith("w") else 0.0


def babble_tokenizer() -> PreTrainedTokenizerFast:
    """A token a word."""
    vocabulary = {f"w{i}": i for i in range(NUM_WORDS)} | {"<end>": NUM_WORDS}
    inner = Tokenizer(WordLevel(vocabulary, unk_token="<end>"))
    inner.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<end>", eos_token="<end>", pad_token="<end>")


def babble_model(seed: int) -> LlamaForCausalLM:
    """2 million random weights: enough that arithmetic, not Python, dominates."""
    return timed_llama(NUM_WORDS + 1, seed=seed, end_id=NUM_WORDS, pad_id=NUM_WORDS)


def babble_trainer(
    algorithm: str,
    num_envs: int,
    *,
    num_agents: int = 2,
    num_turns: int = 1,
    max_new_tokens: int = 64,
    **settings: Any,
) -> Trainer:
    """Agents with models of their own; one update learns from an episode of each environment."""
    algorithm_class, config_class = ALGORITHMS[algorithm]
    rule = algorithm_class(config_class(rollout_buffer_size=num_envs, **settings))
    vector = SyncVector(Babble, num_envs, num_agents=num_agents, num_turns=num_turns)
    policies = {
        agent: LanguagePolicy(
            LanguageModel(babble_model(number), babble_tokenizer()),
            max_new_tokens=max_new_tokens,
            has_value_head=has_actor_heads(rule.config),
        )
        for number, agent in enumerate(vector.possible_agents)
    }
    collector = RolloutCollector(vector, policies, reads_state=rule.critic_reads == "joint")
    return Trainer(rule, collector, make_critics(rule, policies, vector))
