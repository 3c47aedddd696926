"""Observations with the last turns only."""

import pytest

from collm.envs import Message, make
from collm.envs.wrappers import LastTurns

ID = "collm/MiniBuild-v0"


def histories(env):
    observations, _ = env.reset(seed=0)
    found = [(observations["builder_0"], [])]
    while env.agents:
        replies = {agent: f"turn {len(found)} of {agent}" for agent in env.agents}
        observations, *_ = env.step(replies)
        found.append((observations["builder_0"], [*found[-1][1], replies["builder_0"]]))
    return found


@pytest.mark.parametrize("num_turns", [1, 2, 5, 6, 9])
def test_the_task_and_the_last_turns_are_read_and_nothing_between(num_turns):
    for (seen, written), (whole, _) in zip(histories(LastTurns(make(ID), num_turns)), histories(make(ID)), strict=True):
        kept = written[-num_turns:]
        assert [message.content for message in seen.messages if message.role == "assistant"] == kept
        assert seen.messages[0] == whole.messages[0]  # the task
        assert seen.messages[1:] == whole.messages[len(whole.messages) - len(seen.messages) + 1 :]
        if len(written) <= num_turns:
            assert seen == whole


def test_a_summary_stands_for_what_is_left_out_and_the_joint_history_stays_whole():
    said = []

    def summary(messages):
        said.append(messages)
        return f"{sum(message.role == 'assistant' for message in messages)} turns before."

    found = histories(LastTurns(make(ID), 2, summary))
    seen, written = found[-1]
    whole = histories(make(ID))[-1][0]
    assert seen.messages[0].content == f"{whole.messages[0].content}\n\n4 turns before."
    assert [message.role for message in seen.messages[:2]] == ["user", "assistant"]
    left_out = said[-2]  # the last one is the partner's
    assert [message.content for message in left_out if message.author == "builder_0"] == written[:4]
    assert len(seen.messages) + len(left_out) == len(whole.messages)
    short, whole = LastTurns(make(ID), 1), make(ID)
    histories(short), histories(whole)
    assert short.state() == whole.state()
    assert short.remembered("a text").messages == (Message("user", "a text"),)
    with pytest.raises(ValueError, match=r"num_turns.*got 0"):
        LastTurns(make(ID), 0)
    with pytest.raises(TypeError, match=r"summary.*got 3"):
        histories(LastTurns(make(ID), 1, lambda messages: 3))
