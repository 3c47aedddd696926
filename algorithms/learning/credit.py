"""Credit assignment: the advantage, value, value target and return of each turn of each agent.

Axes: B tracks (each contains one agent's turns in one episode), T turns, N turns of all tracks concatenated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from ...agents.core import CriticInput, Policy, ReplyScorer
from ..algorithm import Algorithm, Grid
from ..functions.advantages import monte_carlo_returns
from ..functions.baselines import advantage_limits, counterfactual_advantages, deviations, normalized
from ..functions.losses import explained_variance
from ..rollout.episode import Episode, joint_action
from .critic_learner import CriticBatch, CriticLearner

MIN_PROBABILITY = 1e-4  # least probability of a reply that a counterfactual baseline evaluates


@dataclass(frozen=True, slots=True)
class Credit:
    """Advantages, values, targets and returns of one agent's N turns, in the order of the episodes."""

    advantages: Tensor  # [N] for the policy loss, after `advantage_normalization`
    raw_advantages: Tensor  # [N] in reward units, before normalization
    values: Tensor  # [N] in reward units; zeros without a critic
    targets: Tensor  # [N] in reward units; zeros without a critic
    returns: Tensor  # [N] discounted returns of the rewards to learn from; a cut episode bootstraps from the value
    reward_sums: Tensor  # [N] these returns without the value after a cut


def assign_credit(
    algorithm: Algorithm[Any],
    episodes: Sequence[Episode],
    agents: Sequence[str],
    critics: Mapping[str, CriticLearner],
    team: Sequence[str] | None = None,
    policies: Mapping[str, Policy] = MappingProxyType({}),
) -> tuple[dict[str, Credit], list[CriticBatch]]:
    """Compute the credit of every turn of the learning `agents`, and the batch of each critic.

    `critics` has the critic of each agent, or one critic with the key "joint" that reads the joint history. `team` are
    all agents of the environment, in its order. None: `agents`. Only counterfactual baselines read `policies`.
    """
    agents = [agent for agent in agents if any(agent in episode.tracks for episode in episodes)]
    if algorithm.critic_reads == "joint":
        credits, batches = _joint_credit(algorithm, episodes, agents, critics["joint"], team or agents)
        if algorithm.replies is not None:
            for agent, credit in credits.items():
                policy, critic = policies[agent], critics["joint"]
                found = counterfactuals(algorithm.replies, episodes, agent, team or agents, policy, critic)
                credits[agent] = replace(credit, advantages=found, raw_advantages=found)
    else:
        credits, batches = _own_credit(algorithm, episodes, agents, critics)
    return _normalize_advantages(algorithm, credits, episodes), batches


def _joint_credit(
    algorithm: Algorithm[Any],
    episodes: Sequence[Episode],
    agents: Sequence[str],
    critic: CriticLearner,
    team: Sequence[str],
) -> tuple[dict[str, Credit], list[CriticBatch]]:
    has_q = algorithm.config.critic_type == "q"
    inputs = [episode.joint_input(team, reads_actions=has_q) for episode in episodes]
    critic.critic.observe(inputs)
    values = critic.values(inputs)
    is_team = algorithm.has_team_critic  # else the critic has one value per agent of the team
    fields, batches = {}, []
    for owner, column in [(None, values)] if is_team else zip(team, values.unbind(dim=1), strict=True):
        grid = joint_grid(episodes, column, owner, has_action_values=has_q)
        targets = algorithm.targets(grid)
        fields[owner] = _fields(algorithm, grid, targets)
        batches.append(_critic_batch(critic, inputs, grid, targets))
    credits = {
        agent: Credit(*(of_agent(joint, episodes, agent) for joint in fields[None if is_team else agent]))
        for agent in agents
    }
    return credits, [batches[0] if is_team else _side_by_side(batches)]


