"""Rules of BridgeBuild and ResourceGathering against brute force, on small random maps."""

import random
from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from scipy.ndimage import label

from collm.envs.games.blocks import AIR, Fill, built
from collm.envs.games.bridge_build import Bridge
from collm.envs.games.bridge_build import rules as bridges
from collm.envs.games.bridge_build.rules import Action
from collm.envs.games.resource_gathering import Land
from collm.envs.games.resource_gathering import rules as lands
from collm.envs.games.resource_gathering.players import told_facts
from collm.envs.games.resource_gathering.rules import Fact, Settings

PLANK = 1


def random_bridge(seed, width=4, depth=3, num_pillars=3):
    """About so many of twelve cells are pillars."""
    rng = random.Random(seed)
    others = 12 - num_pillars
    cells = rng.choices(".#YN", [others, others, num_pillars, num_pillars], k=width * depth)
    first, second = rng.sample(range(width * depth), 2)
    cells[first], cells[second] = "S", "T"
    return Bridge(f"map-{seed}", tuple("".join(cells[z * width : (z + 1) * width]) for z in range(depth)))


def beside(one, other):
    return abs(one[0] - other[0]) + abs(one[1] - other[1]) == 1


def cells_of(bridge, kinds):
    return {(x, z) for z, row in enumerate(bridge.rows) for x, kind in enumerate(row) if kind in kinds}


def joined(bridge, planks):
    carries = np.zeros((bridge.depth, bridge.width))
    for x, z in planks | cells_of(bridge, "STYN"):
        carries[z, x] = 1
    pieces, _ = label(carries)
    ((sx, sz),), ((tx, tz),) = cells_of(bridge, "S"), cells_of(bridge, "T")
    return pieces[sz, sx] == pieces[tz, tx]


def published(bridge, planks):
    touched = {pillar for pillar in cells_of(bridge, "YN") if any(beside(pillar, plank) for plank in planks)}
    bad = len(touched & cells_of(bridge, "N"))
    bare = len(cells_of(bridge, "Y") - touched)
    return -bad - 2 * bare - 5 * (not joined(bridge, planks)), bad, bare


def laid(bridge, planks):
    fills = [Fill(x, 0, z, x, 0, z, PLANK) for x, z in planks]
    return built(bridge.box.empty_world(), bridge.box, fills)


@pytest.mark.parametrize("seed", range(40))
def test_a_turn_on_a_bridge_is_worth_what_a_loop_finds(seed):
    bridge, rng = random_bridge(seed), random.Random(seed)
    wants = {(x, z) for x in range(4) for z in range(3) if rng.random() < 0.5}
    fills = tuple(Fill(x, 0, z, x, 0, z, PLANK) for x, z in sorted(wants))
    before = bridges.beginning(bridge)
    assert not before.world.any() and before.probed == (set(), set())
    ((start,), (end,)) = before.visited
    assert ({start}, {end}) == (cells_of(bridge, "S"), cells_of(bridge, "T")) and before.places == (start, end)
    first = Action(fills[::2], probes=((0, 0), (1, 1)), walk=((2, 1), (3, 2)), num_words=3)
    second = Action(fills[1::2], probes=((3, 0),), num_words=4)
    state, score = bridges.after(bridge, before, (first, second))
    planks = wants - cells_of(bridge, "YN")
    assert bridges.plank_cells(state.world) == planks and not state.world.flags.writeable
    assert state.places == ((3, 2), end)
    assert state.visited == ({start, (2, 1), (3, 2)}, {end})
    assert state.probed == ({(0, 0), (1, 1)}, {(3, 0)})
    expected, bad, bare = published(bridge, planks)
    assert (score.num_false_touched, score.num_true_untouched) == (bad, bare)
    assert (score.num_probes, score.num_words) == (3, 7)
    assert score.is_connected == bridges.is_connected(bridge, planks) == joined(bridge, planks)
    assert score.published == pytest.approx(expected - 0.3 * 3 - 0.001 * 7)
    cells = product(range(4), range(3))
    view = {(x, z) for x, z in cells if any(max(abs(x - px), abs(z - pz)) < 2 for px, pz in state.visited[0])}
    assert bridges.visible(bridge, state, 0, 1) == view


