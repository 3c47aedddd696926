"""One agent of a text environment in SkyRL-gym."""

from __future__ import annotations

import pytest

skyrl_gym = pytest.importorskip("skyrl_gym")

from collm.agents.interop.skyrl import rows  # noqa: E402
from collm.envs import make  # noqa: E402

ENTRY = "collm.agents.interop.skyrl:ConversationEnv"


@pytest.fixture(scope="module", autouse=True)
def registered():
    skyrl_gym.register(id="collm", entry_point=ENTRY)


@pytest.fixture
def env():
    config = {"env": "collm/MiniBuild-v0", "agent": "builder_1", "kwargs": {"max_turns": 2, "reward": "terminal"}}
    return skyrl_gym.make("collm", env_config=config, extras={"seed": 3})


def test_an_episode_reads_and_pays_what_the_environment_does(env):
    bare = make("collm/MiniBuild-v0", max_turns=2, reward="terminal")
    observations, _ = bare.reset(seed=3)
    conversation, _ = env.init([{"role": "system", "content": "Be brief."}])
    assert conversation[0] == {"role": "system", "content": "Be brief."}
    assert "".join(f"{each['content']}\n" for each in conversation[1:]) == str(observations["builder_1"])
    rewards, dones = [], []
    while bare.agents:
        replies = {agent: bare.reference_reply(agent) for agent in bare.agents}
        before = str(observations["builder_1"])
        observations, paid, *_ = bare.step(replies)
        step = env.step(replies["builder_1"])
        news = "".join(f"{each['content']}\n" for each in step["observations"])
        assert str(observations["builder_1"]) == f"{before}{replies['builder_1']}\n{news}"
        assert step["reward"] == paid["builder_1"]
        rewards.append(step["reward"])
        dones.append(step["done"])
    assert dones == [False, True]
    assert env.get_metrics()["return"] == pytest.approx(sum(rewards)) == 1.0
    env.close()


def test_the_metrics_of_many_episodes_are_averaged(env):
    found = []
    for reply in ("", "desk wood"):
        env.init([])
        while not env.step(reply)["done"]:
            pass
        found.append(env.get_metrics())
    mean = type(env).aggregate_metrics(found)
    assert mean["return"] == pytest.approx(sum(each["return"] for each in found) / 2)


def test_a_row_alone_says_what_is_played_as_in_skyrls_trainer():
    """The trainer's configuration knows its own environments: ours is made with {}, the row, and the most turns."""
    kwargs = {"max_turns": 3, "reward": "dense"}
    first, second = rows("collm/MiniBuild-v0", (3, 4), "builder_1", **kwargs)
    prompt, name = first.pop("prompt"), first.pop("env_class")
    assert prompt != second["prompt"] and first == {
        "env": "collm/MiniBuild-v0",
        "agent": "builder_1",
        "kwargs": kwargs,
        "seed": 3,
    }
    env = skyrl_gym.make(name, env_config={}, extras={**first, "max_turns": 2})
    conversation, _ = env.init(prompt)
    assert conversation == prompt  # it is what the agent reads first, and stands there once
    bare = make("collm/MiniBuild-v0", **kwargs)
    bare.reset(seed=3)
    earned = 0.0
    for is_last in (False, True):
        replies = {"builder_0": bare.reference_reply("builder_0"), "builder_1": "desk wood"}
        earned += bare.step(replies)[1]["builder_1"]
        assert env.step("desk wood")["done"] is is_last
    assert bare.agents and env.get_metrics()["return"] == pytest.approx(earned)


def test_what_names_no_environment_is_refused():
    with pytest.raises(ValueError, match='has "env"'):
        skyrl_gym.make("collm", env_config={}, extras={"seed": 3})
