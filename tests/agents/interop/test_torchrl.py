import pytest

pytest.importorskip("torchrl")

from tensordict import NonTensorData
from torchrl.data.llm import History
from torchrl.envs.llm import ChatEnv
from torchrl.envs.utils import check_env_specs

from collm.agents.interop.torchrl import PlayGame, TextTeam
from collm.envs import make
from collm.envs.views import SingleAgent

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("id", ["collm/MiniWriting-v2", "collm/MiniBuild-v0", "collm/StrBuild-v2"])
def test_a_team_passes_check_env_specs(id):
    check_env_specs(TextTeam(make(id)))


def test_a_team_has_the_observations_and_rewards_of_the_environment():
    env = TextTeam(make("collm/MiniWriting-v2"))
    env.set_seed(3)
    first = env.reset()
    observations, _ = make("collm/MiniWriting-v2").reset(seed=3)
    for name in env.names:
        assert first[name, "observation"] == str(observations[name])
        first[name, "action"] = NonTensorData(env.team.reference_reply(name))
    after = env.step(first)["next"]
    assert float(after["writer_1", "reward"]) == pytest.approx(1.0)
    assert bool(after["done"]) and bool(after["writer_0", "terminated"])


def test_a_conversation_has_feedback_and_ends_with_the_episode():
    game = SingleAgent(make("collm/MiniBuild-v0", max_turns=2, reward="terminal"), "builder_0")
    env = ChatEnv(batch_size=(1,), input_mode="history").append_transform(PlayGame(game, seed=1))
    state = env.reset()
    assert "goal" in state["history"].prompt[0, -1].content
    rewards = []
    for turn in range(2):
        reply = History.from_chats([[{"role": "assistant", "content": game.env.reference_reply("builder_0")}]])
        state["history"].full = state["history"].prompt.extend(reply, inplace=False, dim=-1)
        state = env.step(state)["next"]
        rewards.append(float(state["reward"]))
        assert bool(state["done"]) == (turn == 1)
        assert state["history"].prompt[0, -1].role == "user"
    assert rewards == [0.0, 1.0]
