"""`check_env` passes sound environments, and catches each kind of wrong one by the rule's name."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from collm.envs import (
    EnvSpec,
    Message,
    OpenText,
    Outcome,
    TextParallelEnv,
    Transcript,
    check_env,
    registry,
    specs,
)
from collm.envs.checks import checker
from collm.envs.checks.checker import RULES, CheckFailure

pytestmark = pytest.mark.filterwarnings("ignore:.*registered:UserWarning")


class Sound(TextParallelEnv):
    """Two agents say numbers; those who say "leave" go early."""

    metadata = TextParallelEnv.metadata | {"name": "sound_v0"}

    def __init__(self, max_turns: int = 3, **kwargs):
        super().__init__(["player_0", "player_1"], max_turns, **kwargs)

    def deal(self, task):
        self.target = self.rng.randint(2, 9)
        return {agent: f"Say numbers that sum to {self.target}, or leave." for agent in self.agents}

    def play(self, replies):
        bonus = self.rng.random()
        hits = sum(str(self.target) in reply for reply in replies.values())
        gone = frozenset([agent for agent, reply in replies.items() if "leave" in reply][:1])
        feedback = {agent: f"{hits} said it." for agent in replies}
        return Outcome(hits + bonus, feedback, {"hits": hits}, finished=gone)


# One wrong environment a rule. Each is Sound but for one thing.


class NamelessMetadata(Sound):
    metadata = TextParallelEnv.metadata | {"name": "sound"}


class MetadataWithoutModes(Sound):
    metadata: ClassVar[dict] = {"name": "sound_v0"}

    def __init__(self, **kwargs):
        super().__init__()


class OddNames(Sound):
    def __init__(self):
        super().__init__()
        self.possible_agents = ["Alice", "player_1"]


class NewSpaces(Sound):
    def action_space(self, agent):
        return OpenText(100)


class NoInfosAtReset(Sound):
    def reset(self, seed=None, options=None):
        return super().reset(seed, options)[0]


class FourParts(Sound):
    def step(self, actions):
        return super().step(actions)[:4]


class RaisesAtTheEnd(Sound):
    def play(self, replies):
        if self.turn == 2:
            raise IndexError("no more words")
        return super().play(replies)


class ForgetsInfos(Sound):
    def step(self, actions):
        *parts, infos = super().step(actions)
        return (*parts, {agent: info for agent, info in infos.items() if agent != "player_0"})


class RewardsTheDeparted(Sound):
    def step(self, actions):
        observations, rewards, *rest = super().step(actions)
        return (observations, rewards | dict.fromkeys(self.possible_agents, 0.0), *rest)


class NobodyLeaves(Sound):
    def step(self, actions):
        parts = super().step(actions)
        if any(parts[2].values()):
            self.agents = list(actions)
        return parts


class SameListOfAgents(Sound):
    def reset(self, seed=None, options=None):
        parts = super().reset(seed, options)
        self.agents = self.possible_agents
        return parts


class NumpyFlags(Sound):
    def step(self, actions):
        parts = list(super().step(actions))
        parts[2] = {agent: np.bool_(value) for agent, value in parts[2].items()}
        return tuple(parts)


class NumpyRewards(Sound):
    def step(self, actions):
        parts = list(super().step(actions))
        parts[1] = {agent: np.float32(value) for agent, value in parts[1].items()}
        return tuple(parts)


class EndlessReward(Sound):
    def play(self, replies):
        return Outcome(float("nan") if self.turn == 1 else 1.0)


class TextInInfos(Sound):
    def step(self, actions):
        parts = super().step(actions)
        for info in parts[4].values():
            info["said"] = "so"
        return parts


class OutsideItsSpace(Sound):
    def __init__(self):
        super().__init__(max_observation_length=40)

    def _observation(self, agent):
        return self._transcripts[agent]


class Integers(Sound):
    def reset(self, seed=None, options=None):
        observations, infos = super().reset(seed, options)
        return dict.fromkeys(observations, 7), infos


class Stateless(Sound):
    def state(self):
        raise NotImplementedError


class StateOutsideItsSpace(Sound):
    def state(self):
        return {"turn": self.turn}


class NeverEnds(Sound):
    def __init__(self):
        super().__init__(max_turns=10**9)

    def play(self, replies):
        return Outcome(0.0)


class TruncatesTheLastTurn(Sound):
    def step(self, actions):
        observations, rewards, terminations, truncations, infos = super().step(actions)
        return observations, rewards, truncations, terminations, infos


class MasksItsWrapper(Sound):
    """PettingZoo refuses an environment whose `unwrapped` is a conversion."""

    @property
    def unwrapped(self):
        from pettingzoo.utils.conversions import aec_to_parallel_wrapper

        return aec_to_parallel_wrapper.__new__(aec_to_parallel_wrapper)


class DrawsNothing(Sound):
    def render(self):
        return None


class TakesNoRenderMode(Sound):
    def __init__(self):
        super().__init__()


class RandomLater(Sound):
    """PettingZoo's own seed test passes this one: it looks at the first step only."""

    generator = random.SystemRandom()

    def play(self, replies):
        return Outcome(self.generator.random() if self.turn else 0.0)


