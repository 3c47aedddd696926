"""Episodes → grids of rewards and values, one row per track, and back to a flat list of turns.

Axes: B tracks, T turns, N turns of all tracks in a row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..algorithm import Grid
from ..rollout.episode import Episode


def agent_grid(
    episodes: Sequence[Episode], agent: str, values: Tensor | None, *, has_action_values: bool = False
) -> Grid:
    """Grid of an agent's tracks: one row per episode that the agent took part in.

    Args:
        values: values of each episode's `own_input(agent)`, flat and in order; None: zeros.
        has_action_values: whether each input's values are followed by those of its actions.
    """
    played = [episode for episode in episodes if agent in episode.tracks]
    rewards = [[turn.reward for turn in episode.tracks[agent]] for episode in played]
    goes_on = [not episode.is_terminated[agent] for episode in played]
    return _grid(rewards, played, goes_on, values, has_action_values, agent)


def joint_grid(episodes: Sequence[Episode], values: Tensor | None, *, has_action_values: bool = False) -> Grid:
    """Grid of joint turns: one row per episode, with the team's reward (`Episode.team_rewards`).

    Args:
        values: values of each episode's `joint_input()`, flat and in order; None: zeros.
        has_action_values: whether each input's values are followed by those of its actions.
    """
    rewards = [episode.team_rewards for episode in episodes]
    goes_on = [bool(episode.live_agents) for episode in episodes]
    return _grid(rewards, episodes, goes_on, values, has_action_values, None)


def with_team_ends(grids: Mapping[str, Grid], discount: float) -> dict[str, Grid]:
    """Grids in which agents that have left a cut episode bootstrap from the agents that are still in it.

        V[length] = discount^(joint turns after the agent's last one) * mean over live agents j of V_j(final history)

    For team rewards: after the cut the team earns the same for every agent, and only the live agents' critics have read
    the histories up to the cut. 0 if no live agent has a critic, as when only frozen partners are left.

    Args:
        grids: of episodes with team rewards (`shaping.with_team_rewards`), by agent.
        discount: gamma per joint turn.
    """
    values: dict[int, list[Tensor]] = defaultdict(list)
    for agent, grid in grids.items():
        for row, (episode, length) in enumerate(zip(grid.episodes, grid.is_real.sum(dim=1).tolist(), strict=True)):
            if agent in episode.live_agents:
                values[id(episode)].append(grid.values[row, length])
    ended = {}
    for agent, grid in grids.items():
        filled = grid.values.clone()
        for row, (episode, length) in enumerate(zip(grid.episodes, grid.is_real.sum(dim=1).tolist(), strict=True)):
            if id(episode) in values and agent not in episode.live_agents:
                num_later = episode.num_turns - 1 - episode.tracks[agent][-1].time
                filled[row, length] = discount**num_later * torch.stack(values[id(episode)]).mean()
        ended[agent] = replace(grid, values=filled)
    return ended


def of_agent(joint: Tensor, episodes: Sequence[Episode], agent: str) -> Tensor:
    """[N] entries of a joint grid [B, T] at the turns of one agent."""
    places = [(row, turn.time) for row, episode in enumerate(episodes) for turn in episode.tracks.get(agent, ())]
    rows, times = zip(*places, strict=True)
    return joint[list(rows), list(times)]


def _grid(
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
