"""Training runs that collect episodes on Ray, and comparisons of their episodes."""

import os

import numpy as np

from collm.agents.config import ModelConfig
from collm.algorithms import algorithm_spec
from collm.algorithms.runs.assembly.experiment import Experiment

NODE = {"num_cpus": 1, "object_store_memory": 100_000_000}


def experiment(env="collm/MiniWriting-v2", algorithm="maac", **settings):
    chosen = {"num_updates": 3, "rollout_buffer_size": 8, "eval_num_samples": 2}
    chosen |= {"critic_warmup": 0} if algorithm == "maac" else {}
    chosen |= {"collector_options": {"num_cpus": 0.4}, "max_batch_tokens": 512} | settings
    model = ModelConfig(max_new_tokens=8, device="cpu")
    return Experiment(algorithm=algorithm, config=algorithm_spec(algorithm).config(**chosen), env=env, model=model)


def said(episodes):
    """Return the content of episodes that must not depend on the collector: everything except log-probabilities."""
    return [
        (
            (each.index, each.seed, each.group, agent, turn.time, turn.observation),
            (turn.completion.action, turn.reward, turn.completion.version),
            tuple(turn.completion.tokens.completion_ids),
        )
        for each in episodes
        for agent, track in each.tracks.items()
        for turn in track
    ]


def logprobs(episodes):
    return np.concatenate([turn.completion.logprobs for e in episodes for t in e.tracks.values() for turn in t])


def stepped(trainer, count=2):
    try:
        return [trainer.step() for _ in range(count)]
    finally:
        trainer.close()


def assert_same(found, expected):
    for episodes, others in zip(found, expected, strict=True):
        assert said(episodes) == said(others)
        np.testing.assert_allclose(logprobs(episodes), logprobs(others), atol=1e-5)


def processes(title):
    """Return the ids of processes that a Ray raylet of this machine started, and whose command starts with `title`."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if _words(name).startswith(title) and "raylet" in _words(_parent(name)):
                found.append(int(name))
        except OSError:  # the process has ended
            continue
    return sorted(found)


def _words(process):
    with open(f"/proc/{process}/cmdline", encoding="utf-8", errors="replace") as file:
        return file.read()


def _parent(process):
    with open(f"/proc/{process}/stat") as file:
        return file.read().rpartition(")")[2].split()[1]


def two_nodes():
    import ray
    from ray.cluster_utils import Cluster

    for _ in range(10):
        nodes = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        second = nodes.add_node(**NODE)
        ray.init(address=nodes.address, log_to_driver=False, logging_level="error")
        if ray.get_runtime_context().get_node_id() != second.node_id:
            return nodes, second
        ray.shutdown()
        nodes.shutdown()
    raise AssertionError("Ray never connected this process to the head")
