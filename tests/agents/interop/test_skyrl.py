import pytest

skyrl_gym = pytest.importorskip("skyrl_gym")

from reference_play import reference_episode, text_of  # noqa: E402

from collm.agents.interop.skyrl import rows  # noqa: E402
from collm.envs import make  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def registered():
    skyrl_gym.register(id="collm", entry_point="collm.agents.interop.skyrl:ConversationEnv")


@pytest.fixture
def env():
    config = {"env": "collm/MiniBuild-v0", "agent": "builder_1", "kwargs": {"max_turns": 2, "reward": "terminal"}}
    return skyrl_gym.make("collm", env_config=config, extras={"seed": 3})


def test_an_episode_has_the_observations_and_rewards_of_the_environment_and_metrics_are_averaged(env):
    opening, turns = reference_episode(make("collm/MiniBuild-v0", max_turns=2, reward="terminal"), 3)
    prompt = {"role": "system", "content": "Be brief."}
    conversation, _ = env.init([prompt])
    assert conversation[0] == prompt and text_of(conversation[1:]) == str(opening["builder_1"])
    read = str(opening["builder_1"])
    for number, (replies, observations, rewards) in enumerate(turns, start=1):
        step = env.step(replies["builder_1"])
        read += f"{replies['builder_1']}\n{text_of(step['observations'])}"
        assert read == str(observations["builder_1"])
        assert (step["reward"], step["done"]) == (rewards["builder_1"], number == len(turns))
    assert env.get_metrics()["return"] == 1.0
    env.close()
    found = []
    for reply in ("", "desk wood"):
        env.init([])
        while not env.step(reply)["done"]:
            pass
        found.append(env.get_metrics())
    mean = type(env).aggregate_metrics(found)
    assert mean["return"] == pytest.approx(sum(each["return"] for each in found) / 2)


def test_a_row_determines_the_episode_as_in_skyrls_trainer():
    kwargs = {"max_turns": 3, "reward": "dense"}
    first, second = rows("collm/MiniBuild-v0", (3, 4), "builder_1", **kwargs)
    prompt, name = first.pop("prompt"), first.pop("env_class")
    assert prompt != second["prompt"]
    assert first == {"env": "collm/MiniBuild-v0", "agent": "builder_1", "kwargs": kwargs, "seed": 3}
    env = skyrl_gym.make(name, env_config={}, extras={**first, "max_turns": 2})
    conversation, _ = env.init(prompt)
    assert conversation == prompt  # the first observation is not repeated
    assert [env.step("desk wood")["done"] for _ in range(2)] == [False, True]
    _, turns = reference_episode(make("collm/MiniBuild-v0", **kwargs), 3, builder_1="desk wood")
    expected = sum(rewards["builder_1"] for *_, rewards in turns[:2])
    assert len(turns) == 3 and env.get_metrics()["return"] == pytest.approx(expected)
    with pytest.raises(ValueError, match='"env"'):
        skyrl_gym.make("collm", env_config={}, extras={"seed": 3})
