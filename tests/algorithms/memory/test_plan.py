"""The memory plan against arithmetic by hand, and laws: more work or more weights never need less."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collm.agents.language.shape import ModelShape
from collm.algorithms.memory.plan import Member, Work, kv_bytes, plan, within

P = 1_000_000
SIZES = {
    "num_weights": P,
    "num_pinned": 1_400_000,
    "num_linear": 900_000,
    "num_rows": 5_000,
    "num_layers": 2,
    "vocabulary": 1_000,
}
SIZES |= {"hidden": 64, "query": 64, "key": 32, "num_heads": 4, "num_key_heads": 2, "feed_forward": 128}
SHAPE = ModelShape(**SIZES, num_products=3, is_tied=True, has_head_norms=False)
CRITIC = Member(name="critic", shape=SHAPE.backbone(), num_agents=0)
TEAM = (Member(name="fox_0", shape=SHAPE), Member(name="stone_0", shape=SHAPE), CRITIC)
WORK = Work(tokens=1024, row_length=256, num_rows=8)


def phase(members, work, name):
    return next(each for each in plan(members, work).phases if each.name == name)


def test_weights_that_learn_cost_16_bytes_each_and_one_learner_has_gradients():
    found = phase(TEAM[:1], WORK, "update of fox_0")
    assert found.weights + found.gradients + found.moments == 16 * P
    found = phase(TEAM, WORK, "update of fox_0")
    assert (found.weights, found.moments, found.gradients) == (3 * 4 * P, 3 * 8 * P, 4 * P)
    found = phase(TEAM, replace(WORK, offload="learner"), "update of fox_0")
    assert found.weights + found.gradients + found.moments == 16 * P
    assert phase(TEAM, replace(WORK, offload="learner"), "decoding").weights == 2 * 4 * P  # the critic waits


def test_packed_and_autocast_weights_are_copies():
    work = replace(WORK, packs=True)
    assert phase(TEAM, work, "decoding").casts == 2 * 4 * 900_000
    assert phase(TEAM, work, "update of fox_0").casts == 0
    assert phase([replace(TEAM[0], compute=2)], work, "decoding").casts == 2 * 900_000
    assert phase([replace(TEAM[0], compute=2)], WORK, "update of fox_0").casts == 2 * 900_000
    team = [replace(TEAM[0], compute=2, has_reference=True)]
    embedded = 64 * 1_000
    assert phase(team, WORK, "loading").weights == 4 * P + 4 * P - 2 * (900_000 - embedded)


def test_members_side_by_side_hold_gradients_and_activations_at_once():
    work = replace(WORK, side_by_side=True)
    one = phase(TEAM, WORK, "update of fox_0")
    both = phase(TEAM, work, "update of fox_0 and stone_0")
    assert (both.gradients, both.activations) == (2 * one.gradients, 2 * one.activations)
    assert (both.weights, both.moments) == (one.weights, one.moments)
    assert phase(TEAM, work, "decoding").activations == 2 * phase(TEAM, WORK, "decoding").activations
    assert phase(TEAM, work, "update of critic") == phase(TEAM, WORK, "update of critic")
    assert len(plan(TEAM[2:], work).phases) == 2  # nobody decodes

    team = [*TEAM[:2], *(replace(TEAM[2], name=f"critic of {each.name}") for each in TEAM[:2])]
    together = replace(WORK, critics_side_by_side=True)
    one = phase(team, WORK, "update of critic of fox_0")
    both = phase(team, together, "update of critic of fox_0 and critic of stone_0")
    assert (both.gradients, both.activations) == (2 * one.gradients, 2 * one.activations)
    assert (both.weights, both.moments) == (one.weights, one.moments)
    assert phase(team, together, "update of fox_0").gradients == 4 * P


def test_a_base_of_adapters_is_kept_once_in_16_bits():
    team = [Member(name="fox_0, stone_0", shape=SHAPE, compute=2, num_adapters=2, rank=4, num_agents=2)]
    found = phase(team, WORK, "update of fox_0, stone_0")
    adapter = 4 * 5_000
    assert (found.weights, found.casts) == (2 * P + 2 * 4 * adapter, 0)
    assert (found.moments, found.gradients) == (2 * 8 * adapter, 4 * adapter)


def test_ranks_share_16_bytes_and_a_copy_to_decode_with_unless_servers_decode_or_adapters_learn():
    team = [replace(member, num_shares=4, compute=2) for member in TEAM]
    found = phase(team, WORK, "update of fox_0")
    linear = 900_000 - 64 * 1_000  # the tied embedding is looked up in fp32
    copy = 4 * P - 2 * linear
    critic = TEAM[2].shape.num_weights // 4
    assert found.weights == 2 * (P + copy) + 4 * critic
    assert (found.moments, found.gradients) == (2 * 2 * P + 8 * critic, P)
    # A pass has two layers in 16 bits, the embedding, and a layer's gradient.
    assert found.casts == 2 * 2 * linear // 2 + 4 * (64 * 1_000 + linear // 2)
    assert phase(team, WORK, "decoding").casts == 0
    assert phase(team, WORK, "loading").weights == found.weights + 4 * P  # one is whole until it is shared out

    team = [replace(member, num_shares=4, compute=2, is_served=member.num_agents > 0) for member in TEAM]
    assert phase(team, WORK, "update of fox_0").weights == 2 * P + 4 * (TEAM[2].shape.num_weights // 4)
    assert [each.kv for each in plan(team, WORK).phases] == [0] * 4  # loading, and three updates
    assert within(team, WORK, plan(team, WORK).peak.total) == replace(WORK, max_kv=0)
    adapted = Member(name="fox_0", shape=SHAPE, compute=2, num_adapters=1, rank=4)
    assert plan([replace(adapted, num_shares=8)], WORK) == plan([adapted], WORK)


def test_keys_and_values_by_hand_get_what_the_rest_leaves():
    assert kv_bytes(TEAM[:2], WORK) == 2 * (8 * 256) * (2 * 2 * 32 * 4)
    assert phase(TEAM, replace(WORK, max_kv=1000), "decoding").kv == 1000
    rest = phase(TEAM, replace(WORK, max_kv=0), "decoding").total
    work = replace(WORK, num_rows=100)
    update = plan(TEAM, replace(work, max_kv=0)).peak.total
    room = max(update, rest + kv_bytes(TEAM[:2], work) // 2)
    fitted = within(TEAM, work, room)
    assert fitted is not None
    assert phase(TEAM, fitted, "decoding").total <= room
    assert within(TEAM, work, plan(TEAM, replace(work, max_kv=0)).peak.total // 2) is None


works = st.builds(
    Work,
    tokens=st.integers(64, 16384),
    row_length=st.integers(16, 4096),
    num_rows=st.integers(1, 300),
    shares_prompts=st.booleans(),
    recomputes=st.booleans(),
    offload=st.sampled_from(["none", "moments", "learner"]),
)
members = st.builds(
    Member,
    name=st.just("fox_0"),
    shape=st.just(SHAPE),
    compute=st.sampled_from([2, 4]),
    num_adapters=st.sampled_from([0, 2]),
    rank=st.just(8),
    has_reference=st.booleans(),
)


@settings(max_examples=100, deadline=None)
@given(
    work=works, member=members, more=st.integers(1, 1000), field=st.sampled_from(["tokens", "row_length", "num_rows"])
)
def test_more_work_never_needs_less(work, member, more, field):
    greater = replace(work, **{field: getattr(work, field) + more})
    for small, large in zip(plan([member], work).phases, plan([member], greater).phases, strict=True):
        assert large.total >= small.total


@settings(max_examples=50, deadline=None)
@given(work=works, member=members)
def test_another_model_never_needs_less_and_offload_never_more(work, member):
    alone, both = plan([member], work), plan([member, replace(member, name="stone_0")], work)
    assert both.peak.total >= alone.peak.total
    totals = [plan([member, TEAM[2]], replace(work, offload=way)).peak.total for way in ("none", "moments", "learner")]
    assert totals == sorted(totals, reverse=True)


@pytest.mark.parametrize("compute", [2, 4])
def test_recomputing_needs_less(compute):
    member = replace(TEAM[0], compute=compute, shape=replace(SHAPE, num_layers=8))
    full, less = (plan([member], replace(WORK, recomputes=flag)).peak.total for flag in (False, True))
    assert less < full


def test_offloaded_weights_and_moments_wait_in_pinned_memory_of_rounded_sizes():
    def pinned(**changes):
        return plan(TEAM[:1], replace(WORK, kind="cuda", **changes)).pinned

    assert pinned(offload="learner") == 12 * 1_400_000
    assert pinned(offload="moments") == 8 * 1_400_000
    assert pinned(offload="learner", rounds_pinned=False) == 12 * P
    assert pinned() == plan(TEAM, replace(WORK, offload="learner")).pinned == 0
