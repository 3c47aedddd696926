"""`check_env` passes correct environments, and names the rule that a wrong one breaks."""

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from heard import Heard
from pettingzoo import ParallelEnv
from waiting_worlds import TurnGame

from collm.envs import EnvSpec, Message, OpenText, Outcome, Transcript, check_env, specs
from collm.envs.checks.checker import RULES, CheckFailure

pytestmark = pytest.mark.filterwarnings("ignore:.*registered:UserWarning")


class Sound(Heard):
    """Two agents say numbers; those who say "leave" go early."""

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


def stepping(change):
    return having(step=lambda self, actions: tuple(change(list(Sound.step(self, actions)))))


def having(**attributes):
    return type("Changed", (Sound,), attributes)


def with_part(number, change):
    def changed(parts):
        parts[number] = change(parts[number])
        return parts

    return stepping(changed)


def forgets(self, replies):
    return Outcome(1.0, rewritten={agent: [Message("user", f"Turn {self.turn}.")] for agent in replies})


def unread(observations):
    return {
        agent: Transcript(each._replace(role="user") if each.author == agent else each for each in text.messages)
        for agent, text in observations.items()
    }


class OddNames(Sound):
    def __init__(self):
        super().__init__()
        self.possible_agents = ["Alice", "player_1"]


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


def short(self):
    Sound.__init__(self, max_observation_length=40)


def with_integers(self, seed=None, options=None):
    return dict.fromkeys(self.possible_agents, 7), Sound.reset(self, seed, options)[1]


class MasksItsWrapper(Sound):
    """PettingZoo refuses an environment whose `unwrapped` is a conversion."""

    @property
    def unwrapped(self):
        from pettingzoo.utils.conversions import aec_to_parallel_wrapper

        return aec_to_parallel_wrapper.__new__(aec_to_parallel_wrapper)


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


class ChangesWhatItReturned(Sound):
    def step(self, actions):
        for info in vars(self).get("last", {}).values():
            info["metric/late"] = 1.0
        parts = super().step(actions)
        self.last = parts[4]
        return parts

    def deal(self, task):
        self.last = {}
        return super().deal(task)


class ReadsWaitingAgents(TurnGame):
    def step(self, actions):
        observations, rewards, *rest = super().step(actions)
        return observations, {agent: reward + len(actions) for agent, reward in rewards.items()}, *rest


class ParsesNumbers(Sound):
    """`"²".isdigit()` is true, `int("²")` raises."""

    def play(self, replies):
        return Outcome(float(sum(int(word) for reply in replies.values() for word in reply.split() if word.isdigit())))


class PaysForNothing(Sound):
    """Pays most for a word that has nothing to do with the task."""

    def reference_reply(self, agent):
        return f"{self.target} leave"

    def play(self, replies):
        hits = sum(str(self.target) in reply for reply in replies.values())
        return Outcome(hits + 0.9 * sum("leave" in reply for reply in replies.values()) + self.rng.random())


WRONG = [
    ("metadata", having(metadata=Sound.metadata | {"name": "sound"})),
    ("metadata", having(metadata={"name": "sound_v0"}, __init__=lambda self: Sound.__init__(self))),
    ("agent_names", OddNames),
    ("same_spaces", having(action_space=lambda self, agent: OpenText(100))),
    ("returns", having(reset=lambda self, seed=None, options=None: Sound.reset(self, seed, options)[0])),
    ("returns", stepping(lambda parts: parts[:4])),
    ("returns", having(play=lambda self, replies: [Outcome(0.0), Outcome(0.0)][self.turn])),
    ("keys", with_part(4, lambda infos: {agent: info for agent, info in infos.items() if agent != "player_0"})),
    ("keys", with_part(1, lambda rewards: rewards | dict.fromkeys(["player_0", "player_1"], 0.0))),
    ("agents", NobodyLeaves),
    ("agents", SameListOfAgents),
    ("flags", with_part(2, lambda flags: {agent: np.bool_(flag) for agent, flag in flags.items()})),
    ("rewards", with_part(1, lambda rewards: {agent: np.float32(reward) for agent, reward in rewards.items()})),
    ("rewards", having(play=lambda self, replies: Outcome(float("nan") if self.turn == 1 else 1.0))),
    ("ranges", Sound),
    ("infos", with_part(4, lambda infos: {agent: info | {"said": "so"} for agent, info in infos.items()})),
    ("observations", having(__init__=short, _observation=lambda self, agent: self._transcripts[agent])),
    ("observations", having(reset=with_integers)),
    ("state", having(state=ParallelEnv.state)),
    ("state", having(state=lambda self: {"turn": self.turn})),
    ("ends", having(__init__=lambda self: Sound.__init__(self, 10**9), play=lambda self, replies: Outcome(0.0))),
    ("last_turn", stepping(lambda parts: [*parts[:2], parts[3], parts[2], parts[4]])),
    ("pettingzoo_api", MasksItsWrapper),
    ("rendering", having(render=lambda self: None)),
    ("rendering", having(__init__=lambda self: Sound.__init__(self))),
    # PettingZoo's seed test passes this one, because it compares only the first step.
    ("same_seed", having(play=lambda self, replies: Outcome(random.SystemRandom().random() if self.turn else 0.0))),
    ("own_generator", having(play=lambda self, replies: Outcome(1.0, metrics={"drawn": 0 * random.random()}))),
    ("reset_midway", LeftOvers),
    ("options", PickyOptions),
    ("deepcopy_branches", having(__deepcopy__=lambda self, memo: type(self)())),  # as EzPickle
    ("deepcopy_branches", SharedDeck),
    ("pickle_branches", Unpicklable),
    ("shared_objects", with_part(4, lambda infos: dict.fromkeys(infos, next(iter(infos.values()))))),
    ("shared_objects", ChangesWhatItReturned),
    ("hostile_replies", ParsesNumbers),
    ("hostile_replies", having(play=lambda self, replies: Outcome(10.0 ** max(map(len, replies.values()))))),
    ("missing_reply", having(step=lambda self, actions: Sound.step(self, dict.fromkeys(self.agents, "") | actions))),
    ("waiting", ReadsWaitingAgents),
    ("append_only", having(play=forgets)),
    ("own_reply", with_part(0, unread)),
    ("reference", having(reference_reply=lambda self, agent: str(self.rng.randint(2, 9)))),
    ("reference", having(reference_reply=lambda self, agent: "\udfff")),
    ("exploits", PaysForNothing),
]


