"""`collm rescore EPISODES --reward-funcs FUNCTION …`: compute new rewards of recorded episodes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional

from ...._functions import called
from ...._ownership import replaced
from ...._ranges import Checked
from ...._terminal import print_line, shown, terminal
from ....envs.core import Message, Outcome, StepResult, TextParallelEnv
from ....envs.wrappers.recording import mean_info, recorded_return, turns_by_time
from ....envs.wrappers.reward_functions import JudgedTurn, RewardFunctions
from ...arguments import parsed
from ...errors import UserError, check_folder, refusals

_PLAY_AGAIN = "play again: collm evaluate DIR --env-kwargs 'reward_funcs=[\"package.module:name\"]'"


@dataclass(frozen=True, kw_only=True)
class RescoreArguments(Checked):
    """Compute rewards of recorded episodes with other reward functions, without models and without the environment."""

    episodes: Positional[Path]
    """File of episodes by `collm train`, `collm evaluate` or `collm play`, or a folder with episodes.jsonl."""
    reward_funcs: tuple[str, ...]
    """Reward functions as package.module:name, or own for the recorded reward. The functions cannot read the task and
    the environment, because records do not contain them."""
    reward_weights: tuple[float, ...] | None = None
    """One weight per reward function. None: all weights are 1."""
    out: Path | None = None
    """New file for the episodes with the new rewards. None: no file."""


def run(args: Sequence[str]) -> None:
    arguments = parsed(RescoreArguments, "rescore", args)

    from ....algorithms.runs.files import JsonLines, explained  # late imports: help needs no torch
    from ....algorithms.runs.records import read_text_episodes

    out = arguments.out
    with refusals():
        if out is not None:
            check_folder(out.absolute().parent, "--out")
            if os.path.lexists(out):
                raise UserError(f"--out {out} exists and would be overwritten; give the name of a new file")
        rows = read_text_episodes(arguments.episodes)
        key, count = Counter((row.get("policy"), row.get("index")) for row in rows).most_common(1)[0]
        if count > 1:
            raise UserError(f"{count} lines have (policy, index)={key}; give a file with one line per complete episode")
        new_rows = [rescored(row, arguments.reward_funcs, arguments.reward_weights) for row in rows]
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
    terminal().print(comparison(rows, new_rows))
    if out is not None:
        with explained(out), replaced(out) as new:
            JsonLines(new).write(new_rows)
        print_line(f"episodes: {out}")


def rescored(row: Mapping[str, Any], names: Sequence[str], weights: Sequence[float] | None = None) -> dict[str, Any]:
    """Return a record with new rewards, infos and return, and without values that depend on the old rewards."""
    from ....algorithms.runs.records import CREDITED

    world, missing = RecordedEnv(row), missing_fields(row)
    functions = RewardFunctions(world, names).reward_functions  # None: the environment's own reward
    judges = {name: partial(_judge, name, each or attrgetter("reward"), missing) for name, each in functions.items()}
    env = RewardFunctions(world, judges, weights)
    env.reset()
    agents, infos = deepcopy(row["agents"]), []
    for time in range(len(row["infos"])):
        turns = {agent: turns_by_time(agents[agent])[time] for agent in world.movers}
        _, rewards, _, _, told = env.step({agent: turn["wrote"] for agent, turn in turns.items()})
        infos.append(mean_info(told))
        for agent, reward in rewards.items():
            if agent not in turns:
                agents[agent]["waiting"][str(time)] = reward
                continue
            turns[agent]["reward"] = reward
            for name in CREDITED:
                turns[agent].pop(name, None)
    total = sum(map(recorded_return, agents.values()))
    if not np.isfinite(total):
        raise UserError(f"the rewards of episode {row.get('index')} add up to {total}, which is not finite; scale them")
    return {**row, "reward_funcs": list(names), "return": total / len(agents), "agents": agents, "infos": infos}


def missing_fields(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of `JudgedTurn` that a record does not determine, with reasons."""
    kwargs, tracks = row.get("env_kwargs", {}), row["agents"].values()
    reasons = dict.fromkeys(("task", "world"), "records lack the task and the state of the environment")
    if "reward_funcs" in row or "reward_funcs" in kwargs:
        reasons |= dict.fromkeys(("reward", "numbers"), "the recorded rewards are of other reward functions")
    for name in ("metric/dropped_messages", "metric/cut_replies"):
        if any(name in info for info in row["infos"]):
            reasons |= dict.fromkeys(("transcripts", "joint", "numbers"), f"recorded texts were shortened ({name})")
    if kwargs.get("memory", "all") != "all" or any("rewritten" in track for track in tracks):
        reasons["joint"] = "histories were rewritten"
    if any("waiting" in track for track in tracks):
        reasons |= dict.fromkeys(("transcripts", "joint"), "the record lacks times of messages to waiting agents")
    if not (row.get("is_complete") or all(track["is_terminated"] for track in tracks)):
        reasons["is_last"] = f"the record of episode {row.get('index')} lacks its end"
    return reasons


