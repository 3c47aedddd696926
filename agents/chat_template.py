"""Chat templates: which roles a template shows, and texts of conversations. No tokens.

A template may refuse or merge neighboring messages of one role, and system messages. `ChatTemplate` finds this out with
short conversations, and joins the texts of such messages.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from inspect import signature
from typing import Any
from uuid import uuid4

from jinja2 import Environment
from transformers import PreTrainedTokenizerBase

from .._errors import UserError
from ..envs.core import THOUGHT, THOUGHT_END

# Marks are single code points that are no characters, so texts do not contain them, and templates do not divide them.
REPLY = "\ufdd0"  # stands for a reply whose place in the rendered text is needed
_SLOTS = "\ufdd2\ufdd3\ufdd4\ufdd5"  # stand for messages
MAX_STEPS = 100_000  # limit of a rendering, because templates of other people may run for years
MAX_ADDED = 1_000_000  # characters
_TOKENS = Environment(keep_trailing_newline=True)
DATE = "strftime_now"  # template argument: date that templates print instead of today's date, such as "2026-01-31"


class ChatTemplate:
    """Chat template of a tokenizer.

    Args:
        tokenizer: tokenizer with a chat template.
        arguments: arguments of the template. `strftime_now`: a date, which replaces today's date. `chat_template`: name
            of the template, if the tokenizer has several.

    Raises:
        UserError: if the template fails for a message of the user and a reply, takes too many steps, or does not render
            messages in their order, once.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, arguments: Mapping[str, Any]):
        reserved = {"messages", *signature(tokenizer.apply_chat_template).parameters} - {"chat_template"}
        for name in sorted(reserved & arguments.keys()):
            raise UserError(f"template_kwargs has {name!r}, which collm sets itself; leave it out")
        self._tokenizer = tokenizer
        source = tokenizer.get_chat_template(arguments.get("chat_template"))
        self.prints_date = DATE in source and DATE not in arguments
        """True if the template prints today's date, because the arguments have no fixed date."""
        self._arguments = {name: value for name, value in arguments.items() if name not in (DATE, "chat_template")}
        self.names = frozenset(text for _, kind, text in _TOKENS.lex(source) if kind == "name")
        """Names of variables in the template, and its keywords."""
        self._template = _with_limit(_with_date(source, arguments[DATE]) if DATE in arguments else source)
        self.prompt = self.render([("user", ".")])
        self._joins_neighbors = not self._shows("user", "user")
        self._takes_system = self._shows("system", "user"), self._shows("user", "assistant", "system", "user")
        before, after = self.split([("user", _SLOTS[0]), ("assistant", REPLY), ("user", _SLOTS[1])])
        if _SLOTS[0] not in before or _SLOTS[1] not in after:
            raise UserError("the chat template does not render messages in their order; use another, or is_chat=False")
        before, self.after_reply = self.split([("user", "."), ("assistant", REPLY), ("user", ".")])
        has_prompt = self.prompt != self.render([("user", ".")], is_prompt=False)
        self.opening = before.removeprefix(self.prompt) if has_prompt and before.startswith(self.prompt) else ""
        """Text between the generation prompt and a reply, such as the name of a channel."""
        thinking = f"{THOUGHT}\n.{_SLOTS[0]}.\n{THOUGHT_END}\n\n{REPLY}"
        before, _ = self.split([("user", "."), ("assistant", thinking), ("user", ".")])
        self.keeps_thoughts = before.startswith(self.prompt) and f".{_SLOTS[0]}." in before
        """True if earlier replies keep their thoughts, and begin as the generation prompt does."""

    def render(self, messages: Sequence[tuple[str, str]], *, is_prompt: bool = True) -> str:
        """Render pairs of a role and a text. `is_prompt`: add the generation prompt."""
        chat: list[dict[str, str]] = []
        was_moved = False
        for number, (role, text) in enumerate(messages):
            is_moved = role == "system" and not self._takes_system[number > 0]
            role = "user" if is_moved else role
            if chat and chat[-1]["role"] == role and (self._joins_neighbors or is_moved or was_moved):
                chat[-1]["content"] += f"\n\n{text}"
            else:
                chat.append({"role": role, "content": text})
            was_moved = is_moved
        return self._apply(chat, is_prompt)

    def split(self, messages: Sequence[tuple[str, str]], *, is_prompt: bool = True) -> tuple[str, str]:
        """Render messages, of which one contains `REPLY`. Return the texts before and after it."""
        rendered = self.render(messages, is_prompt=is_prompt)
        if (count := rendered.count(REPLY)) != 1:
            raise UserError(
                f"the chat template renders a reply {count} times, but multi-turn training needs it once; use "
                "is_chat=False, or another template"
            )
        before, _, after = rendered.partition(REPLY)
        return before, after

    def _shows(self, *roles: str) -> bool:
        """Return True if the template renders each message of these roles once, in order, with text between them."""
        slots = _SLOTS[: len(roles)]
        try:
            rendered = self._apply([{"role": role, "content": slot} for role, slot in zip(roles, slots, strict=True)])
        except UserError:
            return False
        texts = re.split(f"[{_SLOTS}]", rendered)
        return [slot for slot in rendered if slot in _SLOTS] == list(slots) and all(map(str.strip, texts[1:-1]))

    def _apply(self, chat: list[dict[str, str]], is_prompt: bool = True) -> str:
        settings: dict[str, Any] = {"tokenize": False, "add_generation_prompt": is_prompt}
        try:
            text = str(
                self._tokenizer.apply_chat_template(chat, chat_template=self._template, **settings, **self._arguments)
            )
            if len(text) > MAX_ADDED + sum(len(message["content"]) for message in chat):
                raise ValueError(f"it adds more than {MAX_ADDED} characters to the messages")
            return text
        except Exception as error:  # templates may raise anything
            said = " ".join(str(error).split())[:300]
            raise UserError(
                f"the chat template of the tokenizer {self._tokenizer.name_or_path!r} fails ({type(error).__name__}: "
                f"{said}); use another template or template_kwargs, or is_chat=False"
            ) from error


