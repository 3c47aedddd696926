"""Every algorithm on a pretended accelerator: the CPU's results, and few waits of the host for the device."""

import itertools

import pytest
import torch
from pretended import NAME, pretended
from probes import AGENTS, NumberProbe, TextProbe
from ranked import NAMES, WEIGHTS, algorithm_of, critics_of, team

from collm.agents.core import Divergence, Request
from collm.agents.decoding.sampling import Sampling
from collm.agents.numeric.config import NetworkConfig
from collm.algorithms.runs.assembly.trainers import make_trainer
from collm.envs.vectors.vector import SyncVector

NUM_TURNS = 3
NUM_UPDATES = 2
NUM_EPISODES = 2
NETWORK = NetworkConfig(hidden_dims=(8,))
DECODING = ("eager_steps.py", "samples.py")
PASSES = ("small_models.py",)
"""Each pass of a model waits once: transformers looks into the positions for several sequences in one row."""


TEXT_TEAMS = [(n, w, c) for n, w in itertools.product(NAMES, WEIGHTS) for c in critics_of(n)]
NUMERIC_TEAMS = [(n, w, c) for n, w in itertools.product(NAMES, WEIGHTS[:2]) for c in critics_of(n)]
QUICK_TEXT = [
    ("maac", "own", "v"),
    ("ippo", "adapters", "head"),
    ("magrpo", "shared", "none"),
    ("collm-dc", "own", "q"),
]
QUICK_NUMERIC = [("mappo", "own", "v"), ("iac", "shared", "head")]


def trained(name, weights, critic, device, *, is_text=True, seen=None, **settings):
    """Trainer, turns and metrics after some updates; `seen` counts from the first update on."""
    algorithm = algorithm_of(name, critic, rollout_buffer_size=NUM_EPISODES, **settings)
    world = TextProbe if is_text else NumberProbe
    policies = team(weights, is_text, algorithm.has_actor_heads, device=device)
    trainer = make_trainer(algorithm, SyncVector(lambda: world("delayed"), NUM_EPISODES), policies, network=NETWORK)
    said, measured = [], []
    if seen is not None:
        seen.clear()
    for _ in range(NUM_UPDATES):
        episodes, metrics = trainer.step()
        said += [turn for episode in episodes for track in episode.tracks.values() for turn in track]
        measured.append({name: value for name, value in metrics.items() if "second" not in name})
    return trainer, said, measured


def are_alike(name, weights, critic, **settings):
    _, here, expected = trained(name, weights, critic, "cpu", **settings)
    with pretended() as seen:
        trainer, there, found = trained(name, weights, critic, NAME, seen=seen, **settings)
    assert [turn.completion.action for turn in there] == [turn.completion.action for turn in here]
    assert [turn.reward for turn in there] == [turn.reward for turn in here]
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-5, nan_ok=True)
    for policy in trainer.collector.policies.values():
        assert all(weight.device.type == NAME for weight in policy.parameters())
    return seen, there, found


def num_steps(said):
    """Least number of decoding steps: per agent and turn, the tokens of the longest completion."""
    per_track = [said[first : first + NUM_TURNS] for first in range(0, len(said), NUM_TURNS)]
    per_update = len(AGENTS) * NUM_EPISODES
    steps = 0
    for update in range(0, len(per_track), per_update):
        for agent in range(len(AGENTS)):
            tracks = per_track[update + agent : update + per_update : len(AGENTS)]
            steps += sum(max(len(turn.completion.logprobs) for turn in turns) for turns in zip(*tracks, strict=True))
    return steps


def check_waits(seen, said, weights, extra_steps=0):
    """At most one wait per step that decodes, one per pass, one per optimizer step, and a few per update."""
    num_calls = NUM_UPDATES * NUM_TURNS * (1 if weights != "own" else len(AGENTS))
    decoding = seen.waits_at(*DECODING)
    # On a device a step is queued before the host sees that the last completion has ended.
    assert decoding <= num_steps(said) + 2 * len(AGENTS) * NUM_UPDATES * NUM_TURNS
    assert decoding >= num_calls
    learning = seen.num_waits - decoding - seen.waits_at(*PASSES)
    assert learning <= (12 + extra_steps) * NUM_UPDATES, seen.waits


@pytest.mark.parametrize(("name", "weights", "critic"), QUICK_TEXT)
def test_a_device_gives_writers_the_results_of_the_cpu_and_is_seldom_waited_for(name, weights, critic):
    seen, said, _ = are_alike(name, weights, critic)
    check_waits(seen, said, weights)