class GlobalGenerator(Sound):
    def play(self, replies):
        random.random()
        return Outcome(1.0)


class LeftOvers(Sound):
    count = 0

    def play(self, replies):
        self.count += 1
        return Outcome(float(self.count))


class PickyOptions(Sound):
    def reset(self, seed=None, options=None):
        if set(options or {}) - {"task", "options"}:
            raise KeyError("unknown option")
        return super().reset(seed, options)


class ForgetfulCopies(Sound):
    """As EzPickle does: a copy is a newly built environment."""

    def __deepcopy__(self, memo):
        return type(self)()


class SharedDeck(Sound):
    """A copy draws from the same deck as the original."""

    def __deepcopy__(self, memo):
        twin = type(self)()
        vars(twin).update(vars(self))
        return twin


class Unpicklable(Sound):
    def deal(self, task):
        self.score = lambda reply: len(reply)
        return super().deal(task)


class OneInfoForAll(Sound):
    def step(self, actions):
        *parts, infos = super().step(actions)
        shared = {"metric/turn": 1.0}
        return (*parts, {agent: shared for agent in infos})


class OneInfoForever(Sound):
    def __init__(self):
        super().__init__()
        self.info = {agent: {} for agent in self.possible_agents}

    def step(self, actions):
        *parts, infos = super().step(actions)
        return (*parts, {agent: self.info[agent] for agent in infos})


class KeepsWhatItReturned(Sound):
    def step(self, actions):
        parts = super().step(actions)
        parts[1].update(dict.fromkeys(parts[1], float(len(vars(self).get("last", {})))))
        self.last = parts[1]
        return parts

    def deal(self, task):
        self.last = {}
        return super().deal(task)


class ParsesNumbers(Sound):
    """`"²".isdigit()` is true, `int("²")` raises."""

    def play(self, replies):
        return Outcome(float(sum(int(word) for reply in replies.values() for word in reply.split() if word.isdigit())))


class ReadsJson(Sound):
    def play(self, replies):
        return Outcome(float(sum(len(json.loads(reply)) for reply in replies.values() if reply.startswith("{"))))


class CountsForever(Sound):
    def play(self, replies):
        return Outcome(10.0 ** max(len(reply) for reply in replies.values()))


class ForgivesSilence(Sound):
    def step(self, actions):
        return super().step({agent: actions.get(agent, "") for agent in self.agents})


class RewritesHistory(Sound):
    def play(self, replies):
        return Outcome(1.0, rewritten={agent: [Message("user", f"Turn {self.turn}.")] for agent in replies})


class DeclaredRewriting(RewritesHistory):
    metadata = Sound.metadata | {"append_only": False}


class ForgetsOwnReplies(Sound):
    def step(self, actions):
        observations, *rest = super().step(actions)
        for agent, text in observations.items():
            observations[agent] = Transcript(
                message._replace(role="user") if message.author == agent else message for message in text.messages
            )
        return (observations, *rest)


class ReadsAloud(Sound):
    metadata = Sound.metadata | {"private_replies": True}

    def play(self, replies):
        return Outcome(1.0, {agent: " and ".join(replies.values()) for agent in replies})


class NumbersForReference(Sound):
    def reference_reply(self, agent):
        return "\udfff"


class DrawsItsReference(Sound):
    def reference_reply(self, agent):
        return str(self.rng.randint(2, 9))


class PaysForNothing(Sound):
    """The words themselves are no better than any answer: half a point each."""

    def reference_reply(self, agent):
        return f"{self.target} leave"

    def play(self, replies):
        hits = sum(str(self.target) in reply for reply in replies.values())
        return Outcome(hits + 0.9 * sum("leave" in reply for reply in replies.values()) + self.rng.random())


class KeepsSecrets(Sound):
    metadata = Sound.metadata | {"private_replies": True}


