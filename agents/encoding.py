"""Transcript → token ids: append-only, token-exact, and nobody's text becomes a control token.

A prompt of a later turn is the earlier prompt, the completion as it was sampled, and the ids of what was appended. So
one forward pass over the last turn's tokens gives every turn's log-probabilities, and nothing is tokenized twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from .._errors import UserError
from ..envs.core import Message, messages_of
from .core import Completion

# Private-use characters that stand for a message's content while the chat template is rendered.
_OPEN, _CLOSE = "\ue000", "\ue001"
_SLOT = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")
# Added tokens that are not "special" may be ordinary words (runs of spaces, say); those of this shape are not.
_CONTROL_SHAPE = re.compile(r"[<\[].+[>\]]", re.DOTALL)

MAX_KEPT_TOKENS = 2**18  # the default replay of a critic of short games, and some megabytes
ENTRY = 256  # tokens that take as much memory as what an entry needs besides: its text, messages and containers

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """The tokens of one completion."""

    prompt_ids: NDArray[np.int64]
    """[S] all that the model read: history, own earlier completions, prompt."""
    completion_ids: NDArray[np.int64]
    """[T] as sampled; the end-of-text token is one of them where it was sampled."""
    is_extension: bool
    """True where `prompt_ids` begins with the previous turn's prompt and completion."""
    observation: str
    """What the prompt was encoded from."""


