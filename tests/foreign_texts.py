"""A text environment of another library: agents with any names, and `Text` spaces with a charset."""

from collections.abc import Sequence
from typing import Any

from gymnasium.spaces import Text
from pettingzoo import ParallelEnv


class ForeignTexts(ParallelEnv):
    """Two turns, each with reward 1. `step` refuses actions outside the action space, as strict environments do."""

    metadata = {"name": "foreign_texts_v0", "render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(self, actions: Text | None = None, names: Sequence[Any] = ("a_0", "b_0")):
        self.actions = Text(12) if actions is None else actions  # as in Gymnasium: 1 to 12 letters and digits
        self.possible_agents = list(names)
        self.agents: list[Any] = []
        self.played: list[dict[Any, str]] = []

    def observation_space(self, agent: Any) -> Text:
        return Text(200, charset="abcdefghijklmnopqrstuvwxyz _0123456789")

    def action_space(self, agent: Any) -> Text:
        return self.actions

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.agents, self.played = list(self.possible_agents), []
        return {agent: f"you are {agent}" for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[Any, str]) -> tuple[Any, ...]:
        for agent, action in actions.items():
            assert agent in self.possible_agents and self.actions.contains(action), f"{action!r} is not in the space"
        self.played.append(actions)
        live, is_over = self.agents, len(self.played) == 2
        self.agents = [] if is_over else live
        return (
            dict.fromkeys(live, "next"),
            dict.fromkeys(live, 1.0),
            dict.fromkeys(live, is_over),
            dict.fromkeys(live, False),
            {agent: {} for agent in live},
        )


def with_numbers_as_agents() -> ForeignTexts:
    return ForeignTexts(names=(0, 1))
