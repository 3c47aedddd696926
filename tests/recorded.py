"""Run folders of a comparison, with made-up episodes and metrics."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from collm.algorithms.config import IACConfig, MAACConfig, ReinforceConfig
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.algorithms.runs.files import write_config
from collm.algorithms.runs.loggers import JsonLines
from collm.benchmarks.comparison.summaries import RunSummary
from collm.benchmarks.report.report import read_comparison
from collm.envs import make

ENV = {"max_turns": 2, "reward": "dense"}


def made_summary(name: str, environment: str, seed: int, curves: Any, evaluations: Any, **settings: Any) -> RunSummary:
    """Return the summary of a finished run with these curves and evaluations."""
    given = {"algorithm": name, "environment": environment, "seed": seed, "curves": curves, "evaluations": evaluations}
    given |= {"place": (0, 0), "is_finished": True, "threshold": None, "budget": {}, "diagnostics": []}
    return RunSummary(experiment={"env": "collm/MiniShift-v0", **settings}, **given)


def read_summaries(folder: Path) -> list[RunSummary]:
    """Return summaries of all runs in a folder, as for a report."""
    return read_comparison(folder, 1, Console(quiet=True))[0]


def played(seed: int) -> dict:
    """Return the record of an episode of two reference players."""
    env = make("collm/MiniBuild-v0", **ENV)
    observations, _ = env.reset(seed=seed)
    turns: dict = {agent: [] for agent in env.agents}
    infos, before = [], dict.fromkeys(env.agents, 0)
    while env.agents:
        replies = {agent: env.reference_reply(agent) for agent in env.agents}
        reads = {agent: str(observations[agent])[before[agent] :] for agent in env.agents}
        observations, rewards, _, _, found = env.step(replies)
        for agent, reply in replies.items():
            message = {"role": "user", "content": reads[agent], "author": "environment"}
            numbers = {"reward": rewards[agent], "value": 0.25, "advantage": 0.5, "logprob": -1.0, "entropy": 0.7}
            numbers |= {"raw_advantage": 0.5 + len(infos), "return_to_go": float(seed % 2)}
            ids = {"prompt_ids": [*message["content"].encode()], "completion_ids": [*reply.encode()]}
            turns[agent].append({"time": len(infos), "read": [message], "wrote": reply, "is_cut": False, **numbers})
            turns[agent][-1] |= ids | {"is_extension": True}
        infos.append(dict(next(iter(found.values()))))
    agents = {agent: {"turns": track, "last_read": [], "is_terminated": True} for agent, track in turns.items()}
    total = sum(turn["reward"] for turn in turns["builder_0"])
    return {"seed": seed, "group": 0, "return": total, "agents": agents, "infos": infos}


def write_run(directory: Path, algorithm: str, seed: int, *, episodes: int = 16, bonus: float = 0.0) -> Path:
    """Write the folder of a run on MiniBuild."""
    config = MAACConfig(seed=seed) if algorithm == "maac" else ReinforceConfig(seed=seed, num_generations=2)
    experiment = Experiment(algorithm=algorithm, config=config, env="collm/MiniBuild-v0", env_kwargs=ENV)
    constants = {"entropy": 1.0, "grad_norm": 0.5, "completion_tokens": 2.5}
    metrics = [
        {"update": n, "environment_steps": 8 * n, "sampled_tokens": 40 * n, "seconds/total": 1.5 * n}
        | {"return": 0.1 * n + bonus, **constants}
        for n in range(1, 9)
    ]
    evaluations = [
        {"update": n, "environment_steps": 8 * n}
        | {"evaluation/sampled/return": 0.1 * n + bonus + 0.01 * seed, "evaluation/greedy/return": 0.05 * n}
        for n in (0, 8)
    ]
    rows = [
        {"update": 1 + number * 8 // episodes, "index": number, **played(episodes * seed + number)}
        for number in range(episodes)
    ]
    label = {"environment": "build", "threshold": 0.5, "place": [0, int(algorithm == "maac")]}
    return _write(directory, experiment, metrics, evaluations, rows, label)


def write_classic_run(directory: Path, algorithm: str, seed: int, *, rate: float) -> Path:
    """Write the folder of a run on CartPole, whose returns are above 100."""
    config = IACConfig(seed=seed) if algorithm == "iac" else ReinforceConfig(seed=seed, num_generations=2)
    experiment = Experiment(algorithm=algorithm, config=config, env="gymnasium/CartPole-v1")
    metrics = [
        {"update": n, "environment_steps": 100 * n, "sampled_tokens": 100 * n, "return": rate * n + seed}
        | {"seconds/total": 0.5 * n, "entropy": 0.6, "completion_tokens": 1.0}
        for n in range(1, 13)
    ]
    evaluations = [
        {"update": n, "environment_steps": 100 * n}
        | {f"evaluation/{how}/return": 20.0 + rate * n + seed for how in ("sampled", "greedy")}
        for n in (0, 12)
    ]
    agents = {"agent_0": {"actions": [0, 1, 1], "rewards": [1.0, 1.0, 1.0], "is_terminated": True}}
    row = {"index": 0, "seed": seed, "group": 0, "return": 3.0, "agents": agents, "infos": [{}] * 3}
    label = {"environment": "CartPole", "threshold": 195, "place": [1, int(algorithm == "iac")]}
    return _write(directory, experiment, metrics, evaluations, [{"update": n, **row} for n in range(1, 13)], label)


def _write(directory: Path, experiment: Experiment, metrics: Any, evaluations: Any, episodes: Any, label: Any) -> Path:
    directory.mkdir(parents=True)
    write_config(directory, experiment.to_json())
    label |= {"algorithm": experiment.algorithm.upper(), "seed": experiment.config.seed}
    (directory / "benchmark.json").write_text(json.dumps(label | {"budget": {"environment_steps": 96}}))
    (directory / "finished.json").write_text("{}")
    for name, rows in (("metrics", metrics), ("evaluation", evaluations), ("episodes", episodes)):
        JsonLines(directory / f"{name}.jsonl").write(rows)
    return directory
