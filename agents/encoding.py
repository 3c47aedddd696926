"""Tokenization of histories without control tokens in messages. The prompt of a turn extends the tokens of the previous
turn, so one forward pass over the tokens of the last turn gives the log-probabilities of all turns."""

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

# Unicode private-use characters that mark placeholders for messages while the chat template is rendered.
_OPEN, _CLOSE = "\ue000", "\ue001"
_SLOT = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")
# Added tokens without the flag "special" are control tokens if they match this pattern, else ordinary words.
_CONTROL_SHAPE = re.compile(r"[<\[].+[>\]]", re.DOTALL)

MAX_KEPT_TOKENS = 2**18  # a few megabytes; enough for the default replay buffer in short games
ENTRY = 256  # memory of a cache entry's key and containers, in units of one token's memory

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """Token ids of one completion and its prompt."""

    prompt_ids: NDArray[np.int64]  # [S] token ids of the history, including the agent's previous completions
    completion_ids: NDArray[np.int64]  # [T] sampled token ids, including the end-of-text token if it was sampled
    is_extension: bool  # True if `prompt_ids` starts with the previous turn's prompt and completion
    observation: str  # observation that `prompt_ids` encodes


class Encoder:
    """Encodes observations as prompts and decodes completions, for one tokenizer.

    Args:
        tokenizer: Hugging Face tokenizer.
        is_chat: apply the tokenizer's chat template. False: plain text. A newline ends each message, and the
            end-of-text token ends each reply of the agent.
        template_kwargs: arguments of the chat template, such as {"enable_thinking": False}.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        is_chat: bool = False,
        template_kwargs: dict[str, Any] | None = None,
    ):
        if tokenizer.eos_token_id is None:
            raise ValueError("the tokenizer has no end-of-text token, which ends completions; set tokenizer.eos_token")
        if is_chat and not tokenizer.chat_template:
            raise ValueError(
                f"the tokenizer {tokenizer.name_or_path!r} has no chat template; set it, or use is_chat=False"
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
        # The look-ahead also finds overlapping matches.
        self._control_text = re.compile(f"(?={'|'.join(map(re.escape, self._control.values()))})")
        # The environment's messages are encoded again in every epoch, agents' replies only in a critic's replay buffer.
        self._encoded: Recent[list[int]] = Recent(MAX_KEPT_TOKENS, len)
        empty: list[int] = tokenizer("", add_special_tokens=True)["input_ids"]
        self._start = empty[:1] if tokenizer.bos_token_id is not None and empty[:1] == [tokenizer.bos_token_id] else []
        self.stop_ids = frozenset({self.end_id})
        self.reply_end_id = self.end_id  # the token after a reply
        if is_chat:  # a chat template may end turns with another token than the model's end-of-text token
            suffix = self._chat_suffix([Message("user", "."), Message("assistant", "."), Message("user", ".")], 1)
            self.stop_ids |= self._control.keys() & suffix[:1]
            self.reply_end_id = next((index for index in suffix[:1] if index in self._control), self.end_id)

    def prompt(self, observation: str, previous: Completion | None = None) -> tuple[NDArray[np.int64], bool]:
        """Return the prompt's token ids [S], and True if the prompt extends the tokens of the previous turn."""
        if previous is not None:
            appended = self._appended(observation, previous)
            if appended is not None:
                tokens: TokenRecord = previous.tokens
                return np.concatenate([tokens.prompt_ids, tokens.completion_ids, appended]), True
        messages = messages_of(observation)
        if self.is_chat:
            ids = self._filled(self._rendered(messages), messages)
        else:
            ids = self._start + self.plain(messages)
        return np.asarray(ids, dtype=np.int64), False

    def text(self, completion_ids: Sequence[int] | NDArray[np.int64]) -> str:
        """Decode a completion without control tokens."""
        kept = [int(index) for index in completion_ids if int(index) not in self._control and index != self.end_id]
        return str(self.tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def content(self, text: str) -> list[int]:
        """Encode text as ordinary tokens, even if the text contains the names of control tokens."""
        return self._encoded.get(text, lambda: self._harmless(text))

    def _appended(self, observation: str, previous: Completion) -> NDArray[np.int64] | None:
        """Return the token ids of the messages after the previous completion. None: the history was rewritten."""
        tokens: TokenRecord = previous.tokens
        old, new = messages_of(tokens.observation), messages_of(observation)
        reply = len(old)
        is_grown = len(new) > reply and new[:reply] == old and new[reply][:2] == ("assistant", previous.action)
        if not is_grown:
            return None
        ids = self._chat_suffix(new, reply) if self.is_chat else [self.end_id, *self.plain(new[reply + 1 :])]
        ends_itself = len(tokens.completion_ids) > 0 and int(tokens.completion_ids[-1]) in self.stop_ids
        if ends_itself and ids and ids[0] in self.stop_ids:
            ids = ids[1:]  # the completion already contains this token
        return np.asarray(ids, dtype=np.int64)

    def plain(self, messages: Sequence[Message]) -> list[int]:
        """Encode messages without a chat template: a newline ends each message, the end-of-text token each reply."""
        ids: list[int] = []
        for message in messages:
            is_reply = message.role == "assistant"
            ids += [*self.content(message.content), self.end_id] if is_reply else self.content(f"{message.content}\n")
        return ids

    def _chat_suffix(self, messages: Sequence[Message], reply: int) -> list[int]:
        """Encode the text that the chat template puts after message number `reply`."""
        rendered = self._rendered(messages)
        slot = f"{_OPEN}{reply}{_CLOSE}"
        if rendered.count(slot) != 1:
            raise ValueError(
                f"the chat template renders a reply {rendered.count(slot)} times, but multi-turn training needs it "
                "once; use is_chat=False, or another template"
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
        except Exception as error:  # templates may raise anything
            said = " ".join(str(error).split())[:300]
            raise UserError(
                f"the chat template of the tokenizer {self.tokenizer.name_or_path!r} fails ({type(error).__name__}: "
                f"{said}); use another template or template_kwargs, or is_chat=False"
            ) from error

    def _filled(self, rendered: str, messages: Sequence[Message]) -> list[int]:
        """Encode a rendered chat template. Only the template's own text may become control tokens."""
        ids: list[int] = []
        for i, piece in enumerate(_SLOT.split(rendered)):
            ids += self.content(messages[int(piece)].content) if i % 2 else self._encode(piece)
        return ids

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) if text else []

    def _harmless(self, text: str) -> list[int]:
        """Encode text without control tokens: the name of each control token is cut after its first character."""
        cuts = [found.start() + 1 for found in self._control_text.finditer(text)] if self._control else []
        pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        ids = [index for piece in pieces for index in self._encode(piece)]
        if self._control.keys().isdisjoint(ids):
            return ids
        # The tokenizer's normalization can turn several characters, but not one character, into a control token.
        letters = [index for letter in text for index in self._encode(letter)]
        return [index for index in letters if index not in self._control]


class Recent(Generic[Value]):
    """LRU cache with a limit on the total number of tokens (plus `ENTRY` per value). A single value may exceed it."""

    def __init__(self, max_size: int, size_of: Callable[[Value], int]):
        self.max_size = max_size
        self.size = 0
        self._size_of = size_of
        self._values: dict[Hashable, Value] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        value = self._values.pop(key, None)
        if value is None:
            value = make()
            self.size += self._size_of(value) + ENTRY
        self._values[key] = value
        while self.size > self.max_size and len(self._values) > 1:
            oldest = next(iter(self._values))
            self.size -= self._size_of(self._values.pop(oldest)) + ENTRY
        return value
