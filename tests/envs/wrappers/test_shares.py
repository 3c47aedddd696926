"""Shares of the return: by hand, and against replays from the seed in every environment."""

import random
from copy import deepcopy

import pytest
from cases import case
from heard import Heard
from replies import begun, references

from collm.envs import Outcome, make, specs
from collm.envs.sandbox import SandboxError
from collm.envs.views import GymAsParallel
from collm.envs.wrappers import Shares

OWN = [spec.id for spec in specs() if spec.id.startswith("collm/")]
PREFIX = "metric/share/"


class Sum(Heard):
    """Each turn pays what a rule makes of the lengths of the replies."""

    def __init__(self, rule=sum, max_turns=1, num_agents=2):
        super().__init__([f"player_{number}" for number in range(num_agents)], max_turns)
        self.rule = rule
        self.said = []

    def play(self, replies):
        self.said.append([len(reply) for reply in replies.values()])
        paid, is_over = self.rule(self.said[-1]), False
        return Outcome(*paid) if isinstance(paid, tuple) else Outcome(float(paid), is_over=is_over)


class PaidAtTheEnd(Sum):
    def play(self, replies):
        super().play(replies)
        lengths = [sum(turn) for turn in zip(*self.said, strict=True)]
        return Outcome(float(sum(lengths)) if self.turn + 1 == self.max_turns else 0.0)


class EndsWhenSolved(Sum):
    """Over as soon as both wrote; an episode without one of them lasts on."""

    def play(self, replies):
        is_solved = all(replies.values())
        return Outcome(float(is_solved) or 0.25 * any(replies.values()), is_over=is_solved)


class Stays(Sum):
    """Pays the lengths of the newest texts of all, also of those who left by writing one in capitals."""

    def deal(self, task):
        self.lengths = {}
        return super().deal(task)

    def play(self, replies):
        self.lengths |= {agent: len(reply) for agent, reply in replies.items()}
        finished = frozenset(agent for agent, reply in replies.items() if reply.isupper())
        return Outcome(float(sum(self.lengths.values())), finished=finished)


def told(env, *turns, seed=0):
    shared = begun(Shares(env), seed=seed)
    for turn in turns:
        *_, infos = shared.step(dict(zip(shared.agents, turn, strict=True)))
    assert not shared.agents and len({tuple(info.items()) for info in infos.values()}) == 1
    info = next(iter(infos.values()))
    return {name.removeprefix(PREFIX): value for name, value in info.items() if name.startswith(PREFIX)}


@case("evaluation/*/metric/share/*")
@pytest.mark.parametrize(
    ("rule", "replies", "expected"),
    [
        (sum, ("aaa", "a"), (0.75, 0.25)),  # each its own points
        (sum, ("aaaa", ""), (1.0, 0.0)),  # one does all
        (lambda lengths: lengths[0] * lengths[1], ("aaa", "a"), (0.5, 0.5)),  # nothing without the other
        (lambda lengths: lengths[0] - lengths[1], ("aaa", "a"), (1.0, 0.0)),  # the other does harm
        (lambda lengths: -sum(lengths), ("aaa", "a"), None),  # both do: nobody is missed
        (max, ("aa", "aa"), None),  # each alone would have sufficed
        (max, ("aaa", "aa"), (1.0, 0.0)),  # 3 with both, 2 without the first, 3 without the second
        (sum, ("", ""), None),
        (sum, ("aa", "a", "a"), (0.5, 0.25, 0.25)),
    ],
)
def test_shares_by_hand(rule, replies, expected):
    env = Sum(rule, num_agents=len(replies))
    assert told(env, replies) == ({} if expected is None else dict(zip(env.possible_agents, expected, strict=True)))


class MissedOne(Sum):
    """Player 1 is replaced by a player that writes one letter."""

    def absence(self, agent):
        return "a" if agent == "player_1" else ""


def own_rewards(lengths):
    return ({"player_0": float(lengths[0]), "player_1": 2.0 * lengths[1]},)