class Encoder:
    """Turns observations into prompts, and completions into text, for one tokenizer.

    Args:
        tokenizer: any Hugging Face tokenizer.
        is_chat: feed the messages through the tokenizer's chat template; False feeds the transcript's plain text,
            each message closed by a line end, or by the end-of-text token where it is the reader's own.
        template_kwargs: passed to the chat template, such as {"enable_thinking": False}.

    Raises:
        ValueError: if the tokenizer lacks an end-of-text token, or a chat template where one is asked for.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        is_chat: bool = False,
        template_kwargs: dict[str, Any] | None = None,
    ):
        if tokenizer.eos_token_id is None:
            raise ValueError("the tokenizer has no end-of-text token; set tokenizer.eos_token, completions end with it")
        if is_chat and not tokenizer.chat_template:
            raise ValueError(
                f"the tokenizer {tokenizer.name_or_path!r} has no chat template; use is_chat=False (plain text), "
                "or set tokenizer.chat_template"
            )
        self.tokenizer = tokenizer
        self.is_chat = is_chat
        self.template_kwargs = template_kwargs or {}
        self.end_id = int(tokenizer.eos_token_id)
        added = tokenizer.added_tokens_decoder
        self._control = {
            int(index): token.content
            for index, token in added.items()
            if token.special or _CONTROL_SHAPE.fullmatch(token.content)
        }
        # A look-ahead finds overlapping spellings too.
        self._control_text = re.compile(f"(?={'|'.join(map(re.escape, self._control.values()))})")
        # Posts come back in every epoch; replies never do, but in a critic's replay.
        self._encoded: Recent[list[int]] = Recent(MAX_KEPT_TOKENS, len)
        empty: list[int] = tokenizer("", add_special_tokens=True)["input_ids"]
        self._start = empty[:1] if tokenizer.bos_token_id is not None and empty[:1] == [tokenizer.bos_token_id] else []
        # The token that closes a turn is the template's, where it differs from the model's end-of-text token.
        self.stop_ids = frozenset({self.end_id} | ({self._turn_end()} if is_chat else set()))

    def prompt(self, observation: str, previous: Completion | None = None) -> tuple[NDArray[np.int64], bool]:
        """The ids that the model reads before it answers, and whether they extend the previous turn's."""
        if previous is not None:
            appended = self._appended(observation, previous)
            if appended is not None:
                tokens: TokenRecord = previous.tokens
                return np.concatenate([tokens.prompt_ids, tokens.completion_ids, appended]), True
        messages = messages_of(observation)
        ids = self._chat(messages) if self.is_chat else self._start + self._plain(messages)
        return np.asarray(ids, dtype=np.int64), False

    def text(self, completion_ids: Sequence[int] | NDArray[np.int64]) -> str:
        """What a completion says: without the end-of-text token, and without any other control token."""
        kept = [int(index) for index in completion_ids if int(index) not in self._control and index != self.end_id]
        return str(self.tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def content(self, text: str) -> list[int]:
        """The ids of a piece of text in which no control token is read, whatever it says."""
        return self._encoded.get(text, lambda: self._harmless(text))

    def _appended(self, observation: str, previous: Completion) -> NDArray[np.int64] | None:
        """Ids of what was added after the previous completion; None where the history was rewritten."""
        tokens: TokenRecord = previous.tokens
        old, new = messages_of(tokens.observation), messages_of(observation)
        reply = len(old)
        is_grown = len(new) > reply and new[:reply] == old and new[reply][:2] == ("assistant", previous.action)
        if not is_grown:
            return None
        ids = self._chat_suffix(new, reply) if self.is_chat else [self.end_id, *self._plain(new[reply + 1 :])]
        ends_itself = len(tokens.completion_ids) > 0 and int(tokens.completion_ids[-1]) in self.stop_ids
        if ends_itself and ids and ids[0] in self.stop_ids:
            ids = ids[1:]  # the turn was closed by the model itself
        return np.asarray(ids, dtype=np.int64)

    def _plain(self, messages: Sequence[Message]) -> list[int]:
        return [
            index
            for message in messages
            for index in (
                [*self.content(message.content), self.end_id]
                if message.role == "assistant"
                else self.content(f"{message.content}\n")
            )
        ]

    def _chat(self, messages: Sequence[Message]) -> list[int]:
        return self._filled(self._rendered(messages), messages)

    def _chat_suffix(self, messages: Sequence[Message], reply: int) -> list[int]:
        """What the template puts after the reply: its closing token, later messages, the opening of the next turn."""
        rendered = self._rendered(messages)
        slot = f"{_OPEN}{reply}{_CLOSE}"
        if rendered.count(slot) != 1:
            raise ValueError(
                "this chat template does not show each reply once, as multi-turn training needs; "
                "use is_chat=False, or another template"
            )
        return self._filled(rendered.split(slot)[1], messages)

    def _rendered(self, messages: Sequence[Message]) -> str:
        slots = [{"role": message.role, "content": f"{_OPEN}{i}{_CLOSE}"} for i, message in enumerate(messages)]
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    slots, tokenize=False, add_generation_prompt=True, **self.template_kwargs
                )
            )
        except Exception as error:  # whatever a template of others raises, or does with its arguments
            said = " ".join(str(error).split())[:300]
            raise UserError(
                f"the chat template of the tokenizer {self.tokenizer.name_or_path!r} fails ({type(error).__name__}: "
                f"{said}); use another template or template_kwargs, or is_chat=False"
            ) from error

    def _filled(self, rendered: str, messages: Sequence[Message]) -> list[int]:
        """Encode a rendered template: its own text with control tokens, the messages' contents without."""
        ids: list[int] = []
        for i, piece in enumerate(_SLOT.split(rendered)):
            ids += self.content(messages[int(piece)].content) if i % 2 else self._encode(piece)
        return ids

    def _turn_end(self) -> int:
        messages = [Message("user", "."), Message("assistant", "."), Message("user", ".")]
        suffix = self._chat_suffix(messages, 1)
        return suffix[0] if suffix and suffix[0] in self._control else self.end_id

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) if text else []

    def _harmless(self, text: str) -> list[int]:
        """Encode in pieces none of which spells a control token: each that is spelled is cut after its first letter."""
        cuts = [found.start() + 1 for found in self._control_text.finditer(text)] if self._control else []
        pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        ids = [index for piece in pieces for index in self._encode(piece)]
        if self._control.keys().isdisjoint(ids):
            return ids
        # Spelled only after the tokenizer's own normalization; letter by letter it cannot be.
        letters = [index for letter in text for index in self._encode(letter)]
        return [index for index in letters if index not in self._control]


class Recent(Generic[Value]):
    """Values by key, as many of the last used as fit.

    A bound on their number would be none: over thousands of updates, texts of any length come and never come back.

    Args:
        max_size: most tokens that all values together may have, each counted as `ENTRY` more than it has.
        size_of: tokens of a value.
    """

    def __init__(self, max_size: int, size_of: Callable[[Value], int]):
        self.max_size = max_size
        self.size = 0
        self._size_of = size_of
        self._values: dict[Hashable, Value] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key; made where it is not kept."""
        value = self._values.pop(key, None)
        if value is None:
            value = make()
            self.size += self._size_of(value) + ENTRY
        self._values[key] = value
        while self.size > self.max_size and len(self._values) > 1:
            oldest = next(iter(self._values))
            self.size -= self._size_of(self._values.pop(oldest)) + ENTRY
        return value
