"""Every algorithm on a pretended accelerator: the CPU's results, and few waits of the host for the device."""

from __future__ import annotations

import itertools

import pytest
import torch
from pretended import NAME, pretended
from probes import AGENTS, NumberProbe, TextProbe, random_llama, word_tokenizer

from collm.agents.language.policy import LanguageModel, LanguagePolicy
from collm.agents.loading import with_adapters
from collm.agents.numeric.policy import NumericPolicy
from collm.algorithms import algorithm_spec
from collm.algorithms.config import ActorCriticConfig, IACConfig
from collm.algorithms.runs.teams import make_trainer
from collm.envs.vectors.vector import SyncVector

NAMES = ("iac", "maac", "ippo", "mappo", "magrpo", "mareinforce", "marloo", "maremax", "collm-cc", "collm-dc")
WEIGHTS = ("own", "shared", "adapters")
MAX_NEW_TOKENS = 5
NUM_UPDATES = 2
DECODING = ("scheduler.py", "engine.py", "sampling.py", "filters.py", "samples.py", "arena.py", "transfer.py")


def critics_of(name):
    """Kinds of critics that the algorithm may have."""
    config = algorithm_spec(name).config
    if not issubclass(config, ActorCriticConfig):
        return ("none",)
    return ("v", "q", "head") if issubclass(config, IACConfig) else ("v", "q")


TEXT_TEAMS = [(n, w, c) for n, w in itertools.product(NAMES, WEIGHTS) for c in critics_of(n)]
NUMERIC_TEAMS = [(n, w, c) for n, w in itertools.product(NAMES, WEIGHTS[:2]) for c in critics_of(n)]
QUICK_TEXT = [
    ("maac", "own", "v"),
    ("ippo", "adapters", "head"),
    ("magrpo", "shared", "none"),
    ("collm-dc", "own", "q"),
]
QUICK_NUMERIC = [("mappo", "own", "v"), ("iac", "shared", "head")]


def algorithm_of(name, critic, **settings):
    spec = algorithm_spec(name)
    chosen = {"rollout_buffer_size": 4, "agent_learning_rate": 1e-3, "num_generations": 2, "mini_batch_size": None}
    chosen |= {"reference_kl_coef": 0.05, "entropy_coef": 0.01}
    if critic != "none":
        chosen |= {"critic_warmup": 0, "critic_model_name_or_path": "small", "critic_steps": 2}
        chosen |= {"critic_type": "q" if critic == "q" else "v", "value_clip_range": 0.5}
        if issubclass(spec.config, IACConfig):
            chosen["use_separate_critic"] = critic != "head"
    return spec.make(spec.config(**(chosen | settings)))


def writers(weights, device, has_value_head, **settings):
    def model(seed, adapters=()):
        made = random_llama(seed).to(device)
        return LanguageModel(with_adapters(made, adapters, rank=2) if adapters else made, word_tokenizer())

    settings = {"max_new_tokens": MAX_NEW_TOKENS, "has_value_head": has_value_head} | settings
    torch.manual_seed(0)
    if weights == "own":
        return {agent: LanguagePolicy(model(i), **settings) for i, agent in enumerate(AGENTS)}
    if weights == "shared":
        return dict.fromkeys(AGENTS, LanguagePolicy(model(0), **settings))
    common = model(0, AGENTS)
    return {agent: LanguagePolicy(common, adapter=agent, **settings) for agent in AGENTS}


def movers(weights, device, has_value_head):
    env = NumberProbe("delayed")
    spaces = env.observation_space(AGENTS[0]), env.action_space(AGENTS[0])
    settings = {"hidden_dims": (8,), "has_value_head": has_value_head, "device": device}
    made = [NumericPolicy.for_spaces(*spaces, seed=seed, **settings) for seed in range(len(AGENTS))]
    return dict.fromkeys(AGENTS, made[0]) if weights == "shared" else dict(zip(AGENTS, made, strict=True))


def trained(name, weights, critic, device, *, is_text=True, **settings):
    """What some updates leave: every completion, every metric, and the weights."""
    algorithm = algorithm_of(name, critic, **settings)
    world = TextProbe if is_text else NumberProbe
    team = (writers if is_text else movers)(weights, device, algorithm.has_actor_heads)
    trainer = make_trainer(algorithm, SyncVector(lambda: world("delayed"), 3), team)
    said, measured = [], []
    for _ in range(NUM_UPDATES):
        episodes, metrics = trainer.step()
        said += [turn for episode in episodes for track in episode.tracks.values() for turn in track]
        measured.append({name: value for name, value in metrics.items() if "second" not in name})
    return trainer, said, measured


def are_alike(name, weights, critic, **settings):
    """Train on the CPU and on the device; returns what was counted there, and completions."""
    _, here, expected = trained(name, weights, critic, "cpu", **settings)
    with pretended() as seen:
        trainer, there, found = trained(name, weights, critic, NAME, **settings)
    assert [turn.completion.action for turn in there] == [turn.completion.action for turn in here]
    assert [turn.reward for turn in there] == [turn.reward for turn in here]
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-5)
    for policy in trainer.collector.policies.values():
        assert all(weight.device.type == NAME for weight in policy.parameters())
    return seen, there


@pytest.mark.parametrize(("name", "weights", "critic"), QUICK_TEXT)
def test_a_device_gives_writers_the_results_of_the_cpu(name, weights, critic):
    are_alike(name, weights, critic)


@pytest.mark.parametrize(("name", "weights", "critic"), QUICK_NUMERIC)
def test_a_device_gives_perceptrons_the_results_of_the_cpu(name, weights, critic):
    are_alike(name, weights, critic, is_text=False)
