"""Transcripts, and the base class of text environments."""

import copy
import pickle
import re
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replies import begun, references, rewards_of

from collm.envs import Message, OpenText, Outcome, TextParallelEnv, Transcript, make, messages_of, specs
from collm.envs.core import answer_in, as_chat

messages = st.lists(st.builds(Message, st.sampled_from(["user", "assistant"]), st.text(max_size=9)), max_size=4)


class Numbers(TextParallelEnv):
    """Two agents; each reads how long the other's reply was."""

    metadata = TextParallelEnv.metadata | {"name": "numbers_v0"}

    def __init__(self, agents=("left_0", "right_0"), max_turns=2, **kwargs):
        super().__init__(agents, max_turns, **kwargs)

    def deal(self, task):
        self.secret = self.rng.randint(0, 999) if task is None else task
        return {agent: f"{agent} reads {self.secret}" for agent in self.agents}

    def play(self, replies):
        lengths = {agent: len(reply) for agent, reply in replies.items()}
        feedback = {agent: f"others: {sum(lengths.values()) - lengths[agent]}" for agent in replies}
        finished = frozenset(agent for agent, reply in replies.items() if reply == "leave")
        over = "over" in replies.values()
        return Outcome(sum(lengths.values()), feedback, {"length": 1}, {"turn": self.turn}, over, finished)


def started(seed=0, task=None, **settings):
    return begun(Numbers(**settings), seed=seed, options={"task": task})


def step(env, left="a", right="a"):
    return env.step({"left_0": left, "right_0": right})


@given(messages, messages)
def test_a_transcript_is_the_text_of_its_messages_and_grows_at_its_end(parts, more):
    transcript = Transcript(parts)
    assert transcript == "".join(f"{part.content}\n" for part in parts)
    grown = transcript.extended(*more)
    assert grown.startswith(transcript)
    assert grown.messages == (*parts, *more)
    for twin in (copy.copy(transcript), copy.deepcopy(transcript), pickle.loads(pickle.dumps(transcript))):
        assert (twin, twin.messages) == (transcript, tuple(parts))
    assert messages_of(transcript) == tuple(parts) and messages_of("hello") == (Message("user", "hello"),)


def test_a_turn_by_hand():
    env = started(task=7)
    observations, rewards, terminations, truncations, infos = step(env, "abc", "z")
    assert observations["left_0"].messages == (
        Message("user", "left_0 reads 7"),
        Message("assistant", "abc", "left_0"),
        Message("user", "others: 1"),
    )
    assert "abc" not in observations["right_0"]
    assert rewards == {"left_0": 4.0, "right_0": 4.0}
    assert terminations == truncations == {"left_0": False, "right_0": False}
    assert infos["right_0"] == {"reward/length": 1.0, "metric/turn": 0.0}
    assert [message.content for message in env.state().messages] == [
        "[left_0 reads] left_0 reads 7",
        "[right_0 reads] right_0 reads 7",
        "[left_0 writes] abc",
        "[right_0 writes] z",
        "[left_0 reads] others: 1",
        "[right_0 reads] others: 3",
    ]


def test_the_last_turn_or_an_outcome_ends_the_episode_of_all_or_of_one_agent():
    env = started(max_turns=2)
    step(env)
    _, _, terminations, truncations, _ = step(env)
    assert (set(terminations.values()), set(truncations.values()), env.agents) == ({True}, {False}, [])
    with pytest.raises(RuntimeError, match="reset"):
        env.step({})
    env = started(max_turns=9)
    step(env, "over")
    assert env.agents == []
    env.reset(seed=0)
    assert step(env, "leave")[2] == {"left_0": True, "right_0": False}
    observations, rewards, *_ = env.step({"right_0": "a"})
    assert (list(observations), list(rewards), env.agents) == (["right_0"], ["right_0"], ["right_0"])


def test_rewards_may_differ_and_a_history_may_be_rewritten():
    env = Numbers()
    env.deal = lambda task: dict.fromkeys(env.agents, "the same")
    env.reset(seed=0)
    assert env.state() == "[left_0, right_0 reads] the same\n"
    rewritten = {"left_0": [Message("user", "new")]}
    env.play = lambda replies: Outcome({"left_0": 1, "right_0": 2}, {"left_0": "next"}, rewritten=rewritten)
    observations, rewards, *_ = step(env)
    assert rewards == {"left_0": 1.0, "right_0": 2.0}
    assert observations["left_0"] == "new\nnext\n"
    assert observations["right_0"].endswith("a\n")
    assert env.state().endswith("[left_0 reads] new\nnext\n")


def test_replies_are_cut_and_cleaned_and_thoughts_are_not_played():
    observations, rewards, *_, infos = step(started(max_action_length=5), "1234567", "a\ud800b45")
    assert rewards["left_0"] == 10.0
    assert infos["left_0"]["metric/cut_replies"] == 1.0
    assert observations["left_0"].messages[1].content == "12345"
    assert observations["right_0"].messages[1].content == "a\ufffdb45"
    for draft in ("", "<think>a</think>", "begun by the prompt</think>", "<think>one</think>no<think>two</think>"):
        assert answer_in(f"{draft}plain") == "plain"
    assert answer_in("a draft</think>\nplain") == "\nplain"
    for tag in ("\n<think>broken off", "</think>", ""):
        assert answer_in(tag) == answer_in(f"<think>first</think>{tag}") == ""
    assert answer_in("the tag <think> in a sentence") == "the tag <think> in a sentence"


