"""Advantages and losses against torchrl's, where it is installed; nothing of ours depends on it."""

import pytest
import torch

pytest.importorskip("torchrl", reason="torchrl is not installed; `pip install torchrl` to compare with it")

from tensordict import TensorDict
from tensordict.nn import ProbabilisticTensorDictModule, ProbabilisticTensorDictSequential
from tensordict.nn import TensorDictModule as Module
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value.functional import generalized_advantage_estimate, td_lambda_return_estimate

from collm.algorithms.functions.advantages import critic_targets, gae
from collm.algorithms.functions.losses import clipped_policy_loss, entropy_bonus, value_loss


@pytest.mark.parametrize("discount", [0.9, 1.0])
@pytest.mark.parametrize("trace", [0.0, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_gae_and_lambda_returns_equal_torchrl_s_on_ragged_tracks(discount, trace, is_terminal):
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([1, 4, 7, 2])
    rewards = torch.randn(4, 7, generator=generator, dtype=torch.float64)
    values = torch.randn(4, 8, generator=generator, dtype=torch.float64)
    is_real = torch.arange(7) < lengths[:, None]
    if is_terminal:
        values[torch.arange(4), lengths] = 0
    ours = gae(rewards, values, is_real, discount, trace)
    targets = critic_targets(rewards, values, is_real, discount, "gae", trace)
    for row, length in enumerate(lengths.tolist()):
        done = torch.zeros(length, 1, dtype=torch.bool)
        done[-1] = True
        track = {
            "next_state_value": values[row, 1 : length + 1, None],
            "reward": rewards[row, :length, None],
            "done": done,
            # torchrl puts 0 after a terminated turn itself, whatever the value says.
            "terminated": done if is_terminal else torch.zeros_like(done),
        }
        advantage, _ = generalized_advantage_estimate(
            gamma=discount, lmbda=trace, state_value=values[row, :length, None], **track
        )
        torch.testing.assert_close(ours[row, :length], advantage[:, 0])
        returns = td_lambda_return_estimate(gamma=discount, lmbda=trace, **track)
        torch.testing.assert_close(targets[row, :length], returns[:, 0])


def table(rows):
    return torch.nn.Embedding.from_pretrained(rows.clone(), freeze=False)


@pytest.mark.parametrize("value_clip", [None, 0.2])
def test_the_terms_of_ppo_and_their_gradients_equal_torchrl_s(value_clip):
    generator = torch.Generator().manual_seed(1)
    draw = {"generator": generator, "dtype": torch.float64}
    num_items, num_actions = 32, 5
    logits = torch.randn(num_items, num_actions, **draw)
    old_logits = logits + 0.5 * torch.randn(num_items, num_actions, **draw)
    actions = torch.randint(num_actions, (num_items,), generator=generator)
    sampled_logprobs = old_logits.log_softmax(-1).gather(1, actions[:, None])[:, 0]
    old_values, targets, advantages = torch.randn(3, num_items, **draw)
    values = old_values + 0.5 * torch.randn(num_items, **draw)

    # Each item is its own row of a table, so the tables' gradients are the items'.
    their_logits, their_values = table(logits), table(values[:, None])
    actor = ProbabilisticTensorDictSequential(
        Module(their_logits, in_keys=["item"], out_keys=["logits"]),
        ProbabilisticTensorDictModule(["logits"], ["action"], distribution_class=torch.distributions.Categorical),
    )
    critic = Module(their_values, in_keys=["item"], out_keys=["state_value"])
    settings = {"clip_epsilon": 0.2, "entropy_coeff": 0.1, "critic_coeff": 1.0, "loss_critic_type": "l2"}
    loss = ClipPPOLoss(actor, critic, clip_value=value_clip, functional=False, **settings)
    given = {"item": torch.arange(num_items), "action": actions, "action_log_prob": sampled_logprobs}
    columns = {"advantage": advantages, "state_value": old_values, "value_target": targets}
    given |= {name: column[:, None] for name, column in columns.items()}
    theirs = loss(TensorDict(given, batch_size=[num_items]))
    (theirs["loss_objective"] + theirs["loss_entropy"] + theirs["loss_critic"]).backward()

    logits.requires_grad_()
    values.requires_grad_()
    all_logprobs = logits.log_softmax(-1)
    logprobs = all_logprobs.gather(1, actions[:, None])[:, 0]
    policy, num_clipped = clipped_policy_loss(logprobs, sampled_logprobs, advantages, num_items)
    entropy = entropy_bonus(-(all_logprobs.exp() * all_logprobs).sum(-1), num_items)
    critic_loss = value_loss(values, targets, num_items, old_values, value_clip)
    assert 0 < num_clipped < num_items
    torch.testing.assert_close(policy, theirs["loss_objective"])
    torch.testing.assert_close(-0.1 * entropy, theirs["loss_entropy"])
    torch.testing.assert_close(critic_loss, theirs["loss_critic"])
    (policy - 0.1 * entropy + critic_loss).backward()
    torch.testing.assert_close(logits.grad, their_logits.weight.grad)
    torch.testing.assert_close(values.grad, their_values.weight.grad[:, 0])
