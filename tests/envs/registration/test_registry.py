"""Ids of environments, their errors, plugins, and the registries of other libraries."""

from typing import get_args

import gymnasium
import pettingzoo
import pytest
from distributions import install
from heard import Heard
from replies import begun

from collm import _plugins as plugins
from collm.envs import EnvSpec, TextParallelEnv, check_env, make, register, spec, specs
from collm.envs.registration.registry import TextId, UnknownEnvironmentError, accepted_arguments, versioned
from collm.envs.views import GymAsParallel

pytestmark = pytest.mark.usefixtures("clean_registry")


class Echo(Heard):
    def __init__(self, word: str = "tree", max_turns: int = 2, **kwargs):
        super().__init__(["echo_0", "echo_1"], max_turns, word, **kwargs)
        self.word = word


class NotAnEnvironment: ...


def test_an_environment_is_made_with_registered_arguments_which_others_must_replace():
    register("test/Echo-v0", Echo, kwargs={"word": "house"})
    env = make("test/Echo-v0", max_turns=3)
    assert env.spec.id == "test/Echo-v0"
    assert env.spec.kwargs == {"word": "house", "max_turns": 3}
    for made in (env, make(env.spec)):
        assert (made.word, made.max_turns) == ("house", 3)
    register("test/List-v0", lambda words: Echo(words.pop()), kwargs={"words": ["a", "b"]})
    assert make("test/List-v0").word == make("test/List-v0").word == "b"
    register("test/Twice-v0", Echo)
    register("test/Twice-v0", Echo)
    with pytest.raises(ValueError, match="already registered"):
        register("test/Twice-v0", Echo, kwargs={"word": "other"})
    register("test/Twice-v0", Echo, kwargs={"word": "other"}, replace=True)
    assert make("test/Twice-v0").word == "other"
    assert gymnasium.registry["test/Twice-v0"].kwargs == {"env_id": "test/Twice-v0"}  # so it is replaced there, too
    original = EnvSpec("test/Echo-v0", "collm.envs.core:TextParallelEnv", {"a": [1, 2]}, 3, "An echo.")
    assert EnvSpec.from_json(original.to_json()) == original
    assert EnvSpec.from_json(EnvSpec("test/Echo-v0", Echo).to_json()).entry_point == f"{__name__}:Echo"
    with pytest.raises(ValueError, match="cannot be imported by name"):
        EnvSpec("test/Echo-v0", lambda: None).to_json()
    with pytest.raises(ValueError, match="are not JSON"):
        EnvSpec("test/Echo-v0", "a:b", {"rng": object()}).to_json()


def test_the_annotation_of_make_lists_the_ids_that_build_text_environments():
    assert set(get_args(TextId)) == {each.id for each in specs() if each.id.startswith("collm/")}
    for id in get_args(TextId):
        assert issubclass(spec(id).constructor(), TextParallelEnv) and spec(id).max_turns is None


def test_ranges_hold_for_the_registered_arguments_and_for_those_that_pay_the_same():
    added = register("test/Echo-v0", Echo, reward_range=(0, 1), return_range=(0, float("inf")))
    assert make("test/Echo-v0", render_mode="ansi").spec.reward_range == (0.0, 1.0)
    other = make("test/Echo-v0", max_turns=3).spec
    assert (other.reward_range, other.return_range) == (None, None)
    assert EnvSpec.from_json(added.to_json()).return_range == (0.0, float("inf"))
    added = register("test/Kept-v0", Echo, return_range=(0, 1), range_preserving_kwargs=["word"])
    assert added.given(word="bird").return_range == (0.0, 1.0)
    assert added.given(word="bird", max_turns=3).return_range is None
    assert EnvSpec.from_json(added.to_json()).range_preserving_kwargs == ("word",)
    with pytest.raises(ValueError, match=r"test/Upside-v0.*reward_range"):
        register("test/Upside-v0", Echo, reward_range=(1, 0))


