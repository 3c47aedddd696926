"""What an author of an environment reads after the usual mistakes: the method, the field, the value, and the line."""

from __future__ import annotations

import inspect
import logging

import pytest

from collm.envs import Outcome, TextParallelEnv, check_env
from collm.envs.checks.checker import CheckFailure


class Mistaken(TextParallelEnv):
    """A sound game, for mistakes to be put in."""

    metadata = TextParallelEnv.metadata | {"name": "mistaken_v0"}

    def __init__(self):
        super().__init__(["writer_0", "writer_1"], 2)

    def deal(self, task):
        return dict.fromkeys(self.agents, "Write.")

    def play(self, replies):
        return Outcome(0.0)


class Parses(Mistaken):
    def play(self, replies):
        return Outcome(float(sum(int(reply) for reply in replies.values())))


class NoReward(Mistaken):
    def play(self, replies):
        return Outcome(None)


class TupleOfThree(Mistaken):
    def play(self, replies):
        return 1.0, {}, {}


class OneReward(Mistaken):
    def play(self, replies):
        return Outcome({"writer_0": 1.0})


class StrangeReward(Mistaken):
    def play(self, replies):
        return Outcome({"writer_0": 1.0, "writer_1": 1.0, "writer_9": 1.0})


class StrangeFeedback(Mistaken):
    def play(self, replies):
        return Outcome(0.0, feedback={"writer_9": "well"})


class NoFeedback(Mistaken):
    def play(self, replies):
        return Outcome(0.0, feedback=None)


class TextTerm(Mistaken):
    def play(self, replies):
        return Outcome(0.0, terms={"length": "long"})


class NoMetric(Mistaken):
    def play(self, replies):
        return Outcome(0.0, metrics={"length": None})


class OneFinished(Mistaken):
    def play(self, replies):
        return Outcome(0.0, finished="writer_0")


class StrangeFinished(Mistaken):
    def play(self, replies):
        return Outcome(0.0, finished=frozenset({"writer_9"}))


class ForgetsAgent(Mistaken):
    def deal(self, task):
        return {"writer_0": "Write."}


class DealsText(Mistaken):
    def deal(self, task):
        return "Write."


class RaisesInDeal(Mistaken):
    def deal(self, task):
        return {agent: {}["prompt"] for agent in self.agents}


class NoConstructor(Mistaken):
    def __init__(self):
        self.possible_agents = ["writer_0", "writer_1"]


MISTAKES = {
    Parses: ("play", "ValueError", "int(reply)"),
    NoReward: ("play", "reward None", "def play"),
    TupleOfThree: ("play", "must return an Outcome, got tuple", "def play"),
    OneReward: ("play", "no reward to 'writer_1'", "def play"),
    StrangeReward: ("play", "a reward to 'writer_9'", "def play"),
    StrangeFeedback: ("play", "feedback to 'writer_9'", "def play"),
    NoFeedback: ("play", "Outcome(feedback=None)", "def play"),
    TextTerm: ("play", "'long' in Outcome.terms['length']", "def play"),
    NoMetric: ("play", "None in Outcome.metrics['length']", "def play"),
    OneFinished: ("play", "Outcome(finished='writer_0')", "def play"),
    StrangeFinished: ("play", "'writer_9' in Outcome.finished", "def play"),
    ForgetsAgent: ("deal", "wrong or missing: {'writer_1'}", "def deal"),
    DealsText: ("deal", "a prompt by agent, got str: 'Write.'", "def deal"),
    RaisesInDeal: ("deal", "KeyError: 'prompt'", '{}["prompt"]'),
}


def test_the_game_without_a_mistake_is_sound():
    assert "returns" in check_env(Mistaken, hash_seeds=False)


@pytest.mark.parametrize("kind", MISTAKES, ids=lambda kind: kind.__name__)
def test_a_mistake_names_the_method_the_value_and_the_line(kind):
    method, value, line = MISTAKES[kind]
    with pytest.raises(CheckFailure) as caught:
        check_env(kind, hash_seeds=False)
    message = caught.value.message
    assert value in message
    lines, first = inspect.getsourcelines(kind)
    (number,) = [first + place for place, text in enumerate(lines) if line in text]
    assert f"{method}(), " in message and f"{__file__}:{number}" in message
    assert "repair reset or step" not in message


def test_a_constructor_that_forgets_its_base_class_is_told_so():
    with pytest.raises(CheckFailure, match=r"NoConstructor.__init__.*super\(\)"):
        check_env(NoConstructor, hash_seeds=False)


def test_a_class_that_no_other_process_can_build_is_told_what_was_not_tried(caplog):
    with caplog.at_level(logging.WARNING):
        assert "hash_seed" not in check_env(Mistaken)
    assert "did not try the rule hash_seed" in caplog.text and "register it, and pass the id" in caplog.text
    caplog.clear()
    check_env(Mistaken, hash_seeds=False)
    assert not caplog.text
