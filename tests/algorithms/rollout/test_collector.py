"""Episodes depend only on their seed, their index and the weights; an agent acts on its own text."""

import numpy as np
import pytest
from foreign_texts import ForeignTexts
from probes import AGENTS, NumberProbe, TextProbe, word_policies

from collm.agents.core import Completion, Policy
from collm.algorithms.learning.credit import joint_grid
from collm.algorithms.rollout.collector import Plan, RolloutCollector, grouped_plans
from collm.algorithms.rollout.summary import episode_metrics
from collm.envs.core import Outcome, TextParallelEnv
from collm.envs.spaces import OpenText
from collm.envs.vectors.vector import SyncVector

AGENTS_OF = ("runner_0", "runner_1")


class Echo(Policy):
    """Replies with the random stream and the observation; stores the agents and the mode of each call."""

    def __init__(self):
        self.calls = []
        self.greedy = set()

    def act(self, requests, *, greedy=False):
        self.calls.append([request.agent for request in requests])
        self.greedy.add(greedy)
        numbers = np.full(2, -0.5, np.float32), np.ones(2, np.float32)
        previous = [each.previous and each.previous.action.split()[0] for each in requests]
        said = [f"{each.stream}".replace(" ", "") + f" after {each.observation.split()[-1]}" for each in requests]
        return [Completion(f"{word} and {last}", *numbers) for word, last in zip(said, previous, strict=True)]


class Relay(TextParallelEnv):
    """1 to 4 turns, by the seed; the second agent leaves after the first turn. The reward is the turn's number."""

    def __init__(self):
        super().__init__(AGENTS_OF, 4)

    def deal(self, task):
        self.length = int(task) if task is not None else self.rng.randint(1, 4)
        return {agent: f"secret {self.rng.random()}" for agent in self.possible_agents}

    def play(self, replies):
        feedback = {agent: f"fed {self.rng.random()}" for agent in replies}
        ends = {"is_over": self.turn + 1 == self.length, "finished": frozenset({"runner_1"})}
        return Outcome(float(self.turn + 1), feedback, metrics={"movers": len(replies)}, **ends)


def collector(num_envs, env=Relay, **settings):
    return RolloutCollector(SyncVector(env, num_envs), dict.fromkeys(AGENTS_OF, Echo()), **settings)


def written(episode):
    return {agent: [turn.completion.action for turn in track] for agent, track in episode.tracks.items()}


@pytest.mark.parametrize("num_envs", [1, 3, 20])
def test_episodes_do_not_depend_on_how_many_are_played_side_by_side(num_envs):
    plans = [Plan(seed) for seed in range(12)]
    alone = collector(12).collect(plans)
    together = collector(num_envs).collect(plans)
    assert [written(a) for a in alone] == [written(b) for b in together]
    assert [episode.seed for episode in together] == list(range(12))


def test_a_language_model_writes_the_same_alone_and_among_others():
    def replies(num_envs):
        vector = SyncVector(lambda: TextProbe("delayed"), num_envs)
        policies = word_policies(max_new_tokens=4)
        return [written(each) for each in RolloutCollector(vector, policies).collect([Plan(s) for s in range(6)])]

    assert replies(1) == replies(6)


def test_groups_share_the_task_and_a_policy_is_asked_once_for_all():
    episodes = collector(4).collect(grouped_plans([7, 8], 3))
    assert [episode.group for episode in episodes] == [0, 0, 0, 1, 1, 1]
    first = [episode.tracks["runner_0"][0] for episode in episodes]
    assert len({turn.observation for turn in first[:3]}) == 1
    assert len({turn.completion.action for turn in first[:3]}) == 3
    made = collector(5)
    made.collect([Plan(seed, task=1) for seed in range(5)])
    assert made.policies["runner_0"].calls == [["runner_0", "runner_1"] * 5]
    with pytest.raises(ValueError, match="no policy for \\['runner_1'\\]"):
        RolloutCollector(SyncVector(Relay, 1), {"runner_0": Echo()})


def test_an_agent_that_leaves_early_is_asked_no_more_and_keeps_its_end():
    (episode,) = collector(1).collect([Plan(0, task=3)])
    assert [len(episode.tracks[agent]) for agent in ("runner_0", "runner_1")] == [3, 1]
    assert episode.is_terminated == {"runner_0": True, "runner_1": True}
    assert "fed" in episode.finals["runner_1"]
    assert [info["metric/movers"] for info in episode.infos] == [2, 1, 1]
    assert episode.team_return == (1 + 2 + 3 + 1) / 2
    rewards = joint_grid([episode], None).rewards  # a joint critic learns the rewards that are logged
    assert rewards.tolist() == [[(1 + 1) / 2, 2 / 2, 3 / 2]]


def test_segments_put_together_are_the_whole_episodes():
    seeds = [11, 12, 13, 14, 15, 16, 17, 18]
    made = collector(2, reads_state=True)
    pieces = made.collect_turns(3, iter(seeds)) + made.collect_turns(3, iter(seeds[4:]))
    by_index = {}
    for piece in pieces:
        by_index.setdefault(piece.index, []).append(piece)
    for index, parts in by_index.items():
        if not parts[-1].is_complete:
            continue
        first = collector(1)
        first.next_index = index
        (whole,) = first.collect([Plan(parts[0].seed)])
        joined = [turn.completion.action for part in parts for turn in part.tracks.get("runner_0", ())]
        assert joined == [turn.completion.action for turn in whole.tracks["runner_0"]]
        assert [part.is_complete for part in parts] == [False] * (len(parts) - 1) + [True]
        assert parts[-1].team_return + parts[-1].earlier_return > 0
        for part in parts:
            assert len(part.states) == part.num_turns + 1
    assert any(len(parts) > 1 for parts in by_index.values())