WRONG = [
    ("metadata", NamelessMetadata),
    ("metadata", MetadataWithoutModes),
    ("agent_names", OddNames),
    ("same_spaces", NewSpaces),
    ("returns", NoInfosAtReset),
    ("returns", FourParts),
    ("returns", RaisesAtTheEnd),
    ("keys", ForgetsInfos),
    ("keys", RewardsTheDeparted),
    ("agents", NobodyLeaves),
    ("agents", SameListOfAgents),
    ("flags", NumpyFlags),
    ("rewards", NumpyRewards),
    ("rewards", EndlessReward),
    ("ranges", Sound),
    ("infos", TextInInfos),
    ("observations", OutsideItsSpace),
    ("observations", Integers),
    ("state", Stateless),
    ("state", StateOutsideItsSpace),
    ("ends", NeverEnds),
    ("last_turn", TruncatesTheLastTurn),
    ("pettingzoo_api", MasksItsWrapper),
    ("rendering", DrawsNothing),
    ("rendering", TakesNoRenderMode),
    ("same_seed", RandomLater),
    ("own_generator", GlobalGenerator),
    ("reset_midway", LeftOvers),
    ("options", PickyOptions),
    ("deepcopy_branches", ForgetfulCopies),
    ("deepcopy_branches", SharedDeck),
    ("pickle_branches", Unpicklable),
    ("shared_objects", OneInfoForAll),
    ("shared_objects", OneInfoForever),
    ("shared_objects", KeepsWhatItReturned),
    ("hostile_replies", ParsesNumbers),
    ("hostile_replies", ReadsJson),
    ("hostile_replies", CountsForever),
    ("missing_reply", ForgivesSilence),
    ("append_only", RewritesHistory),
    ("own_reply", ForgetsOwnReplies),
    ("private_replies", ReadsAloud),
    ("reference", DrawsItsReference),
    ("reference", NumbersForReference),
    ("exploits", PaysForNothing),
]


def chatter(agent, observation, rng):
    """Replies that never hit what the hostile ones are for, and often leave early."""
    return rng.choice(["leave", "three", "a longer reply"])


def test_a_sound_environment_passes_every_rule_that_applies():
    passed = check_env(EnvSpec("test/Sound-v0", Sound), hash_seeds=False)
    assert str(passed) == f"all {len(passed)} rules that were tried hold" and passed == [*passed]
    assert set(RULES) - set(passed) == {"hash_seed", "private_replies", "reference", "ranges", "exploits"}


@pytest.mark.parametrize(("rule", "wrong"), WRONG, ids=lambda value: getattr(value, "__name__", value))
def test_a_wrong_environment_is_caught_by_name(rule, wrong):
    env = EnvSpec("test/Wrong-v0", wrong) if rule == "rendering" else wrong
    if rule == "ranges":
        env = EnvSpec("test/Wrong-v0", wrong, reward_range=(0, 0.5))
    with pytest.raises(CheckFailure) as caught:
        check_env(env, choose=chatter, hash_seeds=False, max_steps=50, exploits=rule == "exploits")
    assert caught.value.rule == rule, str(caught.value)
    assert ";" in caught.value.message, "a failure says what was seen; and how to repair it"


@pytest.mark.parametrize(
    ("ranges", "fault"),
    [
        ({"reward_range": (0, 4.8), "return_range": (0, 14.4)}, None),
        ({"reward_range": (0.5, 3)}, "the reward of 'player_0' in step"),  # an agent that says nothing earns less
        ({"return_range": (0, 1)}, "the return of 'player_0' is"),
    ],
)
def test_a_declared_range_holds_for_random_agents_silent_ones_and_the_reference(ranges, fault):
    spec = EnvSpec("test/Sound-v0", PaysForNothing, **ranges)
    if fault is None:
        assert "ranges" in check_env(spec, hash_seeds=False)
    else:
        with pytest.raises(CheckFailure, match=f"ranges: {fault}"):
            check_env(spec, hash_seeds=False)


def test_every_rule_has_a_wrong_environment():
    assert {rule for rule, _ in WRONG} | {"hash_seed"} == set(RULES)


def test_every_rule_says_what_it_demands():
    assert [name for name, rule in RULES.items() if not rule.__doc__] == []


def test_words_of_the_observation_reach_further_than_noise():
    with pytest.raises(CheckFailure, match=r"hostile_replies: a reply of .* digits raises ValueError"):
        check_env(ParsesNumbers, hash_seeds=False)


def test_declaring_that_history_is_rewritten_lifts_the_rule():
    passed = check_env(DeclaredRewriting, hash_seeds=False)
    assert not {"append_only", "own_reply"} & set(passed)


