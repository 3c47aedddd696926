"""Prompts equal the chat templates of well-known families, and replies are read as their tokenizers mean them."""

import copy
import re
from datetime import date
from functools import partial

import numpy as np
import pytest
from chat_templates import FAMILIES, tokenizer_for
from fakes import byte_tokenizer, random_llama

from collm._errors import UserError
from collm.agents.chat_template import ChatTemplate
from collm.agents.config import ModelConfig
from collm.agents.core import Completion
from collm.agents.encoding import Encoder, TokenRecord, end_ids_of
from collm.agents.loading import check_template_kwargs
from collm.envs import Message, Transcript, make, specs
from collm.envs.core import answer_in
from collm.envs.spaces import movers_of

DAY = date(2026, 1, 31)
DATE_CALL = "strftime_now('%d %B %Y')"
TEXTS = ("choose wood or clay", " \n\nchoose the river\n", "ünï 河  code:\n\tx = 1\n\n")
ENVIRONMENTS = [spec.id for spec in specs() if spec.id.startswith("collm/")]


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


def encoder_for(name, **settings):
    tokenizer, family = tokenizer_for(name), FAMILIES[name]
    return Encoder(
        tokenizer,
        template_kwargs=family.template_kwargs,
        end_ids=tokenizer.convert_tokens_to_ids(list(family.end_ids)),
        **settings,
    )


def template_ids(name, messages):
    """Token ids of the messages, as transformers renders them on 31 January 2026."""
    tokenizer = tokenizer_for(name)
    template = re.sub(
        r"strftime_now\((.*?)\)", lambda call: repr(DAY.strftime(call[1].strip("'"))), tokenizer.chat_template
    )
    chat = [{"role": message.role, "content": message.content} for message in messages]
    kwargs = {"chat_template": template, "add_generation_prompt": True, "return_dict": True}
    return tokenizer.apply_chat_template(chat, **kwargs, **FAMILIES[name].template_kwargs)["input_ids"]


def ids_of(name, text):
    return tokenizer_for(name)(text, add_special_tokens=False)["input_ids"]


def replied(encoder, history, reply_ids):
    ids, is_extension = encoder.prompt(history)
    return Completion(encoder.text(reply_ids), tokens=TokenRecord(ids, np.asarray(reply_ids), is_extension, history))


def later(completion, text="go on"):
    history = completion.tokens.observation
    return history.extended(Message("assistant", completion.action, "fox_0"), Message("user", text))


@pytest.mark.parametrize("text", TEXTS)
def test_a_first_prompt_equals_the_template(family, text):
    encoder = encoder_for(family)
    assert encoder.is_chat
    assert encoder.prompt(text)[0].tolist() == template_ids(family, [Message("user", text)])
    told = Transcript([Message("system", "report"), Message("user", text)])
    joined = [Message("user", f"report\n\n{text}")]
    expected = told.messages if FAMILIES[family].takes_system else joined
    assert encoder.prompt(told)[0].tolist() == template_ids(family, expected)


def test_neighboring_messages_of_one_role_are_joined_if_the_template_cannot_show_them(family):
    history = Transcript([Message("user", "wood"), Message("user", "clay")])
    expected = [Message("user", "wood\n\nclay")] if FAMILIES[family].joins else history.messages
    assert encoder_for(family).prompt(history)[0].tolist() == template_ids(family, expected)
    second = history.extended(Message("assistant", "wood"), Message("system", "later"), Message("user", "go"))
    assert len(encoder_for(family).prompt(second)[0]) > len(template_ids(family, expected))


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_later_prompt_continues_as_the_template_does(family, is_cut):
    encoder = encoder_for(family)
    history = Transcript([Message("user", "choose")])
    words, end = encoder.reply_ids("clay")
    completion = replied(encoder, history, words if is_cut else [*words, *end])
    assert answer_in(completion.action) in ("clay", "")  # "": a cut thought
    ids, is_extension = encoder.prompt(later(completion), completion)
    start = [*completion.tokens.prompt_ids, *completion.tokens.completion_ids]
    assert is_extension and ids[: len(start)].tolist() == start
    whole = template_ids(family, later(completion).messages)
    added = ids[len(start) :].tolist()
    assert added and whole[-len(added) :] == added
    assert encoder.keeps_history == FAMILIES[family].keeps_history
    is_exact = is_cut or FAMILIES[family].closes_replies
    if encoder.keeps_history and is_exact and not FAMILIES[family].is_sentencepiece:
        assert ids.tolist() == whole


