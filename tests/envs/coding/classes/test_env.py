"""ClassEval as an environment."""

import dataclasses

import pytest
from replies import begun, references

from collm.envs.coding.classes import ClassEval
from collm.envs.coding.classes.prompts import reference_reply

pytestmark = pytest.mark.usefixtures("sandbox")

SKELETON = '''class Purse:
    """Holds coins."""
    def __init__(self):
        self.coins = []
    def put(self, coin):
        """Add a coin; return how many there are."""
    def total(self):
        """Return their sum."""
'''
TEST = """import unittest
class TestPurse(unittest.TestCase):
    def test_put(self):
        purse = Purse()
        self.assertEqual([purse.put(2), purse.put(5)], [1, 2])
    def test_total(self):
        purse = Purse()
        self.assertEqual(purse.total(), 0)
    def test_both(self):
        purse = Purse()
        purse.put(3)
        self.assertEqual(purse.total(), 3)
    def test_secret(self):
        purse = Purse()
        purse.put(7)
        purse.put(11)
        self.assertEqual(purse.total(), 18)
"""
ROW = {"task_id": "purse", "class_name": "Purse", "skeleton": SKELETON, "test": TEST}
PUT = "def put(self, coin):\n    self.coins.append(coin)\n    return len(self.coins)"
YES = "class Yes:\n    def __eq__(self, other):\n        return True\n"
TOTAL = "def total(self):\n    return sum(self.coins)"


def env(**kwargs):
    return ClassEval(data=[ROW], **kwargs)


def played(env, first, second):
    env.reset(seed=0)
    return step(env, first, second)


def step(env, first, second):
    observations, rewards, terminations, _, infos = env.step({"programmer_0": first, "programmer_1": second})
    return observations, rewards["programmer_1"], terminations["programmer_0"], infos["programmer_0"]


def feedback(env, first, second):
    return played(env, first, second)[0]["programmer_0"].messages[-1].content


def test_rewards_by_hand():
    for first, second, reward in [
        (TOTAL, "", 1.0 + 2 * 1 / 4),
        ("def total(self):\n    return 0", PUT, 2.0 + 2 * 2 / 4),
        ("", "", 0.0),
        ("def total(self):\n    return (", PUT, 0.0),
        ("def total(self):\n    while True: pass", PUT, 2.0 + 2 * 1 / 4),
        ("import os\ndef total(self):\n    os._exit(0)", PUT, 2.0 + 2 * 1 / 4),
        (f"{YES}def total(self):\n    return Yes()", PUT, 2.0 + 2 * 1 / 4),
    ]:
        _, got, _, infos = played(env(test_seconds=0.2), first, second)
        assert got == pytest.approx(reward, abs=1e-9), infos


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("team", [2, 3, 4])
def test_references_of_the_sample_reach_six_and_mutants_do_not(split, team):
    env = ClassEval(split=split, max_turns=1, num_agents=team)
    assert len(env.tasks) == {"train": 7, "test": 3}[split]
    for row in env.tasks:
        observations = env.reset(options={"task": row["id"]})[0]
        task = env.task
        sizes = [len(share) for share in task.shares]
        assert (all(sizes) if team == 2 else max(sizes) - min(sizes) <= 1) and len(set(task.methods)) == sum(sizes)
        assert all(("Two", "Three", "Four")[team - 2] in text for text in observations.values())
        assert env.step(references(env))[1]["programmer_0"] == pytest.approx(6.0, abs=1e-9), row["id"]
        env.reset(options={"task": row["id"]})
        mutant = dataclasses.replace(task, solution=row["mutant"])
        infos = env.step({agent: reference_reply(mutant, agent) for agent in env.agents})[4]
        assert infos["programmer_0"]["metric/solved"] == 0, row["id"]


def test_prompts_divide_the_methods_and_may_be_a_users_own():
    observations, _ = env().reset(seed=0)
    assert "You write these methods: `total`. The other programmer writes: `put`" in observations["programmer_0"]
    assert "You write these methods: `put`. The other programmer writes: `total`" in observations["programmer_1"]
    assert all(SKELETON.strip() in text and "test_secret" not in text for text in observations.values())
    text = "{class_name}: {own_methods} of {own_methods}, {other_methods}\n{skeleton}"
    observations, _ = env(prompts={"programmer_0": text}).reset(seed=0)
    assert observations["programmer_0"].messages[0].content == f"Purse: total of total, put\n{SKELETON}"
    assert "You write these methods: `put`" in observations["programmer_1"]
    made = env()
    with pytest.raises(RuntimeError, match="reset"):
        made.reference_reply("programmer_0")
    made.reset(seed=0)
    with pytest.raises(ValueError, match="no solution"):
        made.reference_reply("programmer_0")
    with pytest.raises(ValueError, match=r"needs_both=True.*variant='published'"):
        env(needs_both=True, variant="published")


def test_later_turns_are_paid_for_their_improvement_and_a_programmer_without_methods_is_told_so():
    for variant, first, second in (("ours", 1.5, 4.5), ("published", 2.0 + 4 * 1 / 4 - 6, 0.0)):
        made = env(variant=variant)
        assert played(made, "def total(self):\n    pass", PUT)[1:3] == (pytest.approx(first), False)
        assert step(made, TOTAL, PUT)[1:3] == (pytest.approx(second), True)
    row = ROW | {"skeleton": SKELETON.replace("total(self)", "total(self, start)")}
    for needs_both, sizes in ((False, [0, 2]), (True, [1, 1])):
        made = ClassEval(data=[row], needs_both=needs_both)
        assert ("Answer with `pass`" in made.reset(seed=0)[0]["programmer_0"]) is not needs_both
        assert [len(share) for share in made.task.shares] == sizes


