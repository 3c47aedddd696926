"""Learning: algorithms, the rollout collector, the trainer, and runs.

`train(…)` trains a team in one call. `Experiment`, `Trainer` and `RolloutCollector` are the classes that it uses.
"""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from .algorithm import ActorCritic as ActorCritic
    from .algorithm import Algorithm as Algorithm
    from .algorithm import Grid as Grid
    from .algorithm import PolicyBatch as PolicyBatch
    from .algorithm import PolicyLoss as PolicyLoss
    from .config import ActorCriticConfig as ActorCriticConfig
    from .config import C3Config as C3Config
    from .config import IACConfig as IACConfig
    from .config import IPPOConfig as IPPOConfig
    from .config import MAACConfig as MAACConfig
    from .config import MAPPOConfig as MAPPOConfig
    from .config import MARLOOConfig as MARLOOConfig
    from .config import ReinforceConfig as ReinforceConfig
    from .config import TrainConfig as TrainConfig
    from .iac import IAC as IAC
    from .learning.critic_learner import CriticLearner as CriticLearner
    from .learning.trainer import Trainer as Trainer
    from .maac import COMA as COMA
    from .maac import MAAC as MAAC
    from .ppo import IPPO as IPPO
    from .ppo import MAPPO as MAPPO
    from .published import ATGRPOConfig as ATGRPOConfig
    from .published import CoLLMCCConfig as CoLLMCCConfig
    from .published import CoLLMDCConfig as CoLLMDCConfig
    from .published import COMAConfig as COMAConfig
    from .published import DAPOConfig as DAPOConfig
    from .published import DrGRPOConfig as DrGRPOConfig
    from .published import GRPOConfig as GRPOConfig
    from .published import GSPOConfig as GSPOConfig
    from .published import RAEConfig as RAEConfig
    from .registry import AlgorithmSpec as AlgorithmSpec
    from .registry import UnknownAlgorithmError as UnknownAlgorithmError
    from .registry import algorithm_spec as algorithm_spec
    from .registry import algorithm_specs as algorithm_specs
    from .registry import register_algorithm as register_algorithm
    from .reinforce import C3 as C3
    from .reinforce import MAGRPO as MAGRPO
    from .reinforce import MAREINFORCE as MAREINFORCE
    from .reinforce import MARLOO as MARLOO
    from .reinforce import MGRPO as MGRPO
    from .reinforce import RAE as RAE
    from .reinforce import DifferenceRewards as DifferenceRewards
    from .reinforce import DrMAS as DrMAS
    from .reinforce import MAReMax as MAReMax
    from .reinforce import Reinforce as Reinforce
    from .rollout.collector import RolloutCollector as RolloutCollector
    from .rollout.episode import Episode as Episode
    from .rollout.episode import Turn as Turn
    from .rollout.plays import Plan as Plan
    from .runs.api import Run as Run
    from .runs.api import evaluate as evaluate
    from .runs.api import train as train
    from .runs.assembly.experiment import Experiment as Experiment
    from .runs.assembly.trainers import make_trainer as make_trainer
    from .runs.loggers import Logger as Logger
    from .runs.run import run_experiment as run_experiment
    from .runs.team import Team as Team
    from .runs.team import load_team as load_team

if not TYPE_CHECKING:  # type checkers accept any name from a module that has __getattr__
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
