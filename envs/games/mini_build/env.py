"""MiniBuild: two builders, one list of parts, a reward at the end. The building task for small models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

from ...core import Outcome
from ..pictured import PicturedEnv
from ..pictures import Row
from ..settings import refuse_other
from . import prompts
from .rules import MATERIALS, MAX_TURNS, Goal, Site, Split, Verdict, new_goal, placed, quality, reference_move

Reward = Literal["sparse", "terminal", "dense"]

_AIR = (203, 222, 236)
_MATERIAL_COLOURS = (
    *((176, 137, 84), (125, 125, 125), (150, 74, 62), (160, 215, 225)),
    *((190, 120, 85), (200, 200, 205), (219, 206, 160), (250, 250, 250)),
)


class MiniBuild(PicturedEnv):
    """Two builders work down one goal of two parts per turn, without seeing each other's moves.

    The goal lists 2 * max_turns parts with their materials, and both builders read it. Each turn each names one part
    and one material; the moves are applied in a random order; the first building of a part is final. The share of the
    goal that stands right is the quality, and only perfect division of the work brings it to 1.

    What a builder reads after a turn is the lever: with "cross", only the partner knows whether a builder's own moves
    counted, so the value of the joint build shows in the joint history and not in either history alone.

    Args:
        split: "train" or "test"; no goal is in both.
        max_turns: 1 to 12; a goal has twice as many parts.
        reward: "sparse" (at the end 1 if the quality reached `threshold`, else 0), "terminal" (the quality, at the
            end) or "dense" (what a turn added to the quality). The maximum is 1 in each.
        feedback: which moves a builder hears about: "own", "cross" (the partner's), "both" (own first) or "none".
        threshold: the quality that counts as success, over 0 and at most 1.
        is_explained: whether the prompts state the rules in English, for a model that was not trained on the game.
        **kwargs: of `TextParallelEnv`.

    Raises:
        ValueError: if a setting is none of the above.
    """

    metadata: ClassVar[dict[str, Any]] = {**PicturedEnv.metadata, "name": "mini_build_v0"}
    block_letters = ".WSBGCINL"
    block_colours = (_AIR, *_MATERIAL_COLOURS)

    def __init__(
        self,
        split: Split = "train",
        *,
        max_turns: int = 6,
        reward: Reward = "sparse",
        feedback: prompts.Feedback = "cross",
        threshold: float = 0.6,
        is_explained: bool = False,
        **kwargs: Any,
    ):
        super().__init__(("builder_0", "builder_1"), max_turns, **kwargs)
        if max_turns > MAX_TURNS:
            raise ValueError(f"max_turns must be at most {MAX_TURNS} (a goal has two parts per turn), got {max_turns}")
        refuse_other("reward", reward, get_args(Reward))
        refuse_other("feedback", feedback, get_args(prompts.Feedback))
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold must be over 0 and at most 1, got {threshold}")
        self.split = split
        self._reward: Reward = reward
        self._feedback: prompts.Feedback = feedback
        self._threshold = threshold
        self._is_explained = is_explained
        self._site = Site(new_goal(0, 2 * max_turns, split))
        self._verdicts: tuple[Verdict, ...] = ()  # of the last moves, by seat

    @property
    def goal(self) -> Goal:
        """What is to be built: (part, material) pairs, in the order of the prompts."""
        return self._site.goal

    def deal(self, task: Any) -> Mapping[str, str]:
        number = self.rng.randrange(2**31) if task is None else _task_number(task)
        self._site = Site(new_goal(number, 2 * self.max_turns, self.split))
        self._verdicts = ()
        self.task = self._site.goal
        return {
            agent: prompts.prompt(
                self._site.goal, seat, turns=self.max_turns, feedback=self._feedback, is_explained=self._is_explained
            )
            for seat, agent in enumerate(self.possible_agents)
        }

    def play(self, replies: Mapping[str, str]) -> Outcome:
        before = quality(self._site)
        verdicts = {}
        for agent in self.rng.sample(self.possible_agents, 2):
            self._site, verdicts[agent] = placed(self._site, prompts.parsed_move(replies[agent]))
        after = quality(self._site)
        is_last = self.turn + 1 == self.max_turns
        is_success = is_last and after >= self._threshold - 1e-9
        rewards = {"dense": after - before, "terminal": after * is_last, "sparse": float(is_success)}
        counts = Counter(verdicts.values())
        first, second = self.possible_agents
        self._verdicts = verdicts[first], verdicts[second]
        return Outcome(
            rewards[self._reward],
            feedback={
                first: prompts.verdict_text(self._feedback, verdicts[first], verdicts[second]),
                second: prompts.verdict_text(self._feedback, verdicts[second], verdicts[first]),
            },
            terms={"quality_gain": after - before},
            metrics={
                "quality": after,
                "success": float(is_success),
                **{word: float(counts[word]) for word in ("ok", "taken", "wrong", "bad")},
            },
        )

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
        return prompts.truth_text(self._site, self._verdicts)

    def reference_reply(self, agent: str) -> str:
        """The reply with which two reference players complete the goal."""
        return prompts.reply(reference_move(self._site, agent == self.possible_agents[0]))


def _task_number(task: Any) -> int:
    try:
        return int(task)
    except (TypeError, ValueError):
        raise ValueError(f"a MiniBuild task is the number of a goal in its split, got {task!r}") from None
