"""Tokenization of histories without control tokens in messages. The prompt of a turn extends the tokens of the previous
turn, so one forward pass over the tokens of the last turn gives the log-probabilities of all turns."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .._errors import UserError
from ..envs.core import THOUGHT, Message, messages_of
from .chat_template import REPLY, ChatTemplate
from .config import HistoryTokens
from .core import Completion

_CUT = "\ufdd1"  # marks places where text is cut while the chat template is rendered; no character, as `REPLY`
_WITHOUT_MARKS = {ord(REPLY): None, ord(_CUT): None}
_OPEN_THOUGHT = re.compile(rf"{THOUGHT}\s*\Z")
# Added tokens without the flag "special" are control tokens in messages if they match this pattern.
_CONTROL_SHAPE = re.compile(r"[<\[].+[>\]]", re.DOTALL)
_ANCHORS = ("\n", ".", "a")  # texts before a continuation, of which at least one does not merge with it

_NUM_LAST = 16  # tokens at the end of a prompt, in which an opened thought is searched
MAX_KEPT_TOKENS = 2**18  # a few megabytes; enough for the default replay buffer in short games
ENTRY = 256  # memory of a cache entry's key and containers, in units of one token's memory

Ids: TypeAlias = Sequence[int] | NDArray[np.int64]
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

    A first prompt equals `apply_chat_template`, except that texts of messages never become control tokens, and
    that messages which the template refuses are joined; see `ChatTemplate`.

    Args:
        tokenizer: Hugging Face tokenizer.
        is_chat: apply the tokenizer's chat template. False: plain text. A newline ends each message, and the
            end-of-text token ends each reply of the agent. None: True if the tokenizer has a chat template.
        template_kwargs: arguments of the chat template, such as {"enable_thinking": False}.
        end_ids: tokens that end a completion, in addition to the tokenizer's; see `end_ids_of`.
        history_tokens: see `ModelConfig.history_tokens`.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        is_chat: bool | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        end_ids: Collection[int] = (),
        history_tokens: HistoryTokens = "extended",
    ):
        if tokenizer.eos_token_id is None:
            raise ValueError("the tokenizer has no end-of-text token, which ends completions; set tokenizer.eos_token")
        if is_chat and not tokenizer.chat_template:
            raise ValueError(
                f"the tokenizer {tokenizer.name_or_path!r} has no chat template; set it, or use is_chat=False"
            )
        self.tokenizer = tokenizer
        self.is_chat = bool(tokenizer.chat_template) if is_chat is None else is_chat
        self.template_kwargs = dict(template_kwargs or {})
        self.history_tokens = history_tokens
        self.end_id = int(tokenizer.eos_token_id)
        added = {int(index): token for index, token in tokenizer.added_tokens_decoder.items()}
        self._special = frozenset(index for index, token in added.items() if token.special)
        names = {
            index: token.content
            for index, token in added.items()
            if token.special or _CONTROL_SHAPE.fullmatch(token.content)
        }
        self._control = frozenset(names)
        # Ordinary text may become the token for unknown words.
        self._forbidden = self._control - {tokenizer.unk_token_id}
        self._control_names = _Names(names.values())
        self._special_names = _Names(names[index] for index in self._special)
        # The environment's messages are encoded again in every epoch, agents' replies only in a critic's replay buffer.
        self._encoded: Recent[list[int]] = Recent(MAX_KEPT_TOKENS, len)
        empty: list[int] = tokenizer("", add_special_tokens=True)["input_ids"]
        self._start = empty[:1] if tokenizer.bos_token_id is not None and empty[:1] == [tokenizer.bos_token_id] else []
        self._adds_space = self._encode("a") != self._encode_continuation("a")
        self.stop_ids = frozenset({self.end_id, *end_ids})
        self._header: list[int] = []  # tokens before the answer in a reply with several channels
        self._closing = [self.end_id]  # tokens that the template puts after a reply
        self.template = ChatTemplate(tokenizer, self.template_kwargs) if self.is_chat else None
        if self.template is not None:
            self._read(self.template)

    @property
    def keeps_history(self) -> bool:
        """False: in later turns, the template renders earlier replies in another form, for example without thoughts."""
        return self.template is None or (self.template.keeps_thoughts and not self._header)

    def prompt(self, observation: str, previous: Completion | None = None) -> tuple[NDArray[np.int64], bool]:
        """Return the prompt's token ids [S], and True if the prompt extends the tokens of the previous turn."""
        if previous is not None and self.history_tokens == "extended":
            appended = self._appended(observation, previous)
            if appended is not None:
                tokens: TokenRecord = previous.tokens
                return np.concatenate([tokens.prompt_ids, tokens.completion_ids, appended]), True
        messages = messages_of(observation)
        if self.template is not None:
            ids = self._chat_ids(self.template, messages)
        else:
            ids = self._start + self._plain_ids(messages, is_start=True)
        return np.asarray(ids, dtype=np.int64), False

    def text(self, completion_ids: Ids, prompt_ids: Ids = ()) -> str:
        """Decode a completion without special tokens and end tokens.

        Of a reply with several channels, only the last channel is returned, or "" if the token limit cut the reply
        before its answer. If the prompt of a chat template ends with "<think>", the text begins with it.
        """
        silent = self._special | self.stop_ids
        words = [index for index in self._last_channel(list(map(int, completion_ids))) if index not in silent]
        return f"{self._opened_thought(prompt_ids)}{self.tokenizer.decode(words, skip_special_tokens=False)}"

    def content(self, text: str) -> list[int]:
        """Encode text as ordinary tokens, even if the text contains the names of control tokens."""
        return self._encoded.get(text, lambda: self._harmless(text, is_start=False))

    def reply_ids(self, reply: str, prompt_ids: Ids = ()) -> tuple[list[int], list[int]]:
        """Return the usual tokens of a reply to a prompt, and the tokens that end it."""
        text = self._special_names.cut(reply.removeprefix(self._opened_thought(prompt_ids)))
        words = self._encoded.get((text,), lambda: self._encode_marked(text, is_start=False))
        closing = [index for index in self._closing if index in self._control]
        ends = [number + 1 for number, index in enumerate(closing) if index in self.stop_ids]
        return [*self._header, *words], closing[: ends[0]] if ends else [self.end_id]

    def _opened_thought(self, prompt_ids: Ids) -> str:
        """Return "<think>" and the white space after it, if the prompt ends with them."""
        if self.template is None or not len(prompt_ids):
            return ""
        end = str(self.tokenizer.decode(list(prompt_ids[-_NUM_LAST:]), skip_special_tokens=False))
        return match[0] if (match := _OPEN_THOUGHT.search(end)) else ""

    def _appended(self, observation: str, previous: Completion) -> NDArray[np.int64] | None:
        """Return the token ids of the messages after the previous completion. None: the history was rewritten."""
        tokens: TokenRecord = previous.tokens
        old, new = messages_of(tokens.observation), messages_of(observation)
        reply = len(old)
        is_grown = len(new) > reply and new[:reply] == old and new[reply][:2] == ("assistant", previous.action)
        if not is_grown:
            return None
        if self.template is not None:
            ids = self._chat_ids(self.template, new, reply)
        else:
            ids = [self.end_id, *self._plain_ids(new[reply + 1 :], is_start=False)]
        return np.asarray(ids[self._num_sampled(tokens.completion_ids.tolist(), ids) :], dtype=np.int64)

    def _num_sampled(self, completion_ids: list[int], ids: list[int]) -> int:
        """Return the number of tokens after a reply, `ids`, that the completion already contains or replaces."""
        is_ended = bool(completion_ids) and completion_ids[-1] in self.stop_ids
        if is_ended and ids[:1] == completion_ids[-1:]:
            return 1
        closing = self._closing if ids[: len(self._closing)] == self._closing else []
        if is_ended:  # perhaps by another token than the template's
            return len(closing)
        lengths = range(len(closing), 0, -1)
        return next((length for length in lengths if completion_ids[-length:] == closing[:length]), 0)

    def _plain_ids(self, messages: Sequence[Message], *, is_start: bool) -> list[int]:
        """Encode messages without a chat template: a newline ends each message, the end-of-text token each reply."""
        ids: list[int] = []
        for message in messages:
            if message.role == "assistant":
                ids += [*self.content(message.content), self.end_id]
            elif self._adds_space and is_start and not ids:
                ids += self._harmless(f"{message.content}\n", is_start=True)
            else:
                ids += self.content(f"{message.content}\n")
        return ids

    def _read(self, template: ChatTemplate) -> None:
        """Find out which tokens begin and end replies."""
        self._header = [] if self._special.isdisjoint(opening := self._encode(template.opening)) else opening
        after = self._encode(template.after_reply)
        ends = [number + 1 for number, index in enumerate(after) if index in self._control]
        try:
            _, last = template.split([("user", "."), ("assistant", REPLY)], is_prompt=False)
            pairs = zip(after, self._encode(last), strict=False)
            num_common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        except UserError:  # the template refuses a reply at the end
            num_common = ends[0] if ends else 0
        if self._header and not num_common:  # the end of the last channel differs
            num_common = 1
        # These tokens follow a reply, whatever comes next.
        self._closing = after[: max((end for end in ends if end <= num_common), default=0)]
        if not self._header:  # a token that ends a channel does not end the reply
            self.stop_ids |= self._control.intersection(self._closing)

    def _chat_ids(self, template: ChatTemplate, messages: Sequence[Message], reply: int | None = None) -> list[int]:
        """Encode messages with the chat template. With `reply`: only the text after message number `reply`."""

        def encode() -> list[int]:
            ids: list[int] = []
            for is_spelled in (False, True):
                marked = [(role, self._marked(role, text, is_spelled)) for role, text, _ in messages]
                if reply is None:
                    text = template.render(marked)
                else:
                    text = template.split([*marked[:reply], ("assistant", REPLY), *marked[reply + 1 :]])[1]
                ids = self._encode_marked(text, is_start=reply is None)
                # A tokenizer's normalization can turn texts into a control token, but not a single character.
                if sum(index in self._forbidden for index in ids) <= self._control_names.count(text):
                    break
            return ids

        return self._encoded.get((tuple(messages), reply), encode)

    def _marked(self, role: str, text: str, is_spelled: bool) -> str:
        """Mark where the names of control tokens in a message are cut (`is_spelled`: everywhere)."""
        # A sampled reply may contain tokens such as "<think>", but no special tokens.
        names = self._special_names if role == "assistant" else self._control_names
        return names.spell(text) if is_spelled else names.cut(text)

    def _last_channel(self, ids: Sequence[int]) -> Sequence[int]:
        """Return the tokens of a reply's last channel. []: the reply was cut in a channel before the answer."""
        if not self._header:
            return ids
        silent = self._special | self.stop_ids
        end = next((number for number in range(len(ids), 0, -1) if ids[number - 1] not in silent), 0)
        start = next((number for number in range(end, 0, -1) if ids[number - 1] in self._special), 0)
        is_answer = start == 0 or list(ids[max(0, start - len(self._header)) : start]) == self._header
        is_cut = not ids or ids[-1] not in self.stop_ids
        return ids[start:end] if is_answer or not is_cut else []

    # Tokens of texts.

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) if text else []

    def _encode_continuation(self, text: str) -> list[int]:
        """Encode text that follows other text, without the space that some tokenizers add at the start of a text."""
        for anchor in _ANCHORS:
            before, ids = self._encode(anchor), self._encode(anchor + text)
            if ids[: len(before)] == before:
                return ids[len(before) :]
        return self._encode(text)

    def _encode_marked(self, text: str, *, is_start: bool) -> list[int]:
        """Encode text whose pieces between marks do not merge. `is_start`: nothing precedes the text."""
        follow = self._encode_continuation if self._adds_space else self._encode
        first, *others = text.split(_CUT)
        start = self._encode(first) if is_start else follow(first)
        return [*start, *chain.from_iterable(map(follow, others))]

    def _harmless(self, text: str, *, is_start: bool) -> list[int]:
        """Encode text without control tokens: the name of each control token is cut after its first character."""
        ids = self._encode_marked(self._control_names.cut(text), is_start=is_start)
        if self._forbidden.isdisjoint(ids):
            return ids
        return self._encode_marked(self._control_names.spell(text), is_start=is_start)


