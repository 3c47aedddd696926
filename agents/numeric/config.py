"""Settings of the perceptrons that play environments of vectors. Nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..._errors import UserError
from ..._ranges import Checked, Count, Finite

Activation = Literal["tanh", "relu"]
Images = Literal["auto", "convolved", "flat"]
LOG_STD_BOUNDS = (-20.0, 2.0)


@dataclass(frozen=True, kw_only=True)
class NetworkConfig(Checked):
    """Networks of policies and critics for vector observations; text environments do not read them."""

    hidden_dims: tuple[Count, ...] = (64, 64)
    """Widths of the hidden layers of policies and critics."""
    activation: Activation = "tanh"
    """Activation function after each hidden layer."""
    images: Images = "auto"
    """Network for observations with three axes: convolutions in front of the hidden layers, or one flat vector. auto:
    convolutions for images of bytes with sides of at least 5."""
    is_squashed: bool = False
    """Squash continuous actions into their bounds by a tanh. False: clip them to the bounds."""
    initial_log_std: Finite = 0.0
    """Initial log standard deviation of Gaussian actions."""
    has_state_std: bool = False
    """State-dependent standard deviation of Gaussian actions: an output of the network. False: one learned vector, the
    same in every state."""
    log_std_bounds: tuple[Finite, Finite] = LOG_STD_BOUNDS
    """Bounds to which the log standard deviation of Gaussian actions is clamped."""
    normalizes_observations: bool = False
    """Normalize observations by their running mean and standard deviation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        lowest, highest = self.log_std_bounds
        if not lowest < highest:
            raise UserError(f"log_std_bounds are {lowest:g} and {highest:g}; give the lower one first")
        if not lowest <= self.initial_log_std <= highest:
            raise UserError(
                f"initial_log_std={self.initial_log_std:g} lies outside log_std_bounds, {lowest:g} to {highest:g}, "
                "where it cannot learn; start within the bounds"
            )