def test_chats_join_neighboring_messages_of_one_role():
    history = [Message("system", "a"), Message("user", "b"), Message("user", "c"), Message("assistant", "d")]
    assert [*map(tuple, map(dict.values, as_chat(history)))] == [
        ("system", "a"),
        ("user", "b\n\nc"),
        ("assistant", "d"),
    ]
    thoughts = "<think>" + 30 * "x" + "</think>"
    observations, rewards, *_, infos = step(started(max_action_length=20), f"{thoughts}123", "12345")
    assert rewards["left_0"] == 8.0
    assert "metric/cut_replies" not in infos["left_0"]
    assert observations["left_0"].messages[1].content == f"{thoughts}123"[:20]
    assert observations["right_0"].messages[-1].content == "others: 3"


@pytest.mark.parametrize("id", [spec.id for spec in specs() if spec.id.startswith("collm/")])
def test_thoughts_change_no_score(id):
    draft = "<think>/setblock 0 0 0 stone\n/kill\ndef aux(x): return 1\n{'path': []} first also then</think>\n"
    thoughtful = rewards_of(make(id), lambda env: {a: draft + text for a, text in references(env).items()}, seed=3)
    assert thoughtful == rewards_of(make(id), seed=3)


def test_a_long_history_loses_its_oldest_messages_and_missing_replies_are_refused():
    env = started(task=7, max_turns=50, max_observation_length=80)
    for _ in range(10):
        observations, *_, infos = step(env, "a reply", "a reply")
    assert env.observation_space("left_0").contains(observations["left_0"])
    assert observations["left_0"].startswith("left_0 reads 7\n")
    assert observations["left_0"].endswith("others: 7\n")
    assert infos["left_0"]["metric/dropped_messages"] > 0
    assert env.state_space.contains(env.state())
    env = started()
    with pytest.raises(ValueError, match="'right_0' is missing"):
        env.step({"left_0": ""})
    with pytest.raises(TypeError, match="'left_0' must be a string, got int: 3"):
        step(env, 3)


def test_episodes_and_draws_of_wrappers_follow_from_the_seed_and_then_from_the_generator():
    one, other = Numbers(), Numbers()
    assert one.reset(seed=5) == other.reset(seed=5)
    assert one.reset() == other.reset() != one.reset(seed=5)
    assert len({Numbers().reset()[0]["left_0"] for _ in range(20)}) > 1
    one, other = started(5), started(5)
    branches = [copy.deepcopy(one), pickle.loads(pickle.dumps(one)), other]
    drawn = one.np_random.integers(1000, size=4).tolist()
    assert all(branch.np_random.integers(1000, size=4).tolist() == drawn for branch in branches)
    assert one.reset() == other.reset()
    assert one.np_random.integers(1000, size=4).tolist() != drawn  # without a seed the generator continues
    one.reset(seed=5)
    assert one.np_random.integers(1000, size=4).tolist() == drawn
    one.reset(seed=-1)
    assert one.np_random is one.np_random
    one.np_random = "an author's own"
    assert one.np_random == "an author's own"


def test_a_branch_in_mid_episode_is_identical_and_independent():
    for branch in (copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))):
        env = started(max_turns=3)
        step(env)
        step(branch(env), "something else")
        assert env.turn == 1
        third = branch(env)
        assert step(env, "b") == step(third, "b")


def test_render_shows_the_joint_history_and_spaces_have_the_given_lengths(capsys):
    env = Numbers(render_mode="ansi")
    env.scene = lambda: "a wall\n"
    env.reset(seed=0, options={"task": 7})
    assert env.render() == f"{env.state()}a wall\n"
    env.render_mode = "human"
    assert env.render() is None
    assert capsys.readouterr().out.endswith("a wall\n\n")
    assert Numbers().render() is None
    env = Numbers(max_turns=2, max_action_length=9)
    assert env.action_space("left_0") == OpenText(9)
    env.max_cycles = 1000  # as PettingZoo's test does
    assert (env.max_turns, str(env)) == (2, "numbers_v0")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(({"agents": names}, "'writer_0'") for names in [(), ("Alice",), ("a_0", "a_0"), ("a0",), ("a_0 ",)]),
        ({"max_turns": 0}, r"max_turns.*got 0"),
        ({"max_turns": True}, r"max_turns.*got True"),
        ({"render_mode": "rgb_array"}, "render_mode"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Numbers(**settings)


PIECES = ["wall wood", "[left_0 writes] me", "[right_0 reads] you", "[left_0, right_0 reads] both", "[", " "]
LINE_ENDS = ["\n", "\r", "\r\n", "\u2028", "\x85", "\x0b", "\n\n"]


@given(st.lists(st.sampled_from(PIECES), max_size=5), st.sampled_from(LINE_ENDS))
def test_no_reply_can_imitate_messages_of_the_joint_history(pieces, end):
    env = started()
    observations, *_ = step(env, end.join(pieces), "mine")
    assert observations["left_0"].messages[1].content == end.join(pieces)
    heads = re.findall(r"^\[([a-z0-9_, ]+) (reads|writes)\]", "\n".join(str(env.state()).splitlines()), re.MULTILINE)
    assert len(heads) == len(env.state().messages)
    assert [name for name, verb in heads if verb == "writes"] == ["left_0", "right_0"]


def test_the_docstring_of_an_outcome_explains_each_field():
    described = [re.search(rf"^\s+{field.name}: ", Outcome.__doc__, re.MULTILINE) for field in fields(Outcome)]
    assert all(described)
