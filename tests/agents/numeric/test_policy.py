import gymnasium
import numpy as np
import pytest
import torch

from collm.agents.core import Request
from collm.agents.numeric.policy import NumericPolicy

OBSERVATION = gymnasium.spaces.Box(-10, 10, (4,))
ACTIONS = {
    "discrete": (gymnasium.spaces.Discrete(3), {}),
    "multi_discrete": (gymnasium.spaces.MultiDiscrete([2, 3]), {}),
    "gaussian": (gymnasium.spaces.Box(-2, 2, (2,)), {}),
    "squashed": (gymnasium.spaces.Box(-2, 2, (2,)), {"is_squashed": True}),
    "squashed, deviation of the state": (
        gymnasium.spaces.Box(-2, 2, (2,)),
        {"is_squashed": True, "has_state_std": True, "log_std_bounds": (-5.0, 1.5)},
    ),
}


@pytest.fixture(params=ACTIONS)
def policy(request):
    return made(request.param)


def made(name, **settings):
    space, head = ACTIONS[name]
    policy = NumericPolicy.for_spaces(OBSERVATION, space, **head, **settings)
    with torch.no_grad():  # as after some training: far from uniform
        policy.output.weight.mul_(100)
    return policy


def requests(count, first=0):
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(count + first, 4)).astype(np.float32)
    return [Request("agent_0", observations[i], (7, i, 0, 0)) for i in range(first, count + first)]


def test_evaluating_gives_the_logprobs_and_entropies_of_acting(policy):
    track = policy.act(requests(20))
    evaluation = policy.evaluate([track[:5], track[5:6], track[6:]])
    for ours, acted in ((evaluation.logprobs, "logprobs"), (evaluation.entropies, "entropies")):
        torch.testing.assert_close(
            ours.detach(), torch.tensor([getattr(each, acted)[0] for each in track]), atol=1e-5, rtol=1e-5
        )
    assert evaluation.turn_of_token.tolist() == list(range(20))
    assert sum(policy.num_tokens(part) for part in (track[:5], track[5:])) == 20


def test_evaluation_has_a_gradient_for_every_parameter(policy):
    evaluation = policy.evaluate([policy.act(requests(20))])
    evaluation.logprobs.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in policy.parameters())


def test_an_answer_does_not_depend_on_what_else_is_asked(policy):
    together = policy.act(requests(20))
    reversed_order = policy.act(requests(20)[::-1])[::-1]
    for alone, first, second in zip(requests(20), together, reversed_order, strict=True):
        (third,) = policy.act([alone])
        for other in (second, third):
            np.testing.assert_allclose(other.action, first.action, atol=1e-5)
            np.testing.assert_allclose(other.logprobs, first.logprobs, atol=1e-5)


def test_another_stream_draws_another_action_and_the_same_one_the_same():
    policy = made("gaussian")
    observation = np.zeros(4, dtype=np.float32)
    streams = [(0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 0), (0, 0, 0, 0)]
    first, later, other, again = policy.act([Request("a", observation, stream) for stream in streams])
    assert np.array_equal(first.action, again.action)
    assert not np.array_equal(first.action, later.action) and not np.array_equal(first.action, other.action)


def test_greedy_answers_do_not_depend_on_the_stream(policy):
    observation = np.ones(4, dtype=np.float32)
    first, second = policy.act([Request("a", observation, (i,)) for i in range(2)], greedy=True)
    assert np.array_equal(first.action, second.action)


def test_a_new_policy_is_nearly_uniform_and_two_seeds_differ():
    first, second = (NumericPolicy.for_spaces(OBSERVATION, gymnasium.spaces.Discrete(3), seed=i) for i in (0, 1))
    probabilities = [np.exp(each.logprobs[0]) for each in first.act(requests(20))]
    np.testing.assert_allclose(probabilities, 1 / 3, atol=0.03)
    assert not torch.equal(first.trunk[0].weight, second.trunk[0].weight)
    again = NumericPolicy.for_spaces(OBSERVATION, gymnasium.spaces.Discrete(3), seed=0)
    assert torch.equal(first.trunk[0].weight, again.trunk[0].weight)