@pytest.mark.parametrize("reward", ["sparse", "terminal", "dense"])
@pytest.mark.parametrize("name", ["MiniBuild", "MiniShift"])
def test_building_games_keep_their_ranges_whatever_their_arguments(name, reward):
    given = {"reward": reward, "num_agents": 3, "max_turns": 5, "threshold": 0.3, "feedback": "both"}
    changed = spec(f"collm/{name}-v0").given(**given)
    assert changed.return_range == (0.0, 1.0) and "ranges" in check_env(changed, hash_seeds=False)


@pytest.mark.parametrize(
    ("entry_point", "error", "words"),
    [
        ("nowhere.at_all:Thing", ImportError, r"test/Wrong-v0.*'nowhere.at_all:Thing'"),
        ("collm.envs.core:Thing", ImportError, "no attribute 'Thing'"),
        (NotAnEnvironment, TypeError, "NotAnEnvironment"),
    ],
)
def test_a_wrong_entry_point_is_refused_by_make(entry_point, error, words):
    register("test/Wrong-v0", entry_point)
    with pytest.raises(error, match=words):
        make("test/Wrong-v0")
    env = make("collm.envs.writing.mini_writing.env:MiniWriting", split="test")  # what is not registered
    assert env.spec.id == "unregistered/MiniWriting-v0"
    with pytest.raises(ImportError, match="cannot be loaded"):
        make("nowhere.at_all:Thing")


def test_an_id_without_version_means_the_newest_and_says_so():
    register("test/Echo-v2", Echo, kwargs={"word": "two"})
    register("test/Echo-v10", Echo, kwargs={"word": "ten"})
    with pytest.warns(UserWarning, match="using the newest, 'test/Echo-v10'") as caught:
        assert make("test/Echo").word == "ten"
    assert caught[0].filename == __file__, "the line that made it, and none of collm's own"
    with pytest.warns(UserWarning, match="'test/Echo'"):
        assert versioned("test/Echo") == "test/Echo-v10"
    for id in ("test/Echo-v2", "test/Nobody", "gymnasium/CartPole-v1", "pettingzoo.classic.tictactoe_v3", "a.b:C"):
        assert versioned(id) == id


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("test/Echo-v7", r"test/Echo .*7.*'test/Echo-v0'"),
        *[(id, "mean 'test/Echo-v0'") for id in ("test/Eco-v0", "Echo-v0", "echo", "test/echo-v0", "tets/Echo-v0")],
        ("zzzzzz/qqqqqq-v0", r"module:Class.*pprint_registry"),
    ],
)
def test_an_unknown_id_is_refused_with_the_nearest(wrong, words):
    register("test/Echo-v0", Echo)
    with pytest.raises(UnknownEnvironmentError, match=words):
        spec(wrong)


