"""Small random models with byte-level tokenizers, with and without a chat template."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from collm.agents.core import Critic
from collm.agents.language.model import LanguageModel
from collm.agents.language.policy import LanguagePolicy
from collm.agents.loading import with_adapters
from collm.algorithms.runs.loggers import Callback
from collm.envs import Outcome, TextParallelEnv

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXTS = ["the red fox said hello to a blue stone near the old river", "what next? one two three four five. go on!"]


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE with the special tokens of ChatML, and one added token that is not special."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    given = {"special_tokens": special, "initial_alphabet": alphabet, "show_progress": False}
    inner.train_from_iterator(TEXTS * 4, trainers.BpeTrainer(vocab_size=320, **given))
    named = {"eos_token": special[0], "pad_token": special[0], "additional_special_tokens": special[1:]}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **named)
    tokenizer.add_tokens(["<think>"])
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def random_llama(seed: int = 0, vocab_size: int = 340) -> LlamaForCausalLM:
    """A small Llama; `initializer_range` makes sampling neither uniform nor deterministic."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 1024}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocab_size, initializer_range=0.15, **sizes, **heads))


def language_policy(*, is_chat: bool = False, seed: int = 0, **kwargs) -> LanguagePolicy:
    model = LanguageModel(random_llama(seed), byte_tokenizer(), is_chat=is_chat)
    return LanguagePolicy(model, max_new_tokens=kwargs.pop("max_new_tokens", 12), **kwargs)


def adapted_policies(agents, *, is_chat: bool = False) -> dict[str, LanguagePolicy]:
    """Return language policies with one nonzero adapter per agent on a common base model."""
    model = with_adapters(random_llama(), agents, rank=4)
    generator = torch.Generator().manual_seed(1)
    for name, weight in model.named_parameters():
        if "lora_B" in name:  # zero at first, so that a new adapter changes nothing
            weight.data.normal_(std=0.3, generator=generator)
    common = LanguageModel(model, byte_tokenizer(), is_chat=is_chat)
    return {agent: LanguagePolicy(common, max_new_tokens=12, adapter=agent) for agent in agents}


@dataclass
class OnUpdate(Callback):
    function: Callable[[int, Mapping[str, float]], None]

    def log(self, step, metrics):
        self.function(step, metrics)


class Chatter(TextParallelEnv):
    """Environment of three turns, in which the agents get different observations after every reply."""

    def __init__(self, max_turns: int = 3):
        super().__init__(("fox_0", "stone_0"), max_turns)

    def deal(self, task):
        self.secret = self.rng.choice(["red", "blue", "old"])
        return {agent: f"you are {agent}. the {self.secret} river says" for agent in self.possible_agents}

    def play(self, replies):
        feedback = {agent: f"turn {self.turn}: {len(reply)} letters" for agent, reply in replies.items()}
        return Outcome(reward=len(replies["fox_0"]) / 100, feedback=feedback)


class WeightlessCritic(Critic):
    """A critic without parameters; tests define its values."""

    def parameters(self):
        return []

    def num_tokens(self, item):
        return len(item.histories)

    def save(self, directory):
        pass

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass
