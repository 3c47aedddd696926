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
FORCE = Features.of(gymnasium.spaces.Box(-1, 1, (2,)))
SPACES = (gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(2))


def states(count, seed=0):
    return tuple(np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32))


def test_v_values_all_histories_and_q_the_actions_after_them():
    critic = NumericCritic(STATE)
    inputs = [CriticInput(states(3)), CriticInput(states(1, seed=1))]
    values = critic.values(inputs)
    assert values.shape == (4,)
    torch.testing.assert_close(values[3:], critic.values(inputs[1:]))
    assert [critic.num_tokens(item) for item in inputs] == [3, 1]
    critic = NumericCritic(STATE, [MOVE])
    values = critic.values([CriticInput(states(3), actions=(0, 1))])
    others = critic.values([CriticInput(states(3), actions=(0, 0))])
    assert values.shape == (5,)
    torch.testing.assert_close(values[:3], critic.values([CriticInput(states(3))]))
    assert values[3] == others[3] and values[4] != others[4]


def test_joint_q_depends_on_each_agent_s_action_and_normalization_on_observed_histories():
    critic = NumericCritic(STATE, [MOVE, FORCE])
    force = np.array([0.5, -0.5], dtype=np.float32)
    joint_actions = [(1, force), (0, force), (1, -force), (None, force), (1, None)]
    values = critic.values([CriticInput(states(1), actions=(joint,)) for joint in joint_actions])[1::2]
    assert len(set(values.tolist())) == 5
    with pytest.raises(ValueError, match=r"1 actions.* 2 agents"):
        critic.values([CriticInput(states(1), actions=((1,),))])
    critic = NumericCritic(STATE, normalizes_observations=True)
    with torch.no_grad():
        critic.values([CriticInput(states(5))])
    assert critic.normalizer.count == 0
    critic.observe([CriticInput(states(2)), CriticInput(states(3))])
    assert critic.normalizer.count == 5


@pytest.mark.parametrize("actions", [(), (MOVE,), (MOVE, FORCE)])
def test_a_saved_critic_returns_the_same_values(actions, tmp_path):
    critic = NumericCritic(STATE, actions, hidden_dims=(8,), activation="relu", normalizes_observations=True)
    joint = (1, np.zeros(2))
    done = {0: (), 1: (1, 0), 2: (joint, joint)}[len(actions)]
    critic.observe([CriticInput(states(2, seed=3), actions=done)])
    critic.save(tmp_path)
    item = [CriticInput(states(2), actions=done)]
    assert torch.equal(NumericCritic.load(tmp_path).values(item), critic.values(item))


def test_a_critic_with_one_value_per_agent_is_saved_with_its_outputs(tmp_path):
    critic = NumericCritic(STATE, hidden_dims=(8,), num_agents=3)
    item = [CriticInput(states(2))]
    assert critic.values(item).shape == (2, 3)
    critic.save(tmp_path)
    assert torch.equal(NumericCritic.load(tmp_path).values(item), critic.values(item))


def test_the_actor_s_head_values_histories_and_trains_with_the_actor():
    policy = NumericPolicy.for_spaces(*SPACES, has_value_head=True)
    head = NumericActorHead(policy)
    inputs = [CriticInput(states(3)), CriticInput(states(2, seed=1))]
    torch.testing.assert_close(head.values(inputs), policy.values([*states(3), *states(2, seed=1)]))
    head.values(inputs).sum().backward()
    assert policy.value_head.weight.grad.any() and policy.trunk[0].weight.grad.any()
    assert head.parameters() == [] and head.state_dict() == {}
    with pytest.raises(ValueError, match="has_value_head=True"):
        NumericActorHead(NumericPolicy.for_spaces(*SPACES))
