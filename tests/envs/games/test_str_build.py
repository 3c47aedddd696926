"""StrBuild: a word in blocks."""

from itertools import product

import numpy as np
import pytest
from replies import begun, references, rewards_of, share

from collm.envs.games.str_build import BLOCKS, StrBuild, new_word, score, word, words


def letter_i(**kwargs):
    """An environment of the one word I: 13 letter cells in a box of 25."""
    return begun(StrBuild(data=[{"string": "I", "difficulty": 1}], **kwargs), seed=0)


def line(blocks, y=0, x=0):
    names = {"o": "oak_planks", "s": "stone", "w": "white_concrete", "b": "obsidian", ".": None, "a": "air"}
    return "\n".join(f"/setblock {x + i} {y} 0 {names[b]}" for i, b in enumerate(blocks) if names[b])


@pytest.mark.parametrize(
    ("first", "second", "expected", "iou"),
    [
        ("", "", -0.5, 0),
        (line("o"), "", 2 / 13 - 0.5, 1 / 13),
        (line("oo"), "", 4 / 13 - 1 - 0.5, 2 / 13),
        (line("os"), "", 4 / 13 - 0.25, 2 / 13),
        (line("os"), line("..wb"), 8 / 13, 4 / 13),
        (line("o", y=1), "", -1.5 / 12 - 0.5, 0),
        (line("ooooo"), "", 10 / 13 - 1 - 0.5, 5 / 13),
        (line("oosso"), "", 10 / 13 - 2 / 4 - 0.25, 5 / 13),
        ("\n".join(line("ooooo", y) for y in range(5)), "", 2 - 1.5 - 1 - 0.5, 13 / 25),
        (line("o"), line("w"), 2 / 13 - 0.5, 1 / 13),
        (line("os"), line("aa"), -0.5, 0),
        (line("o.o") + "\n" + line("s", y=1, x=2), line(".w.b"), 10 / 13, 5 / 13),
        (line("b"), line("o"), -0.5, 0),
        ("\n".join([line("o.o.o"), line("o.o.o", 4), line("o", 2, 2)]), line(".w.w"), 18 / 13 - 0.5, 9 / 13),
    ],
)
def test_partial_builds_score_by_hand(first, second, expected, iou):
    env = letter_i(reward="reference")
    _, rewards, _, _, infos = env.step({"builder_0": first, "builder_1": second})
    assert rewards == {"builder_0": pytest.approx(expected, abs=1e-9), "builder_1": pytest.approx(expected, abs=1e-9)}
    info = infos["builder_0"]
    assert info["metric/iou"] == pytest.approx(iou, abs=1e-9)
    assert sum(info[key] for key in info if key.startswith("reward/")) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("world", ["rebuilt", "kept"])
@pytest.mark.parametrize(("reward", "best"), [("reference", 2), ("iou", 1)])
def test_reference_players_reach_the_maximum_on_the_benchmark_as_published(shared_data, world, reward, best):
    benchmark = str(shared_data("minecraft/str_build.csv"))
    env = StrBuild("all", data=benchmark, world=world, reward=reward)
    for task in range(10):
        assert rewards_of(env, task=task) == pytest.approx([best] * 4, abs=1e-9)
    assert [task.text for task in words(benchmark, "test")] == ["ICML", "CLIM"]
    assert [task.id for task in words(benchmark, "train")][-1] == "str_build_0008"
    assert len(words(benchmark, "all")) == 10


@pytest.mark.parametrize("difficulty", range(1, 9))
def test_reference_players_reach_the_maximum_on_a_thousand_generated_words_and_on_the_sample(difficulty):
    env = StrBuild(difficulty=difficulty, max_turns=1)
    for task in range(125):
        assert rewards_of(env, task=task) == pytest.approx([1], abs=1e-9)
    sample = StrBuild("all", data="builtin")
    assert rewards_of(sample, task=difficulty) == pytest.approx([1] * 4, abs=1e-9)


