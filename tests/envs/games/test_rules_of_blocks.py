"""Rules of HouseBuild and StrBuild, each against a loop over single cells, on small random worlds."""

import random
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from itertools import product

import numpy as np
import pytest

from collm.envs.games.blocks import AIR, built
from collm.envs.games.bridge_build import rules as bridges
from collm.envs.games.house_build import house
from collm.envs.games.house_build import rules as houses
from collm.envs.games.mini_build import rules as minis
from collm.envs.games.resource_gathering import rules as lands
from collm.envs.games.str_build import new_word, word
from collm.envs.games.str_build import rules as words

LETTERS = "ABC"
INVENTORY = {"A": "cave_air", "B": "minecraft:stone", "C": "glass"}


def random_house(seed, *, share_of_air=0.4, height=64):
    """A house that stands at a height, of at most 4 x 3 x 3 cells, its layers listed from the top; and where."""
    rng = random.Random(seed)
    weights = [share_of_air, (1 - share_of_air) / 2, (1 - share_of_air) / 2]
    width, depth, num_layers = rng.randint(1, 4), rng.randint(1, 3), rng.randint(1, 3)
    rows = [["".join(rng.choices(LETTERS, weights, k=width)) for _ in range(depth)] for _ in range(num_layers)]
    rows[0][0] = "B" + rows[0][0][1:]  # something must be wanted
    layers = [{"y": height + y, "rows": layer} for y, layer in enumerate(rows)][::-1]
    task = house({"task_id": "random", "inventory": INVENTORY, "target_spec": {"layers": layers}})
    wanted = {
        (x, height + y, z): LETTERS.index(letter)
        for y, layer in enumerate(rows)
        for z, row in enumerate(layer)
        for x, letter in enumerate(row)
    }
    return task, wanted


def as_world(task, cells):
    world = task.box.empty_world().copy()
    x0, y0, z0 = task.box.lower
    for (x, y, z), block in cells.items():
        world[y - y0, z - z0, x - x0] = block
    return world


def in_order(cell):
    return cell[1], cell[2], cell[0]


def disturbed(wanted, seed):
    rng = random.Random(seed)
    return {cell: rng.randrange(3) if rng.random() < 0.4 else block for cell, block in wanted.items()}


def test_houses_and_the_largest_part_of_a_floor_by_hand():
    task, wanted = random_house(1)
    assert (task.id, task.blocks, task.letters) == ("random", ("air", "stone", "glass"), "ABC")
    assert task.box.lower == (0, 64, 0) and task.box.upper == max(wanted)
    assert np.array_equal(task.target, as_world(task, wanted))
    assert not task.target.flags.writeable
    layers = [{"y": 3, "rows": ["BC"]}]
    row = {"task_id": 7, "inventory": INVENTORY, "target_spec": {"layers": layers}}
    assert house({**row, "bbox": {"from": [1, 3, 2], "to": [2, 3, 2]}}).box.lower == (1, 3, 2)
    assert house(row).id == "7"
    for corners in ([1, 4, 2], [2, 4, 2]), ([1, 3, 2], [2, 3, 3]), ([1, 3, 2], [3, 3, 2]):
        with pytest.raises(ValueError, match="does not fit"):
            house({**row, "bbox": dict(zip(("from", "to"), corners, strict=True))})
    target_spec = {"layers": [{"y": 7, "rows": ["BBB"] * 4}]}
    place = {"from": [5, 7, 2], "to": [7, 7, 5]}
    task = house({"task_id": "floor", "inventory": INVENTORY, "target_spec": target_spec, "bbox": place})
    parts = [(1, 1, 1), (3, 3, 1), (4, 2, 2), (5, 2, 2), (7, 3, 2), (11, 3, 3), (12, 3, 4), (99, 3, 4)]
    for stock, width, depth in parts:  # of parts of one size the widest, from the floor's lower corner
        part = houses.Fill(5, 7, 2, 5 + width - 1, 7, 2 + depth - 1, 1)
        assert houses.affordable_rectangles(task, {1: stock}) == [part]


@pytest.mark.parametrize("rules", [houses, words, minis, bridges, lands])
def test_tasks_states_and_scores_cannot_be_changed(rules):
    for made in vars(rules).values():
        if is_dataclass(made) and isinstance(made, type):
            with pytest.raises(FrozenInstanceError):
                setattr(object.__new__(made), fields(made)[0].name, None)
    # Tasks and states are told apart by identity: their worlds are arrays, which have no single truth of being equal.
    bridge = bridges.Bridge("row", ("S.T",))
    alike = [(random_house(1)[0], word("I", "id", 1), bridges.beginning(bridge)) for _ in range(2)]
    assert len({*alike[0], *alike[1]}) == 6


HALVES = [(1, 1), (2, 1), (3, 2), (4, 3), (5, 4), (7, 5), (8, 6)]
THIRDS = [(1, 1), (3, 1), (5, 2), (6, 3), (7, 4), (8, 4), (12, 6)]