def test_losses_of_several_turns_by_hand():
    for env, turns, expected in [
        (MissedOne(sum), [("aa", "aaa")], (1, 1)),
        (PaidAtTheEnd(max_turns=3), [("aa", ""), ("a", ""), ("", "a")], (3, 1)),
        # 0.25 + 1; without the first 0 + 0.25 + 0 + 0, without the second 0.25 + 0.25 + 0 + 0
        (EndsWhenSolved(max_turns=4), [("a", ""), ("a", "a")], (1.0, 0.75)),
        (Sum(own_rewards), [("aa", "aaa")], (1, 3)),
        # 4 for both, then 4 for the remaining one: 12; without either 2 for both, then 2: 6
        (Stays(max_turns=2), [("aa", "BB"), ("aa",)], (1, 1)),
    ]:
        shares = {f"player_{number}": loss / sum(expected) for number, loss in enumerate(expected)}
        assert told(env, *turns) == pytest.approx(shares)


def test_only_the_last_turn_tells_and_a_copy_in_the_middle_tells_the_same():
    plain, shared = PaidAtTheEnd(max_turns=2), Shares(PaidAtTheEnd(max_turns=2))
    assert plain.reset(seed=1) == shared.reset(seed=1)
    for turn in range(2):
        actions = dict(zip(plain.agents, ("ab", "c"), strict=True))
        one, other = plain.step(actions), shared.step(actions)
        assert one[:4] == other[:4]
        assert any(name.startswith(PREFIX) for name in other[4]["player_0"]) == (turn == 1)
    assert plain.said == shared.unwrapped.said
    shared = begun(Shares(make("collm/MiniBuild-v0")), seed=0)
    shared.step(references(shared))
    other = deepcopy(shared)
    ends = []
    for env in (shared, other):
        while env.agents:
            *_, infos = env.step(references(env))
        ends.append(infos)
    assert ends[0] == ends[1] and ends[0]["builder_0"][f"{PREFIX}builder_0"] == 0.5
    with pytest.raises(TypeError, match="text actions"):
        Shares(GymAsParallel("CartPole-v1"))


QUICK = ("collm/MiniBuild-v0", "collm/MiniCode-v1", "collm/MiniWriting-v2", "collm/TLDR-v2", "collm/StrBuild-v2")


@pytest.mark.parametrize("id", [i if i in QUICK else pytest.param(i, marks=pytest.mark.slow) for i in OWN])
def test_shares_are_what_replays_by_hand_lose(id):
    """The expected values come from replays from the seed, not from copies."""
    rng = random.Random(0)
    shared = Shares(make(id))
    try:
        for seed in range(3):
            replies = []
            earned = 0.0
            shared.reset(seed=seed)
            while shared.agents:
                good = references(shared)
                replies.append({agent: reply if rng.random() < 0.8 else "so" for agent, reply in good.items()})
                _, rewards, *_, infos = shared.step(dict(replies[-1]))
                earned += sum(rewards.values())
            lost = {agent: max(0.0, earned - without(id, seed, replies, agent)) for agent in shared.possible_agents}
            info = next(iter(infos.values()))
            found = {name.removeprefix(PREFIX): value for name, value in info.items() if name.startswith(PREFIX)}
            assert found == pytest.approx({a: lost[a] / sum(lost.values()) for a in lost} if any(lost.values()) else {})
            assert not found or (sum(found.values()) == pytest.approx(1) and min(found.values()) >= 0)
    except SandboxError as error:
        pytest.skip(f"its programs cannot be run here: {error}")


def without(id, seed, replies, missing):
    env = begun(make(id), seed=seed)
    earned = 0.0
    for turn in range(env.max_turns):
        if not env.agents:
            break
        said = replies[turn] | {missing: env.absence(missing)} if turn < len(replies) else dict.fromkeys(env.agents, "")
        _, rewards, *_ = env.step({agent: said[agent] for agent in env.agents})
        earned += sum(rewards.values())
    return earned


def test_differences_are_returns_minus_returns_without_the_agent():
    env = Shares(Sum())
    env.reset(seed=0)
    infos = env.step({"player_0": "abc", "player_1": "x"})[4]
    found = {name: value for name, value in infos["player_0"].items() if "difference" in name}
    assert found == {"difference/player_0": 3.0, "difference/player_1": 1.0}
