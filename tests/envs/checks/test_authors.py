"""Messages of `check_env` after common mistakes of authors: the field, the value, and the place in the code."""

import inspect
import logging

import pytest
from heard import Heard

from collm.envs import Outcome, check_env
from collm.envs.checks.checker import CheckFailure


class Returns(Heard):
    def __init__(self, outcome=None):
        super().__init__(["writer_0", "writer_1"])
        self.outcome = outcome or Outcome(0.0)

    def play(self, replies):
        return self.outcome


class Parses(Returns):
    def play(self, replies):
        return Outcome(float(sum(int(reply) for reply in replies.values())))


class ForgetsAgent(Returns):
    def deal(self, task):
        return {"writer_0": "Write."}


class DealsText(Returns):
    def deal(self, task):
        return "Write."


class RaisesInDeal(Returns):
    def deal(self, task):
        return {agent: {}["prompt"] for agent in self.agents}


class NoConstructor(Returns):
    def __init__(self):
        self.possible_agents = ["writer_0", "writer_1"]


OUTCOMES = [
    (Outcome(None), "reward None"),
    ((1.0, {}, {}), "tuple"),
    (Outcome({"writer_0": 1.0}), "'writer_1'"),
    (Outcome({"writer_0": 1.0, "writer_1": 1.0, "writer_9": 1.0}), "'writer_9'"),
    (Outcome(0.0, feedback={"writer_9": "well"}), "'writer_9'"),
    (Outcome(0.0, feedback=None), "feedback=None"),
    (Outcome(0.0, terms={"length": "long"}), "'long' in Outcome.terms['length']"),
    (Outcome(0.0, metrics={"length": None}), "None in Outcome.metrics['length']"),
    (Outcome(0.0, finished="writer_0"), "finished='writer_0'"),
    (Outcome(0.0, finished=frozenset({"writer_9"})), "'writer_9' in Outcome.finished"),
]
MISTAKES = [
    *((lambda outcome=outcome: Returns(outcome), Returns, value, "def play") for outcome, value in OUTCOMES),
    (Parses, Parses, "ValueError", "int(reply)"),
    (ForgetsAgent, ForgetsAgent, "{'writer_1'}", "def deal"),
    (DealsText, DealsText, "str: 'Write.'", "def deal"),
    (RaisesInDeal, RaisesInDeal, "KeyError: 'prompt'", '{}["prompt"]'),
]


@pytest.mark.parametrize(("build", "kind", "value", "line"), MISTAKES)
def test_a_mistake_names_the_value_and_the_line(build, kind, value, line):
    with pytest.raises(CheckFailure) as caught:
        check_env(build, hash_seeds=False)
    lines, first = inspect.getsourcelines(kind)
    (number,) = [first + place for place, text in enumerate(lines) if line in text]
    assert value in caught.value.message and f"{__file__}:{number}" in caught.value.message


def test_a_constructor_without_its_base_class_and_a_rule_that_needs_another_process_are_named(caplog):
    with pytest.raises(CheckFailure, match=r"NoConstructor.__init__.*super\(\)"):
        check_env(NoConstructor, hash_seeds=False)
    with caplog.at_level(logging.WARNING):
        assert "hash_seed" not in check_env(Returns)
    assert "hash_seed" in caplog.text
    caplog.clear()
    check_env(Returns, hash_seeds=False)
    assert not caplog.text
