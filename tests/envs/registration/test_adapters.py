"""Text environments of other libraries: replies fit the action spaces, and agents have names that are texts."""

import pytest
from foreign_texts import ForeignTexts
from gymnasium.spaces import Discrete, Text

import collm
from collm.envs import make
from collm.envs.registration.foreign import as_team
from collm.envs.spaces import OpenText


def replied(env, **replies):
    """Play a turn. Returns (actions that the environment got, metrics of the first agent)."""
    env.reset(seed=0)
    *_, infos = env.step(replies)
    return env.unwrapped.played[0], infos["a_0"]


@pytest.mark.parametrize(
    ("space", "reply", "action", "metrics"),
    [
        (Text(12), "Build 3 walls!", "Build3walls", ["cleaned"]),
        (Text(5), "walls", "walls", []),
        (Text(4), "walls", "wall", ["cut"]),
        (Text(12, charset="ab"), "", "a", ["padded"]),
        (Text(12, min_length=3, charset="ab "), "xb", "b  ", ["cleaned", "padded"]),
        (Text(2, charset="ab"), "<think>b b</think>aaa", "aa", ["cut"]),
        (OpenText(6, min_length=2), "é数 and more", "é数 and", ["cut"]),
        (OpenText(6, min_length=2), "é", "é ", ["padded"]),
    ],
)
def test_replies_are_fitted_to_the_action_space_and_counted(space, reply, action, metrics):
    env = as_team(ForeignTexts(space))
    actions, told = replied(env, a_0=reply, b_0=action)
    assert actions == {"a_0": action, "b_0": action} and space.contains(action)
    assert told == {f"metric/{name}_replies": 1.0 for name in metrics}


def test_other_environments_are_not_wrapped():
    class Numbers(ForeignTexts):
        def action_space(self, agent):
            return Discrete(2)

    numbers, texts = Numbers(), as_team(ForeignTexts())
    assert as_team(numbers) is numbers and as_team(texts) is texts
    own = make("collm/MiniWriting-v2")
    assert as_team(own) is own


def test_numbers_as_agents_become_texts():
    env = as_team(ForeignTexts(names=(0, 1)))
    observations, infos = env.reset(seed=0)
    assert env.possible_agents == env.agents == list(observations) == list(infos) == ["0", "1"]
    parts = env.step({"0": "a", "1": "b"})
    assert env.unwrapped.played == [{0: "a", 1: "b"}] and all(list(part) == ["0", "1"] for part in parts)
    assert env.observation_space("0") and env.action_space("1") == Text(12)
    with pytest.raises(ValueError, match="different names"):
        as_team(ForeignTexts(names=(0, "0")))


@pytest.mark.parametrize(
    ("algorithm", "names"), [("magrpo", ("a_0", "b_0")), ("maac", ("a_0", "b_0")), ("mappo", (0, 1))]
)
def test_they_train_also_with_a_joint_critic(algorithm, names, tmp_path):
    settings = {"num_generations": 2} if algorithm == "magrpo" else {}
    run = collm.train(
        algorithm,
        env=ForeignTexts(names=names),
        num_updates=1,
        rollout_buffer_size=2,
        max_new_tokens=4,
        eval_interval=0,
        eval_num_samples=1,
        out=tmp_path / "run",
        progress=False,
        **settings,
    )
    assert list(run.policies) == [str(name) for name in names] and run.metrics[-1]["return"] == 2.0
