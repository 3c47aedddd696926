"""Faster layers on a CPU, by C++ kernels and oneDNN. The environment variable COLLM_KERNEL=0 turns both off."""

from .fused_ops import attend
from .kernels import compiler
from .onednn_linear import is_onednn_faster, is_plain_linear, packed_weights
from .patching import FAILURES, patch_layers

__all__ = ["FAILURES", "attend", "compiler", "is_onednn_faster", "is_plain_linear", "packed_weights", "patch_layers"]