def counterfactuals(
    replies_of: Callable[[str, Sequence[str]], Sequence[str]],
    episodes: Sequence[Episode],
    agent: str,
    team: Sequence[str],
    policy: Policy,
    critic: CriticLearner,
) -> Tensor:
    """Compute COMA's advantages [N] of an agent's turns: Q of the joint action minus its mean over `Algorithm.replies`.

    Replies are weighted by their probabilities after the sampled tokens of each history. Raises `ValueError` if the
    policy cannot evaluate replies.
    """
    if not isinstance(policy, ReplyScorer):
        raise ValueError(f"coma needs a language model, but {agent} has a {type(policy).__name__}; use maac")
    turns = [(episode, turn) for episode in episodes for turn in episode.tracks.get(agent, ())]
    replies = replies_of(agent, [turn.completion.action for _, turn in turns])
    logprobs = policy.reply_logprobs([(turn.completion, reply) for _, turn in turns for reply in replies])
    # The floor keeps the sum positive if every reply is impossible.
    weights = torch.from_numpy(logprobs).view(len(turns), -1).clamp(min=-1e4).softmax(dim=1).float()
    chosen = torch.tensor([replies.index(turn.completion.action) for _, turn in turns])
    is_evaluated = (weights >= MIN_PROBABILITY).scatter(1, chosen[:, None], True)
    inputs = []
    for (episode, turn), possible in zip(turns, is_evaluated.tolist(), strict=True):
        done = [(other, each) for other, track in episode.tracks.items() for each in track if each.time == turn.time]
        actions = {other: each.completion.action for other, each in done}
        joints = [joint_action({**actions, agent: reply}, team) for reply in compress(replies, possible)]
        inputs += [CriticInput((episode.states[turn.time],), (joint,)) for joint in joints]
    values = critic.values(inputs)
    column = values if values.dim() == 1 else values[:, team.index(agent)]
    # The value of each joint action comes after the V(h) of its input.
    action_values = torch.zeros_like(weights).masked_scatter(is_evaluated, column[1::2])
    return counterfactual_advantages(action_values, weights * is_evaluated, chosen)


def _own_credit(
    algorithm: Algorithm[Any],
    episodes: Sequence[Episode],
    agents: Sequence[str],
    critics: Mapping[str, CriticLearner],
) -> tuple[dict[str, Credit], list[CriticBatch]]:
    has_critic = algorithm.critic_reads == "own"
    has_q = has_critic and algorithm.config.critic_type == "q"
    inputs: dict[str, list[CriticInput]] = {}
    if has_critic:
        inputs = {
            agent: [episode.own_input(agent, reads_actions=has_q) for episode in episodes if agent in episode.tracks]
            for agent in agents
        }
        # A shared critic observes the inputs of all its agents before it evaluates any of them.
        for critic in dict.fromkeys(critics[agent] for agent in agents):
            critic.critic.observe([item for agent in agents if critics[agent] is critic for item in inputs[agent]])
    grids = {}
    for agent in agents:
        values = critics[agent].values(inputs[agent]) if has_critic else None
        grids[agent] = agent_grid(episodes, agent, values, has_action_values=has_q)
    if has_critic and algorithm.config.credited_reward != "own":
        bootstrap_from_team(grids, algorithm.config.discount)
    credits: dict[str, Credit] = {}
    batches: dict[CriticLearner, list[CriticBatch]] = defaultdict(list)
    for agent, grid in grids.items():
        targets = algorithm.targets(grid) if has_critic else torch.zeros_like(grid.rewards)
        credits[agent] = Credit(*(of_turns[grid.is_real] for of_turns in _fields(algorithm, grid, targets)))
        if has_critic:
            batches[critics[agent]].append(_critic_batch(critics[agent], inputs[agent], grid, targets))
    return credits, [_merge_batches(pieces) for pieces in batches.values()]


def _fields(algorithm: Algorithm[Any], grid: Grid, targets: Tensor) -> tuple[Tensor, ...]:
    """Compute the fields of `Credit` in padded form [B, T], before normalization."""
    final_values = grid.values.gather(1, grid.is_real.sum(dim=1, keepdim=True)).squeeze(1)
    track = (grid.rewards, grid.is_real, grid.discounts(algorithm.config.discount))
    returns, sums = monte_carlo_returns(*track, final_values), monte_carlo_returns(*track)
    advantages = algorithm.advantages(grid)
    return advantages, advantages, grid.values[:, :-1], targets, returns, sums