def test_bridges_and_plans_by_hand():
    bridge = Bridge("row", ("S.T",))
    lay, clear = Action((Fill(1, 0, 0, 1, 0, 0, PLANK),)), Action((Fill(1, 0, 0, 1, 0, 0, AIR),))
    for actions, stands in (((lay, clear), 0), ((clear, lay), 1)):
        assert bridges.after(bridge, bridges.beginning(bridge), actions)[0].world.sum() == stands
    idle = Action()
    assert (idle.fills, idle.probes, idle.walk, idle.num_words, idle.num_rejected) == ((), (), (), 0, 0)
    bridge = Bridge("detour", ("S.....T", ".YY.YY.", "......."))
    assert bridge.plan is not None and published(bridge, set(bridge.plan))[0] == 0
    assert len(bridge.plan) == 3 and (3, 1) in bridge.plan
    bridge = Bridge("pair", ("S.T....", ".......", "....Y.Y"))
    assert bridge.plan == {(1, 0), (5, 2)}
    plans = [random_bridge(seed, 3, 3, 7).plan for seed in range(30)]
    assert 5 < sum(plan is None for plan in plans) < 25


@pytest.mark.parametrize("seed", range(30))
def test_a_plan_scores_0_with_the_shortest_way_or_there_is_none(seed):
    """Against all sets of planks on a map of 3 x 3."""
    bridge = random_bridge(seed, 3, 3, 7)
    places = sorted({(x, z) for x in range(3) for z in range(3)} - cells_of(bridge, "YN"))
    subsets = [set(each) for size in range(len(places) + 1) for each in combinations(places, size)]
    perfect = [each for each in subsets if published(bridge, each)[0] == 0]
    if bridge.plan is None:
        assert not perfect
        return
    assert published(bridge, set(bridge.plan))[0] == 0
    clean = [each for each in subsets if joined(bridge, each) and not published(bridge, each)[1]]
    # one plank more, at most, for each true pillar that the shortest way leaves bare
    assert len(min(clean, key=len)) <= len(bridge.plan) <= len(min(clean, key=len)) + len(cells_of(bridge, "Y"))


@pytest.mark.parametrize("seed", range(12))
def test_two_workers_make_the_plan_of_any_world_by_halves_or_by_sides_that_are_alike(seed):
    bridge = next(each for each in (random_bridge(100 * seed + n, 5, 4) for n in range(100)) if each.plan)
    rng = random.Random(seed)
    junk = {(x, z) for x in range(5) for z in range(4) if rng.random() < 0.3} - cells_of(bridge, "YN")
    state = replace(bridges.beginning(bridge), world=laid(bridge, junk))
    halves = [bridges.missing(bridge, state, worker) for worker in (0, 1)]
    sides = [bridges.missing_on_side(bridge, state, worker) for worker in (0, 1)]
    for fills in (halves[0] + halves[1], sides[0] + sides[1]):
        assert bridges.plank_cells(built(state.world, bridge.box, fills)) == bridge.plan
        assert sum(fill.volume for fill in fills) == len(junk ^ bridge.plan)
    for side, fills in zip(bridge.sides, sides, strict=True):
        assert all(side.contains(*fill[:3]) and side.contains(*fill[3:6]) for fill in fills)
    for mine, others, side in zip(state.places, reversed(state.places), bridge.sides, strict=True):
        across = 0 if abs(mine[0] - others[0]) > abs(mine[1] - others[1]) else 1
        for cell in ((x, z) for x in range(5) for z in range(4)):
            is_near = abs(cell[across] - mine[across]) <= abs(cell[across] - others[across])
            assert side.contains(cell[0], 0, cell[1]) == is_near
    first, second = halves
    assert len(first) - len(second) in (0, 1)
    blocks = [fill.block for fill in first + second]
    assert blocks == sorted(blocks)  # what is in the way goes first
    for block in (AIR, PLANK):
        rows = [fill.z2 for fill in first + second if fill.block == block]
        assert rows == sorted(rows)


def random_land(seed):
    rng = random.Random(seed)
    width, depth = 6, 4
    everywhere = list(product(range(width), range(depth)))
    lies = {cell: (rng.randint(0, 3), rng.randint(0, 3), rng.randint(0, 2)) for cell in rng.sample(everywhere, 5)}
    lies = {cell: amounts for cell, amounts in lies.items() if any(amounts)}
    first, second = rng.sample(everywhere, 2)
    return Land("random", width, depth, lies, (first, second), tuple(rng.randint(1, 5) for _ in range(3)))


