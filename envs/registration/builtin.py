"""Registration of collm's environments."""

from __future__ import annotations

from math import inf

from .registry import Range, register

Ranges = tuple[Range, Range]
_UNIT: Ranges = (0, 1), (0, 1)
_SUMMARY: Ranges = (0, 3.48), (0, 3.48)
_PROGRAM: Ranges = (0, 4), (0, 4)
_MAP: Ranges = (-inf, inf), (-inf, inf)  # depends on the map

# Columns: id without "collm/"; package with a module "env", or module of "games.talk", whose class has the name in the
# id; ranges of rewards per turn and of returns per episode; summary.
_BUILT_IN: tuple[tuple[str, str, Ranges, str], ...] = (
    ("MiniWriting-v2", "writing.mini_writing", _UNIT, "Writers divide the facts of an invented post."),
    ("TLDR-v2", "writing.documents", _SUMMARY, "Writers summarize a post: the first briefly, the others in detail."),
    ("ArxivExpansion-v2", "writing.documents", _SUMMARY, "Writers expand an abstract into an introduction."),
    ("MiniBuild-v0", "games.mini_build", _UNIT, "Builders divide one list of parts; reward at the end."),
    ("MiniShift-v0", "games.mini_shift", _UNIT, "Builders divide a new list per turn; reward at the end."),
    ("StrBuild-v2", "games.str_build", ((0, 1), (0, 4)), "Builders write a word in blocks; neighbours must differ."),
    ("HouseBuild-v2", "games.house_build", ((-0.1, 1), (-0.4, 4)), "Builders fill regions of blocks, layer by layer."),
    ("BridgeBuild-v2", "games.bridge_build", _MAP, "Two workers with limited sight build a bridge."),
    (
        *("ResourceGathering-v2", "games.resource_gathering", ((-3.2, 17.2), (-3.2, 17.2))),
        "Two gatherers have different tools and different observations.",
    ),
    ("HumanEval-v1", "coding.functions", _PROGRAM, "A helper and a main programmer complete a function."),
    ("MBPP-v1", "coding.functions", _PROGRAM, "A helper and a main programmer write a function from a text."),
    ("CoopHumanEval-v1", "coding.functions", _PROGRAM, "A helper and a main programmer write a function in two parts."),
    ("ClassEval-v1", "coding.classes", ((0, 6), (0, 6)), "Two programmers divide the methods of a class."),
    ("MiniCode-v1", "coding.mini_code", _UNIT, "A helper and a main programmer write one line of Python each."),
    ("TinyHanabi-v0", "games.talk.tiny_hanabi", _UNIT, "The first agent's action is also a message to the second."),
    ("Profile-v0", "games.talk.profile", _UNIT, "Agents exchange clues, and then each names the right option."),
    ("Advice-v0", "games.talk.advice", _UNIT, "An adviser informs a decider that has other interests."),
    ("MatrixGame-v0", "games.talk.matrix_game", _UNIT, "Repeated games of two actions, with announcements."),
)
_TALK = "channel", "noise", "max_words", "is_explained", "prompts"

_RANGE_PRESERVING: dict[str, tuple[str, ...]] = {
    "MiniWriting": ("num_agents", "is_explained", "prompts"),
    "MiniBuild": ("num_agents", "max_turns", "reward", "feedback", "threshold", "is_explained", "prompts"),
    "MiniShift": (
        *("num_agents", "max_turns", "reward", "feedback", "threshold", "is_shuffled", "is_explained", "prompts"),
    ),
    "TinyHanabi": ("game", *_TALK),
    "Profile": ("num_agents", "num_options", "num_messages", "links", *_TALK),
    "Advice": ("bias", *_TALK),
    "MatrixGame": ("game", "num_rounds", "num_messages", "is_shuffled", *_TALK),
}
"""Name of an environment -> arguments that do not change the ranges of rewards and returns."""
_MAX_NEW_TOKENS = {"MiniWriting": 48, "MiniCode": 48, "MiniBuild": 8, "MiniShift": 8}
_MAX_NEW_TOKENS |= {"TinyHanabi": 4, "Profile": 16, "Advice": 8, "MatrixGame": 4}
"""Maximum tokens per reply: at least twice the longest reference reply, in tokens of the model "tiny"."""

_STARTS = "MiniShift", "TinyHanabi", "Advice", "MatrixGame", "Profile"
"""Environments with a start checkpoint in `agents/tiny/starts`."""


def register_built_in() -> None:
    """Add collm's environments to the registry. The first `make` of an environment imports its module."""
    for versioned, package, (turn, episode), summary in _BUILT_IN:
        name = versioned.rpartition("-v")[0]
        module = package if package.startswith("games.talk.") else f"{package}.env"
        register(
            f"collm/{versioned}",
            f"collm.envs.{module}:{name}",
            summary=summary,
            reward_range=turn,
            return_range=episode,
            max_new_tokens=_MAX_NEW_TOKENS.get(name),
            start=f"tiny-{name}" if name in _STARTS else None,
            range_preserving_kwargs=_RANGE_PRESERVING.get(name, ()),
        )
