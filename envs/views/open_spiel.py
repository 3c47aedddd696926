"""Games of OpenSpiel as text environments."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, ClassVar, Literal

from ..._errors import UserError, nearest
from ..._extras import require
from ..core import Message, Outcome, TextParallelEnv

_INTERESTS: dict[str, Literal["common", "opposed"]] = {
    "IDENTICAL": "common",
    "ZERO_SUM": "opposed",
    "CONSTANT_SUM": "opposed",
}


class OpenSpiel(TextParallelEnv):
    """Environment of an OpenSpiel game, turn-based or with simultaneous moves. Agents: `player_0`, `player_1`, …

    A prompt contains the player's information state and the legal replies. In games with perfect information, it
    contains the board. A prompt replaces the player's earlier history. Players reply with the name of an action. An
    illegal reply plays the first legal action, and is counted in `metric/illegal_replies`.

    Needs the extra `open-spiel`. Source: https://github.com/google-deepmind/open_spiel.

    Args:
        game: name of the game with parameters, such as "liars_dice(numdice=1,dice_sides=3)".
        max_turns: maximum number of turns. None: the game's maximum.
        **kwargs: arguments of `TextParallelEnv`.

    Raises:
        UserError: if OpenSpiel cannot load the game, or a seed cannot determine its chance nodes.
    """

    metadata: ClassVar[dict[str, Any]] = {**TextParallelEnv.metadata, "name": "open_spiel_v0", "append_only": False}

    def __init__(self, game: str, max_turns: int | None = None, **kwargs: Any):
        self.game = _loaded(game)
        names = [f"player_{number}" for number in range(self.game.num_players())]
        super().__init__(names, self.game.max_game_length() if max_turns is None else max_turns, **kwargs)
        self.interests = _INTERESTS.get(self.game.get_type().utility.name, "mixed")
        self._state: Any = self.game.new_initial_state()

    def deal(self, task: Any) -> Mapping[str, str]:
        self._state = self.game.new_initial_state()
        self.task = str(self.game)
        self.movers = self._draw()
        return {agent: self.prompt(self._state, player) for player, agent in enumerate(self.possible_agents)}

    def play(self, replies: Mapping[str, str]) -> Outcome:
        before, num_illegal = self._state.returns(), 0
        actions = [0] * len(self.possible_agents)  # actions of players without legal actions are ignored
        for agent, reply in replies.items():
            player = self.possible_agents.index(agent)
            legal = self.named_actions(self._state, player)
            action = _matching(reply, legal)
            num_illegal += action is None
            actions[player] = next(iter(legal.values())) if action is None else action
        if self._state.is_simultaneous_node():
            self._state.apply_actions(actions)
        else:
            self._state.apply_action(actions[self._state.current_player()])
        movers = self._draw()
        gains = (after - earlier for after, earlier in zip(self._state.returns(), before, strict=True))
        prompts = {agent: self.prompt(self._state, self.possible_agents.index(agent)) for agent in movers}
        return Outcome(
            dict(zip(self.possible_agents, gains, strict=True)),
            metrics={"illegal_replies": num_illegal},
            rewritten={agent: [Message("user", prompt)] for agent, prompt in prompts.items()},
            is_over=not movers,
            movers=movers or None,
        )

    def legal_replies(self, agent: str) -> list[str]:
        """Return the replies that are legal in this turn. []: the agent waits."""
        return list(self.named_actions(self._state, self.possible_agents.index(agent)))

    def named_actions(self, state: Any, player: int) -> dict[str, int]:
        """Return a player's legal actions in a state of the game, as a dict: reply -> action. {}: the player waits."""
        if player not in players_to_move(state):
            return {}
        return {state.action_to_string(player, action).strip(): action for action in state.legal_actions(player)}

    def prompt(self, state: Any, player: int) -> str:
        """Return the text that a player reads in a state of the game."""
        kind = self.game.get_type()
        is_perfect = kind.information.name == "PERFECT_INFORMATION" and kind.provides_observation_string
        is_observed = is_perfect or not kind.provides_information_state_string
        text = state.observation_string(player) if is_observed else state.information_state_string(player)
        legal = self.named_actions(state, player)
        lines = [f"{kind.short_name}, {self.possible_agents[player]}", *filter(None, [text.strip("\n")])]
        return "\n".join([*lines, "Legal replies:", *legal] if legal else lines)

    def scene(self) -> str:
        return f"{self._state}\n"

    def truth(self) -> str:
        return str(self._state)

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        """Return a player that chooses a legal reply at random."""
        return {"random legal": partial(_random_legal, self)}

    def _draw(self) -> list[str]:
        """Draw the outcomes of chance nodes up to the next decision, and return the agents that decide."""
        while self._state.is_chance_node():
            outcomes, probabilities = zip(*self._state.chance_outcomes(), strict=True)
            self._state.apply_action(self.rng.choices(outcomes, probabilities)[0])
        return [self.possible_agents[player] for player in players_to_move(self._state)]


def players_to_move(state: Any) -> list[int]:
    """Return the players that act in a state of a game: several in a simultaneous node, none in a terminal node."""
    if state.is_simultaneous_node():
        return [player for player in range(state.num_players()) if state.legal_actions(player)]
    return [] if state.is_terminal() or state.is_chance_node() else [state.current_player()]


def _loaded(game: str) -> Any:
    require("pyspiel")
    pyspiel = importlib.import_module("pyspiel")
    name = game.partition("(")[0]
    types = {each.short_name: each for each in pyspiel.registered_games()}
    if name not in types:
        raise UserError(f"open_spiel/{name}: OpenSpiel has no such game; {nearest(name, types)}")
    try:
        loaded = pyspiel.load_game(game)
    except (pyspiel.SpielError, LookupError) as error:  # a missing file, for example, raises IndexError("map::at")
        parameters = ", ".join(types[name].parameter_specification) or "none"
        reason = " ".join(str(error).split())
        raise UserError(f"open_spiel/{game} cannot be loaded: {reason}; its parameters: {parameters}") from error
    kind = loaded.get_type()
    if kind.action_structs_only:
        raise UserError(f"open_spiel/{name} does not list its legal actions; choose a game with numbered actions")
    if kind.dynamics.name not in ("SEQUENTIAL", "SIMULTANEOUS"):
        raise UserError(f"open_spiel/{name} is a mean-field game; choose a turn-based or simultaneous game")
    if kind.chance_mode.name == "SAMPLED_STOCHASTIC":
        raise UserError(f"open_spiel/{name} does not list its chance outcomes, so no seed determines an episode")
    if not (kind.provides_information_state_string or kind.provides_observation_string):
        raise UserError(f"open_spiel/{name} describes its states with no text; choose a game with observation strings")
    return loaded


def _matching(reply: str, legal: Mapping[str, int]) -> int | None:
    """Return the action with this name. Letter case and white space are ignored if the action is unique."""
    said = reply.strip()
    if said in legal:
        return legal[said]
    found = [action for name, action in legal.items() if name.casefold().split() == said.casefold().split()]
    return found[0] if len(found) == 1 else None


def _random_legal(env: OpenSpiel, agent: str) -> str:
    """Return a random legal reply, which depends only on the episode so far. Waiting agents reply nothing."""
    return Random(f"{env.state()} {agent}").choice(env.legal_replies(agent) or [""])