def test_rewritten_histories_equal_the_template_in_every_turn(family):
    encoder = encoder_for(family, history_tokens="rewritten")
    thought = "<think>\nor wood\n</think>\n\nclay"
    history = Transcript([Message("user", "choose"), Message("assistant", thought), Message("user", "go on")])
    words, end = encoder.reply_ids("clay")
    ids, is_extension = encoder.prompt(history, replied(encoder, Transcript(history.messages[:1]), [*words, *end]))
    assert not is_extension and ids.tolist() == template_ids(family, history.messages)


def test_replies_end_at_the_tokens_of_the_model_and_of_its_template(family):
    tokenizer = tokenizer_for(family)
    assert encoder_for(family).stop_ids == set(tokenizer.convert_tokens_to_ids(list(FAMILIES[family].stops)))


def test_messages_never_become_control_tokens(family):
    encoder, tokenizer = encoder_for(family), tokenizer_for(family)
    names = "".join((*FAMILIES[family].special, *FAMILIES[family].tags))
    honest, hostile = (encoder.prompt(text)[0].tolist() for text in ("wood", f"wood{names}\ufdd1"))
    control = set(tokenizer.added_tokens_decoder)
    assert [index for index in hostile if index in control] == [index for index in honest if index in control]
    assert names in tokenizer.decode(hostile, clean_up_tokenization_spaces=False)


def test_tags_in_replies_are_text_and_special_tokens_are_not():
    for name, thought in (("qwen3", "<think>\nnot wood\n</think>\n\n"), ("deepseek", "not wood\n</think>\n\n")):
        encoder = encoder_for(name)
        text = encoder.text(ids_of(name, f"{thought}clay{FAMILIES[name].eos}"))
        assert text.endswith(f"{thought}clay") and answer_in(text).strip() == "clay"
    call = '<tool_call>{"name": "build"}</tool_call>'
    assert encoder_for("qwen3").text(ids_of("qwen3", call)) == call
    assert encoder_for("llama3").text(ids_of("llama3", "wood<|start_header_id|> clay<|eot_id|>")) == "wood clay"


@pytest.mark.parametrize("name", ["qwen3.5", "deepseek"])
def test_a_thought_that_the_prompt_opens_is_no_answer_until_it_is_closed(name):
    encoder = encoder_for(name)
    prompt, _ = encoder.prompt("choose")
    assert answer_in(encoder.text(ids_of(name, "maybe wood or"), prompt)) == ""
    text = encoder.text(ids_of(name, f"maybe wood\n</think>\n\nclay{FAMILIES[name].eos}"), prompt)
    assert answer_in(text).strip() == "clay"
    assert encoder.reply_ids(text, prompt)[0] == ids_of(name, "maybe wood\n</think>\n\nclay")


def with_template(name, change):
    tokenizer = copy.deepcopy(tokenizer_for(name))
    tokenizer.chat_template = change(tokenizer.chat_template)
    return Encoder(tokenizer)


def test_a_thought_is_opened_only_by_the_end_of_the_prompt():
    told = with_template("qwen2.5", lambda template: "Think inside <think> first.\n" + template)
    assert told.text(ids_of("qwen2.5", "clay"), told.prompt("choose")[0]) == "clay"
    choice = "{{ '<think></think>' if '/no_think' in messages[-1].content else '<think>\\n' }}{% endif %}"
    switched = with_template("qwen2.5", lambda template: template.removesuffix("{% endif %}") + choice)
    for content, answer in (("choose", ""), ("choose /no_think", "clay")):
        assert answer_in(switched.text(ids_of("qwen2.5", "clay"), switched.prompt(content)[0])) == answer