def _critic_batch(critic: CriticLearner, inputs: Sequence[CriticInput], grid: Grid, targets: Tensor) -> CriticBatch:
    """Collect the inputs and targets of a critic. The target of V(h) and Q(h, a) is the return after the action."""
    lengths = grid.is_real.sum(dim=1).tolist()
    kept = [
        CriticInput(item.histories[:length], item.actions, item.completions)
        for item, length in zip(inputs, lengths, strict=True)
    ]
    estimates = [grid.values] if grid.action_values is None else [grid.values, grid.action_values]
    expected = torch.cat([targets[row, :length] for row, length in enumerate(lengths) for _ in estimates])
    estimated = torch.cat([each[row, :length] for row, length in enumerate(lengths) for each in estimates])
    return CriticBatch(critic, kept, expected, estimated, critic.moments)


def _merge_batches(batches: Sequence[CriticBatch]) -> CriticBatch:
    return replace(
        batches[0],
        inputs=[item for batch in batches for item in batch.inputs],
        targets=torch.cat([batch.targets for batch in batches]),
        values=torch.cat([batch.values for batch in batches]),
    )


def _side_by_side(batches: Sequence[CriticBatch]) -> CriticBatch:
    """Join the batches of all agents of one critic; targets and values are then [N, agents]."""
    targets, values = ([getattr(batch, name) for batch in batches] for name in ("targets", "values"))
    return replace(batches[0], targets=torch.stack(targets, dim=1), values=torch.stack(values, dim=1))


def _normalize_advantages(
    algorithm: Algorithm[Any], credits: Mapping[str, Credit], episodes: Sequence[Episode]
) -> dict[str, Credit]:
    mode = algorithm.config.advantage_normalization
    number = torch.cat([torch.full_like(credit.values, i) for i, credit in enumerate(credits.values())]).long()
    times = torch.tensor(
        [turn.time for agent in credits for episode in episodes for turn in episode.tracks.get(agent, ())]
    )
    groups = {
        "none": torch.zeros_like(times),
        "batch": torch.zeros_like(times),
        "agent": number,
        "turn": times,
        "agent_turn": number * (int(times.max()) + 1) + times,
    }
    flat, returns, sums = (
        torch.cat([getattr(credit, name) for credit in credits.values()])
        for name in ("advantages", "returns", "reward_sums")
    )
    scaled, turns, algorithm.advantage_limit = flat, groups["agent_turn"], 1.0
    if mode != "none":
        is_real = torch.ones_like(flat, dtype=torch.bool)
        scaled = normalized(flat, is_real, groups[mode], subtract_mean=algorithm.centers_advantages)
    if algorithm.critic_reads != "nothing" and len(turns.unique()) < len(turns):  # else no returns are comparable
        # Values after a cut are no evidence if all rewards are equal.
        returns = deviations(returns, turns) * bool(deviations(sums, turns).any())
        spreads = [*algorithm.return_spreads, float(returns.square().mean().sqrt())]
        algorithm.return_spreads = spreads[-algorithm.config.critic_replay :]
        limits = advantage_limits(deviations(flat, turns), groups[mode], max(algorithm.return_spreads))
        scaled, algorithm.advantage_limit = scaled if mode == "none" else scaled * limits, float(limits.mean())
    pieces = torch.split(scaled, [len(credit.advantages) for credit in credits.values()])
    return {
        agent: replace(credit, advantages=piece) for (agent, credit), piece in zip(credits.items(), pieces, strict=True)
    }


def critic_metrics(batches: Sequence[CriticBatch]) -> dict[str, float]:
    """Compute the explained variance, and the means of the critics' predictions and targets, before the update."""
    if not batches:
        return {}
    targets = torch.cat([batch.targets.flatten() for batch in batches])
    values = torch.cat([batch.values.flatten() for batch in batches])
    return {
        "explained_variance": float(explained_variance(values, targets)),
        "value_mean": float(values.mean()),
        "target_mean": float(targets.mean()),
    }


def agent_grid(
    episodes: Sequence[Episode], agent: str, values: Tensor | None, *, has_action_values: bool = False
) -> Grid:
    """Pad an agent's rewards and values to a `Grid` with one row per episode in which the agent acted.

    `values` are the critic's values of each episode's `own_input(agent)`, concatenated. None: zeros. With
    `has_action_values`, values of each input's histories precede values of its actions.
    """
    played = [episode for episode in episodes if agent in episode.tracks]
    rewards = [[turn.reward for turn in episode.tracks[agent]] for episode in played]
    goes_on = [not episode.is_terminated[agent] for episode in played]
    grid = _make_grid(rewards, played, goes_on, values, has_action_values, agent)
    gaps = [float(gap) for episode in played for gap in episode.gaps(agent)]
    if all(gap == 1 for gap in gaps):
        return grid
    gap_grid = torch.ones_like(grid.rewards)
    gap_grid[grid.is_real] = torch.tensor(gaps)
    return replace(grid, gaps=gap_grid)


