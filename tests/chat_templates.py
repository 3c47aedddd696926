"""Small chat templates with the properties of well-known families, and tokenizers for them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

_WORDS = ["choose wood or clay user assistant\n\nsystem model report the river  name a path\n"] * 4
_ALTERNATES = "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}"
_NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
# The template shows the thought of a reply only after the last message of the user.
_DROPS_THOUGHTS = (
    "{% set last = namespace(user=0) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set last.user = loop.index0 %}{% endif %}{% endfor %}"
)
_ANSWER = "{% set text = m.content %}{% if m.role == 'assistant' and loop.index0 < last.user %}"
_ANSWER += "{% set text = text.split('</think>')[-1].lstrip('\n') %}{% endif %}"
_IM_START = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
_CHATML_PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
_DEFAULT_SYSTEM = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
)


@dataclass(frozen=True, kw_only=True)
class Family:
    """A kind of chat model: its template, its tokens and its usual ends of replies."""

    template: str
    special: tuple[str, ...]
    eos: str
    stops: tuple[str, ...]
    """Tokens that end a reply."""
    bos: str | None = None
    tags: tuple[str, ...] = ()
    """Added tokens that are not special."""
    is_sentencepiece: bool = False
    end_ids: tuple[str, ...] = ()
    """End tokens of generation_config.json."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    joins: bool = False
    """True if the template refuses or merges neighboring messages of one role."""
    takes_system: bool = True
    """False if the template refuses a system message, or merges it with the first message of the user."""
    closes_replies: bool = True
    """False if the template writes nothing after a reply."""
    keeps_history: bool = True
    """False if the template renders earlier replies in another form than they were sampled in."""


