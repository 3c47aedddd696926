"""Pipeline and discussion: who reads what, which reply is played, and what is counted."""

from dataclasses import replace

import numpy as np
import pytest

from collm.agents.core import Completion, Policy, Request
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.algorithms.rollout.protocols import INSTRUCTIONS, with_protocol
from collm.envs import make
from collm.envs.core import Message, Transcript
from collm.envs.vectors.vector import SyncVector


class Speaker(Policy):
    """Replies with its name and a count, and records what it reads."""

    def __init__(self, name):
        self.name, self.read, self.calls = name, [], 0

    def act(self, requests, *, greedy=False):
        self.calls += 1
        self.read += requests
        return [
            Completion(
                f"{self.name}{len(self.read)} to {each.observation.split()[1]}", np.zeros(2, np.float32), tokens=1
            )
            for each in requests
        ]


def requests(agents, episodes=(0,)):
    return [
        Request(agent, Transcript([Message("user", f"task {episode}")]), (7, episode, number, 0))
        for episode in episodes
        for number, agent in enumerate(agents)
    ]


def asked(team, some):
    first = team[some[0].agent]
    return first.act_together([(team[each.agent], each) for each in some])


def test_in_a_pipeline_each_agent_reads_the_replies_before_it_of_its_own_episode():
    alone = {name: Speaker(name) for name in "abc"}
    team = with_protocol(alone, "pipeline", {"b": "Expand it."})
    played = asked(team, requests("abc"))
    assert [each.action for each in played] == ["a1 to 0", "b1 to 0", "c1 to 0"]
    assert [str(alone[name].read[0].observation) for name in "abc"] == [
        "task 0\n",
        "task 0\n\nReply of a:\na1 to 0\n\nExpand it.\n",
        f"task 0\n\nReply of a:\na1 to 0\n\nReply of b:\nb1 to 0\n\n{INSTRUCTIONS['pipeline']}\n",
    ]

    shared = Speaker("x")
    team = with_protocol({"a": shared, "b": shared}, "pipeline")
    asked(team, requests("ab", episodes=(0, 1, 2)))
    assert shared.calls == 2  # one per place in the pipeline, for all episodes
    for number, read in enumerate(shared.read[3:]):
        assert f"task {number}" in read.observation and f"Reply of a:\nx3 to {number}\n" in read.observation


def test_a_discussion_plays_the_second_replies_and_counts_the_tokens_of_both():
    alone = {name: Speaker(name) for name in "ab"}
    team = with_protocol(alone, "discussion")
    played = asked(team, requests("ab"))
    assert [each.action for each in played] == ["a2 to 0", "b2 to 0"]
    assert [(len(each.logprobs), each.tokens) for each in played] == [(4, None), (4, None)]
    second = alone["a"].read[1]
    ask = INSTRUCTIONS["discussion"]
    assert str(second.observation) == f"task 0\n\nYour first reply:\na1 to 0\n\nReply of b:\nb1 to 0\n\n{ask}\n"
    assert second.stream != alone["a"].read[0].stream  # the second reply has random numbers of its own


def test_thinking_is_not_passed_on_and_an_agent_that_left_is_not_waited_for():
    class Thinker(Speaker):
        def act(self, requests, *, greedy=False):
            return [Completion("<think>secret</think> open") for _ in requests]

    listener = Speaker("b")
    team = with_protocol({"a": Thinker("a"), "b": listener}, "pipeline")
    asked(team, requests("ab"))
    assert "Reply of a:\nopen" in listener.read[0].observation and "secret" not in listener.read[0].observation
    (played,) = asked(team, requests("ab")[1:])
    assert played.action == "b2 to 0" and str(listener.read[1].observation) == "task 0\n"
    assert with_protocol({"b": listener}, "parallel") == {"b": listener}


@pytest.mark.parametrize(("protocol", "words"), [("pipeline", "expand it"), ("discussion", "Refine your long summary")])
def test_tldr_tells_its_second_writer_what_to_do_with_the_replies(protocol, words):
    vector = SyncVector(lambda: make("collm/TLDR-v2", variant="published"), 1)
    told = vector.envs[0].unwrapped.protocol_instructions[protocol]
    alone = {agent: Speaker(agent) for agent in vector.possible_agents}
    collector = RolloutCollector(vector, with_protocol(alone, protocol, told))
    (episode,) = collector.collect([Plan(3, group=0)])
    last = alone["writer_1"].read[-1].observation
    assert words in last and "Reply of writer_0:\nwriter_01" in last
    assert episode.tracks["writer_1"][0].completion.action.startswith(f"writer_1{len(alone['writer_1'].read)} to")
    assert "Reply of" not in episode.tracks["writer_1"][0].observation  # the environment's history is unchanged


@pytest.mark.parametrize("protocol", ["pipeline", "discussion"])
def test_later_turns_do_not_continue_the_prompts_of_earlier_turns(protocol):
    alone = {name: Speaker(name) for name in "ab"}
    team = with_protocol(alone, protocol)
    first = asked(team, requests("ab"))
    later = [replace(each, previous=done) for each, done in zip(requests("ab"), first, strict=True)]
    asked(team, later)
    assert all(each.previous is None for name in "ab" for each in alone[name].read)