OWN = {0: (0,), 1: (1, 2)}  # wood; stone and iron
NAMES = ("wood", "stone", "iron")


def taxi(one, other):
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def zone_of(land, lies, gathered, gatherer, reach):
    kinds = [kind for kind in OWN[gatherer] if gathered[kind] < land.goal[kind]]
    useful = [cell for cell, amounts in lies.items() if any(amounts[kind] for kind in kinds)]
    return {cell for cell in land.cells if any(taxi(cell, place) <= reach for place in useful)}


def share(land, gathered):
    return sum(min(1, has / wants) for has, wants in zip(gathered, land.goal, strict=True)) / 3


def test_gathering_by_hand():
    score = lands.TurnScore(0.5, True, 3, 1, 0.25, -2, 0.125)
    assert sum(score.terms("bounded").values()) == pytest.approx(5 + 4 - 0.1 + 0.15 + 0.0125)
    assert sum(score.terms("reference").values()) == pytest.approx(score.published)
    assert score.published == pytest.approx(5 + 4 + 0.15 + 0.15 + 0.025)
    land = Land("row", 9, 1, {(1, 0): (0, 3, 2), (7, 0): (4, 0, 0)}, ((0, 0), (8, 0)), (4, 3, 1))
    settings = Settings(max_facts=5)
    state = lands.beginning(land, settings)
    claims = [((1, 0), kind) for kind in ("iron", "iron", "wood", "gold", "stone")]
    claims += [((7, 0), "wood"), ((2, 0), "stone")]
    told = lands.true_facts(land, state, 0, claims, settings)
    assert told == [Fact((1, 0), "iron", 2), Fact((1, 0), "stone", 3)]
    assert lands.still_wanted(land, replace(state, gathered=(3, 3, 0)), 1) == {"iron": 1}
    # a partner is helped at most once over, whatever it is told
    assert lands.usefulness(land, state, 0, [Fact((1, 0), "stone", 3), Fact((1, 0), "iron", 2)], settings) == 1
    assert Settings() == Settings(view=3, reach=1, max_steps=4, max_facts=1)
    assert (bridges.MAX_COMMANDS, bridges.BLOCKS) == (40, ("air", "oak_planks"))
    for goal in [(0, 1, 1), (1, 1, 0), (1, -1, 1)]:
        with pytest.raises(ValueError, match="goal="):
            Land("wrong", 1, 2, {}, ((0, 0), (0, 1)), goal)


@pytest.mark.parametrize("seed", range(40))
def test_a_turn_of_gathering_is_worth_what_a_loop_finds(seed):
    land, rng, settings = random_land(seed), random.Random(seed), Settings(reach=seed % 3, view=1)
    state = lands.beginning(land, settings)
    zones = [zone_of(land, land.lies, (0, 0, 0), who, settings.reach) for who in (0, 1)]
    assert [lands.work_zone(land, state, who, settings) for who in (0, 1)] == zones
    assert state.has_entered == tuple(start in zone for start, zone in zip(land.starts, zones, strict=True))
    assert (state.gathered, state.told, state.visited) == ((0, 0, 0), ((), ()), ({land.starts[0]}, {land.starts[1]}))
    total = 0.0
    for _ in range(3):
        zones = [zone_of(land, state.lies, state.gathered, who, settings.reach) for who in (0, 1)]
        walks = [(state.places[who], rng.choice(land.cells)) for who in (0, 1)]
        facts = [[Fact(rng.choice(land.cells), rng.choice(NAMES), rng.randint(1, 4))] for _ in (0, 1)]
        lies, gathered = {cell: list(amounts) for cell, amounts in state.lies.items()}, list(state.gathered)
        closer = entries = useful = 0
        entered = list(state.has_entered)
        for who, (start, end) in enumerate(walks):
            for cell, kind in product(state.lies, OWN[who]):
                if taxi(cell, end) <= settings.reach:
                    gathered[kind] += lies[cell][kind]
                    lies[cell][kind] = 0
            if zones[who]:
                far, near = (min(taxi(place, cell) for cell in zones[who]) for place in (start, end))
                closer += max(0, far - near)
                entries += far > 0 and near == 0 and not entered[who]
                entered[who] = entered[who] or near == 0
            (fact,) = facts[who]
            partner, kind = 1 - who, NAMES.index(fact.resource)
            missing = land.goal[kind] - state.gathered[kind]
            seen = any(max(abs(fact.cell[0] - x), abs(fact.cell[1] - z)) <= 1 for x, z in state.visited[partner])
            known = any((each.cell, each.resource) == (fact.cell, fact.resource) for each in state.told[partner])
            if kind in OWN[partner] and missing > 0 and not seen and not known:
                useful += min(1, fact.amount / missing)
        later, score = lands.after(land, state, walks, facts, settings)
        assert later.lies == {cell: tuple(amounts) for cell, amounts in lies.items() if any(amounts)}
        assert list(later.gathered) == gathered and list(later.has_entered) == entered
        assert later.places == (walks[0][1], walks[1][1])
        assert later.told == ((*state.told[0], *facts[1]), (*state.told[1], *facts[0]))
        assert later.visited == tuple(state.visited[who] | set(walks[who]) for who in (0, 1))
        gained = share(land, gathered) - share(land, state.gathered)
        is_done = all(has >= wants for has, wants in zip(gathered, land.goal, strict=True))
        was_done = all(has >= wants for has, wants in zip(state.gathered, land.goal, strict=True))
        assert (score.num_steps_closer, score.num_entries) == (closer, entries)
        assert score.is_completed == (is_done and not was_done)
        assert (score.progress, score.usefulness) == (pytest.approx(gained), pytest.approx(useful))
        points = 10 * gained + 4 * score.is_completed + 0.05 * closer + 0.15 * entries + 0.1 * useful
        assert score.published == pytest.approx(points)
        assert lands.progress(land, later) == pytest.approx(share(land, gathered))
        state, total = later, total + gained
    assert total == pytest.approx(share(land, state.gathered))


