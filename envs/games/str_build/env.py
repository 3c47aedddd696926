"""StrBuild: two builders write a word in blocks, each with blocks of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from ...core import Outcome
from ..building import BuildingEnv, WorldRule
from ..commands import Orders, allowed, read_orders
from ..pictures import Row, colours
from ..settings import refuse_other
from ..sources import GENERATED, Data, Split, rows_of_split, source_of
from . import exploits, prompts
from .rules import BLOCKS, HIGHEST_DIFFICULTY, MAX_COMMANDS, PALETTES, Word, missing, new_word, score, word

Reward = Literal["reference", "iou"]

_SAMPLE = Path(__file__).parent / "sample.csv"
_WANTED = len(BLOCKS)  # the kind of a picture's cell where some block is wanted


class StrBuild(BuildingEnv[Word]):
    """Two builders place single blocks to write a word; neighbours must differ, and both must use all their blocks.

    Both builders' commands are carried out, builder_0's first. The reward of every turn compares the world after it
    with the word.

    Args:
        split: "train" or "test"; or "all", of data that is a list.
        data: "generated" (random words of `difficulty` letters), "builtin" (ten words in the package), or a file or
            hub name with the columns "string" and "difficulty".
        difficulty: letters of a generated word, 1 to 8.
        max_turns: turns of an episode.
        world: "rebuilt" (every turn starts from an empty world) or "kept" (turns add to what stands).
        reward: "reference", the published score, at most 2 per turn; or "iou", 0 to 1 per turn, which pays nothing
            for an empty world. The published score is always in `metric/score`.
        feedback: what is read after a turn: "position" (all cells of the letters), "perfect" (what to change) or
            "score".
        shows_target: whether the first prompt shows the word; without, its cells are known from the second turn on.
        stop_at: a score at which the episode ends early; the published configurations stop at 1.9. None: never.
        shift: added to every turn's reward; the published configurations add -2, so that an early end is worth it.
        **kwargs: of `TextParallelEnv`.

    Raises:
        ValueError: if a setting is none of the above.
    """

    metadata: ClassVar[dict[str, Any]] = {**BuildingEnv.metadata, "name": "str_build_v0"}
    block_letters = ".wsco#"
    block_colours = (*colours(BLOCKS), (120, 180, 120))

    def __init__(
        self,
        split: Split = "train",
        *,
        data: Data = GENERATED,
        difficulty: int = 3,
        max_turns: int = 4,
        world: WorldRule = "rebuilt",
        reward: Reward = "reference",
        feedback: prompts.Feedback = "position",
        shows_target: bool = True,
        stop_at: float | None = None,
        shift: float = 0.0,
        **kwargs: Any,
    ):
        source = source_of(data, split, difficulty, highest=HIGHEST_DIFFICULTY, listed=words, new=new_word)
        super().__init__(source, max_turns, world=world, stop_at=stop_at, shift=shift, **kwargs)
        refuse_other("reward", reward, get_args(Reward))
        refuse_other("feedback", feedback, get_args(prompts.Feedback))
        self._reward: Reward = reward
        self._feedback: prompts.Feedback = feedback
        self._shows_target = shows_target

    def start(self) -> Mapping[str, str]:
        return {
            agent: prompts.prompt(
                self.task,
                builder,
                turns=self.max_turns,
                world=self._world_rule,
                shows_target=self._shows_target,
            )
            for builder, agent in enumerate(self.possible_agents)
        }

    def orders(self, reply: str, builder: int) -> Orders:
        return read_orders(
            reply,
            self.task.box,
            allowed(BLOCKS, PALETTES[builder]),
            verb="setblock",
            max_commands=MAX_COMMANDS // 2,
        )

    def scored(self, orders: tuple[Orders, Orders]) -> Outcome:
        result = score(self.task, self.world)
        value = result.published if self._reward == "reference" else result.strict
        terms = {
            "coverage": 2.0 * result.coverage,
            "extra": -1.5 * result.extra,
            "same_neighbours": -result.same_neighbours,
            "idle_palettes": -0.25 * result.num_idle,
        }
        text = partial(prompts.feedback, self._feedback, is_reminded=not self._shows_target and self.turn == 0)
        return Outcome(
            value,
            feedback=self.told(orders, value, result, text),
            terms=terms if self._reward == "reference" else {"iou": value},
            metrics={"score": result.published, "iou": result.iou, "same_neighbours": result.same_neighbours},
        )

    def panels(self) -> list[Row]:
        wanted = [[_WANTED if dot == "#" else 0 for dot in line] for line in self.task.rows]
        stands = self.world[::-1, 0, :].tolist()
        wrong = ((self.world[::-1, 0, :] != 0) != self.task.target[::-1, 0, :]).tolist()
        return [Row("TARGET", [wanted]), Row("BUILT", [stands], [wrong])]

    def reference_reply(self, agent: str) -> str:
        """The commands with which two reference players make the plan of the rules, worth 2."""
        return prompts.reply(missing(self.task, self.next_start, self.possible_agents.index(agent)))

    def exploits(self) -> Mapping[str, Callable[[str], str]]:
        """A team that fills the whole box."""
        return {"fill the whole box": lambda agent: exploits.whole_box(self.task, self.possible_agents.index(agent))}


def words(data: Data, split: Split) -> list[Word]:
    """The words of a file, a hub name, or the package's sample ("builtin"); rows have a "string" and a "difficulty"."""
    rows = rows_of_split(data, split, builtin=_SAMPLE, text_fields=("string",), other_fields=("difficulty",))
    return [word(row["string"], f"str_build_{number:04d}", int(row["difficulty"])) for number, row in rows]
