"""What samples completions for a language policy: the decoder in this process, or a server elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .samples import Prompt, Sample
from .sampling import Sampling


class Generator(Protocol):
    """Prompts in, one sample each out."""

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Sample]:
        """One sample for each prompt, in their order; the sample of one does not depend on the others."""

    def forget(self) -> None:
        """The weights have changed: drop what was computed with old ones, and sample from the new from here on."""