@pytest.mark.parametrize("num_turns", [1, 2, 3])
def test_the_return_of_an_episode_does_not_depend_on_where_it_was_cut(num_turns):
    """Own returns: 1 + 2 + 3 + 4, and 1 of the agent that leaves. Their mean is 5.5."""
    made = collector(1)
    made.vector.envs[0].deal = lambda task: setattr(made.vector.envs[0], "length", 4) or dict.fromkeys(AGENTS_OF, "go")
    pieces = [piece for _ in range(-(-4 // num_turns)) for piece in made.collect_turns(num_turns, iter(range(9)))]
    (last,) = [piece for piece in pieces if piece.index == 0 and piece.is_complete]
    assert last.team_return + last.earlier_return == 5.5
    assert episode_metrics(pieces)["return"] == 5.5


def test_cut_segments_end_with_what_is_bootstrapped_and_terminated_agents_do_not_act_again():
    cut = [each for each in collector(6).collect_turns(1, iter(range(20))) if not each.is_complete]
    assert cut
    for segment in cut:
        assert segment.is_terminated == {"runner_0": False, "runner_1": True}
        last = segment.tracks["runner_0"][-1]
        assert segment.finals["runner_0"].startswith(f"{last.observation}{last.completion.action}")
    made = collector(1, Lingering)
    segments = [segment for _ in range(4) for segment in made.collect_turns(1, iter(range(99)))]
    turns = [("runner_1" in segment.tracks, segment.earlier_return) for segment in segments]
    assert any(earlier > 0 for _, earlier in turns)
    assert all(not acts for acts, earlier in turns if earlier > 0)


@pytest.mark.parametrize(("threshold", "num_turns"), [(0.9, 1), (1.4, 3), (4.0, 4)])
def test_a_team_reward_above_the_threshold_terminates_the_episode(threshold, num_turns):
    """From turn 2 on, one of two agents is left: its rewards 2, 3, 4 are team rewards of 1, 1.5, 2."""
    (episode,) = collector(1, early_termination_threshold=threshold).collect([Plan(0, task=4)])
    assert episode.num_turns == num_turns
    assert all(episode.is_terminated.values())


def test_the_joint_history_is_the_observations_in_a_row_where_there_is_no_state():
    class Stateless(NumberProbe):
        def state(self):
            raise NotImplementedError

    class Right(Policy):
        def act(self, requests, *, greedy=False):
            return [Completion(0) for _ in requests]

    vector = SyncVector(lambda: Stateless("observed"), 1)
    (episode,) = RolloutCollector(vector, dict.fromkeys(AGENTS, Right()), reads_state=True).collect([Plan(3)])
    expected = np.concatenate([episode.tracks[agent][0].observation for agent in AGENTS])
    np.testing.assert_array_equal(episode.states[0], expected)


def test_an_agent_s_tokens_do_not_change_with_another_s_private_text():
    class Whispers(TextProbe):
        def __init__(self, word):
            super().__init__("delayed")
            self.word = word

        def deal(self, task):
            return super().deal(task) | {"speaker_1": f"say {self.word}"}

    def tokens(word):
        policies = word_policies(max_new_tokens=3)
        vector = SyncVector(lambda: Whispers(word), 4)
        episodes = RolloutCollector(vector, policies, reads_state=True).collect([Plan(seed) for seed in range(8)])
        return {
            agent: [
                (turn.completion.tokens.completion_ids.tolist(), turn.completion.logprobs.tolist())
                for episode in episodes
                for turn in episode.tracks[agent]
            ]
            for agent in AGENTS
        }

    one, other = tokens("red"), tokens("blue")
    assert one["speaker_0"] == other["speaker_0"]
    assert one["speaker_1"] != other["speaker_1"]


@pytest.mark.parametrize("greedy", [True, False])
def test_policies_sample_unless_they_are_asked_to_be_greedy(greedy):
    made = collector(1)
    made.collect([Plan(0)], **({"greedy": True} if greedy else {}))
    assert made.policies["runner_0"].greedy == {greedy}
    made.collect_turns(1, iter(range(9)))
    assert made.policies["runner_0"].greedy == {greedy, False}


class Lingering(Relay):
    """Still returns an observation for the agent that has terminated."""

    def step(self, actions):
        observations, *rest = super().step(actions)
        return {agent: observations.get(agent, self._transcripts[agent]) for agent in self.possible_agents}, *rest


def test_the_state_of_texts_without_a_state_is_the_joined_observations():
    vector = SyncVector(lambda: ForeignTexts(OpenText(4000)), 1)
    (episode,) = RolloutCollector(vector, dict.fromkeys(("a_0", "b_0"), Echo()), reads_state=True).collect([Plan(0)])
    assert episode.states[0] == "[a_0 reads] you are a_0\n[b_0 reads] you are b_0\n"
    assert [message.content for message in episode.states[1].messages] == ["[a_0, b_0 reads] next"]
    assert episode.states[2] == "[a_0, b_0 reads] next\n"  # the last observations
