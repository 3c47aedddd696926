import gymnasium
import numpy as np
import pytest
import torch

from collm.agents.core import Request
from collm.agents.numeric.policy import NumericPolicy

OBSERVATION = gymnasium.spaces.Box(-10, 10, (4,))
BOX = gymnasium.spaces.Box(-2, 2, (2,))
ACTIONS = {
    "discrete": (gymnasium.spaces.Discrete(3), {}),
    "multi_discrete": (gymnasium.spaces.MultiDiscrete([2, 3]), {}),
    "plain": (BOX, {}),
    "squashed": (BOX, {"is_squashed": True}),
    "state": (BOX, {"has_state_std": True}),
}


@pytest.fixture(params=ACTIONS)
def policy(request):
    return made(request.param)


def made(name, **settings):
    space, head = ACTIONS[name]
    policy = NumericPolicy.for_spaces(OBSERVATION, space, **head, **settings)
    with torch.no_grad():  # far from uniform, as after training
        policy.output.weight.mul_(100)
    return policy


def requests(count):
    observations = np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
    return [Request("agent_0", observations[i], (7, i, 0, 0)) for i in range(count)]


def test_evaluating_gives_the_logprobs_and_entropies_of_acting_and_all_gradients(policy):
    track = policy.act(requests(20))
    evaluation = policy.evaluate([track[:5], track[5:6], track[6:]])
    for name in ("logprobs", "entropies"):
        acted = torch.tensor([getattr(each, name)[0] for each in track])
        torch.testing.assert_close(getattr(evaluation, name).detach(), acted, atol=1e-5, rtol=1e-5)
    assert evaluation.turn_of_token.tolist() == list(range(20))
    assert sum(policy.num_tokens(part) for part in (track[:5], track[5:])) == 20
    evaluation.logprobs.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in policy.parameters())


def test_a_completion_does_not_depend_on_the_batch(policy):
    together = policy.act(requests(20))
    reversed_order = policy.act(requests(20)[::-1])[::-1]
    for request, first, second in zip(requests(20), together, reversed_order, strict=True):
        for other in (second, *policy.act([request])):
            np.testing.assert_allclose(other.action, first.action, atol=1e-5)
            np.testing.assert_allclose(other.logprobs, first.logprobs, atol=1e-5)
    assert policy.act([]) == []


def test_the_stream_determines_sampled_actions_and_the_seed_new_policies():
    policy = made("plain")
    streams = [(0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 0), (0, 0, 0, 0)]
    asked = [Request("a", np.ones(4, dtype=np.float32), stream) for stream in streams]
    first, later, other, again = policy.act(asked)
    assert np.allclose(first.action, again.action, atol=1e-5)
    assert not np.allclose(first.action, later.action) and not np.allclose(first.action, other.action)
    assert np.ptp([each.action for each in policy.act(asked, greedy=True)], axis=0).max() < 1e-5
    state = torch.get_rng_state()
    spaces = OBSERVATION, ACTIONS["discrete"][0]
    first, second, again = (NumericPolicy.for_spaces(*spaces, seed=seed, has_value_head=True) for seed in (0, 1, 0))
    assert torch.equal(torch.get_rng_state(), state)
    probabilities = [np.exp(each.logprobs[0]) for each in first.act(requests(20))]
    np.testing.assert_allclose(probabilities, 1 / 3, atol=0.03)
    assert not torch.equal(first.trunk[0].weight, second.trunk[0].weight)
    assert torch.equal(first.trunk[0].weight, again.trunk[0].weight)
    hidden = first.trunk[2].weight.detach()
    torch.testing.assert_close(hidden @ hidden.T, 2 * torch.eye(64), atol=1e-5, rtol=0)


def test_the_value_head_returns_the_same_in_acting_evaluating_and_values():
    policy = made("discrete", has_value_head=True)
    track = policy.act(requests(6))
    acted = torch.tensor([each.value for each in track])
    for values in (policy.evaluate([track]).values, policy.values([each.observation for each in requests(6)])):
        torch.testing.assert_close(values.detach(), acted, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="activation is 'gelu'"):
        made("discrete", activation="gelu")


@pytest.mark.parametrize("name", ACTIONS)
def test_a_saved_policy_acts_the_same(name, tmp_path):
    policy = made(name, has_value_head=True, normalizes_observations=True, hidden_dims=(16,), activation="relu")
    policy.observe(policy.act(requests(20)))
    policy.forget()
    policy.observe(policy.act(requests(5)))
    policy.save(tmp_path / "policy")
    loaded = NumericPolicy.load(tmp_path / "policy")
    for ours, theirs in zip(policy.act(requests(10)), loaded.act(requests(10)), strict=True):
        assert np.array_equal(ours.action, theirs.action) and ours.value == theirs.value
    for each in (policy, loaded):
        each.forget()
    state = loaded.state_dict()
    for name, tensor in policy.state_dict().items():
        assert torch.equal(tensor, state[name]), name


def test_normalization_changes_only_in_forget():
    policy = made("plain", normalizes_observations=True)
    track = policy.act(requests(30))
    policy.act(requests(30), greedy=True)
    policy.forget()
    assert policy.normalizer.count == 0  # acting is not observing
    before = policy.evaluate([track]).logprobs.detach()
    policy.observe(track)
    assert torch.equal(policy.evaluate([track]).logprobs.detach(), before)
    policy.forget()
    assert not torch.allclose(policy.evaluate([track]).logprobs.detach(), before)
    normalized = policy.normalizer(torch.from_numpy(np.stack([request.observation for request in requests(30)])))
    torch.testing.assert_close(normalized.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(normalized.std(0, correction=0), torch.ones(4), atol=1e-5, rtol=0)
