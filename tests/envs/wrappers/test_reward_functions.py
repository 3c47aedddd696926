"""Rewards by functions of the user."""

import math

import pytest
from replies import begun, references, steps_of

from collm.envs import EnvSpec, Transcript, make, register
from collm.envs.views import GymAsParallel, TokenObservations
from collm.envs.wrappers import JudgedTurn, LastTurns, RewardFunctions

ID = "collm/MiniBuild-v0"
TURNS: list[JudgedTurn] = []
pytestmark = pytest.mark.usefixtures("clean_registry")


def brevity(turn: JudgedTurn) -> float:
    return -float(sum(len(reply.split()) for reply in turn.replies.values()))


def seat(turn: JudgedTurn) -> dict[str, float]:
    return {agent: float(agent[-1]) for agent in turn.replies}


def keep(turn: JudgedTurn) -> float:
    TURNS.append(turn)
    return 0.0


def played(env, seed=0):
    return [(rewards, infos) for _, rewards, *_, infos in steps_of(env, seed=seed)]


def test_the_reward_is_the_weighted_sum_and_the_parts_are_logged_by_name():
    env = make(ID, reward_funcs=["own", brevity, seat], reward_weights=[2.0, 0.1, 0.5])
    for (rewards, infos), (own, plain) in zip(played(env), played(make(ID)), strict=True):
        words = -4.0  # both write a part and a material
        assert rewards["builder_0"] == pytest.approx(2 * own["builder_0"] + 0.1 * words)
        assert rewards["builder_1"] == pytest.approx(2 * own["builder_1"] + 0.1 * words + 0.5)
        info = infos["builder_1"]
        parts = {name: value for name, value in info.items() if name.startswith("reward/")}
        expected = {"reward/own": 2 * own["builder_1"], "reward/brevity": -0.4, "reward/seat": 0.5}
        assert parts == pytest.approx(expected)
        assert info["metric/own/quality_gain"] == plain["builder_1"]["reward/quality_gain"]
        assert info["metric/quality"] == plain["builder_1"]["metric/quality"]


def test_a_function_sees_the_task_the_replies_the_histories_and_the_world():
    TURNS.clear()
    env = begun(make(ID, reward_funcs=[keep]), seed=0)
    replies = references(env)
    observations, *_ = env.step(dict(replies))
    (turn,) = TURNS
    assert turn.task == env.unwrapped.goal and turn.world is env.unwrapped
    assert turn.replies == replies and turn.transcripts == observations
    assert isinstance(turn.joint, Transcript) and all(reply in turn.joint for reply in replies.values())
    assert (turn.turn, turn.is_last, set(turn.reward)) == (1, False, set(replies))
    assert turn.numbers["metric/ok"] == 2.0
    for id in ("collm/TLDR-v2", "collm/MiniWriting-v2", "collm/MiniCode-v1", "collm/StrBuild-v2"):
        env = begun(make(id), seed=0)
        assert env.unwrapped.task is not None


def test_functions_are_imported_by_name_and_the_wrapper_works_on_and_under_others():
    env = make(ID, reward_funcs={"short": f"{__name__}:brevity"})
    again = EnvSpec.from_json(env.spec.to_json()).make()
    assert played(again)[0][1]["builder_0"]["reward/short"] == -4.0
    assert again.spec.reward_range is None  # what the registered arguments pay says nothing of this
    replaced = make(ID, reward_funcs=[brevity])  # without "own"
    assert [rewards["builder_0"] for rewards, _ in played(replaced)] == [-4.0] * 6
    tokens = TokenObservations(RewardFunctions(LastTurns(make(ID), 1), [seat]), 64)
    assert played(tokens)[0][0] == {"builder_0": 0.0, "builder_1": 1.0}

    class Own(RewardFunctions):
        def __init__(self, reward_funcs=(), render_mode=None):
            super().__init__(make(ID), [*reward_funcs, brevity])

    register("test/Own-v0", Own)
    assert list(make("test/Own-v0", reward_funcs=[seat]).reward_functions) == ["seat", "brevity"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"reward_funcs": []}, "reward_funcs"),
        ({"reward_funcs": "own"}, "got 'own'"),
        ({"reward_funcs": [brevity, brevity]}, "different names"),
        ({"reward_funcs": [lambda turn: 0.0]}, "different names"),
        ({"reward_funcs": [brevity], "reward_weights": [1, 2]}, r"reward_weights.*\[1, 2\]"),
        ({"reward_weights": [1]}, "need reward_funcs"),
        ({"reward_funcs": ["nowhere:f"]}, "'nowhere:f' cannot be loaded"),
        ({"reward_funcs": [f"{__name__}:nothing"]}, "cannot be loaded"),
        ({"reward_funcs": ["quality"]}, "'quality'"),
    ],
)
def test_what_is_no_reward_function_is_refused_when_the_environment_is_made(given, message):
    with pytest.raises(ValueError, match=message):
        make(ID, **given)


@pytest.mark.parametrize(
    ("value", "message"),
    [(math.nan, "finite.*got nan"), ("much", "number.*got 'much'"), ({"builder_0": 1.0}, "'builder_1'")],
)
def test_a_wrong_reward_is_refused_with_the_function_s_name(value, message):
    with pytest.raises(ValueError, match=f"'odd'.*{message}"):
        played(make(ID, reward_funcs={"odd": lambda turn: value}))
    with pytest.raises(ValueError, match="text environment"):
        RewardFunctions(GymAsParallel("CartPole-v1"), [brevity])