@pytest.mark.parametrize("team, count, stock", [(2, *each) for each in HALVES] + [(3, *each) for each in THIRDS])
def test_a_stock_is_an_equal_share_rounded_up_and_half_of_one_rounded_down(team, count, stock):
    layers = [{"y": 0, "rows": ["B" * count + "CA"]}]
    row = {"task_id": "row", "inventory": INVENTORY, "target_spec": {"layers": layers}}
    task = replace(house(row), num_builders=team)
    assert task.stock == {1: stock, 2: 1}
    fills = [houses.Fill(0, 0, 0, 1, 0, 0, 1), houses.Fill(0, 0, 0, 0, 0, 0, 2), houses.Fill(0, 0, 0, 0, 0, 0, AIR)]
    assert houses.stock_left(task, fills) == {1: stock - 2, 2: 0}


@pytest.mark.parametrize("seed", range(12))
def test_a_score_is_that_of_a_loop_over_the_cells_and_two_builders_mend_any_world(seed):
    task, wanted = random_house(seed, share_of_air=0.0 if seed % 4 == 0 else 0.4)
    stands = disturbed(wanted, seed)
    score = houses.score(task, as_world(task, stands), attacks=(1, 2), num_kills=0)
    filled = [cell for cell, block in wanted.items() if block]
    air = [cell for cell, block in wanted.items() if not block]
    right = [cell for cell in wanted if wanted[cell] == stands[cell]]
    either = [cell for cell in wanted if wanted[cell] or stands[cell]]
    assert score.match == pytest.approx(len(right) / len(wanted))
    assert score.coverage == pytest.approx(len(set(filled) & set(right)) / len(filled))
    assert score.redundancy == pytest.approx(sum(stands[cell] > 0 for cell in air) / max(1, len(air)))
    assert score.iou == pytest.approx(sum(stands[cell] > 0 for cell in filled) / len(either))
    assert score.exact_iou == pytest.approx(len(set(filled) & set(right)) / len(either))
    assert (score.damage, score.num_kills) == (3 / 5, 0)
    task, wanted = random_house(seed)
    stands = disturbed(wanted, seed)
    world = as_world(task, stands)
    owner = {}
    for block in (1, 2):
        places = sorted((cell for cell in wanted if wanted[cell] == block), key=in_order)
        half = -(-len(places) // 2)
        owner |= {cell: int(number >= half) for number, cell in enumerate(places)}
    owner |= {cell: 1 for cell, block in wanted.items() if not block}
    of_both = []
    for builder in (0, 1):
        fills = houses.missing(task, world, builder)
        alone = built(world, task.box, fills)
        own = {cell: wanted[cell] if owner[cell] == builder else stands[cell] for cell in wanted}
        assert np.array_equal(alone, as_world(task, own))
        assert sum(fill.volume for fill in fills) == sum(own[cell] != stands[cell] for cell in wanted)
        of_both += fills
    assert np.array_equal(built(world, task.box, of_both), task.target)
    expected = [(*cell, wanted[cell]) for cell in wanted if wanted[cell] != stands[cell]]
    assert houses.wrong_cells(task, world) == sorted(expected, key=in_order)


@pytest.mark.parametrize(
    ("num_kills", "is_safe", "attacks", "damage", "price"),
    [(0, False, (2, 2), 0.8, 0), (0, False, (3, 3), 1, 0), (0, False, (), 0, 0), (0, True, (3, 3), 0, 0),
     (1, False, (3, 3), 0, 0), (2, False, (3, 3), 0, 0.01), (4, True, (3, 3), 0, 0.03)],
)  # fmt: skip
def test_spiders_and_the_price_of_killing_them_twice(num_kills, is_safe, attacks, damage, price):
    task, wanted = random_house(3)
    score = houses.score(task, as_world(task, wanted), attacks=attacks, num_kills=num_kills, is_safe=is_safe)
    assert score.damage == pytest.approx(damage)
    assert score.published == pytest.approx(1 - 0.1 * damage)
    assert score.paper == pytest.approx(2 - 0.2 * damage)
    assert score.strict == pytest.approx(1 - 0.1 * damage - price)


def cells_of(fill):
    return set(product(range(fill.x1, fill.x2 + 1), range(fill.y1, fill.y2 + 1), range(fill.z1, fill.z2 + 1)))


@pytest.mark.parametrize("seed", range(16))
def test_rectangles_make_the_house_and_those_to_mend_hold_a_wrong_cell(seed):
    task, wanted = random_house(seed)
    covered = [(cell, fill.block) for fill in task.rectangles for cell in cells_of(fill)]
    assert sorted(covered) == sorted(wanted.items())
    for wrong in wanted:  # one wrong cell at a time, so that every corner of every rectangle is tried
        world = as_world(task, {**wanted, wrong: (wanted[wrong] + 1) % 3})
        assert houses.rectangles_to_mend(task, world) == [fill for fill in task.rectangles if wrong in cells_of(fill)]
    assert houses.rectangles_to_mend(task, task.target) == []


@pytest.mark.parametrize("seed", range(20))
def test_what_is_affordable_is_the_largest_first_and_the_largest_part_of_one_more(seed):
    task, _ = random_house(seed, share_of_air=0.15)
    rng = random.Random(seed)
    stock = {1: rng.randint(0, 6), 2: rng.randint(0, 6)}
    left, whole, others = dict(stock), [], []
    for fill in sorted((f for f in task.rectangles if f.block), key=lambda f: (-f.volume, f)):
        if fill.volume <= left[fill.block]:
            left[fill.block] -= fill.volume
            whole.append(fill)
        else:
            others.append(fill)
    best = 0
    for fill in others:
        shape = fill.x2 - fill.x1 + 1, fill.z2 - fill.z1 + 1
        sizes = [w * d for w in range(1, shape[0] + 1) for d in range(1, shape[1] + 1)]
        best = max([best, *(size for size in sizes if size <= left[fill.block])])
    found = houses.affordable_rectangles(task, stock)
    assert found[: len(whole)] == whole
    parts = found[len(whole) :]
    assert [part.volume for part in parts] == ([best] if best else [])
    for part in parts:
        assert any(cells_of(part) < cells_of(fill) and part[:3] == fill[:3] for fill in others)
    assert houses.affordable_rectangles(task, {}) == []


def random_word(seed):
    rng = random.Random(seed)
    task = word(["I", "LO", "a b", "X7"][seed % 4], "id", 2)
    world = task.box.empty_world().copy()
    for place in np.argwhere(np.ones_like(task.target)):
        if rng.random() < 0.5:
            world[tuple(place)] = rng.choice([1, 2, 3, 4] if seed % 3 else [1, 2, 3])
    return task, world


@pytest.mark.parametrize("seed", range(8))
def test_a_word_s_score_is_that_of_a_loop_over_the_cells_and_two_builders_make_its_plan(seed):
    task, world = random_word(seed)
    height, width = len(task.rows), len(task.rows[0])
    wanted = {(x, y) for y in range(height) for x in range(width) if task.rows[height - 1 - y][x] == "#"}
    stands = {(x, y): int(world[y, 0, x]) for y in range(height) for x in range(width) if world[y, 0, x]}
    pairs = [((x, y), other) for x, y in stands for other in ((x + 1, y), (x, y + 1)) if other in stands]
    score = words.score(task, world)
    assert score.coverage == pytest.approx(len(wanted & stands.keys()) / len(wanted))
    assert score.extra == pytest.approx(len(stands.keys() - wanted) / (height * width - len(wanted)))
    assert score.same_neighbours == pytest.approx(sum(stands[a] == stands[b] for a, b in pairs) / len(pairs))
    assert score.num_idle == sum(not {a, b} <= set(stands.values()) for a, b in ((1, 2), (3, 4)))
    assert score.iou == pytest.approx(len(wanted & stands.keys()) / len(wanted | stands.keys()))
    assert score.strict == pytest.approx(score.iou * (1 - score.same_neighbours) * (1 - score.num_idle / 2))
    after = world
    for builder, palette in ((0, {1, 2}), (1, {3, 4, AIR})):
        fills = words.missing(task, world, builder)
        assert {fill.block for fill in fills} <= palette
        assert all(fill[:3] == fill[3:6] and world[fill.y1, fill.z1, fill.x1] != fill.block for fill in fills)
        after = built(after, task.box, fills)
    assert np.array_equal(after, task.plan)


def test_words_empty_worlds_and_spiders_by_hand():
    for text in ("I", "T", "hi"):  # two kinds of block per builder need a cell each
        num_cells = sum(row.count("#") for row in word(text, "id", 1).rows)
        task = word(text, "id", 1, num_cells // 2)
        assert task.target.sum() == num_cells and task.num_builders == num_cells // 2
        with pytest.raises(ValueError, match=rf"{num_cells} cells.*{num_cells // 2 + 1}"):
            word(text, "id", 1, num_cells // 2 + 1)
    task = word("hi", "an id", 2)
    assert (task.id, task.text, task.difficulty) == ("an id", "HI", 2)
    assert task.box.upper == (len(task.rows[0]) - 1, 4, 0)
    assert not task.target.flags.writeable and not task.plan.flags.writeable
    assert task.target[0, 0].tolist() == [dot == "#" for dot in task.rows[-1]]
    drawn = [new_word(seed, 3) for seed in range(150)]
    assert {len(task.text) for task in drawn} == {3} and {task.difficulty for task in drawn} == {3}
    assert drawn[4].id == "train-3-4" and new_word(4, 3, "test").id == "test-3-4"
    assert len(set("".join(task.text for task in drawn))) == 26
    assert len(new_word(0, 8).text) == 8 and len(new_word(0).text) == 3
    with pytest.raises(ValueError, match="1 to 8"):
        new_word(0, 9)
    task = word("I", "id", 1)
    empty = words.score(task, task.box.empty_world())
    assert (empty.same_neighbours, empty.extra, empty.num_idle, empty.strict) == (0, 0, 2, 0)
    full = words.Word("full", "?", 1, ("##",), np.ones((1, 1, 2), bool), np.array([[[1, 3]]], np.uint8))
    assert words.score(full, full.plan).extra == 0
    drawn = [houses.spiders(random.Random(seed)) for seed in range(60)]
    assert {len(each) for each in drawn} == {3} and {damage for each in drawn for damage in each} == {1, 2, 3}
