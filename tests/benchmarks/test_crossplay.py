"""Cross-play: teams with different conventions lose together, and the intervals are over runs."""

import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collm.agents.config import ModelConfig
from collm.agents.scripted import FunctionPolicy
from collm.algorithms import IACConfig
from collm.algorithms.rollout.intervals import widening
from collm.algorithms.runs.api import Run
from collm.algorithms.runs.assembly.experiment import Experiment, with_partners
from collm.benchmarks.arguments import keyword_arguments
from collm.benchmarks.crossplay import CrossPlay, cross_play, draw, page
from collm.benchmarks.errors import UserError


def team(name, places, start="tiny"):
    """A run whose builders name these places of every list, by seat."""

    def named(place):
        def reply(agent, observation):
            words = str(observation.messages[-1].content).split("goal ")[-1].split()
            return " ".join(words[2 * place : 2 * place + 2])

        return FunctionPolicy(reply)

    parts = {"env_kwargs": {"max_turns": 2, "reward": "terminal"}, "model": ModelConfig(model=start)}
    experiment = Experiment(algorithm="iac", config=IACConfig(), env="collm/MiniShift-v0", **parts)
    return Run(Path(name), experiment, {f"builder_{seat}": named(place) for seat, place in enumerate(places)})


def test_two_conventions_and_scripted_partners(tmp_path):
    """Seat 0 takes the first part and seat 1 the second, or the other way round: strangers meet at one part."""
    heard = []
    teams = [team("a", (0, 1)), team("b", (1, 0)), team("c", (0, 1))]
    options = {"partners": ("reference", "empty"), "on_pair": lambda *pair: heard.append(pair)}
    found = cross_play(teams, num_episodes=3, **options)
    assert found.returns == pytest.approx(np.array([[1, 0.5, 1], [0.5, 1, 0.5], [1, 0.5, 1]]))
    assert found.scripted == pytest.approx(np.array([[1, 0.5], [0.5, 0.5], [1, 0.5]]))
    assert len(heard) == 15 and heard[0] == ("a", "a", 1.0)
    assert found.self_play().value == found.self_play().low == 1.0
    assert found.cross_play().value == pytest.approx(4 / 6)
    assert found.gap().value == pytest.approx(1 / 3)
    wider = widening(3, 1, 0.95)  # for three runs; the percentiles are 0.5 and 1
    assert found.cross_play().low == pytest.approx(4 / 6 - wider * (4 / 6 - 0.5))
    assert found.cross_play().high == pytest.approx(4 / 6 + wider * (1 - 4 / 6))
    text = page(found)
    assert "| b | 0.500 | 1.000 | 0.500 | 0.500 | 0.500 |" in text and "self-play minus cross-play" in text
    draw(found, tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 3000


def test_strangers_from_one_start_are_told_from_strangers_from_another():
    seats = {"a": (0, "e"), "b": (0, "e"), "c": (1, "f"), "d": (1, "f")}
    teams = [team(name, (place, 1 - place), start) for name, (place, start) in seats.items()]
    found = cross_play(teams, num_episodes=2, partners=("reference", "first of the list"), on_pair=lambda *pair: None)
    assert found.starts == ["e", "e", "f", "f"]
    assert found.cross_play(is_same_start=True).value == 1.0
    assert found.cross_play(is_same_start=False).value == 0.5
    assert found.scripted == pytest.approx(np.array([[1, 0.5], [1, 0.5], [0.5, 1], [0.5, 1]]))
    text = page(found)
    assert "| cross-play, same start | 1.000 [" in text and "| cross-play, different starts | 0.500 [" in text
    assert "different starts" not in page(replace(found, starts=("e",) * 4))


def dilemma_run(name, first, second):
    experiment = Experiment(algorithm="iac", config=IACConfig(), env="interests_worlds:Dilemma")
    replies = {"player_0": first, "player_1": second}
    return Run(Path(name), experiment, {agent: FunctionPolicy(lambda *_, x=x: x) for agent, x in replies.items()})


def test_all_seats_are_played_if_rewards_differ(tmp_path):
    """A run that keeps gains from one that shares in both seats: 5 and 4, and the other run gets 0."""
    heard = []
    runs = [dilemma_run("kind", "share", "share"), dilemma_run("sly", "keep", "keep")]
    options = {"num_episodes": 2, "on_pair": lambda *pair: heard.append(pair)}
    found = cross_play(runs, partners=("training", "held-out", "reference"), **options)
    assert (found.seats, found.agents) == (["player_0", "player_1"],) * 2
    assert found.partners == ["keeper", "giver-held-out", "reference"]
    assert found.returns == pytest.approx(np.array([[(3 + 2) / 2, 0], [(5 + 4) / 2, 1]]))
    assert found.payoffs[0] == pytest.approx(np.array([[[3, 2], [0, 4]], [[5, 0], [1, 1]]]))
    assert found.payoffs[1] == pytest.approx(np.array([[[3, 2], [5, 0]], [[0, 4], [1, 1]]]))
    assert found.scripted == pytest.approx(np.array([[0, 2.5, 2.5], [1, 4.5, 4.5]]))
    assert heard[0] == ("kind as player_0", "kind", 3.0) and len(heard) == 2 * 2 * 5
    text = page(found)
    assert "| player_1 from the row | kind | sly |" in text and "| sly | 0.000 / 4.000 | 1.000 / 1.000 |" in text
    assert "return of the row's run, averaged over its seats, with player_0, player_1 of" in text
    draw(found, tmp_path / "map.png")
    one = cross_play(runs, seats=("player_1",), **options)
    assert one.returns == pytest.approx(np.array([[2, 0], [4, 1]]))
    for wrong, message in (({"seats": ("player_9",)}, "'player_9'"), ({"partners": ("giver",)}, "'giver'.*held-out")):
        with pytest.raises(UserError, match=message):
            cross_play(runs, **wrong, **options)


def test_partners_of_an_environment_are_seats_of_a_training_unless_they_are_held_out():
    experiment = dilemma_run("a", "share", "share").experiment
    found = with_partners(experiment, {"player_1": "keeper"})
    assert found.env_kwargs["partners"] == {"player_1": "keeper"}
    with pytest.raises(UserError, match="'giver-held-out' is for tests only"):
        with_partners(experiment, {"player_1": "giver-held-out"})


def test_runs_not_episodes_are_resampled():
    """A run counts with its row and its column; a pair of a run with itself is no cross-play."""
    returns = np.array([[9.0, 1.0], [3.0, 9.0]])
    found = CrossPlay(["a", "b"], ["tiny", "tiny"], [], returns, np.zeros((2, 0)))
    assert (found.cross_play().value, found.cross_play().low, found.cross_play().high) == (2.0, 2.0, 2.0)


def test_a_run_with_explained_prompts_beside_one_without_is_told_what_to_add():
    first, second = team("a", (0, 1)), team("b", (1, 0))
    explained = {**second.experiment.env_kwargs, "is_explained": True}
    second = replace(second, experiment=replace(second.experiment, env_kwargs=explained))
    with pytest.raises(UserError, match=r"a and b differ \(is_explained: None and True\); .* add --env ") as refused:
        cross_play([first, second], num_episodes=1, on_pair=lambda *pair: None)
    words = shlex.split(str(refused.value).partition(", add ")[2])
    assert words[:3] == ["--env", "collm/MiniShift-v0", "--env-kwargs"]
    assert keyword_arguments(words[3:]) == explained
    plain, other = (
        replace(first, experiment=replace(first.experiment, env=env, env_kwargs={}))
        for env in ("collm/MiniShift-v0", "collm/MiniBuild-v0")
    )
    with pytest.raises(UserError, match=r"add --env collm/MiniShift-v0$"):
        cross_play([plain, other], num_episodes=1, on_pair=lambda *pair: None)


def test_what_cannot_be_compared_is_refused():
    first, second = team("a", (0, 1)), team("b", (1, 0))
    longer = replace(second, experiment=replace(second.experiment, env_kwargs={"max_turns": 3}))
    cases = (([first], (), "at least two runs"), ([first, second], ("nobody",), "'nobody'"))
    for runs, partners, message in (*cases, ([first, longer], (), "differ .max_turns: 2 and 3;")):
        with pytest.raises(UserError, match=message):
            cross_play(runs, num_episodes=1, partners=partners, on_pair=lambda *pair: None)