def test_keeping_replies_private_passes_where_it_is_declared():
    assert "private_replies" in check_env(KeepsSecrets, hash_seeds=False)


HASHED = '''
from collm.envs import Outcome, TextParallelEnv

class Hashed(TextParallelEnv):
    """Deals words in the order of a set."""

    metadata = TextParallelEnv.metadata | {"name": "hashed_v0"}

    def __init__(self, **kwargs):
        super().__init__(["player_0"], 1, **kwargs)

    def deal(self, task):
        print("a print must not confuse the other process")
        return {"player_0": " ".join({"tree", "house", "river", "bird", "stone", "cloud", "road"})}

    def play(self, replies):
        return Outcome(1.0)

class Ordered(Hashed):
    def deal(self, task):
        return {"player_0": " ".join(sorted({"tree", "house", "river"}))}
'''


def test_an_order_that_depends_on_the_hash_seed_is_caught(tmp_path: Path, monkeypatch):
    (tmp_path / "collm_hashed_world.py").write_text(HASHED)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CheckFailure, match="hash_seed: another PYTHONHASHSEED changes"):
        check_env(EnvSpec("test/Hashed-v0", "collm_hashed_world:Hashed"))
    assert "hash_seed" in check_env(EnvSpec("test/Ordered-v0", "collm_hashed_world:Ordered"))
    sys.modules.pop("collm_hashed_world")


def test_a_registered_lambda_is_named_where_the_environment_cannot_be_pickled():
    with pytest.raises(CheckFailure, match=r"pickle_branches.*register a class"):
        check_env(EnvSpec("test/Sound-v0", lambda **kwargs: Sound(**kwargs)))


def test_a_module_that_checks_itself_when_it_is_imported_starts_no_processes_without_end(tmp_path):
    """Five imports: by this test, and by two processes for each of two checks. A chain would reach the limit of 9."""
    module, imports = tmp_path / "collm_own_check.py", tmp_path / "imports"
    module.write_text(
        "import collm\n"
        "from collm.envs.games.mini_build import MiniBuild\n"
        "from pathlib import Path\n"
        f"imports = Path({str(imports)!r})\n"
        "with imports.open('a') as file:\n    file.write('x')\n"
        "assert imports.stat().st_size < 9\n"
        "class Own(MiniBuild):\n    pass\n"
        "collm.register('test/OwnCheck-v0', Own)\n"
        "collm.check_env('test/OwnCheck-v0')\n"
    )
    code = "from collm.envs import check_env; print('hash_seed' in check_env('collm_own_check:Own', hash_seeds=True))"
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\n", done.stderr
    assert imports.read_text() == "x" * 5


def test_hash_seeds_need_an_environment_that_another_process_can_build():
    with pytest.raises(ValueError, match="hash_seeds=True needs"):
        check_env(Sound, hash_seeds=True)
    assert "hash_seed" not in check_env(
        EnvSpec("test/Sound-v0", lambda **kwargs: Sound(**kwargs)), skip=["pickle_branches"]
    )


def test_an_instance_is_checked_on_copies_of_it():
    env = Sound()
    before = deepcopy(vars(env))
    check_env(env)
    assert env.agents == before["agents"] == []


def test_the_users_generators_are_left_alone():
    random.seed(5)
    np.random.seed(5)
    before = random.getstate(), np.random.get_state()[1].tolist()
    check_env(Sound)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_what_is_no_environment_is_refused():
    with pytest.raises(TypeError, match="takes an id, an EnvSpec"):
        check_env(7)
    with pytest.raises(ValueError, match="at least one seed"):
        check_env(Sound, seeds=())


def test_environments_of_numbers_are_checked_by_the_rules_that_apply():
    simple_spread_v3 = pytest.importorskip("mpe2.simple_spread_v3")
    with pytest.raises(CheckFailure, match="do not inherit EzPickle"):
        check_env(lambda: simple_spread_v3.parallel_env(max_cycles=5))
    passed = check_env(
        lambda: simple_spread_v3.parallel_env(max_cycles=5),
        skip=["deepcopy_branches", "pickle_branches", "shared_objects"],
    )
    assert "same_seed" in passed and "hostile_replies" not in passed


@pytest.mark.parametrize(
    "spec",
    [pytest.param(spec, id=spec.id, marks=[pytest.mark.slow] if "ClassEval" in spec.id else []) for spec in specs()],
)
def test_every_registered_environment_passes(spec):
    assert "hash_seed" in check_env(spec)


def test_the_registry_of_the_package_is_not_touched_by_checking():
    before = dict(registry)
    check_env(Sound)
    assert registry == before and checker.check_env is check_env
