"""Probe environments in text and in numbers: each tests one ability of a learner, and has the optimal return 1."""

from functools import cache
from random import Random
from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from pettingzoo import ParallelEnv
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from collm.agents.language.model import LanguageModel
from collm.agents.language.policy import LanguagePolicy
from collm.agents.loading import with_adapters
from collm.algorithms.distribution.group import Alone
from collm.envs.core import Outcome, TextParallelEnv

PROBES = (
    "constant",  # always say the same word
    "observed",  # say the word of the prompt
    "coordination",  # both agents say the same word
    "partner",  # only the first agent's word is rewarded
    "delayed",  # three turns; the reward at the end depends on the words of the first turn
)
WORDS = ("red", "green", "blue")
AGENTS = ("speaker_0", "speaker_1")
NUM_TURNS = 3
VECTOR_SIZE = 2 * len(WORDS) + NUM_TURNS + 1


def payoff(probe: str, asked: list[int], said: list[int | None], first_said: list[int | None]) -> float:
    """Return the team's final reward, 0..1, from each agent's requested, last and first word. None: no valid word."""
    if probe == "coordination":
        return float(said[0] is not None and said[0] == said[1])
    if probe == "partner":
        return float(said[0] == asked[0])
    words, targets = (first_said if probe == "delayed" else said), ([0] * len(said) if probe == "constant" else asked)
    return sum(word == target for word, target in zip(words, targets, strict=True)) / len(words)


class TextProbe(TextParallelEnv):
    metadata: ClassVar[dict[str, Any]] = {"name": "text_probe_v0", "render_modes": ["ansi"]}

    def __init__(self, probe: str):
        super().__init__(AGENTS, NUM_TURNS if probe == "delayed" else 1)
        self.probe = probe
        self.asked: list[int] = []
        self.said: list[list[int | None]] = []

    def deal(self, task):
        self.asked = [self.rng.randrange(len(WORDS)) for _ in AGENTS]
        self.said = []
        shows = self.probe in ("observed", "partner", "delayed")
        return {a: f"say {WORDS[word]}" if shows else "say" for a, word in zip(AGENTS, self.asked, strict=True)}

    def play(self, replies):
        words = [reply.split() for reply in (replies[agent] for agent in AGENTS)]
        self.said.append([WORDS.index(each[0]) if len(each) == 1 and each[0] in WORDS else None for each in words])
        is_last = len(self.said) == self.max_turns
        reward = payoff(self.probe, self.asked, self.said[-1], self.said[0]) if is_last else 0.0
        return Outcome(reward, {} if is_last else dict.fromkeys(AGENTS, "next"), {"hit": reward})


class DuelProbe(TextProbe):
    """Zero-sum game of three turns: the agents act in turn, then together. The red words win, also in waiting turns."""

    interests = "opposed"

    def deal(self, task):
        self.movers = [AGENTS[0]]
        return super().deal(task)

    def play(self, replies):
        counts = [replies.get(agent, "").count(WORDS[0]) for agent in AGENTS]
        gain = 0.5 + counts[0] - 2.0 * counts[1]
        movers = [AGENTS[1:], AGENTS, None][self.turn]
        return Outcome(dict(zip(AGENTS, (gain, -gain), strict=True)), dict.fromkeys(AGENTS, "next"), movers=movers)


