"""Who acts: policies, critics, decoding."""

from .core import Completion, Critic, Evaluation, Policy, Request, TrainablePolicy, View

__all__ = ["Completion", "Critic", "Evaluation", "Policy", "Request", "TrainablePolicy", "View"]