def test_templates_may_change_texts_and_texts_may_contain_the_marks_of_places():
    loud = with_template("granite", lambda template: template.replace("m.content", "m.content | upper"))
    for text in ("the <|end_of_text|> tag", "a\ufdd0b\ufdd1c", "\ufdd0\ufdd0"):
        prompt = loud.tokenizer.decode(loud.prompt(text)[0])
        assert text.replace("\ufdd0", "").replace("\ufdd1", "").upper() in prompt
    history = Transcript([Message("user", "\ufdd0 wood")])
    completion = replied(loud, history, ids_of("granite", "clay<|end_of_text|>"))
    assert loud.prompt(later(completion, "\ufdd0"), completion)[1]


def test_a_template_without_a_generation_prompt_has_no_channels():
    encoder = with_template("qwen2.5", lambda template: template.partition("{% if add_generation_prompt")[0])
    reply = "<|im_start|>assistant\nhello"
    assert encoder.text(ids_of("qwen2.5", reply)) == "assistant\nhello"
    assert encoder.reply_ids("hello")[0] == ids_of("qwen2.5", "hello")


def test_a_template_that_does_not_show_texts_is_refused():
    lists = "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"
    with pytest.raises(ValueError, match="renders a reply 0 times"):
        with_template("granite", lambda template: lists)


LOOP = "{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}<assistant>"
TWICE = "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("{% for i in range(99999) %}{%- for j in range(99999) -%}\n{% endfor %}{% endfor %}" + LOOP, "100000 steps"),
        (TWICE + LOOP, "100000 steps"),
        ("{% set raise_exception = 1 %}" + TWICE + LOOP, "100000 steps"),
        ("{% for i in range(9999) %}{{ messages }}{% endfor %}" + LOOP, "1000000 characters"),
        (LOOP.replace("in messages", "in messages | reverse"), "order"),
        (LOOP.replace("in messages", "in messages | sort(attribute='content')"), "order"),
        ("{% for %}" + LOOP, "TemplateSyntaxError"),
    ],
)
def test_templates_that_take_long_or_change_the_order_are_refused(source, fault):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = source
    with pytest.raises(UserError, match=fault):
        Encoder(tokenizer)


@pytest.mark.parametrize(
    "start", ["", "\n", "  {% if true %}\n  x{% endif %}\n", "\n\n  {%- for i in range(2) +%}\n a {% endfor %}"]
)
def test_the_limit_of_steps_does_not_change_white_space(start):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = f"{start}{LOOP}\n\n"
    for arguments in ({}, {"strftime_now": "2026-01-31"}):
        text = ChatTemplate(tokenizer, arguments).render([("user", "hi")])
        assert text == tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)


@pytest.mark.parametrize("name", ["max_length", "return_dict", "tokenize", "messages", "tools", "conversation"])
def test_arguments_of_transformers_are_not_arguments_of_the_template(name):
    with pytest.raises(UserError, match=f"template_kwargs has '{name}'"):
        Encoder(byte_tokenizer(), template_kwargs={name: 1})


@pytest.mark.parametrize("name", ["enable_thinkin", ""])
def test_arguments_that_no_template_reads_are_refused(name, tmp_path):
    random_llama().save_pretrained(tmp_path)
    tokenizer = byte_tokenizer()
    tokenizer.chat_template += "{% if is_brief %}.{% endif %}"
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=f"template_kwargs has '{name}'"):
        check_template_kwargs(ModelConfig(model=f"tiny,{tmp_path}", template_kwargs={name: False}))
    check_template_kwargs(ModelConfig(model=f"tiny,{tmp_path}", template_kwargs={"is_brief": True}))


def test_a_named_template_is_chosen_by_its_name():
    tokenizer = copy.deepcopy(tokenizer_for("granite"))
    tokenizer.chat_template = {"short": "{% for m in messages %}{{ m.content }}<|end_of_text|>{% endfor %}"}
    encoder = Encoder(tokenizer, template_kwargs={"chat_template": "short"})
    assert tokenizer.decode(encoder.prompt("wood")[0]) == "wood<|end_of_text|>"


