"""Prompts of a user's own, in place of an environment's: templates with places to fill, in a mapping or a folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter

from .core import Message

Prompts = Mapping[str, str] | str | Path
SYSTEM, ALL, OWN = "system", "prompt", "default"
_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class Templates:
    """What agents read first: a text for each of them, and a system prompt."""

    texts: Mapping[str, str]
    """By agent, and by "prompt" for all that have none; who has neither reads the environment's own prompt."""
    system: str = ""
    """What stands before every first prompt as a message of role "system"; empty for none."""

    def opening(self, agent: str, fields: Mapping[str, str | int], own: str) -> list[Message]:
        """What the agent reads first.

        Args:
            agent: whose.
            fields: what stands in the places; braces in it stay as they are.
            own: the environment's own prompt, for an agent without a template, and for the place "{default}".
        """
        text = self.texts.get(agent, self.texts.get(ALL))
        known = {**fields, OWN: own}
        filled = own if text is None else _PLACE.sub(lambda place: str(known[place[1]]), text)
        return [*([Message(SYSTEM, self.system)] if self.system else []), Message("user", filled)]


def templates(prompts: Prompts | None, agents: Sequence[str], fields: Mapping[str, bool]) -> Templates:
    """The templates that a user gave.

    Args:
        prompts: a text for each agent by its name, or one by the name "prompt" for all that have none, and perhaps one
            by the name "system", as a mapping or as a folder of files `<name>.txt`; None for the environment's own. An
            agent may be left out.
        agents: who reads them.
        fields: the places that a text may have, as "{source}"; one of those that are true, or "{default}", the
            environment's own prompt, must stand in each agent's.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if a text is for nobody, has a place that nothing fills, or lacks what it needs.
    """
    if prompts is None:
        return Templates({})
    texts = dict(prompts) if isinstance(prompts, Mapping) else _texts_in(Path(prompts).expanduser())
    names = [*agents, ALL, SYSTEM]
    unknown = sorted(set(texts) - set(names))
    if unknown or not texts:
        raise ValueError(f"prompts must be texts for some of {names}, got {unknown or 'none'}")
    if wrong := [name for name, text in texts.items() if not isinstance(text, str)]:
        raise ValueError(f"the prompt of {wrong[0]!r} must be a text, got {texts[wrong[0]]!r}")
    fields = {**fields, OWN: True}
    needed = [name for name, is_needed in fields.items() if is_needed]
    for name, text in texts.items():
        places = set(_PLACE.findall(text)) if name != SYSTEM else set()
        strange = sorted(places - set(fields))
        if strange:
            raise ValueError(f"the prompt of {name!r} has a place {{{strange[0]}}}; filled are only {_named(fields)}")
        if name != SYSTEM and not places & set(needed):
            raise ValueError(f"the prompt of {name!r} does not tell the task; give it {_named(needed, ' or ')}")
    return Templates({name: text for name, text in texts.items() if name != SYSTEM}, texts.get(SYSTEM, ""))


def places_of(prompt: str, *needed: str) -> dict[str, bool]:
    """Places of an environment's own prompt, a format string; True for those of which a user's template needs one."""
    return {name: name in needed for _, name, _, _ in Formatter().parse(prompt) if name}


def _texts_in(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder of prompts at {folder}; give one with files such as writer_0.txt")
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))}


def _named(fields: Mapping[str, bool] | Sequence[str], between: str = ", ") -> str:
    return between.join(f"{{{name}}}" for name in fields)