def joint_grid(
    episodes: Sequence[Episode], values: Tensor | None, agent: str | None = None, *, has_action_values: bool = False
) -> Grid:
    """Pad rewards and values of joint turns to a `Grid` with one row per episode.

    `values` are the values of each episode's `joint_input()`, in the form that `agent_grid` documents. Rewards and
    values belong to `agent`, and are 0 after the agent has left. If `agent` is None, they belong to the team. The value
    after the last turn of an agent that was truncated alone is also the reward of the next turn: a bootstrap value.
    """
    goes_on = [bool(episode.live_agents) for episode in episodes]
    rewards = [episode.team_rewards if agent is None else episode.own_rewards(agent) for episode in episodes]
    grid = _make_grid(rewards, episodes, goes_on, values, has_action_values, agent)
    for row, episode in enumerate(episodes):
        if agent is not None and agent not in episode.live_agents:
            end = episode.last_time(agent) + 1
            if agent in episode.tracks and not episode.is_terminated[agent]:
                grid.rewards[row, end] = grid.values[row, end]  # a TD error of 0, so that the value is not learned
                end += 1
            grid.values[row, end:] = 0.0
    return grid


def bootstrap_from_team(grids: Mapping[str, Grid], discount: float) -> None:
    """Bootstrap agents that left a cut episode early from the values of the agents that stayed.

        V[length] = discount^(joint turns after the agent left) * mean over live agents j of V_j(final history)

    With team rewards (`rewards.with_team_rewards`), the return after the cut is the same for every agent. Only the
    critics of live agents have read the histories up to the cut. The value is 0 if no live agent has a critic.
    """
    values: dict[int, list[Tensor]] = defaultdict(list)
    for agent, grid in grids.items():
        for row, (episode, length) in enumerate(zip(grid.episodes, grid.is_real.sum(dim=1).tolist(), strict=True)):
            if agent in episode.live_agents:
                values[id(episode)].append(grid.values[row, length])
    for agent, grid in grids.items():
        for row, (episode, length) in enumerate(zip(grid.episodes, grid.is_real.sum(dim=1).tolist(), strict=True)):
            if id(episode) in values and agent not in episode.live_agents:
                num_later = episode.num_turns - 1 - episode.last_time(agent)
                grid.values[row, length] = discount**num_later * torch.stack(values[id(episode)]).mean()


def of_agent(joint: Tensor, episodes: Sequence[Episode], agent: str) -> Tensor:
    """Select an agent's turns [N] from a tensor of joint turns [B, T]."""
    places = [(row, turn.time) for row, episode in enumerate(episodes) for turn in episode.tracks.get(agent, ())]
    rows, times = zip(*places, strict=True)
    return joint[list(rows), list(times)]


def _make_grid(
    rewards: Sequence[Sequence[float]],
    episodes: Sequence[Episode],
    goes_on: Sequence[bool],
    values: Tensor | None,
    has_action_values: bool,
    agent: str | None,
) -> Grid:
    lengths = torch.tensor([len(row) for row in rewards])
    num_turns = int(lengths.max())
    is_real = torch.arange(num_turns) < lengths[:, None]
    reward_grid = torch.zeros(is_real.shape)
    reward_grid[is_real] = torch.tensor([reward for row in rewards for reward in row])
    value_grid = torch.zeros(len(rewards), num_turns + 1)
    action_values = torch.zeros(is_real.shape) if has_action_values else None
    if values is not None:
        num_values = lengths + torch.tensor(goes_on)
        values = values.detach().float().cpu()
        if action_values is not None:
            counts = torch.stack([num_values, lengths], dim=1).flatten()
            pieces = torch.split(values, counts.tolist())
            values, action_values[is_real] = torch.cat(pieces[::2]), torch.cat(pieces[1::2])
        value_grid[torch.arange(num_turns + 1) < num_values[:, None]] = values
    group = torch.tensor([episode.group for episode in episodes])
    return Grid(reward_grid, value_grid, action_values, is_real, group, agent, tuple(episodes))
