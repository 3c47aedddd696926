import gymnasium
import numpy as np
import pytest
import torch

from collm.agents.core import CriticInput
from collm.agents.numeric.critics import NumericActorHead, NumericCritic
from collm.agents.numeric.features import Features
from collm.agents.numeric.policy import NumericPolicy

STATE = Features(num_numbers=3)
MOVE = Features.of(gymnasium.spaces.Discrete(2))
SPACES = (gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(2))
FORCE = Features.of(gymnasium.spaces.Box(-1, 1, (2,)))


def states(count, seed=0):
    return tuple(np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32))


def test_v_values_every_history_of_every_view_in_order():
    critic = NumericCritic(STATE)
    inputs = [CriticInput(states(3)), CriticInput(states(1, seed=1))]
    values = critic.values(inputs)
    assert values.shape == (4,)
    torch.testing.assert_close(values[3:], critic.values(inputs[1:]))
    assert [critic.num_tokens(item) for item in inputs] == [3, 1]


def test_q_values_the_histories_and_then_what_was_done_in_them():
    critic = NumericCritic(STATE, [MOVE])
    values = critic.values([CriticInput(states(3), actions=(0, 1))])
    others = critic.values([CriticInput(states(3), actions=(0, 0))])
    assert values.shape == (5,)
    torch.testing.assert_close(values[:3], critic.values([CriticInput(states(3))]))
    assert values[3] == others[3] and values[4] != others[4]


def test_joint_q_reads_every_agent_s_action_and_nothing_for_one_that_has_left():
    critic = NumericCritic(STATE, [MOVE, FORCE])
    force = np.array([0.5, -0.5], dtype=np.float32)
    both, first_gone, second_gone = critic.values(
        [CriticInput(states(1), actions=(joint,)) for joint in ((1, force), (None, force), (1, None))]
    )[1::2]
    assert len({both.item(), first_gone.item(), second_gone.item()}) == 3


def test_joint_q_refuses_the_actions_of_fewer_agents():
    with pytest.raises(ValueError, match="is 1 actions, but the critic reads those of 2"):
        NumericCritic(STATE, [MOVE, FORCE]).values([CriticInput(states(1), actions=((1,),))])


@pytest.mark.parametrize("actions", [(), (MOVE,), (MOVE, FORCE)])
def test_a_saved_critic_values_alike(actions, tmp_path):
    critic = NumericCritic(STATE, actions, hidden_dims=(8,), activation="relu", normalizes_observations=True)
    joint = (1, np.zeros(2))
    done = {0: (), 1: (1, 0), 2: (joint, joint)}[len(actions)]
    critic.observe([CriticInput(states(2, seed=3), actions=done)])
    critic.save(tmp_path)
    item = [CriticInput(states(2), actions=done)]
    assert torch.equal(NumericCritic.load(tmp_path).values(item), critic.values(item))


def test_normalization_counts_what_was_observed_and_not_what_was_valued():
    critic = NumericCritic(STATE, normalizes_observations=True)
    with torch.no_grad():
        critic.values([CriticInput(states(5))])
    assert critic.normalizer.count == 0
    critic.observe([CriticInput(states(2)), CriticInput(states(3))])
    assert critic.normalizer.count == 5


def test_a_critic_learns_the_value_of_states():
    critic = NumericCritic(STATE, hidden_dims=(32,))
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
    item = CriticInput(states(64))
    targets = torch.from_numpy(np.stack(item.histories)).sum(1)
    for _ in range(100):
        loss = (critic.values([item]) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.05


def test_the_actor_s_head_values_histories_and_trains_with_the_actor():
    policy = NumericPolicy.for_spaces(*SPACES, has_value_head=True)
    head = NumericActorHead(policy)
    inputs = [CriticInput(states(3)), CriticInput(states(2, seed=1))]
    torch.testing.assert_close(head.values(inputs), policy.values([*states(3), *states(2, seed=1)]))
    head.values(inputs).sum().backward()
    assert policy.value_head.weight.grad.any() and policy.trunk[0].weight.grad.any()
    assert head.parameters() == [] and head.state_dict() == {}


def test_an_actor_without_a_head_is_no_critic():
    with pytest.raises(ValueError, match="has_value_head=True"):
        NumericActorHead(NumericPolicy.for_spaces(*SPACES))
