"""The environment MiniBuild, and the base class that it shares with MiniShift."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, get_args

from ...core import Message, Outcome
from ...templates import Prompts, templates
from ..pictured import PicturedEnv, refuse_other
from ..pictures import PanelRow
from . import prompts as texts
from . import rules
from .rules import MATERIALS, MAX_BUILDERS, PARTS, Goal, Reward, Site, Split, Verdict

_COLOURS = (
    (203, 222, 236),
    *((176, 137, 84), (125, 125, 125), (150, 74, 62), (160, 215, 225)),
    *((190, 120, 85), (200, 200, 205), (219, 206, 160), (250, 250, 250)),
)


class PartsEnv(PicturedEnv):
    """Base class of games in which builders name a part and a material per turn, without seeing each other's moves.

    Args:
        num_agents: builders, 2 to 8.
        max_turns: turns of an episode.
        reward: "sparse" (1 at the end if the quality is at least `threshold`, otherwise 0), "terminal" (the quality at
            the end) or "dense" (the increase of the quality per turn). The highest return is 1.
        feedback: moves whose results a builder reads: "own", "cross" (partners' moves), "both" (own first) or "none".
        threshold: minimum quality of a successful episode, above 0 and at most 1.
        is_explained: True adds the rules in English, for models that were not trained on the game.
        prompts: templates that replace the prompts, see `collm.envs.templates`.
        **kwargs: see `TextParallelEnv`.
    """

    truth_metric: ClassVar[str | None] = "quality"
    block_letters = ".WSBGCINL"
    block_colours = _COLOURS
    places: ClassVar[Mapping[str, bool]]
    """Placeholders of a prompt template. A template must contain at least one placeholder with the value True."""
    _verdicts: tuple[Verdict, ...]  # result of each builder's last move

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
        if isinstance(num_agents, bool) or num_agents not in range(2, MAX_BUILDERS + 1):
            raise ValueError(f"num_agents must be 2 to {MAX_BUILDERS}, got {num_agents!r}")
        super().__init__([f"builder_{seat}" for seat in range(num_agents)], max_turns, **kwargs)
        refuse_other("reward", reward, get_args(Reward))
        refuse_other("feedback", feedback, get_args(texts.Feedback))
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold={threshold} must be above 0 and at most 1")
        self._reward, self._threshold = reward, threshold
        self._feedback, self._is_explained = feedback, is_explained
        self._templates = templates(prompts, self.possible_agents, self.places)

    def openings(
        self, prompt: Callable[..., str], place: str, goals: Sequence[Goal], **settings: bool
    ) -> Mapping[str, Sequence[Message]]:
        """Return the first messages of each builder: `prompt`, or the user's template with the placeholder `place`."""
        turns, feedback, team = self.max_turns, self._feedback, len(self.possible_agents)
        opening = {}
        for seat, (agent, goal) in enumerate(zip(self.possible_agents, goals, strict=True)):
            own = prompt(
                goal,
                seat,
                turns=turns,
                feedback=feedback,
                is_explained=self._is_explained,
                num_builders=team,
                **settings,
            )
            values = {"seat": seat, "turns": turns, "feedback": feedback, "team": team, place: texts.goal_text(goal)}
            opening[agent] = self._templates.opening(agent, values, own)
        return opening

    def judged(
        self, quality: float, gain: float, feedback: Mapping[str, str], verdicts: Counter[Verdict], **metrics: int
    ) -> Outcome:
        """Return the outcome of a turn. `verdicts` counts the moves with each result.

        The metric `collisions` counts the results "taken" without a builder's repeats of its own moves (`own_repeats`).
        """
        is_last = self.turn + 1 == self.max_turns
        return Outcome(
            rules.payoff(self._reward, quality, gain, threshold=self._threshold, is_last=is_last),
            feedback=feedback,
            terms={"quality_gain": gain},
            metrics={
                "quality": quality,
                "success": rules.payoff("sparse", quality, gain, threshold=self._threshold, is_last=is_last),
                **{word: float(verdicts[word]) for word in ("ok", "taken", "wrong", "bad")},
                **{name: float(count) for name, count in metrics.items()},
                "collisions": float(verdicts["taken"] - metrics.get("own_repeats", 0)),
            },
        )

    @staticmethod
    def compared(sites: Sequence[Site]) -> list[PanelRow]:
        """Return the panels of the materials in all goals, and of the materials of which their parts are built."""
        wanted = [MATERIALS.index(material) + 1 for site in sites for _, material in site.goal]
        built = [dict(site.built).get(part) for site in sites for part, _ in site.goal]
        stands = [MATERIALS.index(material) + 1 if material else 0 for material in built]
        wrong = [one != other for one, other in zip(wanted, stands, strict=True)]
        return [PanelRow("TARGET", [[wanted]]), PanelRow("BUILT", [[stands]], [[wrong]])]


class MiniBuild(PartsEnv):
    """Two or more builders divide one list of parts, without seeing each other's moves.

    The goal lists num_agents * max_turns parts with their materials; all builders read it. In each turn, each builder
    names one part and one material. The moves are carried out in random order, and the first move on a part is final.
    The quality is the share of the goal that is built correctly.

    The default reward needs a quality of 0.6, which makes the game a memory task. Without dividing the work, builders
    that remember their own moves reach this quality in 96 % of the episodes, and builders that name random pairs in
    61 %. With reward="terminal", the return is 1 if the builders divide the work, and 0.75 with memory alone.

    With feedback "cross", only the partners read the results of a builder's moves, so no builder knows the quality.

    Args:
        split: "train" or "test"; no goal is in both.
        num_agents: builders, 2 to 8.
        max_turns: turns of an episode; num_agents * max_turns is at most 24.
        **kwargs: see `PartsEnv` and `TextParallelEnv`.

    Raises:
        ValueError: if a setting is invalid.
    """

    metadata: ClassVar[dict[str, Any]] = {**PicturedEnv.metadata, "name": "mini_build_v0"}
    places = texts.PLACES
    allowed_exploits: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("random pairs", "random pairs, none again"),
        'the default reward needs only memory; `reward="terminal"` rewards divided work',
    )

    def __init__(
        self, split: Split = "train", *, num_agents: int = 2, max_turns: int = 6, threshold: float = 0.6, **kwargs: Any
    ):
        super().__init__(num_agents, max_turns, threshold=threshold, **kwargs)
        if num_agents * max_turns > len(PARTS):
            raise ValueError(
                f"max_turns={max_turns} must be at most {len(PARTS) // num_agents} for {num_agents} builders, because "
                f"there are {len(PARTS)} parts"
            )
        self.split = split
        self._site = Site(rules.new_goal(0, num_agents * max_turns, split))
        self._verdicts = ()
        self._named: dict[str, frozenset[str]] = {}  # parts of the goal that each builder has named

    @property
    def goal(self) -> Goal:
        return self._site.goal

    def deal(self, task: Any) -> Mapping[str, Sequence[Message]]:
        number = self.rng.randrange(2**31) if task is None else task_number(task)
        self._site = Site(rules.new_goal(number, len(self.possible_agents) * self.max_turns, self.split))
        self._verdicts = ()
        self._named = dict.fromkeys(self.possible_agents, frozenset())
        self.task = self._site.goal
        return self.openings(texts.prompt, "goal", [self.goal] * len(self.possible_agents))

    def play(self, replies: Mapping[str, str]) -> Outcome:
        before = rules.quality(self._site)
        verdicts: dict[str, Verdict] = {}
        num_repeats = 0
        for agent in self.rng.sample(self.possible_agents, len(self.possible_agents)):
            move = texts.parsed_move(replies[agent])
            self._site, verdicts[agent] = rules.placed(self._site, move)
            if move is not None and verdicts[agent] != "bad":
                num_repeats += verdicts[agent] == "taken" and move[0] in self._named[agent]
                self._named[agent] |= {move[0]}
        after = rules.quality(self._site)
        self._verdicts = tuple(verdicts[agent] for agent in self.possible_agents)
        feedback = {
            agent: texts.verdict_text(self._feedback, own, [*self._verdicts[:seat], *self._verdicts[seat + 1 :]])
            for seat, (agent, own) in enumerate(zip(self.possible_agents, self._verdicts, strict=True))
        }
        return self.judged(after, after - before, feedback, Counter(verdicts.values()), own_repeats=num_repeats)

    def panels(self) -> list[PanelRow]:
        return self.compared([self._site])

    def scene(self) -> str:
        built = dict(self._site.built)
        lines = (f"{part:<8} {material:<6} {built.get(part, '.')}\n" for part, material in self.goal)
        return f"{super().scene()}{''.join(lines)}"

    def truth(self) -> str:
        return texts.truth_text(self._site, self._verdicts)

    def reference(self, agent: str) -> str:
        """Return the reply of the reference player. A team of such players builds each part once."""
        seat = self.possible_agents.index(agent)
        return texts.reply(rules.reference_move(self._site, seat, len(self.possible_agents)))

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        def random_pair(agent: str) -> str:
            seat = self.possible_agents.index(agent)
            return texts.reply(random.Random(f"{self.goal} {seat} {self.turn}").choice(self.goal))

        def new_random_pair(agent: str) -> str:
            seat = self.possible_agents.index(agent)
            return texts.reply(random.Random(f"{self.goal} {seat}").sample(self.goal, len(self.goal))[self.turn])

        return {"random pairs": random_pair, "random pairs, none again": new_random_pair}

    def ceilings(self) -> Mapping[str, float]:
        return rules.ceilings(len(self.possible_agents), self.max_turns, self._reward, self._threshold)


def task_number(task: Any) -> int:
    if isinstance(task, int) and not isinstance(task, bool) and task >= 0:
        return task
    raise ValueError(f"task={task!r} must be the number of a goal, an integer >= 0")