def chatter(agent, observation, rng):
    """Replies that never hit what the hostile ones are for, and often leave early."""
    return rng.choice(["leave", "three", "a longer reply"])


def test_a_sound_environment_passes_every_rule_that_applies_also_with_rewritten_histories():
    passed = check_env(EnvSpec("test/Sound-v0", Sound), hash_seeds=False)
    assert repr(passed) == f"all {len(passed)} tested rules hold"
    assert set(RULES) - set(passed) == {"hash_seed", "reference", "ranges", "exploits", "waiting"}
    assert {rule for rule, _ in WRONG} | {"hash_seed"} == set(RULES), "every rule has a wrong environment"
    assert all(rule.__doc__ for rule in RULES.values())  # failures quote it
    with pytest.raises(CheckFailure, match=r"hostile_replies: a reply of .* digits raises ValueError"):
        check_env(ParsesNumbers, hash_seeds=False)
    rewriting = having(play=forgets, metadata=Sound.metadata | {"append_only": False})
    assert not {"append_only", "own_reply"} & set(check_env(rewriting, hash_seeds=False, skip=["pickle_branches"]))


@pytest.mark.parametrize(("rule", "wrong"), WRONG, ids=lambda value: getattr(value, "__name__", value))
def test_a_wrong_environment_is_caught_by_name(rule, wrong):
    env = EnvSpec("test/Wrong-v0", wrong) if rule == "rendering" else wrong
    if rule == "ranges":
        env = EnvSpec("test/Wrong-v0", wrong, reward_range=(0, 0.5))
    skip = {"pickle_branches"} - {rule}  # classes made in functions cannot be pickled
    with pytest.raises(CheckFailure) as caught:
        check_env(env, choose=chatter, hash_seeds=False, max_steps=50, exploits=rule == "exploits", skip=skip)
    assert caught.value.rule == rule, str(caught.value)
    assert ";" in caught.value.message, "a failure says what was seen; and how to repair it"


def test_a_declared_range_holds_for_random_agents_silent_ones_and_the_reference():
    spec = EnvSpec("test/Sound-v0", PaysForNothing, reward_range=(0, 4.8), return_range=(0, 14.4))
    assert "ranges" in check_env(spec, hash_seeds=False)
    for ranges, fault in [
        ({"reward_range": (0.5, 3)}, "the reward of 'player_0' in step"),  # an agent that says nothing earns less
        ({"return_range": (0, 1)}, "the return of 'player_0' is"),
    ]:
        with pytest.raises(CheckFailure, match=f"ranges: {fault}"):
            check_env(EnvSpec("test/Sound-v0", PaysForNothing, **ranges), hash_seeds=False)


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
    spec = EnvSpec("test/Sound-v0", lambda **kwargs: Sound(**kwargs))
    with pytest.raises(CheckFailure, match="pickle_branches"):
        check_env(spec)
    assert "hash_seed" not in check_env(spec, skip=["pickle_branches"])


def test_a_module_that_checks_itself_when_it_is_imported_starts_no_processes_without_end(tmp_path):
    """Five imports: by this test, and by two processes for each of two checks."""
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


def test_an_instance_is_checked_on_copies_and_the_users_generators_are_left_alone():
    env = Sound()
    check_env(env)
    assert env.agents == []
    random.seed(5)
    np.random.seed(5)
    before = random.getstate(), np.random.get_state()[1].tolist()
    check_env(Sound)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


@pytest.mark.parametrize(
    ("env", "settings", "error", "value"),
    [
        (7, {}, TypeError, "got 7"),
        (Sound, {"seeds": ()}, ValueError, "seed"),
        (Sound, {"skip": ["same_sed"]}, ValueError, "same_sed"),
        (Sound, {"hash_seeds": True}, ValueError, "hash_seeds=True needs"),
    ],
)
def test_wrong_arguments_are_refused(env, settings, error, value):
    with pytest.raises(error, match=value):
        check_env(env, **settings)


def test_environments_of_numbers_are_checked_by_the_rules_that_apply():
    simple_spread_v3 = pytest.importorskip("mpe2.simple_spread_v3")
    with pytest.raises(CheckFailure, match=r"deepcopy_branches.*EzPickle"):
        check_env(lambda: simple_spread_v3.parallel_env(max_cycles=5))
    skip = ["deepcopy_branches", "pickle_branches", "shared_objects"]
    passed = check_env(lambda: simple_spread_v3.parallel_env(max_cycles=5), skip=skip)
    assert "same_seed" in passed and "hostile_replies" not in passed


@pytest.mark.parametrize(
    "spec",
    [pytest.param(spec, id=spec.id, marks=[pytest.mark.slow] if "ClassEval" in spec.id else []) for spec in specs()],
)
def test_every_registered_environment_passes(spec):
    assert "hash_seed" in check_env(spec)
