"""Learning from episodes of older weights: which weights played them, what they count for, and that runs resume."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from cases import case
from probes import AGENTS
from safetensors.torch import save
from small_trainers import number_trainer, text_trainer, through_a_file, timeless, weights

from collm.agents.config import ModelConfig
from collm.agents.vllm.server import Serving
from collm.algorithms import algorithm_spec
from collm.algorithms.learning.state import packed
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.algorithms.runs.loggers import read_lines
from collm.algorithms.runs.run import run_experiment


def trainer(name="magrpo", is_text=True, **changes):
    make = text_trainer if is_text else number_trainer
    return make(name, **({"agent_learning_rate": 1e-2, "mini_batch_size": None} | changes))


def completions(episodes):
    return [turn.completion for each in episodes for track in each.tracks.values() for turn in track]


def saved(episodes):
    content = packed(episodes)
    return content.values, save(content.tensors)


@case("staleness", "seconds/waiting")
@pytest.mark.parametrize(("name", "bound"), [("magrpo", 2), ("mappo", 1)])
def test_episodes_are_those_that_the_weights_of_their_version_play(name, bound):
    each = trainer(name, max_staleness=bound)
    history = []
    for update in range(4):
        history.append(copy.deepcopy(each.collector.policies))
        episodes, metrics = each.step()
        version = max(0, update - bound)
        assert {done.version for done in completions(episodes)} == {version}
        assert metrics["staleness"] == update - version
        waited = metrics["seconds/update"] - metrics["seconds/learning"]
        assert metrics["seconds/waiting"] == pytest.approx(waited)  # for episodes that are still being played
        tracks = [[turn.completion for turn in episode.tracks[AGENTS[0]]] for episode in episodes]
        with torch.no_grad():
            found = history[version][AGENTS[0]].evaluate(tracks).logprobs.numpy()
        said = np.concatenate([done.logprobs for track in tracks for done in track])
        np.testing.assert_allclose(found, said, atol=1e-5)
    each.close()


def test_without_staleness_every_turn_is_of_the_weights_that_learn():
    each = trainer("iac")
    for update in range(2):
        episodes, metrics = each.step()
        assert {done.version for done in completions(episodes)} == {update}
        assert "staleness" not in metrics and "importance_weight" not in metrics


@pytest.mark.parametrize("credit", ["turn", "token"])
def test_the_cap_changes_nothing_where_nothing_is_stale(credit):
    fresh, stale = trainer(credit=credit), trainer(credit=credit, max_staleness=1, importance_cap=0.01)
    fresh.step()
    _, metrics = stale.step()
    assert metrics["importance_weight"] == 1 and metrics["importance_capped"] == 0
    assert all(torch.equal(a, b) for a, b in zip(weights(fresh), weights(stale), strict=True))
    stale.close()


@case("importance_weight", "importance_capped")
@pytest.mark.parametrize("credit", ["turn", "token"])
def test_a_stale_item_counts_its_probability_now_over_that_at_sampling_up_to_the_cap(credit):
    cap = 1.001
    each = trainer(max_staleness=1, importance_cap=cap, credit=credit, agent_learning_rate=0.05)
    each.step()
    now = copy.deepcopy(each.collector.policies)
    episodes, metrics = each.step()
    found, capped = [], []
    for agent in AGENTS:
        ratios = []
        for episode in episodes:
            track = [turn.completion for turn in episode.tracks[agent]]
            with torch.no_grad():
                logprobs = now[agent].evaluate([track]).logprobs.numpy()
            gaps = logprobs - np.concatenate([done.logprobs for done in track])
            pieces = np.split(gaps, np.cumsum([len(done.logprobs) for done in track])[:-1])
            ratios += [np.exp(piece.sum()) for piece in pieces] if credit == "turn" else np.exp(gaps).tolist()
        found.append(np.mean([min(ratio, cap) for ratio in ratios]))
        capped.append(np.mean([ratio > cap for ratio in ratios]))
    assert 0 < np.mean(capped) < 1
    assert metrics["importance_weight"] == pytest.approx(np.mean(found), rel=1e-5)
    assert metrics["importance_capped"] == pytest.approx(np.mean(capped))
    each.close()


@pytest.mark.parametrize("cap", [1.001, 100.0])
def test_what_another_sampler_s_logprobs_say_is_weighted_though_nothing_is_stale(cap):
    """One server's tokens are 1 % likelier than the learner's, the other's 1 % less."""
    each = trainer(importance_cap=cap)
    policies = each.collector.policies
    for number, policy in enumerate(policies.values()):
        said = np.log(1.01) * (1 if number == 0 else -1)  # the second agent's server says less

        def act_together(requests, *, greedy=False, says=policy.act_together, said=said):
            return [replace(done, logprobs=done.logprobs + said) for done in says(requests, greedy=greedy)]

        policy.act_together = act_together
        policy.language_model.serving = Serving(addresses=("http://localhost:1",), keeps_logprobs=True)
    episodes, metrics = each.step()
    lengths = {agent: [len(t.completion.logprobs) for e in episodes for t in e.tracks[agent]] for agent in AGENTS}
    signs = zip(AGENTS, (-1, 1), strict=True)
    expected = [np.mean([min(1.01 ** (sign * length), cap) for length in lengths[agent]]) for agent, sign in signs]
    assert metrics["importance_weight"] == pytest.approx(np.mean(expected), rel=1e-4)
    assert metrics["importance_capped"] == (0.5 if cap < 1.01 else 0)