def _with_date(template: str, day: Any) -> str:
    """Return a template that prints a fixed date, such as "2026-01-31", instead of today's date."""
    try:
        fixed = date.fromisoformat(day)
    except (TypeError, ValueError) as error:
        raise UserError(f"template_kwargs {DATE}={day!r} must be a date, such as 2026-01-31") from error
    # transformers replaces functions among the arguments by texts, so a macro with all formats replaces the function.
    texts = {ast.literal_eval(text) for _, kind, text in _TOKENS.lex(template) if kind == "string"}
    dates = json.dumps({text: fixed.strftime(text) for text in sorted(texts) if "%" in text})
    return f"{{% macro {DATE}(format) %}}{{{{ {dates}[format] }}}}{{% endmacro %}}\n{template}"


def _with_limit(template: str) -> str:
    """Return a template that raises an error after `MAX_STEPS` iterations of loops and calls of macros and blocks."""
    steps = f"steps_{uuid4().hex}"  # a name that no template contains
    # An iterator is the fastest counter of Jinja. The function is stored, because templates may replace it.
    parts = [f"{{% set {steps}, {steps}_fail = range({MAX_STEPS})|map('abs'), raise_exception %}}\n"]
    count = f"{{% if {steps}|first is undefined %}}{{{{ {steps}_fail('it takes more than {MAX_STEPS} steps') }}}}"
    count += "{% endif "
    statement = ""
    for _, kind, text in _TOKENS.lex(template):
        parts.append(text)
        if kind == "block_begin":
            statement = ""
        elif kind == "name":
            statement = statement or text
        elif kind == "block_end" and statement in ("for", "macro", "call", "block"):
            parts.append(count + text.strip())  # the same end, which controls white space
    return "".join(parts)
