"""Prompts that a user gives in place of an environment's own: templates from a folder or a mapping, checked, filled."""

from __future__ import annotations

import os
import string
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from .core import Message

Templates = str | os.PathLike[str] | Mapping[str, str]
"""A mapping of texts by name, or a folder with a file `<name>.txt` for each."""

SYSTEM, PROMPT, DEFAULT = "system", "prompt", "default"


class Prompts:
    """What the agents read first: the environment's own text, or a template's.

    A template is a text with fields in braces, as in "Build {target}"; doubled braces stand for themselves. It is named
    after its reader ("builder_0"), or "prompt" for all agents that have none of their own. "system" is a system prompt
    for all. `{default}` is the environment's own prompt as a whole.

    Args:
        given: the templates; None: the environment's own prompts.
        agents: the environment's.
        fields: names that a template may use.
        needed: those of them without which an agent cannot know its task; `{default}` holds them all.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if a name is nobody's, an agent has no template, a template uses a field that the environment does
            not have, or lacks one that is needed.
    """

    def __init__(
        self, given: Templates | None, agents: Sequence[str], *, fields: Collection[str], needed: Collection[str] = ()
    ):
        texts = _read(given)
        names = (SYSTEM, PROMPT, *agents)
        known = sorted({*fields, DEFAULT})
        if strangers := sorted(set(texts) - set(names)):
            raise ValueError(f"prompts has {', '.join(map(repr, strangers))}; the names are {', '.join(names)}")
        if given is not None and not texts:
            raise ValueError(f"prompts is empty; give a template for one of {', '.join(names)}")
        for name, text in texts.items():
            used = _fields(name, text)
            if unknown := sorted(used - set(known)):
                raise ValueError(
                    f"the prompt {name!r} has the field {unknown[0]!r}; the fields are {', '.join(known)}, and "
                    "braces that stand for themselves are doubled"
                )
            lacking = sorted(set(needed) - used)
            if name != SYSTEM and lacking and DEFAULT not in used:
                raise ValueError(
                    f"the prompt {name!r} lacks {', '.join(f'{{{field}}}' for field in lacking)}, without which an "
                    f"agent cannot know its task; or it holds {{{DEFAULT}}}, the environment's own prompt"
                )
        has_prompts = bool(set(texts) - {SYSTEM})
        if lost := [agent for agent in agents if has_prompts and agent not in texts and PROMPT not in texts]:
            raise ValueError(
                f"prompts has none for {', '.join(lost)}; {PROMPT!r} is for all who have none of their own"
            )
        self._texts = texts

    def filled(self, agent: str, default: str, values: Mapping[str, Any]) -> str | list[Message]:
        """What an agent reads first: a text, or with a system prompt two messages.

        Args:
            agent: the reader.
            default: the environment's own prompt.
            values: what stands in the fields.
        """
        known = {**values, DEFAULT: default}
        template = self._texts.get(agent, self._texts.get(PROMPT))
        text = default if template is None else template.format(**known)
        if SYSTEM not in self._texts:
            return text
        return [Message("system", self._texts[SYSTEM].format(**known)), Message("user", text)]


def fields_of(template: str) -> tuple[str, ...]:
    """The names of a template's fields, in their order."""
    return tuple(dict.fromkeys(field for _, field, _, _ in string.Formatter().parse(template) if field is not None))


def _read(given: Templates | None) -> dict[str, str]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        if wrong := [name for name, text in given.items() if not isinstance(name, str) or not isinstance(text, str)]:
            raise ValueError(f"prompts must map names to texts; that of {wrong[0]!r} is {given[wrong[0]]!r}")
        return dict(given)
    folder = Path(given).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"prompts={str(given)!r} is no folder; give one with files like {PROMPT}.txt, or a mapping"
        )
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))}


def _fields(name: str, text: str) -> set[str]:
    try:
        used = set(fields_of(text))
    except ValueError as error:
        raise ValueError(
            f"the prompt {name!r} is no template: {error}; double braces that stand for themselves"
        ) from None
    if wrong := sorted(field for field in used if not field.isidentifier()):
        raise ValueError(f"the prompt {name!r} has the field {{{wrong[0]}}}; a field is a plain name")
    return used