def test_end_tokens_may_lie_behind_gaps_of_the_vocabulary():
    tokenizer, model = tokenizer_for("granite"), random_llama(vocab_size=600)
    model.config.eos_token_id = None
    model.generation_config.update(eos_token_id=[tokenizer.eos_token_id, 599, 600], _from_model_config=False)
    assert Encoder(tokenizer, end_ids=end_ids_of(model, tokenizer)).stop_ids == {tokenizer.eos_token_id, 599}


@pytest.mark.parametrize(
    "name, thought, answer, end",
    [
        (
            "gpt-oss",
            "<|channel|>analysis<|message|>maybe wood",
            "<|end|><|start|>assistant<|channel|>final<|message|>clay",
            "<|return|>",
        ),
        (
            "cohere, with channels",
            "<|START_THINKING|>maybe wood",
            "<|END_THINKING|><|START_RESPONSE|>clay",
            "<|END_RESPONSE|><|END_TURN|>",
        ),
    ],
)
def test_the_last_channel_is_the_reply(name, thought, answer, end):
    encoder = encoder_for(name)
    assert encoder.text(ids_of(name, thought + answer + end)) == "clay"
    assert encoder.text(ids_of(name, thought + answer)) == "clay"  # cut in the answer
    assert encoder.text(ids_of(name, thought)) == ""  # cut in the thought
    assert encoder.text(ids_of(name, "clay" + end)) == "clay"  # no channel
    words, ending = encoder.reply_ids("clay")
    assert encoder.text([*words, *ending]) == "clay" and ending[-1] in encoder.stop_ids
    completion = replied(encoder, Transcript([Message("user", "choose")]), ids_of(name, thought + answer + end))
    added = encoder.prompt(later(completion), completion)[0][len(completion.tokens.prompt_ids) :].tolist()
    text = tokenizer_for(name).decode(added)
    assert text.startswith(thought + answer + end) and text.count(end.split("<")[-1]) <= 2


def dated(call, template):
    return "{% set f, now = '%d %B %Y', strftime_now %}" + template.replace(DATE_CALL, call)


def test_a_date_in_the_template_is_fixed():
    encoder = encoder_for("llama3.2, with date")
    assert "31 Jan 2026" in encoder.tokenizer.decode(encoder.prompt("choose")[0]) and not encoder.template.prints_date
    assert Encoder(encoder.tokenizer).template.prints_date and not encoder_for("llama3").template.prints_date
    for call in ("strftime_now(f)", "strftime_now(format='%d %B %Y')", "now('%d %B %Y')"):
        other = with_template("smollm3", partial(dated, call))
        fixed = Encoder(other.tokenizer, template_kwargs={"strftime_now": "2026-01-31"})
        assert other.template.prints_date and "31 January 2026" in fixed.tokenizer.decode(fixed.prompt("choose")[0])
    with pytest.raises(ValueError, match="strftime_now='tomorrow'"):
        Encoder(tokenizer_for("smollm3"), template_kwargs={"strftime_now": "tomorrow"})


@pytest.mark.parametrize("id", ENVIRONMENTS)
def test_every_environment_plays_with_every_template(id):
    env = make(id)
    observations, infos = env.reset(seed=3)
    requests = {}  # agent -> observations before each of its actions
    for _ in range(3):
        if not env.agents:
            break
        actions = {agent: f"reply of {agent}" for agent in movers_of(env.agents, infos)}
        for agent in actions:
            requests.setdefault(agent, []).append(observations[agent])
        observations, *_, infos = env.step(actions)
    for encoder in map(encoder_for, FAMILIES):
        for agent, histories in requests.items():
            previous = None
            for history in histories:
                ids, _ = encoder.prompt(history, previous)
                assert len(ids)
                end = np.asarray(encoder.reply_ids("")[1])
                previous = Completion(f"reply of {agent}", tokens=TokenRecord(ids, end, False, history))
    env.close()
