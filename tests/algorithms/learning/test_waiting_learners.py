"""All algorithms train in environments with waiting agents, whose weights learn from their own turns alone."""

from dataclasses import replace

import pytest
import torch
from probes import word_policies
from small_trainers import algorithm_of
from waiting_worlds import PLAYERS, TurnGame

from collm.algorithms.runs.assembly.trainers import make_trainer
from collm.envs.vectors.vector import SyncVector

ALTERNATING = (("player_1",), ("player_0",), PLAYERS)
ONE_WAITS = (("player_0",),)


class Rated(TurnGame):
    """TurnGame whose players earn more for replies with "red"."""

    def deal(self, task):
        return dict.fromkeys(super().deal(task), "say red")

    def play(self, replies):
        red = sum("red" in reply for reply in replies.values())
        outcome = super().play(replies)
        rewards = {agent: reward + red for agent, reward in outcome.reward.items()}
        return replace(outcome, reward=rewards, feedback=dict.fromkeys(self.agents, "next"))


def trainer_of(name, movers, **settings):
    algorithm = algorithm_of(name, **settings)
    made = word_policies(max_new_tokens=2, has_value_head=algorithm.has_actor_heads)
    policies = dict(zip(PLAYERS, made.values(), strict=True))
    return make_trainer(algorithm, SyncVector(lambda: Rated(movers), 4), policies)


CASES = [
    *[(name, {}) for name in ("iac", "maac", "ippo", "mappo", "magrpo", "marloo", "mareinforce")],
    ("iac", {"credited_reward": "own", "discount": 0.9}),
    ("iac", {"use_separate_critic": False}),
    *[(name, {"turns_per_update": 3}) for name in ("iac", "maac", "ippo")],
]


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_agents_train_on_the_turns_in_which_they_act(name, settings):
    trainer = trainer_of(name, ALTERNATING, **settings)
    before = [[w.detach().clone() for w in trainer.collector.policies[agent].parameters()] for agent in PLAYERS]
    for _ in range(2):
        _, metrics = trainer.step()
    assert metrics["turns"] <= 4
    for agent, old in zip(PLAYERS, before, strict=True):
        pairs = zip(trainer.collector.policies[agent].parameters(), old, strict=True)
        assert any(not torch.equal(new, was) for new, was in pairs)


@pytest.mark.parametrize("name", ["iac", "maac", "magrpo"])
def test_an_agent_that_only_waits_keeps_its_weights(name):
    trainer = trainer_of(name, ONE_WAITS)
    before = [weight.detach().clone() for weight in trainer.collector.policies["player_1"].parameters()]
    episodes, _ = trainer.step()
    tracks = [track for episode in episodes for track in episode.tracks.items()]
    assert {agent for agent, _ in tracks} == {"player_0"} and sum(len(track) for _, track in tracks) == 16
    assert all(map(torch.equal, trainer.collector.policies["player_1"].parameters(), before))