class RecordedEnv(TextParallelEnv):
    """Environment that repeats a recorded episode, independently of the actions."""

    def __init__(self, row: Mapping[str, Any]):
        kwargs = row.get("env_kwargs", {})
        for name in ("partners", "single_model"):
            if kwargs.get(name):
                raise UserError(f"{name}={kwargs[name]!r}: records lack replies of single agents; {_PLAY_AGAIN}")
        limits = {name: kwargs[name] for name in ("max_action_length", "max_observation_length") if name in kwargs}
        super().__init__(list(row["agents"]), len(row["infos"]), **limits)
        self._tracks, self._infos = row["agents"], row["infos"]
        self._turns = {agent: turns_by_time(track) for agent, track in self._tracks.items()}
        self._read_texts: dict[str, list[list[Message]]] = {}
        for agent, track in self._tracks.items():
            reads = [*(turn["read"] for turn in track["turns"]), track["last_read"]]
            self._read_texts[agent] = [[Message(**each) for each in read] for read in reads]

    def deal(self, task: Any) -> Mapping[str, Sequence[Message]]:
        self.movers = [agent for agent, turns in self._turns.items() if 0 in turns]
        return {agent: reads[0] for agent, reads in self._read_texts.items()}

    def play(self, replies: Mapping[str, str]) -> Outcome:
        end, rewards, stay = self.turn + 1, {}, set()
        read: dict[bool, dict[str, Any]] = {False: {}, True: {}}  # keys: True if the messages are the whole history
        for agent in self.agents:
            turns, waiting = self._turns[agent], self._tracks[agent].get("waiting", {})
            if agent in replies:
                number = list(turns).index(self.turn) + 1
                read[number in self._tracks[agent].get("rewritten", ())][agent] = self._read_texts[agent][number]
            rewards[agent] = turns[self.turn]["reward"] if agent in replies else waiting[str(self.turn)]
            if end in turns or str(end) in waiting:
                stay.add(agent)
        movers = [agent for agent in self.agents if end in self._turns[agent]]
        finished = frozenset(self.agents) - stay
        return Outcome(rewards, read[False], finished=finished, rewritten=read[True], movers=movers or None)

    def step(self, actions: Mapping[str, str]) -> StepResult:
        added = ("metric/share/", "difference/")  # by the wrapper `Shares`, after the calls of the reward functions
        info = {k: np.nan if v is None else v for k, v in self._infos[self.turn].items() if not k.startswith(added)}
        observations, rewards, terminations, truncations, infos = super().step(actions)
        return observations, rewards, terminations, truncations, {agent: dict(info) for agent in infos}


class RecordedTurn(JudgedTurn):
    """Turn of a record. Reading a field that the record lacks raises `UserError`, and adds the error to `refused`."""

    def __init__(self, name: str, judged: JudgedTurn, missing: Mapping[str, str]):
        known = {field: value for field, value in vars(judged).items() if field not in missing}
        vars(self).update(known, function=name, missing=missing, refused=[])

    def __getattr__(self, field: str) -> Any:
        if field not in vars(self).get("missing", ()):
            raise AttributeError(field)
        self.refused.append(UserError(f"{self.function} needs turn.{field}: {self.missing[field]}; {_PLAY_AGAIN}"))
        raise self.refused[0]


def _judge(name: str, function: Callable[[JudgedTurn], Any], missing: Mapping[str, str], judged: JudgedTurn) -> Any:
    turn = RecordedTurn(name, judged, missing)
    try:
        return called(f"the reward function {name}", lambda: function(turn))
    finally:
        for refusal in turn.refused:  # the function has caught the error, or not
            raise refusal


def comparison(rows: Sequence[Mapping[str, Any]], new_rows: Sequence[Mapping[str, Any]]) -> Table:
    """Table of old and new returns, with one row per policy of an evaluation (sampled, greedy)."""
    from scipy.stats import pearsonr, spearmanr

    table = Table("", "episodes", "old mean return", "new mean return", "Pearson", "Spearman")
    for policy in dict.fromkeys(row.get("policy") for row in rows):
        pairs = [(a["return"], b["return"]) for a, b in zip(rows, new_rows, strict=True) if a.get("policy") == policy]
        old, new = np.round(pairs, 9).T  # rounded, so that the order of summation does not change ranks
        is_constant = np.ptp(old) == 0 or np.ptp(new) == 0  # then correlations are undefined
        found = ["-" if is_constant else f"{f(old, new).statistic:.3f}" for f in (pearsonr, spearmanr)]
        table.add_row(Text(shown(policy or "all")), str(len(old)), f"{old.mean():.3f}", f"{new.mean():.3f}", *found)
    return table
