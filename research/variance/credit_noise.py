"""Measure the gradient noise scale of credit rules, in generated tokens, with the embedded model.

The noise scale is the number of generated tokens at which the variance of the gradient equals the squared norm of its
mean (arXiv:1812.06162). A method with half the noise scale needs half the tokens for the same accuracy.

    tokens per update * trace(Cov[g]) / |E[g]|^2

The policies are frozen: AdamW's learning rate is too small to change a weight. Critics learn for `WARMUP` updates
before the measurement; these tokens are not counted.

    python research/variance/credit_noise.py --out runs/credit_noise
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from math import exp, inf, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from collm._ownership import write_text
from collm.agents.config import ModelConfig
from collm.algorithms.config import ActorCriticConfig
from collm.algorithms.registry import algorithm_spec
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.benchmarks.markdown import markdown_table

WARMUP = 20
GAMES: dict[str, tuple[str, dict[str, Any], int]] = {
    "TinyHanabi E": ("collm/TinyHanabi-v0", {"game": "E"}, 1),
    "MiniShift, 2 turns": ("collm/MiniShift-v0", {"max_turns": 2}, 8),
    "MiniShift, 4 turns": ("collm/MiniShift-v0", {"max_turns": 4}, 4),
    "MiniShift, 8 turns": ("collm/MiniShift-v0", {"max_turns": 8}, 4),
}
"""Environment, its arguments, and the factor by which updates are larger than in `METHODS`."""
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "c3": ("c3", {"rollout_buffer_size": 16}),
    "c3, all decisions": ("c3", {"rollout_buffer_size": 4, "num_decisions": None}),
    "magrpo": ("magrpo", {"rollout_buffer_size": 32}),
    "marloo": ("marloo", {"rollout_buffer_size": 32}),
    "maac": ("maac", {"rollout_buffer_size": 32}),
}


def measure(method: str, game: str, num_updates: int, seed: int) -> dict[str, Any]:
    """Return the noise scale of a method in a game, with a 95 % interval: a jackknife of its logarithm over updates."""
    name, settings = METHODS[method]
    env, kwargs, factor = GAMES[game]
    settings = {**settings, "rollout_buffer_size": factor * settings["rollout_buffer_size"]}
    kind = algorithm_spec(name).config
    if issubclass(kind, ActorCriticConfig):
        settings = {**settings, "critic_warmup": WARMUP}
    num_unmeasured = settings.get("critic_warmup", 0)
    config = kind(
        num_updates=num_updates + num_unmeasured,
        seed=seed,
        agent_learning_rate=1e-20,
        max_grad_norm=1e9,
        side_by_side=False,
        **settings,
    )
    trainer = Experiment(algorithm=name, config=config, env=env, env_kwargs=kwargs, model=ModelConfig()).make_trainer()
    weights = [each for policy in trainer.collector.policies.values() for each in policy.parameters()]
    gradients: list[NDArray[np.float64]] = []

    def record(optimizer: Optimizer, *_: Any) -> None:
        own = {id(each) for group in optimizer.param_groups for each in group["params"]}
        if own <= {id(each) for each in weights}:
            gradients[-1][:] += _flat(weights, own)

    hook = register_optimizer_step_pre_hook(record)
    for update in range(num_updates + num_unmeasured):
        if update >= num_unmeasured:
            gradients.append(np.zeros(sum(each.numel() for each in weights)))
        if update == num_unmeasured:
            tokens_before = trainer.progress.num_tokens
        trainer.step()
    hook.remove()
    tokens = (trainer.progress.num_tokens - tokens_before) / num_updates
    trainer.close()
    rows = np.array(gradients)
    products = rows @ rows.T
    value = noise_scale(products, tokens)
    left_out = [noise_scale(np.delete(np.delete(products, i, 0), i, 1), tokens) for i in range(len(products))]
    if not all(0 < each < inf for each in [value, *left_out]):
        return {"method": method, "game": game, "tokens": tokens, "noise": None, "low": None, "high": None}
    logs = np.log(left_out)
    error = sqrt((len(logs) - 1) * float(((logs - logs.mean()) ** 2).mean()))
    low, high = (exp(log(value) + sign * 1.96 * error) for sign in (-1, 1))
    return {"method": method, "game": game, "tokens": tokens, "noise": value, "low": low, "high": high}


def _flat(weights: list[torch.nn.Parameter], own: set[int]) -> NDArray[np.float64]:
    parts = [
        each.grad.double().flatten() if id(each) in own and each.grad is not None else torch.zeros(each.numel())
        for each in weights
    ]
    return torch.cat(parts).numpy()


def noise_scale(products: NDArray[np.float64], tokens: float) -> float:
    """Return the noise scale from the scalar products [n, n] of n gradients. Infinite if their mean is not above 0.

    Both estimates are unbiased: |E[g]|^2 is the mean product of two different gradients.
    """
    count = len(products)
    squared_norm = (products.sum() - np.trace(products)) / (count * (count - 1))
    variance = np.trace(products) / count - squared_norm
    return float(tokens * variance / squared_norm) if squared_norm > 0 else inf


def _cell(row: dict[str, Any]) -> str:
    if row["noise"] is None:
        return "-"
    return f"{row['noise']:,.0f} [{row['low']:,.0f}, {row['high']:,.0f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--num-updates", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--games", nargs="*", default=list(GAMES))
    args = parser.parse_args()
    torch.set_num_threads(1)
    file = args.out / "credit_noise.json"
    rows = json.loads(file.read_text()) if file.is_file() else []
    for game, method in product(args.games, METHODS):
        if any((row["game"], row["method"]) == (game, method) for row in rows):
            continue
        rows.append(measure(method, game, args.num_updates, args.seed))
        print(f"{game}, {method}: {_cell(rows[-1])}", flush=True)
        write_text(args.out, file.name, json.dumps(rows, indent=1) + "\n")
    games = list(dict.fromkeys(row["game"] for row in rows))
    found = {(row["method"], row["game"]): _cell(row) for row in rows}
    table = [[method, *(found.get((method, game), "-") for game in games)] for method in METHODS]
    write_text(args.out, "credit_noise.md", markdown_table(["method", *games], table) + "\n")


if __name__ == "__main__":
    main()