class NumberProbe(ParallelEnv):
    """Probe whose observations are one-hot vectors of the requested word, the agent's own first word, and the turn."""

    metadata: ClassVar[dict[str, Any]] = {"name": "number_probe_v0", "render_modes": []}

    def __init__(self, probe: str):
        self.probe = probe
        self.render_mode = None
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        self.max_turns = NUM_TURNS if probe == "delayed" else 1
        self.shows = probe in ("observed", "partner", "delayed")
        self.state_space = gymnasium.spaces.Box(0, 1, (2 * VECTOR_SIZE,), np.float32)
        self._observation_space = gymnasium.spaces.Box(0, 1, (VECTOR_SIZE,), np.float32)
        self._action_space = gymnasium.spaces.Discrete(len(WORDS))
        self.rng = Random(0)

    def observation_space(self, agent):
        return self._observation_space

    def action_space(self, agent):
        return self._action_space

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = Random(seed)
        self.asked = [self.rng.randrange(len(WORDS)) for _ in AGENTS]
        self.said = []
        self.agents = list(AGENTS)
        return self._observations(), {agent: {} for agent in AGENTS}

    def step(self, actions):
        self.said.append([int(actions[agent]) for agent in AGENTS])
        is_last = len(self.said) == self.max_turns
        reward = payoff(self.probe, self.asked, self.said[-1], self.said[0]) if is_last else 0.0
        if is_last:
            self.agents = []
        rewards, ends, cuts = (dict.fromkeys(AGENTS, value) for value in (reward, is_last, False))
        return self._observations(), rewards, ends, cuts, {agent: {} for agent in AGENTS}

    def state(self):
        return np.concatenate(list(self._observations().values()))

    def close(self):
        pass

    def _observations(self):
        turn = len(self.said)
        asked = self.asked if self.shows else [None] * len(AGENTS)
        first_said = self.said[0] if self.said else [None] * len(AGENTS)
        rows = zip(AGENTS, asked, first_said, strict=True)
        return {agent: vector_of(word, first, turn) for agent, word, first in rows}


@cache
def vector_of(asked: int | None, first_said: int | None, turn: int) -> NDArray[np.float32]:
    vector = np.zeros(VECTOR_SIZE, dtype=np.float32)
    if asked is not None:
        vector[asked] = 1
    if first_said is not None:
        vector[len(WORDS) + first_said] = 1
    vector[2 * len(WORDS) + turn] = 1
    vector.flags.writeable = False  # all copies of the probe share the vector
    return vector


def word_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per word. Names of agents in the joint history are unknown tokens."""
    vocabulary = ["<unknown>", "<end>", *WORDS, "say", "next"]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unknown>", eos_token="<end>")


def random_llama(seed: int = 0, *, hidden_size: int = 32, num_layers: int = 1, vocab_size: int = 0) -> LlamaForCausalLM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sizes = {"hidden_size": hidden_size, "intermediate_size": 2 * hidden_size, "num_attention_heads": 2}
        sizes |= {"vocab_size": vocab_size or len(word_tokenizer()), "num_hidden_layers": num_layers}
        ends: dict[str, Any] = {"bos_token_id": None, "eos_token_id": 1, "pad_token_id": None}
        return LlamaForCausalLM(LlamaConfig(max_position_embeddings=128, tie_word_embeddings=False, **sizes, **ends))


def word_policy(seed: int = 0, *, max_new_tokens: int = 1, **settings: Any) -> LanguagePolicy:
    model = LanguageModel(random_llama(seed), word_tokenizer())
    return LanguagePolicy(model, max_new_tokens=max_new_tokens, **settings)


def word_policies(**settings: Any) -> dict[str, LanguagePolicy]:
    return {agent: word_policy(i, **settings) for i, agent in enumerate(AGENTS)}


def small_team(weights, device="cpu", recomputes=False, **settings):
    """Return language policies on small random models. weights: "own", "shared" or "adapters"."""

    def model(seed, adapters=()):
        made = random_llama(seed).to(device)
        made = with_adapters(made, adapters, rank=2) if adapters else made
        return LanguageModel(made, word_tokenizer(), recomputes_activations=recomputes)

    torch.manual_seed(0)
    if weights == "own":
        return {agent: LanguagePolicy(model(i), **settings) for i, agent in enumerate(AGENTS)}
    if weights == "shared":
        return dict.fromkeys(AGENTS, LanguagePolicy(model(0), **settings))
    common = model(0, AGENTS)
    return {agent: LanguagePolicy(common, adapter=agent, **settings) for agent in AGENTS}


class Dealer(Alone):
    """Process group in which only one rank exists."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size