@pytest.mark.parametrize(
    ("id", "kwargs", "words"),
    [
        ("test/Echo-v0", {"wort": "tree"}, "'wort'.*'word'"),
        *[
            (f"collm/{x}", {"max_turns": 3}, "'max_turns'.*TurnLimit")
            for x in ("MiniWriting-v2", "TLDR-v2", "MiniCode-v1")
        ],
        ("collm/MiniCode-v1", {"agents": ("player_0",)}, "'agents'"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(id, kwargs, words):
    register("test/Echo-v0", Echo)
    with pytest.raises(TypeError, match=f"{id} .*{words}"):
        make(id, **kwargs)


def test_a_malformed_id_or_entry_point_is_refused_and_arguments_of_a_base_class_are_taken():
    for id in ("Echo-v0", "test/Echo", "test/Echo-v", "te st/Echo-v0", "test/Echo_v0", "", "a/b/C-v0"):
        with pytest.raises(ValueError, match="id="):
            register(id, Echo)
    for entry_point in ("module", "module.Class", "a:b:c", ":Class"):
        with pytest.raises(ValueError, match="entry_point="):
            register("test/Echo-v0", entry_point)
    accepted = accepted_arguments(Echo)
    assert accepted is not None and {"word", "max_turns", "render_mode", "max_action_length"} <= accepted
    assert accepted_arguments(lambda **anything: None) is None
    assert accepted_arguments(GymAsParallel) is None
    assert accepted_arguments(NotAnEnvironment) == frozenset()


@pytest.mark.parametrize("own", [{}, {"max_turns": 1}])
def test_a_limit_from_outside_truncates_and_the_own_last_turn_terminates(own):
    register("test/Echo-v0", Echo, max_turns=1)
    env = begun(make("test/Echo-v0", **own), seed=0)
    _, _, terminations, truncations, _ = env.step(dict.fromkeys(env.agents, ""))
    assert (set(terminations.values()), set(truncations.values())) == ({bool(own)}, {not own})
    assert env.agents == []
    with pytest.raises(RuntimeError, match="reset"):
        env.step({})


def test_an_environment_is_found_in_pettingzoo():
    if not getattr(pettingzoo, "make", None):
        pytest.skip("this PettingZoo has no registry")
    register("test/Echo-v0", Echo)
    env = pettingzoo.make("parallel", "test/Echo_v0", word="river", max_cycles=5)
    assert (env.word, env.max_turns) == ("river", 5)
    one_by_one = begun(pettingzoo.make("aec", "test/Echo-v0", word="river"), seed=0)
    assert one_by_one.last()[0] == {"text": "river\n"}


PLUGIN = """
from collm.envs import Outcome, TextParallelEnv, register
class Plugged(TextParallelEnv):
    def __init__(self):
        super().__init__(["agent_0"], 1)
    def deal(self, task):
        return {"agent_0": "hello"}
    def play(self, replies):
        return Outcome(1.0)
register("plugged/Word-v0", Plugged, summary="A word from outside.")
"""


def test_an_installed_plugin_is_found_and_a_broken_one_is_named_and_spoils_nothing_else(tmp_path, monkeypatch):
    def installed(name, source):
        monkeypatch.setattr(plugins, "_seen", set())
        monkeypatch.setattr(plugins, "_failures", {})
        (tmp_path / name).mkdir()
        monkeypatch.syspath_prepend(install(tmp_path / name, name, source))

    installed("collm_plugin_sound", PLUGIN)
    assert make("plugged/Word-v0").reset(seed=0)[0] == {"agent_0": "hello\n"}
    assert "plugged/Word-v0" in [found.id for found in specs()]
    register("test/Echo-v0", Echo)
    installed("collm_plugin_broken", "raise OSError('no such planet')")
    reason = r"the plugin 'collm_plugin_broken' of the distribution 'collm-plugin-broken' .* OSError: no such planet"
    assert make("test/Echo-v0").word == "tree"
    with pytest.raises(UnknownEnvironmentError, match=reason):
        make("broken/Word-v0")
    with pytest.warns(RuntimeWarning, match=reason):
        assert "test/Echo-v0" in [found.id for found in specs()]


def test_what_a_module_registers_with_gymnasium_is_named_with_the_module(tmp_path, monkeypatch):
    (tmp_path / "corridors.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Corridor-Long-v3', entry_point='gymnasium.envs.classic_control:CartPoleEnv')\n"
        "gymnasium.register('halls/Hall-v0', entry_point='gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)
    env = make("gymnasium/corridors:Corridor-Long-v3")
    assert env.possible_agents == ["agent_0"] and env.reset(seed=0)[0]["agent_0"].shape == (4,)
    assert make("gymnasium/corridors:halls/Hall-v0").possible_agents == ["agent_0"]
    with pytest.raises(UnknownEnvironmentError, match="did you mean 'Corridor-Long-v3'"):
        make("gymnasium/corridors:Corridor-Lang-v3")
    with pytest.raises(UnknownEnvironmentError, match="'no_such_module'"):
        make("gymnasium/no_such_module:X-v0")
