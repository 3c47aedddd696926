import json

import numpy as np
import pytest
from cases import case
from probes import AGENTS, TextProbe, word_policies, word_policy

from collm.algorithms import algorithm_spec
from collm.algorithms.config import ActorCriticConfig
from collm.algorithms.learning.trainer import Trainer
from collm.algorithms.rollout.collector import RolloutCollector
from collm.algorithms.runs.assembly.trainers import make_critics
from collm.algorithms.runs.records import episode_records
from collm.benchmarks.comparison.summaries import diagnostics
from collm.envs.vectors.vector import SyncVector

NUM_UPDATES = 3  # of which the last is diagnosed


def trained(name, *, probe="delayed", reward_processor=None, **changes):
    """The last update's learned-from advantages and the records of all updates, as a run writes them."""
    spec = algorithm_spec(name)
    chosen = {"num_updates": 8, "rollout_buffer_size": 16, "advantage_normalization": "none"}
    chosen |= {"critic_warmup": 1} if issubclass(spec.config, ActorCriticConfig) else {"num_generations": 4}
    algorithm = spec.make(spec.config(**(chosen | changes)))
    policies = word_policies(max_new_tokens=1)
    vector = SyncVector(lambda: TextProbe(probe), 4)
    collector = RolloutCollector(vector, policies, reads_state=algorithm.critic_reads == "joint")
    references = {agent: word_policy(number + 10) for number, agent in enumerate(AGENTS)}
    others = {"references": references, "reward_processor": reward_processor}
    trainer = Trainer(algorithm, collector, make_critics(algorithm, policies), **others)
    rows = []
    for update in range(1, NUM_UPDATES + 1):
        episodes, _ = trainer.step()
        rows += episode_records(episodes, trainer.credits, update=update)
    return trainer, json.loads(json.dumps(rows))


CASES = {
    "raw rewards": ("iac", {}),
    "scaled": ("iac", {"reward_scale": 10.0}),
    "shifted": ("iac", {"reward_shift": -0.5}),
    "processed": ("iac", {"reward_processor": lambda reward: 3.0 - reward}),
    "penalized": ("iac", {"reference_kl_coef": 1.0, "reference_kl_in": "reward"}),
    "q": ("iac", {"critic_type": "q", "reward_scale": 10.0}),
    "joint": ("maac", {"reward_scale": 10.0, "discount": 0.5}),
    "joint q": ("maac", {"critic_type": "q"}),
    "cut": ("iac", {"turns_per_update": 4, "reward_scale": 10.0}),
    "group": ("magrpo", {"reward_scale": 10.0}),
    "crossed": ("magrpo", {"probe": "observed", "joint_mode": "cross"}),
}
QUICK = ("scaled", "penalized", "joint", "cut", "crossed")


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.slow] * (case not in QUICK)) for case in CASES])
def test_the_advantages_of_a_report_are_those_that_were_learned_from(case):
    name, changes = CASES[case]
    trainer, rows = trained(name, **changes)
    found = diagnostics(rows, has_critic=True)
    learned = np.concatenate([credit.advantages for credit in trainer.credits.values()])
    last = [row["agents"] for row in rows if row["update"] == NUM_UPDATES]
    tracks = [agents[agent]["turns"] for agent in trainer.credits for agents in last if agent in agents]
    turns = [number for track in tracks for number in range(len(track))]
    expected = [np.square(learned[np.array(turns) == number]).mean() for number in sorted(set(turns))]
    assert [turn.advantage_square for turn in found] == pytest.approx(expected, rel=1e-5)


def record(update, turns, **agent):
    """An episode of one agent, with (return, value, advantage) of each turn."""
    written = [dict(zip(("return_to_go", "value", "raw_advantage"), turn, strict=True)) for turn in turns]
    return {"update": update, "agents": {"a_0": {"turns": written, **agent}}}


@case("diagnostics/turn", "diagnostics/return_variance", "diagnostics/advantage_square")
@case("diagnostics/explained_variance")
def test_diagnostics_by_hand():
    early = [record(update, [(100.0, 0.0, 100.0)]) for update in (1, 2)]
    late = [record(3, [(4.0, 3.0, 1.0), (5.0, 0.0, 2.0)]), record(3, [(2.0, 0.0, 3.0)])]
    first, second = diagnostics(early + late, has_critic=True)
    # returns 4 and 2 vary by 1; what the values 3 and 0 leave of them, 1 and 2, by 0.25
    assert (first.turn, first.return_variance, first.advantage_square, first.explained_variance) == (0, 1.0, 5.0, 0.75)
    # one return does not vary, so nothing of it can be explained
    assert (second.turn, second.return_variance, second.advantage_square) == (1, 0.0, 4.0)
    assert second.explained_variance is None
    rows = [record(1, [(4.0, 0.0, 4.0)]), record(1, [(2.0, 0.0, 2.0)])]
    (found,) = diagnostics(rows, has_critic=False)
    assert (found.return_variance, found.explained_variance) == (1.0, None)
    waited = record(1, [(4.0, 0.0, 4.0)])
    waited["agents"]["a_0"]["turns"][0]["time"] = 2
    assert [turn.turn for turn in diagnostics([waited, *rows], has_critic=False)] == [0, 2]


def test_turns_without_credit_are_left_out():
    vectors = {"update": 1, "agents": {"a_0": {"actions": [0, 1], "rewards": [1.0, 1.0]}}}
    partner = {"update": 1, "agents": {"a_0": {"turns": [{"reward": 1.0, "wrote": "red"}]}}}
    assert diagnostics([vectors, partner], has_critic=True) == []
    assert diagnostics([], has_critic=True) == []
    (found,) = diagnostics([vectors, partner, record(1, [(4.0, 0.0, 4.0)])], has_critic=True)
    assert found.advantage_square == 16.0


@pytest.mark.parametrize("null", [0, 1, 2])
def test_a_run_that_diverged_is_read(null):
    turn = [4.0, 0.0, 4.0]
    turn[null] = None
    (found,) = diagnostics([record(1, [turn]), record(1, [(2.0, 0.0, 2.0)])], has_critic=True)
    assert np.isnan([found.return_variance, found.advantage_square, found.explained_variance or 0.0]).any()