def test_making_a_policy_leaves_the_global_random_numbers_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    made("gaussian", has_value_head=True)
    assert torch.equal(torch.rand(3), expected)


def test_hidden_weights_are_orthogonal_with_gain_root_2():
    weight = NumericPolicy.for_spaces(OBSERVATION, gymnasium.spaces.Discrete(3)).trunk[2].weight.detach()
    torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(64), atol=1e-5, rtol=0)


def test_the_value_head_says_the_same_when_acting_evaluating_and_asked():
    policy = made("discrete", has_value_head=True)
    asked = requests(6)
    track = policy.act(asked)
    acted = torch.tensor([each.value for each in track])
    torch.testing.assert_close(policy.evaluate([track]).values.detach(), acted, atol=1e-5, rtol=1e-5)
    values = policy.values([request.observation for request in asked])
    torch.testing.assert_close(values.detach(), acted, atol=1e-5, rtol=1e-5)


def test_a_policy_without_a_value_head_has_no_values():
    with pytest.raises(ValueError, match="has_value_head=True"):
        made("discrete").values([np.zeros(4)])


@pytest.mark.parametrize("name", ACTIONS)
def test_a_saved_policy_answers_alike(name, tmp_path):
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


def test_a_state_can_be_taken_over_by_another_policy():
    first, second = made("gaussian", normalizes_observations=True, seed=0), made("gaussian", seed=1)
    with pytest.raises(RuntimeError, match="normalizer"):
        second.load_state_dict(first.state_dict())
    second = made("gaussian", normalizes_observations=True, seed=1)
    first.observe(first.act(requests(9)))
    first.forget()
    second.load_state_dict({name: tensor.clone() for name, tensor in first.state_dict().items()})
    assert np.array_equal(first.act(requests(1))[0].action, second.act(requests(1))[0].action)


def test_normalization_stands_still_until_the_policy_forgets():
    policy = made("gaussian", normalizes_observations=True)
    track = policy.act(requests(30))
    before = policy.evaluate([track]).logprobs.detach()
    assert np.allclose(before, [each.logprobs[0] for each in track], atol=1e-5)
    policy.observe(track)
    assert torch.equal(policy.evaluate([track]).logprobs.detach(), before)
    policy.forget()
    assert not torch.allclose(policy.evaluate([track]).logprobs.detach(), before)
    observations = torch.from_numpy(np.stack([request.observation for request in requests(30)]))
    normalized = policy.normalizer(observations)
    torch.testing.assert_close(normalized.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(normalized.std(0, correction=0), torch.ones(4), atol=1e-5, rtol=0)


@pytest.mark.parametrize("greedy", [False, True])
def test_play_alone_does_not_change_the_normalization(greedy):
    policy = made("gaussian", normalizes_observations=True)
    policy.act(requests(30), greedy=greedy)
    policy.forget()
    assert policy.normalizer.count == 0


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="choose one of"):
        made("discrete", activation="gelu")


def test_asking_nothing_answers_nothing(policy):
    assert policy.act([]) == []


def test_a_policy_learns_a_bandit_of_three_arms_by_its_own_gradient():
    policy = NumericPolicy.for_spaces(OBSERVATION, gymnasium.spaces.Discrete(3))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    observation = np.ones(4, dtype=np.float32)
    for step in range(60):
        track = policy.act([Request("a", observation, (step, i)) for i in range(32)])
        rewards = torch.tensor([1.0 if each.action == 2 else 0.0 for each in track])
        loss = -((rewards - rewards.mean()) * policy.evaluate([track]).logprobs).sum() / 32
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    (greedy,) = policy.act([Request("a", observation, (0,))], greedy=True)
    assert greedy.action == 2 and np.exp(greedy.logprobs[0]) > 0.9
