"""Settings of a team's language models. This module does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from .._ranges import Advanced, Also, Checked, Count, CountOrZero, InRange, Positive

TINY = "tiny"
BAG_OF_WORDS = "bag_of_words"
CHAT = "openai:"  # prefix of the names of models that run on chat servers
MAX_NEW_TOKENS = 256  # default of `ModelConfig.max_new_tokens` if the environment declares no limit
ALL_LINEAR = "all-linear"

HistoryTokens = Literal["extended", "rewritten"]
Protocol = Literal["parallel", "pipeline", "discussion"]
"""Order of the replies in a turn; see `collm.algorithms.rollout.protocols`."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Checked):
    """Settings of a team's language models and of their sampling."""

    model: Annotated[str, Also("model_name_or_path")] = TINY
    """Model, or one per agent separated by commas. A model is "tiny" (the embedded model), a folder in Hugging Face
    format, a hub name, a name given to `register_policy`, or "openai:MODEL@URL?key=VARIABLE". The last form is a model
    on a chat server, which is not trained."""
    weights: Literal["own", "shared", "adapters"] = "own"
    """Sharing of weights: a separate model per agent ("own"), one model for all agents ("shared"), or one frozen base
    model with a LoRA adapter per agent ("adapters")."""
    lora_rank: Annotated[Count, Also("lora_r")] = 16
    """Rank of the LoRA adapters."""
    lora_alpha: Advanced[Count | None] = None
    """LoRA alpha: the adapters' output is scaled by alpha / rank. None: twice the rank."""
    lora_target_modules: Advanced[tuple[str, ...]] = (ALL_LINEAR,)
    """Names of the layers with LoRA adapters, such as q_proj v_proj. all-linear: every linear layer except the head."""
    is_chat: bool | None = None
    """Format messages with the tokenizer's chat template. False: as plain text. None: True if the tokenizer has a chat
    template."""
    history_tokens: Advanced[HistoryTokens] = "extended"
    """Tokens of the prompts after an agent's first turn. extended: the tokens of the last prompt and of its reply, then
    new messages. rewritten: the whole history, encoded again in each turn, so that chat templates can rewrite earlier
    replies, for example without thoughts. Each turn is then a separate training sequence."""
    template_kwargs: Advanced[Mapping[str, bool | int | str]] = field(default_factory=dict)
    """Arguments of the chat template, for example `enable_thinking False`."""
    max_new_tokens: Annotated[Count | None, Also("max_completion_length")] = None
    """Maximum number of tokens per completion. None: the environment's limit (48 in MiniWriting and MiniCode, 8 in
    MiniBuild and MiniShift), or 256 if the environment has no limit."""
    temperature: Annotated[float, InRange(1e-4, 10_000)] = 1.0
    """Sampling temperature. Training uses the distribution at this temperature."""
    top_p: Advanced[Annotated[float, InRange(above=0, most=1)]] = 1.0
    """Nucleus sampling: keep the most likely tokens with this total probability. 1: off."""
    top_k: Advanced[CountOrZero] = 0
    """Top-k sampling: keep this number of most likely tokens. 0: off."""
    learns_filtered: Advanced[bool] = False
    """Train the distribution after top-k and top-p, from which tokens are sampled. False: train the distribution before
    these filters; its gradient is biased."""
    compute_dtype: Advanced[Annotated[Literal["float32", "bfloat16", "float16"], Also("dtype")]] = "float32"
    """Data type of forward passes. Trainable weights stay float32, because bfloat16 would round away updates near
    1e-6."""
    recomputes_activations: Advanced[Annotated[bool | None, Also("gradient_checkpointing")]] = None
    """Gradient checkpointing: keep only the inputs of the layers and compute the layers again in the backward pass. It
    saves memory, but takes a third more time. None: only if the memory plan needs it."""
    protocol: Advanced[Protocol] = "parallel"
    """Order of the replies in a turn, for evaluation without training. parallel: all agents at the same time. pipeline:
    one after another, with the earlier replies in the prompt. discussion: twice, seeing all first replies."""
    sampler: Advanced[Literal["arena", "graphs"]] = "arena"
    """Decoder for sampling in this process: eager PyTorch operations ("arena"), or CUDA graphs on a GPU ("graphs")."""
    server: Advanced[str | None] = None
    """Address of a vLLM server for sampling, "http://host:port", or one per agent separated by commas. "+" joins
    several servers of one model: requests are distributed over them, and a server that fails is not used until it
    responds again. None: sample in this process."""
    server_logprobs: Advanced[Literal["learner", "server"]] = "learner"
    """Source of the log-probabilities of tokens that vLLM servers sample: the trained model, which computes them again
    ("learner"), or the servers ("server"). The servers round differently, and truncated importance weights correct
    this difference; see `importance_cap`."""
    kv_memory: Advanced[Positive | None] = None
    """Memory of the KV cache while decoding, in GiB per model. It limits the number of concurrent sequences. None:
    chosen by the memory plan. Without a plan: 40 % of a GPU's free memory, or no limit on a CPU."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", …, or one per agent separated by commas. "auto": a GPU if there is one."""

    def names(self, num_agents: int) -> list[str]:
        """Return the model name of each agent. Raise `ValueError` if different models share weights."""
        return self._per_agent("model", self.model, num_agents)

    def devices(self, num_agents: int) -> list[str]:
        """Return the device of each agent's model. Raise `ValueError` if weights are shared across devices."""
        return self._per_agent("device", self.device, num_agents)

    def _per_agent(self, setting: str, value: str, num_agents: int) -> list[str]:
        names = [name.strip() for name in value.split(",")]
        if len(names) not in (1, num_agents):
            raise ValueError(f"{setting} has {len(names)} entries {names}; give one, or one per agent ({num_agents})")
        if len(set(names)) > 1 and self.weights != "own":
            raise ValueError(f"different {setting}s {names} cannot have weights={self.weights!r}; use weights='own'")
        return names * num_agents if len(names) == 1 else names

    def servers(self, num_agents: int) -> list[tuple[str, ...]]:
        """Return the server addresses of each agent. Empty: sample in this process."""
        groups = [group.strip() for group in (self.server or "").split(",") if group.strip()]
        found = [tuple(address.strip() for address in group.split("+")) for group in groups]
        num_needed = num_agents if self.weights == "own" else 1
        if found and len(found) != num_needed:
            raise ValueError(
                f"server has {len(found)} entries for {num_agents} agents, but weights={self.weights!r} needs "
                f"{num_needed}, because a server has the weights of one model; join several servers of one model by +"
            )
        addresses = [address for each in found for address in each]
        if len(set(addresses)) < len(addresses):
            raise ValueError(f"server={self.server!r} contains an address twice; each model needs its own server")
        return found if len(found) == num_agents else [found[0] if found else ()] * num_agents
