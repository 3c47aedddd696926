"""Registration of collm's environments."""

from __future__ import annotations

from math import inf

from .registry import Range, register

_BUILT_IN = (
    ("collm/MiniWriting-v2", "writing.mini_writing.env:MiniWriting", "Writers divide the facts of an invented post."),
    (
        *("collm/TLDR-v2", "writing.documents.env:TLDR"),
        "Writers summarize a post: the first briefly, the others in detail.",
    ),
    (
        *("collm/ArxivExpansion-v2", "writing.documents.env:ArxivExpansion"),
        "Writers expand an abstract into an introduction.",
    ),
    ("collm/MiniBuild-v0", "games.mini_build.env:MiniBuild", "Builders divide one list of parts; reward at the end."),
    ("collm/MiniShift-v0", "games.mini_shift.env:MiniShift", "Builders divide a new list per turn; reward at the end."),
    ("collm/StrBuild-v2", "games.str_build.env:StrBuild", "Builders write a word in blocks; neighbours must differ."),
    ("collm/HouseBuild-v2", "games.house_build.env:HouseBuild", "Builders fill regions of blocks, layer by layer."),
    ("collm/BridgeBuild-v2", "games.bridge_build.env:BridgeBuild", "Two workers with limited sight build a bridge."),
    (
        "collm/ResourceGathering-v2",
        "games.resource_gathering.env:ResourceGathering",
        "Two gatherers with different tools, who see different things.",
    ),
    ("collm/HumanEval-v1", "coding.functions.env:HumanEval", "A helper and a main programmer complete a function."),
    ("collm/MBPP-v1", "coding.functions.env:MBPP", "A helper and a main programmer write a function from a text."),
    ("collm/CoopHumanEval-v1", "coding.functions.env:CoopHumanEval", "Functions whose solution has two parts."),
    ("collm/ClassEval-v1", "coding.classes.env:ClassEval", "Two programmers divide the methods of a class."),
    ("collm/MiniCode-v1", "coding.mini_code.env:MiniCode", "A helper and a main programmer, one line of Python each."),
)

_PROGRAMS: tuple[Range, Range] = (0, 4), (0, 4)
_RANGES: dict[str, tuple[Range, Range]] = {
    "collm/MiniWriting": ((0, 1), (0, 1)),
    "collm/TLDR": ((0, 3.48), (0, 3.48)),
    "collm/ArxivExpansion": ((0, 3.48), (0, 3.48)),
    "collm/MiniBuild": ((0, 1), (0, 1)),
    "collm/MiniShift": ((0, 1), (0, 1)),
    "collm/StrBuild": ((0, 1), (0, 4)),
    "collm/HouseBuild": ((-0.1, 1), (-0.4, 4)),
    "collm/BridgeBuild": ((-inf, inf), (-inf, inf)),
    "collm/ResourceGathering": ((-3.2, 17.2), (-3.2, 17.2)),
    "collm/HumanEval": _PROGRAMS,
    "collm/MBPP": _PROGRAMS,
    "collm/CoopHumanEval": _PROGRAMS,
    "collm/ClassEval": ((0, 6), (0, 6)),
    "collm/MiniCode": ((0, 1), (0, 1)),
}
"""Range of rewards per turn, and range of returns per episode. Keys: ids without version. In BridgeBuild, the ranges
depend on the map."""

_RANGE_PRESERVING: dict[str, tuple[str, ...]] = {
    "collm/MiniWriting": ("num_agents", "prompts"),
    "collm/MiniBuild": ("num_agents", "max_turns", "reward", "feedback", "threshold", "is_explained", "prompts"),
    "collm/MiniShift": (
        *("num_agents", "max_turns", "reward", "feedback", "threshold", "is_shuffled", "is_explained", "prompts"),
    ),
}
"""Arguments that do not change the ranges. Keys: ids without version."""

_MAX_NEW_TOKENS = {"collm/MiniWriting": 48, "collm/MiniCode": 48, "collm/MiniBuild": 8, "collm/MiniShift": 8}
"""Token limits per reply: at least twice the longest reference reply, in tokens of the model that collm contains."""


def register_built_in() -> None:
    """Add collm's environments to the registry. The first `make` of an environment imports its module."""
    for id, entry_point, summary in _BUILT_IN:
        name = id.rpartition("-v")[0]
        turn, episode = _RANGES[name]
        register(
            id,
            f"collm.envs.{entry_point}",
            summary=summary,
            reward_range=turn,
            return_range=episode,
            max_new_tokens=_MAX_NEW_TOKENS.get(name),
            range_preserving_kwargs=_RANGE_PRESERVING.get(name, ()),
        )
