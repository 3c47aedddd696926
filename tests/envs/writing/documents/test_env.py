"""TLDR and ArxivExpansion as environments, on the built-in sample and on real abstracts."""

import json
import random
from pathlib import Path

import pytest
from replies import begun, references

from collm.envs.writing import TLDR, ArxivExpansion
from collm.envs.writing.documents.rules import MAX_SCORE, TERMS

GAMES = [TLDR, ArxivExpansion]


def played(env, *replies):
    _, rewards, terminations, truncations, infos = env.step(dict(zip(env.possible_agents, replies, strict=True)))
    assert all(terminations.values()) and not any(truncations.values()) and env.agents == []
    assert rewards["writer_0"] == rewards["writer_1"]
    return rewards["writer_0"], infos["writer_0"]


@pytest.mark.parametrize("game", GAMES)
def test_both_writers_read_the_same_source_and_texts_about_another_earn_little(game):
    env = game()
    observations, _ = env.reset(options={"task": 3})
    source = env.tasks[3][game.source_field]
    assert all(source in text for text in observations.values())
    assert observations["writer_0"] != observations["writer_1"]
    assert all("{" not in text for text in observations.values())
    braces = "We write {source} and {0} here."  # in a source are no places to fill
    assert game(data=[{game.source_field: braces}]).reset()[0]["writer_0"].count(braces) == 1
    env = game(prompts={"writer_0": "Kurz: {source}", "system": "Be brief."})
    read = [message[:2] for message in env.reset(options={"task": 0})[0]["writer_0"].messages]
    assert read == [("system", "Be brief."), ("user", f"Kurz: {env.task[game.source_field]}")]
    elsewhere = references(env).values()
    for each, expected in ((game(), 0.5), (game(variant="published"), 2.98)):
        each.reset(options={"task": 1})
        assert played(each, *elsewhere)[0] == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(("game", "shortest", "longest"), [(TLDR, 60, 150), (ArxivExpansion, 100, 200)])
def test_the_reference_scores_98_percent_on_built_in_sources_of_the_documented_length(game, shortest, longest):
    sources = []
    for split, num_tasks in (("train", 48), ("test", 12)):
        env = game(split=split)
        sources += [task[game.source_field] for task in env.tasks]
        assert len(env.tasks) == num_tasks
        for index in range(num_tasks):
            env.reset(options={"task": index})
            assert 0.98 * MAX_SCORE < played(env, *references(env).values())[0] <= MAX_SCORE + 1e-9
    assert len(set(sources)) == len(sources)
    assert all(shortest <= len(source.split()) <= longest for source in sources)


def test_any_reply_is_scored_infos_have_each_term_and_tasks_are_picked_by_index_or_id():
    env = ArxivExpansion()
    for reply in ("", "word " * 20_000, "\x00" * 50, "\ud800" * 9, "👍🏽 " * 300, "<|im_end|>" * 40):
        env.reset(seed=0)
        assert played(env, reply, reply)[0] == 0
    env = begun(TLDR(), seed=0)
    reward, infos = played(env, *references(env).values())
    assert reward == pytest.approx(sum(infos[f"reward/{name}"] for name in (*TERMS, "groundedness")))
    assert infos["metric/gates_passed"] == 3
    assert all(isinstance(value, float) for value in infos.values())
    env = TLDR()
    by_index, _ = env.reset(options={"task": 5})
    by_id, _ = env.reset(options={"task": env.tasks[5]["id"]})
    assert by_index == by_id
    with pytest.raises(ValueError, match=r"0\.\.47.*'post-01'"):
        env.reset(options={"task": 48})
    assert len({env.reset(seed=seed)[0]["writer_0"] for seed in range(40)}) > 15
    with pytest.raises(RuntimeError, match="call reset"):
        TLDR().reference_reply("writer_0")


@pytest.mark.parametrize(
    ("kwargs", "complaint"),
    [
        ({"variant": "paper"}, "variant='paper'"),
        ({"num_agents": 3, "variant": "published"}, "num_agents=3.*variant"),
        ({"prompts": {"writer_0": "Sum up {post}."}}, r"\{post\}.*\{source\}"),
        ({"split": "dev"}, "'dev'"),
        ({"columns": {"abstract": "source"}}, "columns.*'abstract'"),
    ],
)
def test_wrong_arguments_are_refused(kwargs, complaint):
    with pytest.raises(ValueError, match=complaint):
        TLDR(**kwargs)


@pytest.fixture(scope="module")
def scitldr(shared_data):
    return {"train": str(shared_data("scitldr/train.jsonl")), "test": str(shared_data("scitldr/dev.jsonl"))}


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize(("split", "num_rows"), [("train", 1992), ("test", 619)])
def test_every_row_of_real_abstracts_can_be_played(scitldr, game, split, num_rows):
    env = game(data=scitldr, split=split, columns={game.source_field: "source", "id": "paper_id"})
    assert len(env.tasks) == num_rows
    replies = ("a paper on learning " * 33, "this paper shows how models learn " * 32)
    for index, row in enumerate(map(json.loads, Path(scitldr[split]).read_text(encoding="utf-8").splitlines())):
        observations, _ = env.reset(options={"task": index})
        assert " ".join(row["source"]) in observations["writer_0"]
        assert played(env, *replies)[0] > 0


def test_the_reference_passes_every_gate_on_real_abstracts(scitldr):
    for game in GAMES:
        env = game(data=scitldr, columns={game.source_field: "source"})
        for index in random.Random(0).sample(range(len(env.tasks)), 20):
            env.reset(options={"task": index})
            assert played(env, *references(env).values())[1]["metric/gates_passed"] == 3