def test_feedback_of_each_mode():
    for mode, told, untold in [
        ("plain", [], ["passed", "test_both"]),
        ("passed", ["Not all tests passed"], ["2 of 4", "test_both"]),
        ("level_passed", ["methods: 2 of 2", "tests: 2 of 4"], ["test_both"]),
        ("level_feedback", ["methods: 2 of 2", "tests: 2 of 4", "TestPurse.test_both"], ["test_put", "18", "11"]),
    ]:
        observations, *_ = played(env(feedback=mode), "def total(self):\n    return 0", PUT)
        for agent, observation in observations.items():
            *_, own, message = observation.messages
            assert own.author == agent and message.role == "user"
            assert all(part in message.content for part in told), message.content
            assert not any(part in message.content for part in untold), message.content


def test_feedback_names_methods_that_do_not_count():
    for settings, first, second, found in [
        ({}, "", PUT, "not written: `total`"),
        ({}, f"{PUT}\n\ndef total(self):\n    return 0", PUT, "written by both of you: `put`"),
        ({}, "def total(self):\n    return (", PUT, "syntax error"),
        ({"needs_both": True}, f"{TOTAL}\n\n{PUT}", f"{TOTAL}\n\n{PUT}", "written by both of you: `total`, `put`"),
        ({"needs_both": True}, "", f"{TOTAL}\n\n{PUT}", "written by a programmer who was not asked for it: `total`"),
    ]:
        assert found in feedback(env(**settings), first, second)


SHAPES = {  # methods of the solution, and a test
    "a helper that the skeleton lacks": (
        "def put(self, coin): self.coins.append(self._half(coin))\n    def total(self): return sum(self.coins)\n"
        "    def _half(self, coin): return Purse._by(coin, 2)\n    @staticmethod\n    def _by(x, y): return x // y",
        "purse.put(8)\n        self.assertEqual(purse.total(), 4)",
    ),
    "numpy": (
        "def put(self, coin): self.coins = np.array(coin)\n    def total(self): return self.coins.mean(axis=0)",
        "purse.put(np.ones((2, 3)))\n        np.testing.assert_array_equal(purse.total(), [1, 1, 1])\n"
        "        self.assertEqual(len(purse.total()), 3)",
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_solution_of_each_form_of_rows_reaches_six(name):
    methods, body = SHAPES[name]
    init = "    def __init__(self):\n        self.coins = []\n"
    row = {
        "task_id": name,
        "class_name": "Purse",
        "import_statement": ["import numpy as np"] * (name == "numpy"),
        "skeleton": f"class Purse:\n{init}    def put(self, coin):\n        pass\n    def total(self):\n        pass\n",
        "solution_code": f"class Purse:\n{init}    {methods}\n",
        "test": "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        purse = Purse()\n"
        f"        {body}\n",
    }
    made = begun(ClassEval(data=[row], max_turns=1, packages="installed"), seed=0)
    rewards, infos = made.step(references(made))[1::3]
    assert rewards["programmer_0"] == pytest.approx(6.0), infos
    assert infos["programmer_0"]["metric/solved"] == 1


BOTH = f"{TOTAL}\n\n{PUT}"
FURTHER = f"{PUT}\n\n{TOTAL.replace('total', 'own_total')}"
ANY_NAME = f"{FURTHER}\n\ndef __getattr__(self, name):\n    return getattr(self, f'own_{{name}}')"
ADD = "def put(self, coin):\n    self.add(coin)\n    return len(self.coins)\n\n"
ADD += "def add(self, coin):\n    self.coins.append(coin)"
ADD_TO = "def add(coins, coin):\n    coins.append(coin)\n\n"
ADD_TO += "def put(self, coin):\n    add(self.coins, coin)\n    return len(self.coins)"


def test_rewards_by_hand_if_both_are_needed():
    for first, second, paid, unpaid in [
        (TOTAL, PUT, 6.0, 6.0),
        (BOTH, BOTH, 5.0, 0.0),  # both write all: nothing counts
        ("", BOTH, 6.0, 1.0 + 2 * 1 / 4),  # one writes all: its own method counts
        (PUT, TOTAL, 6.0, 0.0),  # each writes the other's
        (BOTH, PUT, 5.5, 1.0 + 2 * 1 / 4),
        ("def total(self):\n    return self.own_total()", FURTHER, 6.0, 2.0 + 2 * 1 / 4),
        ("def total(self):\n    return getattr(self, 'own_total')()", FURTHER, 6.0, 2.0 + 2 * 1 / 4),
        ("", ANY_NAME, 5.0, 1.0 + 2 * 1 / 4),
        (TOTAL, ADD, 6.0, 6.0),  # an extra method
        (TOTAL, ADD_TO, 6.0, 6.0),
    ]:
        assert played(env(max_turns=1), first, second)[1] == pytest.approx(paid)
        assert played(env(max_turns=1, needs_both=True), first, second)[1] == pytest.approx(unpaid)
