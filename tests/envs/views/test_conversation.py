"""Conversations of one agent and of a team."""

import gymnasium
import pytest
from leaving_worlds import Asking
from replies import begun

from collm.envs import make
from collm.envs.core import Message, messages_of
from collm.envs.views import Conversation, Conversations, GymAsParallel, SingleAgent

IDS = ("collm/MiniWriting-v2", "collm/MiniBuild-v0", "collm/StrBuild-v2", "collm/CoopHumanEval-v1")


@pytest.mark.parametrize("id", IDS)
def test_new_messages_and_replies_in_order_are_the_agents_history(id):
    env = SingleAgent(make(id))
    talk = Conversation(env)
    heard = list(talk.reset(seed=3))
    replies, total = [], 0.0
    while not talk.is_over:
        reply = env.env.unwrapped.reference_reply(env.agent)
        turn = talk.step(reply)
        heard += [Message("assistant", reply, env.agent), *turn.messages]
        total += turn.reward
        replies.append(reply)
    bare = SingleAgent(make(id))
    observation, _ = bare.reset(seed=3)
    for reply in replies:
        observation, *_ = bare.step(reply)
    assert tuple(heard) == messages_of(observation)
    assert talk.earned == pytest.approx(total)


@pytest.mark.parametrize("id", IDS)
def test_a_team_of_conversations_plays_the_game_itself(id):
    talks, bare = Conversations(make(id)), make(id)
    opening = talks.reset(seed=5)
    observations, _ = bare.reset(seed=5)
    assert opening == {agent: messages_of(text) for agent, text in observations.items()}
    returns = dict.fromkeys(bare.possible_agents, 0.0)
    while talks.agents:
        assert talks.agents == bare.agents
        replies = {agent: bare.reference_reply(agent) for agent in bare.agents}
        heard = talks.step(replies)
        _, rewards, terminations, _, infos = bare.step(replies)
        for agent, turn in heard.items():
            returns[agent] += rewards[agent]
            assert (turn.reward, turn.is_over, turn.numbers) == (rewards[agent], terminations[agent], infos[agent])
    assert bare.agents == [] and talks.earned == pytest.approx(returns)


def test_thoughts_stay_with_the_speaker_who_leaves_is_asked_no_more_and_rewriting_is_refused():
    talks = Conversations(Asking())
    assert [message.role for message in talks.reset(seed=0)["asker_0"]] == ["system", "user"]
    heard = talks.step({"asker_0": "<think>so</think>yes", "asker_1": "leave"})
    assert heard["asker_0"].text == "heard yes" and heard["asker_1"].messages == ()
    assert heard["asker_1"].is_over and talks.agents == ["asker_0"]
    with pytest.raises(ValueError, match=r"\['asker_0'\]"):
        talks.step({})
    talks.step({"asker_0": "a", "asker_1": "ignored"})
    assert talks.earned == {"asker_0": 19.0, "asker_1": 12.0}
    assert talks.numbers == {"reward/half": 1.0}
    talks = begun(Conversations(Asking()), seed=0)
    with pytest.raises(ValueError, match="rewrote a history"):
        talks.step({"asker_0": "forget", "asker_1": "a"})
    with pytest.raises(RuntimeError, match="reset"):
        Conversations(Asking()).step({})
    with pytest.raises(RuntimeError, match="reset"):
        Conversation(SingleAgent(Asking())).step("a")


def test_texts_of_others_that_are_no_histories_are_new_as_a_whole():
    class Plain(gymnasium.Env):
        observation_space = action_space = gymnasium.spaces.Text(99)

        def reset(self, *, seed=None, options=None):
            return "state one", {}

        def step(self, action):
            return "state two", 0.5, False, True, {"length": 2, "text": "no number"}

    talk = Conversation(SingleAgent(GymAsParallel(Plain())))
    assert [message.content for message in talk.reset()] == ["state one"]
    turn = talk.step("word")
    assert (turn.text, turn.is_over, turn.is_terminated, turn.numbers) == ("state two", True, False, {"length": 2.0})
