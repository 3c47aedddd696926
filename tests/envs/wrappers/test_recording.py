"""Records of episodes."""

import json
from copy import deepcopy

import pytest
from PIL import Image
from replies import begun

from collm.envs import Message, Transcript, make
from collm.envs.wrappers import LastTurns, Recorded, Shares
from collm.envs.wrappers.recording import new_messages

ID = "collm/MiniBuild-v0"


def play(env, seed=0, max_turns=99):
    env.reset(seed=seed)
    for _ in range(max_turns):
        if env.agents:
            env.step({agent: env.unwrapped.reference_reply(agent) for agent in env.agents})


def lines(folder):
    return [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]


def test_a_record_holds_what_was_read_written_and_earned(tmp_path):
    env = Recorded(make(ID), tmp_path)
    play(env, seed=4)
    (record,) = lines(tmp_path)
    assert (record["index"], record["seed"], record["return"], record["is_complete"]) == (0, 4, 1.0, True)
    track = record["agents"]["builder_0"]
    assert len(track["turns"]) == 6 and sum(turn["reward"] for turn in track["turns"]) == 1.0
    told = [message["content"] for turn in track["turns"] for message in turn["read"]]
    told += [message["content"] for message in track["last_read"]]
    wrote = [turn["wrote"] for turn in track["turns"]]
    whole = [message.content for message in env.unwrapped._transcripts["builder_0"].messages]
    assert sorted(told + wrote) == sorted(whole)
    assert record["infos"][-1]["metric/success"] == 1.0
    again = begun(make(ID), seed=record["seed"])
    replies = [{agent: each["turns"][turn]["wrote"] for agent, each in record["agents"].items()} for turn in range(6)]
    assert sum(again.step(turn)[1]["builder_0"] for turn in replies) == record["return"]


def test_episodes_are_added_but_no_branches_and_a_rewritten_history_is_written_whole(tmp_path):
    env = Recorded(make(ID), tmp_path)
    play(env, seed=0)
    play(env, seed=1, max_turns=2)
    play(env, seed=2, max_turns=1)
    env.close()
    play(Recorded(make(ID), tmp_path), seed=5)
    found = [(each["index"], each["seed"], each["is_complete"]) for each in lines(tmp_path)]
    assert found == [(0, 0, True), (1, 1, False), (2, 2, False), (3, 5, True)]
    play(Recorded(LastTurns(make(ID), 1), tmp_path / "rewritten"))
    track = lines(tmp_path / "rewritten")[0]["agents"]["builder_0"]
    assert [len(turn["read"]) for turn in track["turns"]] == [1, 1, 3, 3, 3, 3]
    assert track["rewritten"] == [2, 3, 4, 5, 6]  # 6: `last_read`
    recorded = begun(Recorded(make(ID), tmp_path / "branches"), seed=0)
    play(deepcopy(recorded))
    play(Shares(recorded))
    assert len(lines(tmp_path / "branches")) == 1


def test_an_animation_has_a_frame_for_the_start_and_each_turn_and_needs_a_render_mode(tmp_path):
    play(Recorded(make(ID, render_mode="rgb_array"), tmp_path, has_gifs=True))
    with Image.open(tmp_path / "episode-0000.gif") as animation:
        assert animation.n_frames == 7
    with pytest.raises(ValueError, match=r"has_gifs.*render_mode='rgb_array'"):
        Recorded(make(ID), tmp_path, has_gifs=True)


def test_new_messages_follow_the_reply_and_a_history_that_is_no_extension_is_rewritten():
    messages = [Message("user", "go"), Message("assistant", "yes", "a_0"), Message("user", "next")]
    before, after = Transcript(messages[:1]), Transcript(messages)
    told = [message._asdict() for message in messages]
    assert new_messages(after, None) == (told, False)
    assert new_messages(after, before) == (told[2:], False)
    assert new_messages(before, after) == (told[:1], True)
    assert new_messages(after, after) == (told, True)