@pytest.mark.parametrize("target_kl", [None, 1e-3])
def test_epochs_and_mini_batches_cost_a_wait_each_and_end_where_they_would_on_a_cpu(target_kl):
    steps = {"ppo_epochs": 4, "mini_batch_size": 1, "critic_steps": 4, "target_kl": target_kl}
    seen, said, metrics = are_alike("ippo", "own", "v", **steps)
    if target_kl is None:
        assert [each["optimizer_steps"] for each in metrics] == [8, 8]
        check_waits(seen, said, "own", extra_steps=2 * (8 + 4))
    else:
        assert 1 < metrics[0]["optimizer_steps"] < 8
        check_waits(seen, said, "own", extra_steps=2 * (8 + 4 + 3))


@pytest.mark.parametrize(("name", "critic", "what"), [("ippo", "head", "agent"), ("maac", "v", "critic")])
def test_a_divergence_among_queued_steps_leaves_the_weights_and_the_message_of_the_cpu(name, critic, what):
    found = []
    for device in ("cpu", NAME):
        with pretended():
            settings = {f"{what}_learning_rate": 1e20, "ppo_epochs": 4, "clip_range": 0.2}
            settings |= {"critic_steps": 4} if what == "critic" else {}
            algorithm = algorithm_of(name, critic, rollout_buffer_size=NUM_EPISODES, **settings)
            policies = team("own", False, algorithm.has_actor_heads, device=device)
            vector = SyncVector(lambda: NumberProbe("delayed"), NUM_EPISODES)
            trainer = make_trainer(algorithm, vector, policies, network=NETWORK)
            with pytest.raises(Divergence) as caught:
                trainer.step()
            critics = [each.critic for each in trainer.unique_critics]
            weights = [weight.detach().cpu() for each in (*policies.values(), *critics) for weight in each.parameters()]
            found.append((str(caught.value), weights))
    (message, expected), (told, weights) = found
    assert told == message
    assert max(float(weight.abs().max()) for weight in weights) > 1e19  # the first step was taken
    for one, other in zip(weights, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "weights", "critic"), [team for team in TEXT_TEAMS if team not in QUICK_TEXT])
def test_a_device_gives_all_writers_the_results_of_the_cpu(name, weights, critic):
    seen, said, metrics = are_alike(name, weights, critic)
    num_steps = max(each["optimizer_steps"] for each in metrics)  # per policy; a critic of its own takes as many
    check_waits(seen, said, weights, extra_steps=2 * num_steps * len(AGENTS))


@pytest.mark.parametrize(("name", "weights", "critic"), QUICK_NUMERIC)
def test_a_device_gives_perceptrons_the_results_of_the_cpu(name, weights, critic):
    are_alike(name, weights, critic, is_text=False)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "weights", "critic"), [team for team in NUMERIC_TEAMS if team not in QUICK_NUMERIC])
def test_a_device_gives_all_perceptrons_the_results_of_the_cpu(name, weights, critic):
    are_alike(name, weights, critic, is_text=False)


@pytest.mark.parametrize("settings", [{"top_p": 0.9}, {"top_k": 2}, {"top_p": 0.8, "learns_filtered": True}])
def test_filters_do_not_ask_the_device(settings):
    with pretended() as seen:
        policy = team("shared", True, False, device=NAME, sampling=Sampling(**settings))[AGENTS[0]]
        requests = [Request(AGENTS[0], "say red", (0, i, 0, 0)) for i in range(3)]
        policy.act(requests)
        seen.clear()
        longest = max(len(each.logprobs) for each in policy.act(requests))
    assert seen.num_waits <= longest + 2


def test_what_makes_the_host_wait_is_counted():
    with pretended() as seen:
        far = torch.arange(4.0, device=NAME)
        waiting = (
            *(lambda: far.cpu(), lambda: far.sum().item(), lambda: bool((far > 1).any()), lambda: far[far > 1]),
            *(lambda: far.nonzero(), lambda: far[torch.tensor([1, 2])], lambda: torch.ones(2).to(NAME)),
            lambda: torch.tensor([1.0], device=NAME),
        )
        for ask in waiting:
            seen.clear()
            ask()
            assert seen.num_waits == 1, ask
        seen.clear()
        far[torch.tensor([1, 2]).to(NAME, non_blocking=True)].mul_(2).softmax(-1)
        assert seen.num_waits == 0
        assert seen.launches["aten::index"] == 1
