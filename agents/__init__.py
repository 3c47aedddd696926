"""Policies and critics (language models and perceptrons), decoding of tokens, and scoring of completions."""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from .config import ModelConfig as ModelConfig
    from .core import Completion as Completion
    from .core import Critic as Critic
    from .core import CriticInput as CriticInput
    from .core import Evaluation as Evaluation
    from .core import FittedCritic as FittedCritic
    from .core import Policy as Policy
    from .core import Request as Request
    from .core import TrainablePolicy as TrainablePolicy
    from .decoding.sampling import Sampling as Sampling
    from .language.bag_of_words import BagOfWordsCritic as BagOfWordsCritic
    from .language.chat import ChatPolicy as ChatPolicy
    from .language.critics import ActorHead as ActorHead
    from .language.critics import TextCritic as TextCritic
    from .language.model import LanguageModel as LanguageModel
    from .language.policy import LanguagePolicy as LanguagePolicy
    from .language.reward_model import RewardModel as RewardModel
    from .loading import load_policies as load_policies
    from .numeric.config import NetworkConfig as NetworkConfig
    from .numeric.critics import NumericCritic as NumericCritic
    from .numeric.policy import NumericPolicy as NumericPolicy
    from .registry import CriticSeat as CriticSeat
    from .registry import Seat as Seat
    from .registry import register_critic as register_critic
    from .registry import register_policy as register_policy
    from .scripted import FunctionPolicy as FunctionPolicy
    from .scripted import RandomPolicy as RandomPolicy
    from .scripted import fixed_policy as fixed_policy
    from .scripted import reference_policy as reference_policy

if not TYPE_CHECKING:  # type checkers accept every attribute of a module that has __getattr__
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
