"""Gated sum of TLDR and ArxivExpansion: each term at and near every threshold."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replies import begun

from collm.envs import make
from collm.envs.writing.documents import rules
from collm.envs.writing.documents.grounding import Band, coverage
from collm.envs.writing.documents.lexicon import OWN, published
from collm.envs.writing.documents.reference import reference_team
from collm.envs.writing.documents.rules import ARXIV_EXPANSION, TERMS, TLDR, Measures, measures, team_terms, terms

GOOD_TLDR = Measures((10, 20), 2.0, 2.0, 12, 0.5, (1.0, 1.0))
GOOD_ARXIV = Measures((130, 190), 1.4, 1.0, 12, 0.5, (1.0, 1.0))
GOOD = {TLDR: GOOD_TLDR, ARXIV_EXPANSION: GOOD_ARXIV}
FORMS = [TLDR, ARXIV_EXPANSION]


def points(form, **changed):
    return terms(form, replace(GOOD[form], **changed))


@pytest.mark.parametrize("form", FORMS)
def test_a_perfect_pair_earns_every_point_and_the_published_ones_ignore_groundedness(form):
    expected = dict(structure=0.5, length_ratio=1.0, vocabulary_ratio=0.5, transitions=0.38, overlap=0.6)
    assert points(form) == pytest.approx(expected | {"groundedness": 0.5})
    assert sum(points(form).values()) == pytest.approx(rules.MAX_SCORE) == pytest.approx(3.48)
    for groundedness in ((1.0, 1.0), (0.0, 0.0)):
        got = rules.published_terms(form, replace(GOOD[form], groundedness=groundedness))
        assert got == pytest.approx(expected) and sum(got.values()) == pytest.approx(rules.PUBLISHED_MAX_SCORE)


LENGTHS = [
    (TLDR, 1.099, None), (TLDR, 1.1, 0.0), (TLDR, 1.35, 0.5), (TLDR, 1.6, 1.0), (TLDR, 3.2, 1.0), (TLDR, 4.1, 0.5),
    (TLDR, 5.0, 0.0), (TLDR, 5.001, None), (TLDR, 0.0, None),
    (ARXIV_EXPANSION, 0.799, None), (ARXIV_EXPANSION, 0.8, 0.0), (ARXIV_EXPANSION, 1.05, 0.5),
    (ARXIV_EXPANSION, 1.3, 1.0), (ARXIV_EXPANSION, 1.6, 1.0), (ARXIV_EXPANSION, 1.8, 0.5),
    (ARXIV_EXPANSION, 2.0, 0.0), (ARXIV_EXPANSION, 2.001, None),
]  # fmt: skip
VOCABULARIES = [
    (TLDR, 1.299, None), (TLDR, 1.3, 0.0), (TLDR, 1.65, 0.25), (TLDR, 2.0, 0.5), (TLDR, 90.0, 0.5), (TLDR, 0.0, None),
    (ARXIV_EXPANSION, 0.499, None), (ARXIV_EXPANSION, 0.5, 0.0), (ARXIV_EXPANSION, 0.6, 0.25),
    (ARXIV_EXPANSION, 0.7, 0.5), (ARXIV_EXPANSION, 1.3, 0.5), (ARXIV_EXPANSION, 1.5, 0.25),
    (ARXIV_EXPANSION, 1.7, 0.0), (ARXIV_EXPANSION, 1.701, None),
]  # fmt: skip


def test_the_gates_of_structure_and_of_the_ratios_of_length_and_vocabulary():
    counts = {
        TLDR: [(8, 20), (20, 8), (256, 256), (7, 20), (20, 7), (257, 256), (256, 257)],
        ARXIV_EXPANSION: [(128, 190), (128, 256), (127, 190), (128, 127), (128, 257)],
    }
    for form, num_passed in ((TLDR, 3), (ARXIV_EXPANSION, 2)):
        for number, num_words in enumerate(counts[form]):
            got = points(form, num_words=num_words)
            assert got["structure"] == (0.5 if number < num_passed else 0), num_words
            assert (sum(got.values()) > 0) == (number < num_passed), num_words
    ratios = [
        ("length_ratio", LENGTHS, "vocabulary_ratio", 0.5, 1.0),
        ("vocabulary_ratio", VOCABULARIES, "overlap", 1.5, 0.5),
    ]
    for name, cases, gated, before, most in ratios:
        for form, ratio, credit in cases:
            got = points(form, **{name: ratio})
            assert got[name] == pytest.approx(credit or 0.0, abs=1e-12)
            assert (got[gated] == 0) == (credit is None)
            assert sum(got.values()) == pytest.approx(before if credit is None else 3.48 - most + credit)
    with pytest.raises(ValueError, match="ascending"):
        Band(2.0, 1.0)


def test_transition_credit_the_cap_of_overlap_and_the_factors_of_all_points_by_hand():
    counts = [(0, 0.0), (1, 0.4), (2, 0.45), (5, 0.6), (12, 0.95), (13, 1.0), (14, 1.0)]
    assert [rules.transition_credit(count) for count, _ in counts] == pytest.approx([credit for _, credit in counts])
    overlaps = {
        TLDR: [(0.0, 0.0), (0.015, 0.3), (0.03, 0.6), (0.04, 0.6)],
        ARXIV_EXPANSION: [(0.115, 0.3), (0.23, 0.6), (0.5, 0.6)],
    }
    for form, cases in overlaps.items():
        for overlap, credit in cases:
            assert points(form, overlap=overlap)["overlap"] == pytest.approx(credit)
    for credits, faith in [((0.0, 0.0), 0.0), ((0.25, 1.0), 0.5), ((0.5, 0.5), 0.5), ((1.0, 0.0), 0.0)]:
        got = points(TLDR, groundedness=credits)
        assert sum(got.values()) == pytest.approx(0.5 + 2.98 * faith)
        assert got["groundedness"] == pytest.approx(0.5 * faith)
    for overlap, faith in [(0.6, 1.0), (0.75, 0.5), (0.9, 0.0), (1.0, 0.0)]:
        assert sum(points(ARXIV_EXPANSION, overlap=overlap).values()) == pytest.approx(0.5 + 2.98 * faith)


@given(
    form=st.sampled_from(FORMS),
    seen=st.builds(
        Measures,
        num_words=st.tuples(st.integers(0, 300), st.integers(0, 300)),
        length_ratio=st.floats(0, 6),
        vocabulary_ratio=st.floats(0, 3),
        num_transition_categories=st.integers(0, 12),
        overlap=st.floats(0, 1),
        groundedness=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    ),
)
def test_the_score_is_the_sum_up_to_the_first_gate_that_fails(form, seen):
    got = rules.published_terms(form, seen)
    is_open = [all(form.min_words <= count <= form.max_words for count in seen.num_words)]
    is_open.append(is_open[-1] and seen.length_ratio in form.length_ratio)
    is_open.append(is_open[-1] and seen.vocabulary_ratio in form.vocabulary_ratio)
    ungated = (
        0.5,
        form.length_ratio.credit(seen.length_ratio),
        0.5 * form.vocabulary_ratio.credit(seen.vocabulary_ratio),
        0.4 * rules.transition_credit(seen.num_transition_categories),
        0.6 * min(seen.overlap, form.full_overlap) / form.full_overlap,
    )
    gates = (*is_open, is_open[2], is_open[2])
    assert tuple(got) == TERMS
    assert sum(got.values()) == pytest.approx(sum(value for value, gate in zip(ungated, gates, strict=True) if gate))
    assert rules.num_gates_passed(form, seen) == sum(is_open)
    ours = terms(form, seen)
    assert ours["structure"] == got["structure"]
    assert all(0 <= ours[name] <= got[name] + 1e-12 for name in TERMS)
    assert 0 <= sum(ours.values()) <= rules.MAX_SCORE + 1e-9


def test_measures_by_hand_and_transition_words_in_the_texts_of_the_form():
    source = "My dog ate the cake, so I baked another."
    first = "The dog ate a cake."
    second = "However, the dog ate a cake, and I baked bread."
    seen = measures(TLDR, source, first, second)
    assert seen.num_words == (5, 10)
    assert seen.length_ratio == len(second) / len(first)
    assert seen.vocabulary_ratio == 10 / 5
    assert seen.num_transition_categories == 1
    assert seen.overlap == pytest.approx(3 / 6)  # dog ate cake, of those and: however baked bread
    assert seen.groundedness == pytest.approx((0.5, 0.5))  # fluent sentences that the source does not have
    assert measures(TLDR, "x", "However, no.", "Dogs bark.").num_transition_categories == 0
    assert measures(ARXIV_EXPANSION, "x", "However, no.", "Then dogs bark.").num_transition_categories == 2
    text = "A person asked about a gift."
    assert measures(TLDR, "x", text, text).num_transition_categories == 0
    assert measures(TLDR, "x", text, text, published()).num_transition_categories == 3  # so, as, if
    for text in ("", " \n", "!?", "\x00", "👍🏽 \u0301"):
        seen = measures(TLDR, "A post.", text, text)
        assert (seen.vocabulary_ratio, seen.overlap, seen.groundedness) == (0, 0, (0, 0))
        assert sum(terms(TLDR, seen).values()) == 0


SIXTEEN = "cats chase mice dogs guard sheep cows graze milk hens hatch eggs bees sip honey ants"  # four words a quarter


def test_coverage_by_hand_is_a_factor_of_all_points_but_the_structures():
    for texts, expected in [
        (["cats chase mice."], 0.25),  # two pairs
        (["cats chase."], 0.0),  # one pair is too few
        (["cats dogs sheep."], 0.25),  # dogs stands three words behind cats, sheep two behind dogs
        (["cats guard mice."], 0.0),  # too far, and the wrong way round
        (["cats chase mice.", "hens hatch eggs bees sip."], 0.5),  # of the last quarter only one pair
        (["cats chase mice. sheep cows graze. hens hatch eggs. honey ants"], 0.75),
        (["cats chase mice. sheep cows graze. hatch eggs bees. sip honey ants"], 1.0),
        ([SIXTEEN], 1.0),
        (["", "anything else"], 0.0),
    ]:
        assert coverage(texts, SIXTEEN, OWN) == expected
    env = begun(make("collm/TLDR-v2"), options={"task": 3})
    source = env.task["post"]
    longer = f"{source} {' '.join(f'word{number}' for number in range(len(OWN.subject_words(source))))}"
    texts = [env.reference_reply(agent) for agent in env.agents]
    pairs = [measures(TLDR, source, *texts)]
    assert sum(team_terms(TLDR, source, texts, pairs).values()) == pytest.approx(3.48)
    half = sum(team_terms(TLDR, longer, texts, pairs).values())
    assert half == pytest.approx(0.5 + 2.98 * 0.5)  # half told, from 1/4 to 3/4
    assert team_terms(ARXIV_EXPANSION, source, texts, pairs) == terms(ARXIV_EXPANSION, pairs[0])


@pytest.mark.parametrize("form", FORMS)
def test_the_reference_passes_the_gate_of_structure_for_any_source(form):
    few_words = "Cats, dogs; mice. " * 9 + "{source}"
    for source in ("Short.", "One two three four five.", "word " * 400, few_words, "数 学 は 楽しい です。"):
        first, second = reference_team(form, source, 2)
        assert rules.num_gates_passed(form, measures(form, source, first, second)) >= 1, source
