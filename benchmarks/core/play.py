"""Teams play the held-out seeds: scripted players, models as they are, and runs, each in the environment it learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from ...agents.config import ModelConfig
from ...agents.core import Policy
from ...agents.scripted import RandomPolicy, fixed_policy, reference_policy
from ...algorithms.registry import algorithm_spec
from ...algorithms.rollout.collector import RolloutCollector
from ...algorithms.rollout.episode import Episode
from ...algorithms.runs.api import Run, load_run, untrained
from ...algorithms.runs.assembly.experiment import Experiment
from ...algorithms.runs.evaluation import evaluate_on
from ...envs.players import PLAYERS
from ...envs.vectors.vector import SyncVector
from ..errors import UserError
from .submission import Submission, core_ids, seeds_of

Told = Callable[[Submission, str], None]
"""(what is known so far, a line about the newest of it) -> None: hears of each environment that is done."""
Played = Mapping[str, Sequence[float]]
"""Returns by way of playing."""
SPLIT = "test"


def player_submission(name: str, ids: Sequence[str], told: Told) -> Submission:
    """What a scripted player reaches, which plays in one way only.

    Args:
        name: "reference", "random" or "empty".
        ids: environments.
        told: hears of each that is done.
    """

    def play(id: str) -> Played:
        return {"sampled": [episode.team_return for episode in _played_by(name, id)]}

    return _submission(name, [name], {id: partial(play, id) for id in ids}, told)


def model_submission(
    model: ModelConfig, ids: Sequence[str], ways: Sequence[str], folder: Path, told: Told
) -> Submission:
    """What models reach that were not trained here.

    Args:
        model: settings of the models; names as in `ModelConfig.model`.
        ids: environments.
        ways: "sampled", "greedy", or both.
        folder: where episodes are kept that an environment fails in.
        told: hears of each that is done.

    Raises:
        UserError: if they can play none of the environments.
    """

    def play(id: str) -> Played:
        return _returns(untrained(model, id, folder), ways)

    return _submission(model.model, model.model.split(","), {id: partial(play, id) for id in ids}, told)


def runs_submission(directories: Sequence[Path], ways: Sequence[str], trust: bool, told: Told) -> Submission:
    """What trained teams reach, each in the environment that it was trained in, as one submission.

    Raises:
        UserError: if two were trained in the same environment, or one in none of the suite, or with other arguments.
    """
    runs: dict[str, Run] = {}
    for directory in directories:
        run = load_run(directory, trust=trust)
        id = run.experiment.env
        seeds_of(id)
        if id in runs:
            raise UserError(f"{directory} and another run were both trained in {id}; give one run per environment")
        # The suite is the environments as they are: what a run was trained with must not make them easier.
        runs[id] = replace(run, experiment=replace(run.experiment, env_kwargs={}))
    plays = {id: partial(_returns, run, ways) for id, run in runs.items()}
    return _submission(team_of(directories), [str(each) for each in directories], plays, told)


def team_of(directories: Sequence[Path]) -> str:
    """Name of the team that runs are together."""
    return " ".join(map(str, directories))


def checked_ids(asked: Sequence[str]) -> tuple[str, ...]:
    """The environments asked for; all of the suite where none is."""
    for id in asked:
        seeds_of(id)
    return tuple(asked) or core_ids()


def _submission(team: str, models: Sequence[str], plays: Mapping[str, Callable[[], Played]], told: Told) -> Submission:
    """What comes of playing one environment after the other; one that is refused costs no other its returns."""
    made = Submission(team, models, {})
    for id, play in plays.items():
        try:
            found = play()
        except ValueError as error:  # a refusal: prompts that are too long for the model, a server that is gone
            made = replace(made, unplayed={**made.unplayed, id: " ".join(str(error).split())})
            told(made, f"{id}: not played: {made.unplayed[id]}")
            continue
        made = replace(made, returns={**made.returns, id: found})
        means = (f"{way}: mean return {np.mean(each):.3f}" for way, each in found.items())
        told(made, f"{id}, {', '.join(means)}")
    if not made.returns:
        raise UserError(f"{team} can play none of it: {'; '.join(made.unplayed.values())}")
    return made


def _returns(run: Run, ways: Sequence[str]) -> Played:
    id = run.experiment.env
    found = {}
    for way in ways:
        result = run.evaluate(greedy=way == "greedy", split=SPLIT, seeds=seeds_of(id).seeds)
        if len(result.episodes) != len(seeds_of(id).seeds):
            raise UserError(f"{id}: episodes were given up, so there is no return for every seed")
        found[way] = [episode.team_return for episode in result.episodes]
    return found


def _played_by(name: str, id: str) -> Sequence[Episode]:
    if name not in PLAYERS:
        raise UserError(f"there is no scripted player {name!r}; choose one of {', '.join(PLAYERS)}")
    spec = algorithm_spec("mareinforce")  # no one learns
    env = Experiment(algorithm=spec.name, config=spec.config(), env=id).make_env(SPLIT)
    everyone: Policy = fixed_policy("")
    if name == "random":
        everyone = RandomPolicy({agent: env.action_space(agent) for agent in env.possible_agents})
    elif name == "reference":
        everyone = reference_policy(env)  # plays in that very copy
    with SyncVector(lambda: env, 1) as vector:
        team = dict.fromkeys(env.possible_agents, everyone)
        return evaluate_on(RolloutCollector(vector, team), seeds_of(id).seeds, greedy=False).episodes
