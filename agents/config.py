"""Settings of a team's language models. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from .._ranges import Checked, Count, CountOrZero, InRange, Positive

TINY = "tiny"


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Checked):
    """Language models of a team, and how they sample."""

    model: str = TINY
    """Model, or one per agent separated by commas: "tiny" (the embedded model), a folder in Hugging Face format, a hub
    name, or a name given to `register_policy`."""
    weights: Literal["own", "shared", "adapters"] = "own"
    """Sharing of weights: a separate copy per agent ("own"), one copy for all ("shared"), or one frozen base with a
    LoRA adapter per agent ("adapters")."""
    lora_rank: Count = 16
    """Rank of the LoRA adapters."""
    is_chat: bool = False
    """Feed messages through the tokenizer's chat template. False: as plain text."""
    template_kwargs: Mapping[str, bool | int | str] = field(default_factory=dict)
    """Arguments of the chat template, for example `enable_thinking False`."""
    max_new_tokens: Count = 256
    """Tokens after which a completion is cut."""
    temperature: Positive = 1.0
    """Sampling temperature; the distribution that is learned is the tempered one."""
    top_p: Annotated[float, InRange(above=0, most=1)] = 1.0
    """Nucleus sampling: keep the likeliest tokens that hold this much probability. 1 is off."""
    top_k: CountOrZero = 0
    """Top-k sampling: keep this many likeliest tokens. 0 is off."""
    learns_filtered: bool = False
    """Learn the filtered distribution: log-probabilities, entropies and gradients are those after top-k and top-p, from
    which tokens are drawn. False: those before the filters, whose gradient is biased."""
    compute_dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Data type of forward passes. Weights that learn stay float32, or updates near 1e-6 would round to nothing."""
    recomputes_activations: bool = False
    """Activation recomputation (gradient checkpointing): keep only the layers' inputs and run the layers again in the
    backward pass. Less memory, more time."""
    server: str | None = None
    """Address of a vLLM server that samples, "http://host:port", or one per agent separated by commas. None: this
    process samples."""
    kv_memory: Positive | None = None
    """Memory for keys and values while decoding, in GiB per model: as many sequences are decoded at a time as fit.
    None: 40 % of a GPU's free memory; no limit on a CPU."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", …; "auto" takes a GPU where there is one."""

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

    def servers(self, num_agents: int) -> list[str | None]:
        """The server that samples for each agent; None samples in this process.

        Raises:
            ValueError: if agents with weights of their own would share one.
        """
        addresses = [address.strip() for address in (self.server or "").split(",") if address.strip()]
        num_needed = num_agents if self.weights == "own" else 1
        if addresses and len(addresses) != num_needed:
            raise ValueError(
                f"server names {len(addresses)} servers for {num_agents} agents, but weights={self.weights!r} needs "
                f"{num_needed}: a server holds the weights of one model; give one each, or share weights or a base"
            )
        return [*addresses] if len(addresses) == num_agents else [addresses[0] if addresses else None] * num_agents