_QWEN3 = Family(
    template=_DROPS_THOUGHTS
    + "{% for m in messages %}"
    + _ANSWER
    + "<|im_start|>{{ m.role }}\n{{ text }}<|im_end|>\n{% endfor %}"
    + "{% if add_generation_prompt %}<|im_start|>assistant\n"
    + "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}",
    special=_IM_START,
    eos="<|im_end|>",
    stops=("<|im_end|>", "<|endoftext|>"),
    tags=("<think>", "</think>", "<tool_call>", "</tool_call>"),
    end_ids=("<|im_end|>", "<|endoftext|>"),
    keeps_history=False,
)
_DEEPSEEK = Family(
    template="{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% endif %}{% endfor %}"
    "{% for m in messages %}{% if m.role == 'user' %}<\uff5cUser\uff5c>{{ m.content }}{% elif m.role == 'assistant' %}"
    "<\uff5cAssistant\uff5c>{{ m.content.split('</think>')[-1] }}<\uff5cend▁of▁sentence\uff5c>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<\uff5cAssistant\uff5c><think>\n{% endif %}",
    special=("<\uff5cbegin▁of▁sentence\uff5c>", "<\uff5cend▁of▁sentence\uff5c>"),
    bos="<\uff5cbegin▁of▁sentence\uff5c>",
    eos="<\uff5cend▁of▁sentence\uff5c>",
    stops=("<\uff5cend▁of▁sentence\uff5c>",),
    tags=("<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>", "<think>", "</think>"),
    keeps_history=False,
)
_LLAMA3 = Family(
    template="{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    special=(
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|eom_id|>",
        "<|eot_id|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
    ),
    bos="<|begin_of_text|>",
    eos="<|eot_id|>",
    stops=("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"),
    end_ids=("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"),
)
_GEMMA = Family(
    template="{{ bos_token }}"
    + _NO_SYSTEM
    + "{% for m in messages %}"
    + _ALTERNATES
    + "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    + "{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
    + "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
    special=("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"),
    bos="<bos>",
    eos="<eos>",
    stops=("<eos>", "<end_of_turn>"),
    joins=True,
    takes_system=False,
)
FAMILIES = {
    "qwen2.5": Family(
        template=_DEFAULT_SYSTEM + _CHATML + _CHATML_PROMPT,
        special=_IM_START,
        eos="<|im_end|>",
        stops=("<|im_end|>", "<|endoftext|>"),
        end_ids=("<|im_end|>", "<|endoftext|>"),
    ),
    "qwen3": _QWEN3,
    "qwen3, no thoughts": Family(**{**vars(_QWEN3), "template_kwargs": {"enable_thinking": False}}),
    "qwen3.5": Family(
        **{
            **vars(_QWEN3),
            "template": _DROPS_THOUGHTS
            + "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
            + "{{ raise_exception('system first') }}{% endif %}"
            + _ANSWER
            + "<|im_start|>{{ m.role }}\n{{ text | trim }}<|im_end|>\n{% endfor %}"
            + "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}",
        }
    ),
    "llama3": _LLAMA3,
    "llama3.2, with date": Family(
        **{
            **vars(_LLAMA3),
            "template": "{{ bos_token }}<|start_header_id|>system<|end_header_id|>\n\nToday Date: "
            "{{ strftime_now('%d %b %Y') }}\n\n{% if messages[0].role == 'system' %}{{ messages[0].content | trim }}"
            "{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}<|eot_id|>"
            + _LLAMA3.template.replace("{{ bos_token }}", "").replace("in messages", "in rest"),
            "template_kwargs": {"strftime_now": "2026-01-31"},
        }
    ),
    "gemma": _GEMMA,
    "gemma3": Family(
        **{
            **vars(_GEMMA),
            "template": "{{ bos_token }}{% set first = '' %}{% if messages[0].role == 'system' %}"
            "{% set first = messages[0].content + '\n\n' %}{% set messages = messages[1:] %}{% endif %}"
            "{% for m in messages %}"
            + _ALTERNATES
            + "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
            "{{ first if loop.first }}{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
            "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
        }
    ),
    "mistral": Family(
        template="{{ bos_token }}"
        + _NO_SYSTEM
        + "{% for m in messages %}"
        + _ALTERNATES
        + "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ m.content }}{{ eos_token }}{% endif %}"
        + "{% endfor %}",
        special=("<unk>", "<s>", "</s>"),
        bos="<s>",
        eos="</s>",
        stops=("</s>",),
        is_sentencepiece=True,
        joins=True,
        takes_system=False,
    ),
    "llama2": Family(
        template="{% if messages[0].role == 'system' %}"
        "{% set told = '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' %}{% set rest = messages[1:] %}"
        "{% else %}{% set told = '' %}{% set rest = messages %}{% endif %}"
        "{% for m in rest %}" + _ALTERNATES + "{% if m.role == 'user' %}{{ bos_token }}[INST] {{ told if loop.first }}"
        "{{ m.content | trim }} [/INST]{% else %} {{ m.content | trim }} {{ eos_token }}{% endif %}{% endfor %}",
        special=("<unk>", "<s>", "</s>"),
        bos="<s>",
        eos="</s>",
        stops=("</s>",),
        is_sentencepiece=True,
        joins=True,
    ),
    "zephyr": Family(
        template="{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}</s>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
        special=("<unk>", "<s>", "</s>"),
        bos="<s>",
        eos="</s>",
        stops=("</s>",),
        is_sentencepiece=True,
    ),
    "phi3": Family(
        template="{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}",
        special=("<|endoftext|>", "<|end|>", "<|user|>", "<|system|>", "<|assistant|>"),
        eos="<|endoftext|>",
        stops=("<|endoftext|>", "<|end|>"),
    ),
    "phi4": Family(
        template="{% for m in messages %}<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant<|im_sep|>{% endif %}",
        special=(*_IM_START, "<|im_sep|>"),
        eos="<|im_end|>",
        stops=("<|im_end|>",),
    ),
    "smollm2": Family(
        template=_DEFAULT_SYSTEM + _CHATML + _CHATML_PROMPT,
        special=_IM_START,
        bos="<|im_start|>",
        eos="<|im_end|>",
        stops=("<|im_end|>",),
    ),
    "smollm3": Family(
        template="<|im_start|>system\nToday Date: {{ strftime_now('%d %B %Y') }}\n"
        "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}<|im_end|>\n"
        "{% for m in messages %}{% if m.role != 'system' %}<|im_start|>{{ m.role }}\n"
        "{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content }}<|im_end|>\n"
        "{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        special=_IM_START,
        eos="<|im_end|>",
        stops=("<|im_end|>",),
        tags=("<think>", "</think>"),
        template_kwargs={"strftime_now": "2026-01-31"},
        keeps_history=False,
    ),
    "cohere": Family(
        template="{{ bos_token }}{% for m in messages %}<|START_OF_TURN_TOKEN|>"
        "{% if m.role == 'assistant' %}<|CHATBOT_TOKEN|>{% elif m.role == 'user' %}<|USER_TOKEN|>"
        "{% else %}<|SYSTEM_TOKEN|>{% endif %}{{ m.content | trim }}<|END_OF_TURN_TOKEN|>{% endfor %}"
        "{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}",
        special=(
            *("<BOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
            *("<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|SYSTEM_TOKEN|>"),
        ),
        bos="<BOS_TOKEN>",
        eos="<|END_OF_TURN_TOKEN|>",
        stops=("<|END_OF_TURN_TOKEN|>",),
    ),
    "cohere, with channels": Family(
        template="{% for m in messages %}<|TURN|>{% if m.role == 'assistant' %}<|BOT|><|START_RESPONSE|>{{ m.content }}"
        "<|END_RESPONSE|>{% else %}<|{{ m.role | upper }}|>{{ m.content }}{% endif %}<|END_TURN|>{% endfor %}"
        "{% if add_generation_prompt %}<|TURN|><|BOT|>{% endif %}",
        special=(
            *("<|TURN|>", "<|END_TURN|>", "<|BOT|>", "<|USER|>", "<|SYSTEM|>"),
            *("<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"),
        ),
        eos="<|END_TURN|>",
        stops=("<|END_TURN|>",),
        keeps_history=False,
    ),
    "deepseek": _DEEPSEEK,
    "gpt-oss": Family(
        template="{% for m in messages %}{% if m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>"
        "{{ m.content }}{{ '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}"
        "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant{% endif %}",
        special=("<|endoftext|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>"),
        eos="<|return|>",
        stops=("<|return|>", "<|call|>", "<|endoftext|>"),
        end_ids=("<|return|>", "<|call|>", "<|endoftext|>"),
        keeps_history=False,
    ),
    "granite": Family(
        template="{% for m in messages %}<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}<|end_of_text|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}",
        special=("<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"),
        eos="<|end_of_text|>",
        stops=("<|end_of_text|>",),
    ),
    "no reply at the end": Family(
        template="{% if messages[-1].role == 'assistant' %}{{ raise_exception('the user must be last') }}{% endif %}"
        + _CHATML
        + _CHATML_PROMPT,
        special=_IM_START,
        eos="<|im_end|>",
        stops=("<|im_end|>",),
    ),
    "no ends of replies": Family(  # the next turn's first token ends a reply
        template="{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
        special=("<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>"),
        eos="<|endoftext|>",
        stops=("<|endoftext|>", "<|user|>"),
        end_ids=("<|endoftext|>", "<|user|>"),
        closes_replies=False,
    ),
}


@cache
def tokenizer_for(name: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer of about 350 tokens with the template and the special tokens of a family."""
    family = FAMILIES[name]
    inner = _sentencepiece(family) if family.is_sentencepiece else _byte_level(family)
    names = {"bos_token": family.bos} if family.bos else {}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token=family.eos,
        pad_token=family.special[0],
        additional_special_tokens=list(family.special),
        **names,
    )
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in family.tags])
    tokenizer.chat_template = family.template
    return tokenizer


def _byte_level(family: Family) -> Tokenizer:
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    inner.train_from_iterator(
        _WORDS,
        trainers.BpeTrainer(
            special_tokens=list(family.special),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            vocab_size=340,
            show_progress=False,
        ),
    )
    return inner


def _sentencepiece(family: Family) -> Tokenizer:
    """Return a BPE that writes "▁" before each text and for each space, as Llama 2 and Mistral do."""
    inner = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    inner.train_from_iterator(
        _WORDS, trainers.BpeTrainer(special_tokens=list(family.special), vocab_size=120, show_progress=False)
    )
    plan = json.loads(inner.to_str())
    words = plan["model"]["vocab"]
    for piece in [*(f"<0x{byte:02X}>" for byte in range(256)), *map(chr, range(33, 127)), "▁"]:
        words.setdefault(piece, len(words))
    plan["model"] |= {"byte_fallback": True, "fuse_unk": True}
    plan["pre_tokenizer"] = None
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    plan["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]}
    back = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    plan["decoder"] = {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]}
    return Tokenizer.from_str(json.dumps(plan))