def test_ppo_s_ratio_is_to_the_stale_sampler_and_has_no_weight_beside_it():
    each = trainer("ippo", max_staleness=1, agent_learning_rate=0.05, ppo_epochs=1, clip_range=1e-3)
    _, first = each.step()
    _, second = each.step()
    assert "importance_weight" not in second
    assert first["clip_fraction"] == 0 < second["clip_fraction"]
    each.close()


@pytest.mark.parametrize(
    ("name", "is_text", "changes"),
    [
        ("magrpo", True, {"max_staleness": 1}),
        ("maac", True, {"max_staleness": 2}),
        ("c3", True, {"max_staleness": 1, "num_generations": 1, "num_decisions": None, "max_new_tokens": 1}),
        ("iac", False, {"max_staleness": 2, "turns_per_update": 2}),
        ("mappo", False, {"max_staleness": 1}),
    ],
)
def test_a_run_that_was_saved_with_episodes_ahead_goes_on_as_if_never_stopped(name, is_text, changes):
    unbroken = trainer(name, is_text, **changes)
    for _ in range(3):
        unbroken.step()
    resumed = trainer(name, is_text, **changes)
    resumed.load_state_dict(through_a_file(unbroken.state_dict()))
    before = weights(resumed)
    for _ in range(3):
        (found, measured), (episodes, expected) = resumed.step(), unbroken.step()
        np.testing.assert_equal(timeless(measured), timeless(expected))
        assert saved(found) == saved(episodes)
    assert all(torch.equal(a, b) for a, b in zip(weights(resumed), weights(unbroken), strict=True))
    assert not all(map(torch.equal, weights(resumed), before))
    resumed.close()
    unbroken.close()


def test_a_run_goes_on_beyond_its_end_and_cross_play_cannot_be_stale():
    ended = trainer(num_updates=2, max_staleness=1)
    ended.step()
    ended.step()
    longer = trainer(num_updates=4, max_staleness=1)
    longer.load_state_dict(through_a_file(ended.state_dict()))
    assert longer.step()[1]["staleness"] == 0
    assert longer.step()[1]["staleness"] == 1
    longer.close()
    ended.close()

    with pytest.raises(ValueError, match=r"joint_mode='cross'.*max_staleness=1"):
        algorithm_spec("magrpo").make(algorithm_spec("magrpo").config(joint_mode="cross", max_staleness=1))


@pytest.mark.slow
@pytest.mark.parametrize("bound", [1, 2])
def test_a_mini_task_is_learned_from_stale_episodes(tmp_path, bound):
    """MiniWriting from 0.25; five seeds without staleness end at 0.58 (standard deviation 0.03) after 15 updates."""
    settings = {"num_updates": 15, "num_generations": 8, "agent_learning_rate": 5e-4, "eval_num_samples": 64}
    config = algorithm_spec("magrpo").config(max_staleness=bound, **settings)
    parts = {"env": "collm/MiniWriting-v2", "model": ModelConfig(max_new_tokens=48, device="cpu")}
    run_experiment(Experiment(algorithm="magrpo", config=config, **parts), tmp_path / "r")
    first, last = (row["evaluation/sampled/return"] for row in read_lines(tmp_path / "r" / "evaluation.jsonl"))
    assert first < 0.3 and last > 0.5