def test_every_plan_gives_each_builder_its_quota_of_which_two_cells_are_a_part():
    for num_builders, difficulty, seed in product(range(2, 7), (2, 3, 8), range(30)):
        task = new_word(seed, difficulty, num_builders=num_builders)
        cells = [((task.plan == a) | (task.plan == b)).sum() for a, b in task.palettes]
        assert min(cells) >= task.quota == max(1, 3 * task.target.sum() // (4 * num_builders))
    tokens = "one builds, others set two cells"
    assert share(StrBuild(needs_both=False), tokens, 6) == pytest.approx(1.0)  # earns its team everything
    env = begun(StrBuild(), seed=0)
    quota = 3 * env.task.target.sum() // 8
    assert f"in {quota} cells of the letters or more" in env.reset(seed=0)[0]["builder_0"]
    _, rewards, _, _, infos = env.step({agent: env.exploits()[tokens](agent) for agent in env.agents})
    assert rewards["builder_0"] == pytest.approx(2 / quota) == infos["builder_0"]["metric/division"]


def test_splits_share_no_word_and_unknown_tasks_and_difficulties_are_refused():
    train = {new_word(seed, 2, "train").text for seed in range(2000)}
    test = {new_word(seed, 2, "test").text for seed in range(500)}
    assert not train & test
    assert not (train | test) & {"MC", "CM", "LI"}
    for text in ("K", "V", "X", "KV", "A B", "2048"):
        task = word(text, "t", 1)
        assert score(task, task.plan).published == 2.0
    with pytest.raises(ValueError, match=r"row 2: .*difficulty='hard'"):
        words([{"string": "I", "difficulty": 1}, {"string": "C", "difficulty": "hard"}], "train")
    for data, task in (("generated", "I"), ("builtin", 99), ("builtin", "I")):
        with pytest.raises(ValueError, match=r"task"):
            StrBuild(data=data).reset(options={"task": task})


def test_worlds_keep_the_last_word_and_an_episode_may_stop_at_a_score_and_be_shifted():
    for world, stands in (("kept", 2), ("rebuilt", 1)):
        env = letter_i(world=world)
        env.step({"builder_0": line("o"), "builder_1": ""})
        env.step({"builder_0": "", "builder_1": line(".w")})
        assert np.count_nonzero(env.world) == stands
    env = letter_i()
    env.step({"builder_0": line("os"), "builder_1": line("wo")})
    assert [BLOCKS[block] for block in env.world[0, 0, :2]] == ["white_concrete", "stone"]
    env = letter_i()
    infos = env.step({"builder_0": line("o") * 1 + ("\n" + line("o")) * 160, "builder_1": ""})[4]
    assert (infos["builder_0"]["metric/accepted"], infos["builder_0"]["metric/rejected"]) == (150, 11)
    env = letter_i(reward="reference", stop_at=1.9, shift=-2.0)
    assert env.step({"builder_0": "", "builder_1": ""})[1]["builder_0"] == pytest.approx(-2.5)
    _, rewards, over, _, _ = env.step(references(env))
    assert rewards["builder_0"] == pytest.approx(0.0) and all(over.values()) and not env.agents
    env = letter_i(feedback="score", shows_target=False)
    assert "#####" not in env.state()
    observations = env.step({"builder_0": "", "builder_1": ""})[0]
    assert "#####\n..#..\n" in observations["builder_1"]


def test_feedback_tells_what_its_mode_allows():
    for feedback, first, second in [
        ("score", "Score 0.0000. Letters covered 0.077", "1 lines refused"),
        ("position", "Take about half of them (6)", "0 4, 1 4, 2 4"),
        ("perfect", "2 0 stone; 4 0 oak_planks; 2 1 oak_planks", "1 0 white_concrete; 3 0 obsidian"),
    ]:
        env = letter_i(feedback=feedback)
        observations = env.step({"builder_0": line("o"), "builder_1": "What?"})[0]
        assert first in observations["builder_0"].messages[-1].content
        assert second in observations["builder_1"].messages[-1].content