class _Names:
    """Names of control tokens, which are cut in texts, so that a tokenizer does not find them."""

    def __init__(self, names: Iterable[str]) -> None:
        names = sorted(set(names))
        letters = "".join(re.escape(letter) for letter in sorted({name[0] for name in names}))
        # The look-ahead also finds overlapping matches. The first letters make the search fast.
        pattern = f"(?=[{letters}])(?={'|'.join(map(re.escape, names))})" if names else "(?!)"
        self._pattern = re.compile(pattern)
        # Tokenizers find the longest name at a place, and go on after it.
        self._longest = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "(?!)")
        self._letters = {**_WITHOUT_MARKS, **{ord(name): None for name in names if len(name) == 1}}

    def count(self, text: str) -> int:
        return sum(1 for _ in self._longest.finditer(text))

    def cut(self, text: str) -> str:
        """Put a mark after the first character of each name. Names of one character are left out."""
        text = text.translate(self._letters)
        cuts = [match.start() + 1 for match in self._pattern.finditer(text)]
        return _CUT.join(text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True))

    def spell(self, text: str) -> str:
        """Put a mark after each character."""
        return _CUT.join(text.translate(self._letters))


def end_ids_of(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the tokens that end a text according to the model's generation_config.json and config.json.

    Ids in config.json count only if they are added tokens, because many config classes have defaults of other models.
    """
    added, config = tokenizer.added_tokens_decoder.keys(), model.config.get_text_config(decoder=True)
    settings = model.generation_config
    named = _as_ids(None if settings is None else settings.eos_token_id)
    if settings is None or settings._from_model_config:  # transformers derived it from config.json
        named &= added
    ids = named | (_as_ids(getattr(config, "eos_token_id", None)) & added)
    return frozenset(index for index in ids if 0 <= index < config.vocab_size)


def _as_ids(value: Any) -> frozenset[int]:
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(index, int) for index in ids):
        raise UserError(f"eos_token_id={value!r} in the model's settings must be a token id or a list of token ids")
    return frozenset(ids)


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
