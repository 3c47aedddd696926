"""MiniBuild: builders with one list of parts and a reward at the end. The building task for small models."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, get_args

from ...core import Message, Outcome
from ...templates import Prompts, templates
from ..pictured import PicturedEnv, refuse_other
from ..pictures import Row
from . import prompts as texts
from .rules import (
    MATERIALS,
    Goal,
    Move,
    Reward,
    Site,
    Split,
    Verdict,
    ceilings,
    new_goal,
    payoff,
    placed,
    quality,
    reference_move,
    refuse_team,
    refuse_threshold,
)

_AIR = (203, 222, 236)
_MATERIAL_COLOURS = (
    *((176, 137, 84), (125, 125, 125), (150, 74, 62), (160, 215, 225)),
    *((190, 120, 85), (200, 200, 205), (219, 206, 160), (250, 250, 250)),
)


class PartsEnv(PicturedEnv):
    """Builders that name one part and one material per turn, without seeing each other's moves.

    Args:
        num_agents: builders, 2 to 8.
        max_turns: turns of an episode.
        reward: "sparse" (at the end 1 if the quality reached `threshold`, else 0), "terminal" (the quality, at the
            end) or "dense" (what a turn added to the quality). The maximum is 1 in each.
        feedback: which moves a builder hears about: "own", "cross" (the partners'), "both" (own first) or "none".
        threshold: the quality that counts as success, over 0 and at most 1.
        is_explained: whether the prompts state the rules in English, for a model that was not trained on the game.
        prompts: templates in place of the own prompts, see `collm.envs.templates`.
        **kwargs: of `TextParallelEnv`.
    """

    truth_metric: ClassVar[str | None] = "quality"
    block_letters = ".WSBGCINL"
    block_colours = (_AIR, *_MATERIAL_COLOURS)
    places: ClassVar[Mapping[str, bool]]
    """Places of a user's templates; one of those that are true must be in it."""
    _verdicts: tuple[Verdict, ...]  # of the last moves, by seat

    def __init__(
        self,
        num_agents: int,
        max_turns: int,
        *,
        threshold: float,
        reward: Reward = "sparse",
        feedback: texts.Feedback = "cross",
        is_explained: bool = False,
        prompts: Prompts | None = None,
        **kwargs: Any,
    ):
        super().__init__([f"builder_{seat}" for seat in range(num_agents)], max_turns, **kwargs)
        refuse_other("reward", reward, get_args(Reward))
        refuse_other("feedback", feedback, get_args(texts.Feedback))
        refuse_threshold(threshold)
        self._reward: Reward = reward
        self._feedback: texts.Feedback = feedback
        self._threshold = threshold
        self._is_explained = is_explained
        self._templates = templates(prompts, self.possible_agents, self.places)

    def opening(self, seat: int, own: str, **shown: str) -> list[Message]:
        """First messages of a builder.

        Args:
            seat: its number.
            own: the game's own prompt.
            shown: fields of the game, besides those of every game of parts.
        """
        values = {"seat": seat, "turns": self.max_turns, "feedback": self._feedback, "team": len(self.possible_agents)}
        return self._templates.opening(self.possible_agents[seat], {**values, **shown}, own)

    def judged(
        self, quality: float, gain: float, feedback: Mapping[str, str], verdicts: Counter[Verdict], **metrics: int
    ) -> Outcome:
        """Outcome of a turn.

        Args:
            quality: after it.
            gain: the quality that it added.
            feedback: what each builder reads.
            verdicts: how often each verdict was given.
            metrics: other counts; `own_repeats` of moves that were "taken" by the builder itself are no collisions.
        """
        is_last = self.turn + 1 == self.max_turns
        return Outcome(
            payoff(self._reward, quality, gain, threshold=self._threshold, is_last=is_last),
            feedback=feedback,
            terms={"quality_gain": gain},
            metrics={
                "quality": quality,
                "success": payoff("sparse", quality, gain, threshold=self._threshold, is_last=is_last),
                **{word: float(verdicts[word]) for word in ("ok", "taken", "wrong", "bad")},
                **{name: float(count) for name, count in metrics.items()},
                "collisions": float(verdicts["taken"] - metrics.get("own_repeats", 0)),
            },
        )


class MiniBuild(PartsEnv):
    """Two or more builders work down one goal of a part each per turn, without seeing each other's moves.

    The goal lists num_agents * max_turns parts with their materials, and all builders read it. Each turn each names one
    part and one material; the moves are applied in a random order; the first building of a part is final. The share of
    the goal that stands right is the quality.

    The default reward only asks for a quality of 0.6, which makes the game a task of memory. Builders that remember
    their own moves reach it in 96 % of the episodes without dividing the work; builders that name pairs of the goal at
    random reach it in 61 %. With reward="terminal" dividing the work pays: it earns 1, and memory alone 0.75.

    What a builder reads after a turn is the lever: with "cross", only the partners know whether a builder's own moves
    counted, so the value of the joint build shows in the joint history and not in either history alone.

    Args:
        split: "train" or "test"; no goal is in both.
        num_agents: builders, 2 to 8.
        max_turns: turns of an episode; a goal has a part for each builder in each turn, 24 at most.
        **kwargs: of `PartsEnv` and `TextParallelEnv`.

    Raises:
        ValueError: if a setting is none of the above.
    """

    metadata: ClassVar[dict[str, Any]] = {**PicturedEnv.metadata, "name": "mini_build_v0"}
    places = texts.PLACES
    allowed_exploits: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("random pairs", "random pairs, none again"),
        'the default asks for memory; `reward="terminal"` pays division',
    )

    def __init__(
        self,
        split: Split = "train",
        *,
        num_agents: int = 2,
        max_turns: int = 6,
        threshold: float = 0.6,
        **kwargs: Any,
    ):
        refuse_team(num_agents, max_turns)
        super().__init__(num_agents, max_turns, threshold=threshold, **kwargs)
        self.split = split
        self._site = Site(new_goal(0, num_agents * max_turns, split))
        self._verdicts = ()
        self._named: dict[str, frozenset[str]] = {}  # parts of the goal that each builder has named so far

    @property
    def goal(self) -> Goal:
        """What is to be built: (part, material) pairs, in the order of the prompts."""
        return self._site.goal

    def deal(self, task: Any) -> Mapping[str, Sequence[Message]]:
        number = self.rng.randrange(2**31) if task is None else task_number(task)
        self._site = Site(new_goal(number, len(self.possible_agents) * self.max_turns, self.split))
        self._verdicts = ()
        self._named = dict.fromkeys(self.possible_agents, frozenset())
        self.task = self._site.goal
        opening = {}
        for seat, agent in enumerate(self.possible_agents):
            own = texts.prompt(
                self._site.goal,
                seat,
                turns=self.max_turns,
                feedback=self._feedback,
                is_explained=self._is_explained,
                num_builders=len(self.possible_agents),
            )
            opening[agent] = self.opening(seat, own, goal=texts.goal_text(self.goal))
        return opening

    def play(self, replies: Mapping[str, str]) -> Outcome:
        before = quality(self._site)
        verdicts: dict[str, Verdict] = {}
        num_repeats = 0
        for agent in self.rng.sample(self.possible_agents, len(self.possible_agents)):
            move = texts.parsed_move(replies[agent])
            self._site, verdicts[agent] = placed(self._site, move)
            if move is not None and verdicts[agent] != "bad":
                num_repeats += verdicts[agent] == "taken" and move[0] in self._named[agent]
                self._named[agent] |= {move[0]}
        after = quality(self._site)
        self._verdicts = tuple(verdicts[agent] for agent in self.possible_agents)
        feedback = {
            agent: texts.verdict_text(self._feedback, own, [*self._verdicts[:seat], *self._verdicts[seat + 1 :]])
            for seat, (agent, own) in enumerate(zip(self.possible_agents, self._verdicts, strict=True))
        }
        # What is taken, a builder named itself in an earlier turn, or only others did.
        return self.judged(after, after - before, feedback, Counter(verdicts.values()), own_repeats=num_repeats)

    def panels(self) -> list[Row]:
        built = dict(self._site.built)
        wanted = [MATERIALS.index(material) + 1 for _, material in self.goal]
        stands = [MATERIALS.index(built[part]) + 1 if part in built else 0 for part, _ in self.goal]
        wrong = [one != other for one, other in zip(wanted, stands, strict=True)]
        return [Row("TARGET", [[wanted]]), Row("BUILT", [[stands]], [[wrong]])]

    def scene(self) -> str:
        built = dict(self._site.built)
        lines = (f"{part:<8} {material:<6} {built.get(part, '.')}\n" for part, material in self.goal)
        return f"{super().scene()}{''.join(lines)}"

    def truth(self) -> str:
        """What became of the moves, what stands right and wrong, and the quality so far."""
        return texts.truth_text(self._site, self._verdicts)

    def reference(self, agent: str) -> str:
        """The reply with which reference players complete the goal together."""
        seat = self.possible_agents.index(agent)
        return texts.reply(reference_move(self._site, seat, len(self.possible_agents)))

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        """Teams that copy pairs of the goal without dividing it, without and with memory."""
        players = {"random pairs": random_pair, "random pairs, none again": new_random_pair}
        return {name: partial(self._exploiting_reply, player) for name, player in players.items()}

    def _exploiting_reply(self, player: Callable[[Goal, int, int], Move], agent: str) -> str:
        return texts.reply(player(self._site.goal, self.possible_agents.index(agent), self.turn))

    def ceilings(self) -> Mapping[str, float]:
        return ceilings(len(self.possible_agents), self.max_turns, self._reward, self._threshold)


def task_number(task: Any) -> int:
    """The task that a reset asked for, as a number.

    Raises:
        ValueError: if it is none.
    """
    if isinstance(task, int) and not isinstance(task, bool) and task >= 0:
        return task
    raise ValueError(f"a task is the number of a goal in its split, a whole number from 0 up; got {task!r}")


def random_pair(goal: Goal, seat: int, turn: int) -> Move:
    """Any pair of the goal, also one that was named before; the same one for the same goal, seat and turn."""
    return random.Random(f"{goal} {seat} {turn}").choice(goal)


def new_random_pair(goal: Goal, seat: int, turn: int) -> Move:
    """A pair of the goal that this builder has not named before: entry `turn` of an order of its own."""
    return random.Random(f"{goal} {seat}").sample(goal, len(goal))[turn]
