"""Results in the JSON format of marl-eval (InstaDeep), so that its plots and tables can be made of them too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ..comparison.summaries import RunSummary

Nested = dict[str, dict[str, dict[str, dict[str, Any]]]]


def marl_eval_json(summaries: Sequence[RunSummary]) -> Nested:
    """environment → task → algorithm → run → steps and absolute metrics, from the held-out evaluations.

    The environment is the registered id's namespace, the task the comparison's name for it. The absolute metric is that
    of the last evaluation, as the trained team at the end is what a run hands over.
    """
    found: Nested = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for summary in summaries:
        if not summary.is_finished or not summary.evaluations:
            continue
        run: dict[str, Any] = {}
        for number, row in enumerate(summary.evaluations):
            run[f"step_{number}"] = {
                "step_count": int(row["environment_steps"]),
                "return": [row["evaluation/sampled/return"]],
                "greedy_return": [row["evaluation/greedy/return"]],
            }
        last = summary.evaluations[-1]
        run["absolute_metrics"] = {
            "return": [last["evaluation/sampled/return"]],
            "greedy_return": [last["evaluation/greedy/return"]],
        }
        namespace = summary.experiment["env"].partition("/")[0]
        found[namespace][summary.environment][summary.algorithm][f"seed_{summary.seed}"] = run
    plain: Nested = {
        env: {task: {name: dict(runs) for name, runs in methods.items()} for task, methods in tasks.items()}
        for env, tasks in found.items()
    }
    return plain
