"""Groundedness of human texts and of shuffled words of a source."""

import json
import random
import re
from pathlib import Path
from statistics import fmean

import pytest

from collm.envs.writing.documents.forms import sentences
from collm.envs.writing.documents.grounding import NOT_GROUNDED, _read, extract_credit, fluency, groundedness, support
from collm.envs.writing.documents.lexicon import OWN

SAMPLES = Path(__file__).parents[4] / "envs" / "writing" / "documents" / "samples"
SOURCE = "The old dog found a large bone in the garden. It buried the bone behind the shed before we could see it."


def judged(sentence):
    (told,) = sentences(sentence)
    return tuple(judge(told, _read(SOURCE)) for judge in (fluency, support, extract_credit))


def test_sentences_openings_cut_phrases_and_repetitions_by_hand():
    for sentence, fluent, supported, extracted in [
        ("The old dog found a large bone in the garden.", 1, 1, 1),
        ("The old dog found a large bone.", 1, 1, 1),  # shortened
        ("It buried the bone behind the shed.", 1, 1, 1),
        ("The old dog found a large the bone behind the shed before we could see it.", None, None, 0),  # two halves
        ("In the garden, the old dog found a large bone.", 1, 1, 0),
        ("The old dog did not find a large bone in the garden.", 1, 0, 0),  # a negation that the source lacks
        ("Bone a garden found the in dog large old the.", 0, 0, 0),
        ("The method is a new approach to the problem.", 1, 0, 0),  # about something else
        ("Also for however if it is so and we are of the this that they were in a dog.", 0, 0, 0),  # fillers
    ]:
        for got, expected in zip(judged(sentence), (fluent, supported, extracted), strict=True):
            assert expected is None or got == pytest.approx(expected, abs=0.1)
    found = groundedness("However, the old dog found a large bone in the garden.", SOURCE)
    assert (found.fluency, found.support, found.extracted) == (1, 1, 1)
    assert groundedness("The neighbour, the old dog found a large bone in the garden.", SOURCE).extracted < 0.8
    whole = judged("First, it buried the bone behind the shed.")[0]
    assert whole > 0.7 > judged("First, buried the bone behind the.")[0]
    assert judged("First, old dog found a large.")[0] < 0.5
    assert groundedness(SOURCE, SOURCE).credit == 1
    repeated = groundedness(" ".join([SOURCE] * 4), SOURCE)
    assert repeated.variety == pytest.approx(0.25, abs=0.02) and repeated.credit == 0
    mixed = f"{SOURCE} Bone a garden found the in dog large old the shed before it see."
    assert 0.5 < groundedness(mixed, SOURCE).fluency < 0.8
    for text in ("", " \n", "!?", "\x00", "👍🏽 \u0301"):
        assert groundedness(text, SOURCE).credit == NOT_GROUNDED.credit == 0


def test_a_free_summary_of_a_post_has_part_of_the_credit():
    rows = map(json.loads, (SAMPLES / "posts_test.jsonl").read_text(encoding="utf-8").splitlines())
    (post,) = [row["post"] for row in rows if row["id"] == "post-10"]
    told = "I coach a team of nine-year-olds who lost all eleven matches this year. "
    told += "I gave out a strange prize each week, and soon the kids hardly looked at the score."
    assert 0.3 < groundedness(told, post).credit < 0.75


def salads(source, rng):
    told = [sentence.rstrip(".").split() for sentence in re.split(r"(?<=[.!?])\s+", source)]
    words = source.split()
    shuffled = [words[at : at + 5] for at in range(0, len(words), 5)]
    rng.shuffle(shuffled)
    subject = OWN.subject_words(source)
    permuted = iter(rng.sample(subject, len(subject)))
    clips = [words[len(words) * quarter // 4 :][:8] for quarter in range(4)]
    yield "five words at a time", " ".join(word for five in shuffled for word in five)
    yield "halves exchanged", ". ".join(" ".join(s[len(s) // 2 :] + s[: len(s) // 2]) for s in told)
    yield "every second word", ". ".join(" ".join(s[::2]) for s in told)
    threes = (subject[at : at + 3] for at in range(len(subject) - 2))
    yield "template", ". ".join("the {} of {} and the {}".format(*three) for three in threes)
    yield "permuted", re.sub(r"\w+", lambda m: m[0] if m[0].lower() in OWN.fillers else next(permuted, ""), source)
    yield "not", re.sub(r"\w+", lambda m: m[0] if m[0].lower() in OWN.fillers else f"not {m[0]}", source)
    yield "clippings", ". ".join("However, " + " ".join(clip).rstrip(".,") for clip in clips)


def test_summaries_by_people_have_more_credit_than_salads_and_extracts_have_all(shared_data):
    rng, credits = random.Random(0), {}
    lines = shared_data("scitldr/dev.jsonl").read_text(encoding="utf-8").splitlines()[:80]
    rows = [json.loads(line) for line in lines]
    for row, other in zip(rows, rows[1:] + rows[:1], strict=True):
        source = " ".join(row["source"])
        texts = [("extract", " ".join(row["source"][::2])), ("people", row["target"][0])]
        for name, text in (*texts, ("another source", " ".join(other["source"])), *salads(source, rng)):
            credits.setdefault(name, []).append(groundedness(text, source).credit)
    means = {name: fmean(found) for name, found in credits.items()}
    assert means.pop("extract") > 0.9 and means.pop("people") > 0.25
    assert len(means) == 8 and max(means.values()) < 0.1, means
