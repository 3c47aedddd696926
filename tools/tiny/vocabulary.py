"""Tokenizer of the embedded model: one token per word of the mini tasks, bytes and common subwords for other text."""

from __future__ import annotations

from functools import cache

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from collm.envs.coding.mini_code import VOCABULARY as CODING_WORDS
from collm.envs.games.mini_build import VOCABULARY as BUILDING_WORDS
from collm.envs.writing.mini_writing.prompts import prompt_vocabulary as writing_words

END, PADDING = "<|endoftext|>", "<|pad|>"
MAX_TOKENS = 1024
MAX_MERGES = 128
# Each digit, word, and run of punctuation marks is one piece, with the space before it. White space is also one piece.
_PIECE = r" ?\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_MARKS = tuple(". , : ; ? ! ' - ( ) + * / = [ ] { } < > \" # _".split())
_ENGLISH = """
the of to and a in is it you that he was for on are with as his they be at one have this from or had by not but what
all were when we there can an your which their said if do will each about how up out them then she many some so these
would other into has more her two like him see time could no make than first been its who now people my made over did
down only way find use may water long little very after words called just where most know get through back much before
good new write our me man too any day same right look think also around another came come work three word must because
does part even place well such here take why things help put years different away again off went old number great tell
""".split()


@cache
def words() -> tuple[str, ...]:
    """Return all words, digits and punctuation marks in the texts of the mini tasks, sorted."""
    return tuple(sorted({*writing_words(), *BUILDING_WORDS, *CODING_WORDS, *_MARKS, *"0123456789"}))


def new_tokenizer() -> PreTrainedTokenizerFast:
    """Build the tokenizer: byte-level BPE, reversible for any text, equal in each call.

    A word of the mini tasks is one token with the space before it, and another token without a space, for starts of
    replies. Merges have no effect on these tokens. To copy a word, the model copies one token.

    Raises:
        ValueError: if the vocabulary exceeds MAX_TOKENS.
    """
    pieces = _pieces()
    entries = [END, PADDING, *pieces[0], *_whole_words()]
    vocabulary = {entry: index for index, entry in enumerate(dict.fromkeys(entries))}
    if len(vocabulary) > MAX_TOKENS:
        raise ValueError(f"the vocabulary has {len(vocabulary)} tokens, more than {MAX_TOKENS}; remove words")
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=pieces[1], ignore_merges=True))
    backend.pre_tokenizer = _pre_tokenizer()
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=END,
        pad_token=PADDING,
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECE), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _pieces() -> tuple[list[str], list[tuple[str, str]]]:
    """Return all bytes and the most frequent English subwords, in the order of their creation, and their merges."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = _pre_tokenizer()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=len(letters) + MAX_MERGES, initial_alphabet=letters, special_tokens=[], show_progress=False
    )
    trained.train_from_iterator((f" {word}" for word in _ENGLISH), trainer)
    by_index = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    state: dict[str, list[list[str]]] = _model_state(trained)
    return [entry for entry, _ in by_index], [(left, right) for left, right in state["merges"]]


def _model_state(tokenizer: Tokenizer) -> dict[str, list[list[str]]]:
    """Return the section "model" of a tokenizer's JSON file, the only place that contains the merges."""
    import json

    state: dict[str, list[list[str]]] = json.loads(tokenizer.to_str())["model"]
    return state


def _whole_words() -> list[str]:
    """Return the words in the alphabet of byte-level BPE, each without and with a space before it."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    texts = [f"{space}{word}" for word in words() for space in ("", " ")] + [f" {word}" for word in _ENGLISH]
    return [spelled for text in texts for spelled, _ in byte_level.pre_tokenize_str(text)]
