"""Settings of a team's language models. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from .._ranges import Advanced, Also, Checked, Count, CountOrZero, InRange, Positive

TINY = "tiny"
BAG_OF_WORDS = "bag_of_words"
CHAT = "openai:"  # begins the name of a chat server's model
MAX_NEW_TOKENS = 256
"""Tokens of a completion where neither the settings nor the environment say how many."""
ALL_LINEAR = "all-linear"


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Checked):
    """Language models of a team, and how they sample."""

    # Models.

    model: Annotated[str, Also("model_name_or_path")] = TINY
    """Model, or one per agent separated by commas: "tiny" (the embedded model), a folder in Hugging Face format, a hub
    name, a name given to `register_policy`, or "openai:MODEL@URL" (a chat server, whose model plays and does not
    learn; its options stand behind the address, as in openai:MODEL@URL?key=VARIABLE)."""
    weights: Literal["own", "shared", "adapters"] = "own"
    """Sharing of weights: a separate copy per agent ("own"), one copy for all ("shared"), or one frozen base with a
    LoRA adapter per agent ("adapters")."""
    lora_rank: Annotated[Count, Also("lora_r")] = 16
    """Rank of the LoRA adapters."""
    lora_alpha: Advanced[Count | None] = None
    """LoRA alpha: the adapters' output is scaled by alpha / rank. None: twice the rank."""
    lora_target_modules: Advanced[tuple[str, ...]] = (ALL_LINEAR,)
    """Names of the layers that get LoRA adapters, such as q_proj v_proj; all-linear: every linear layer but the
    head."""
    is_chat: bool = False
    """Feed messages through the tokenizer's chat template. False: as plain text."""
    template_kwargs: Advanced[Mapping[str, bool | int | str]] = field(default_factory=dict)
    """Arguments of the chat template, for example `enable_thinking False`."""
    max_new_tokens: Annotated[Count | None, Also("max_completion_length")] = None
    """Tokens after which a completion is cut. None: what the environment declares (48 in MiniWriting and MiniCode, 8 in
    MiniBuild and MiniShift), else 256."""
    temperature: Annotated[float, InRange(1e-4, 10_000)] = 1.0
    """Sampling temperature; the distribution that is learned is the tempered one."""
    top_p: Advanced[Annotated[float, InRange(above=0, most=1)]] = 1.0
    """Nucleus sampling: keep the likeliest tokens that hold this much probability. 1 is off."""
    top_k: Advanced[CountOrZero] = 0
    """Top-k sampling: keep this many likeliest tokens. 0 is off."""
    learns_filtered: Advanced[bool] = False
    """Learn the filtered distribution: log-probabilities, entropies and gradients are those after top-k and top-p, from
    which tokens are drawn. False: those before the filters, whose gradient is biased."""
    compute_dtype: Advanced[Annotated[Literal["float32", "bfloat16", "float16"], Also("dtype")]] = "float32"
    """Data type of forward passes. Weights that learn stay float32, or updates near 1e-6 would round to nothing."""
    recomputes_activations: Advanced[Annotated[bool | None, Also("gradient_checkpointing")]] = None
    """Activation recomputation (gradient checkpointing): keep only the layers' inputs and run the layers again in the
    backward pass. Less memory, a third more time. None: where the memory plan needs it."""
    sampler: Advanced[Literal["arena", "graphs"]] = "arena"
    """Decoder in this process: the project's own ("arena"), or the same with its steps recorded as CUDA graphs
    ("graphs", on a GPU)."""
    server: Advanced[str | None] = None
    """Address of a vLLM server that samples, "http://host:port", or one per agent separated by commas. Several servers
    of one model are joined by "+": requests are shared out among them, and one that fails is set aside until it answers
    again. None: this process samples."""
    server_logprobs: Advanced[Literal["learner", "server"]] = "learner"
    """Log-probabilities of what vLLM servers sample: computed again by the model that learns ("learner"), or the
    servers' own ("server"), whose other rounding truncated importance weights correct: see `importance_cap`."""
    kv_memory: Advanced[Positive | None] = None
    """Memory for keys and values while decoding, in GiB per model: as many sequences are decoded at a time as fit.
    None: what the memory plan leaves; without a plan 40 % of a GPU's free memory, and no limit on a CPU."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", …; "auto" takes a GPU where there is one; or a device per agent, separated by
    commas."""

    def names(self, num_agents: int) -> list[str]:
        """The model's name for each agent.

        Raises:
            ValueError: if there are neither one nor `num_agents`.
        """
        names = [name.strip() for name in self.model.split(",")]
        if len(names) not in (1, num_agents):
            raise ValueError(f"model names {len(names)} models {names} for {num_agents} agents; give one, or one each")
        if len(set(names)) > 1 and self.weights != "own":
            raise ValueError(f"different models {names} cannot have weights={self.weights!r}; use weights='own'")
        return names * num_agents if len(names) == 1 else names

    def devices(self, num_agents: int) -> list[str]:
        """The device of each agent's model.

        Raises:
            ValueError: if there are neither one nor `num_agents`, or if agents on different ones would share weights.
        """
        names = [name.strip() for name in self.device.split(",")]
        if len(names) not in (1, num_agents):
            raise ValueError(
                f"device names {len(names)} devices {names} for {num_agents} agents; give one, or one each"
            )
        if len(set(names)) > 1 and self.weights != "own":
            raise ValueError(f"weights={self.weights!r} lie on one device, not on {names}; use weights='own'")
        return names * num_agents if len(names) == 1 else names

    def servers(self, num_agents: int) -> list[tuple[str, ...]]:
        """Addresses of the servers that sample for each agent; with none this process samples.

        Raises:
            ValueError: if agents with weights of their own would share one.
        """
        groups = [group.strip() for group in (self.server or "").split(",") if group.strip()]
        found = [tuple(address.strip() for address in group.split("+")) for group in groups]
        num_needed = num_agents if self.weights == "own" else 1
        if found and len(found) != num_needed:
            raise ValueError(
                f"server names {len(found)} servers for {num_agents} agents, but weights={self.weights!r} needs "
                f"{num_needed}: a server holds the weights of one model; give one each, or share weights or a base "
                "(several servers of one model are joined by +)"
            )
        addresses = [address for each in found for address in each]
        if len(set(addresses)) < len(addresses):
            raise ValueError(f"server={self.server!r} names an address twice; a server holds the weights of one model")
        return found if len(found) == num_agents else [found[0] if found else ()] * num_agents