@pytest.mark.parametrize("seed", range(40))
def test_the_gathering_walk_leads_to_where_most_can_be_taken_at_once(seed):
    land = random_land(seed)
    settings = Settings(reach=1, max_steps=2)
    state = lands.beginning(land, settings)
    for who in (0, 1):
        start = land.starts[who]
        zone = zone_of(land, land.lies, (0, 0, 0), who, 1)

        def gain(place, who=who):
            heap = [amounts for cell, amounts in land.lies.items() if taxi(cell, place) <= 1]
            return sum(min(land.goal[kind], sum(each[kind] for each in heap)) / land.goal[kind] for kind in OWN[who])

        def steps(place, start=start):
            return max(abs(place[0] - start[0]), abs(place[1] - start[1]))

        walk = lands.gathering_walk(land, state, who, settings)
        assert walk[0] == start and len(walk) <= 3
        assert all(max(abs(a[0] - b[0]), abs(a[1] - b[1])) == 1 for a, b in pairwise(walk))
        near = [cell for cell in zone if steps(cell) <= 2]
        if not zone:
            assert walk == (start,)
        elif near:
            assert walk[-1] in near and gain(walk[-1]) == pytest.approx(max(map(gain, near)))
            best = [cell for cell in near if gain(cell) == pytest.approx(gain(walk[-1]))]
            assert len(walk) - 1 == steps(walk[-1]) == min(map(steps, best))
        else:
            nearest = min(map(steps, zone))
            assert len(walk) == 3
            assert min(max(abs(walk[-1][0] - x), abs(walk[-1][1] - z)) for x, z in zone) == nearest - 2


@pytest.mark.parametrize("seed", range(30))
def test_a_talking_gatherer_tells_the_facts_that_cover_most_as_many_as_allowed(seed):
    land = random_land(seed)
    for max_facts in (1, 2):
        settings = Settings(view=2, max_facts=max_facts)
        state = lands.beginning(land, settings)
        for who in (0, 1):
            x0, z0 = land.starts[who]
            shares = sorted(
                (
                    min(1, amounts[kind] / land.goal[kind])
                    for (x, z), amounts in land.lies.items()
                    for kind in OWN[1 - who]
                    if amounts[kind] and max(abs(x - x0), abs(z - z0)) <= 2
                ),
                reverse=True,
            )
            facts = told_facts(land, state, who, settings)
            found = [min(1, fact.amount / land.goal[NAMES.index(fact.resource)]) for fact in facts]
            assert found == pytest.approx(shares[:max_facts])
            assert lands.true_facts(land, state, who, [(f.cell, f.resource) for f in facts], settings) == facts
