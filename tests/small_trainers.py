"""Trainers of small models on the probe environments, and functions that read their results for comparisons."""

import json

from probes import NumberProbe, TextProbe, word_policies
from safetensors.torch import load, save

from collm.agents.config import ModelConfig
from collm.agents.numeric.config import NetworkConfig
from collm.algorithms import algorithm_spec
from collm.algorithms.config import ActorCriticConfig
from collm.algorithms.learning.state import packed, unpacked
from collm.algorithms.runs.assembly.policies import make_policies
from collm.algorithms.runs.assembly.trainers import make_trainer
from collm.envs.vectors.vector import SyncVector
from collm.envs.wrappers import Shares

CLOCK = ("seconds/", "tokens_per_second")


def algorithm_of(name, **changes):
    """Make an algorithm with settings for updates of eight episodes."""
    spec = algorithm_spec(name)
    chosen = {"num_updates": 6, "rollout_buffer_size": 8, "agent_learning_rate": 1e-3}
    if issubclass(spec.config, ActorCriticConfig):
        chosen |= {"critic_warmup": 0, "critic_batch_size": 4, "critic_model_name_or_path": "small"}
    else:
        chosen |= {"num_generations": 4}
    return spec.make(spec.config(**(chosen | changes)))


def text_trainer(
    name="iac",
    world=lambda: TextProbe("delayed"),
    *,
    policies=None,
    vector=None,
    num_envs=4,
    max_new_tokens=2,
    **changes,
):
    """Make a trainer of two small language models with separate weights."""
    algorithm = algorithm_of(name, **changes)
    build = (lambda: Shares(world())) if algorithm.reads_shares else world
    policies = policies or word_policies(max_new_tokens=max_new_tokens, has_value_head=algorithm.has_actor_heads)
    return make_trainer(algorithm, vector or SyncVector(build, num_envs), policies)


def number_trainer(name="ippo", **changes):
    """Make a trainer of two perceptrons that normalize their observations."""
    algorithm = algorithm_of(name, **({"mini_batch_size": 8} | changes))
    vector = SyncVector(lambda: NumberProbe("delayed"), 4)
    network = NetworkConfig(hidden_dims=(8,), normalizes_observations=True)
    return make_trainer(algorithm, vector, make_policies(algorithm, vector, ModelConfig(), network), network=network)


def timeless(metrics):
    """Return the metrics that do not depend on the clock."""
    return {name: value for name, value in metrics.items() if not name.startswith(CLOCK)}


def weights(trainer):
    """Return a copy of the weights of all policies and critics."""
    models = [*trainer.collector.policies.values(), *(each.critic for each in trainer.critics.values())]
    return [weight.detach().clone() for model in models for weight in model.parameters()]


def through_a_file(state):
    content = packed(state)
    return unpacked(json.loads(json.dumps(content.values)), load(save(content.tensors)))
