"""TLDR and ArxivExpansion as environments, on the built-in sample and on real abstracts."""

import json
import random
from pathlib import Path

import pytest

from collm.envs.writing import TLDR, ArxivExpansion
from collm.envs.writing.documents.lexicon import OWN
from collm.envs.writing.documents.rules import MAX_SCORE, TERMS

GAMES = [TLDR, ArxivExpansion]
SCITLDR = Path(__file__).parents[4].parent / "shared" / "data" / "scitldr"


def played(env, replies: tuple[str, str]):
    """The reward and infos of one episode in which the writers give these replies."""
    _, rewards, terminations, truncations, infos = env.step(dict(zip(env.possible_agents, replies, strict=True)))
    assert all(terminations.values()) and not any(truncations.values()) and env.agents == []
    assert rewards["writer_0"] == rewards["writer_1"]
    return rewards["writer_0"], infos["writer_0"]


def reference_replies(env) -> tuple[str, str]:
    first, second = (env.reference_reply(agent) for agent in env.possible_agents)
    return first, second


@pytest.mark.parametrize("game", GAMES)
def test_both_writers_read_the_same_source_in_prompts_of_their_own(game):
    env = game()
    observations, _ = env.reset(options={"task": 3})
    source = env.tasks[3][game.source_field]
    assert all(source in text for text in observations.values())
    assert observations["writer_0"] != observations["writer_1"]
    assert all("{" not in text for text in observations.values())


def test_braces_in_a_source_are_not_taken_for_places_to_fill(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"post": "We write {source} and {0} here."}))
    observations, _ = TLDR(data=str(path)).reset()
    assert observations["writer_0"].count("We write {source} and {0} here.") == 1


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize(("split", "num_tasks"), [("train", 48), ("test", 12)])
def test_the_reference_scores_at_least_98_percent_of_the_maximum_on_all_built_in_tasks(game, split, num_tasks):
    env = game(split=split)
    assert len(env.tasks) == num_tasks
    for index in range(num_tasks):
        env.reset(options={"task": index})
        reward, _ = played(env, reference_replies(env))
        assert 0.98 * MAX_SCORE < reward <= MAX_SCORE + 1e-9


@pytest.mark.parametrize("game", GAMES)
def test_the_built_in_splits_do_not_overlap(game):
    train, test = ({task[game.source_field] for task in game(split=split).tasks} for split in ("train", "test"))
    assert len(train) == 48 and len(test) == 12 and not train & test


@pytest.mark.parametrize(("game", "shortest", "longest"), [(TLDR, 60, 150), (ArxivExpansion, 100, 200)])
def test_the_built_in_sources_have_the_length_they_are_documented_with(game, shortest, longest):
    for split in ("train", "test"):
        assert all(shortest <= len(task[game.source_field].split()) <= longest for task in game(split=split).tasks)


def test_infos_hold_each_term_of_the_reward_and_numbers_only():
    env = TLDR()
    env.reset(seed=0)
    reward, infos = played(env, reference_replies(env))
    assert reward == pytest.approx(sum(infos[f"reward/{name}"] for name in (*TERMS, "groundedness")))
    assert infos["metric/gates_passed"] == 3
    assert all(isinstance(value, float) for value in infos.values())


LINKS = "also for example actually therefore however first indeed overall likewise although if when".split()


def looped(words, count):
    return " ".join((list(words) * count)[:count])


def degenerate_pairs(env, source, prompts, rng):
    """Pairs of texts that tell nothing of the source; each is as long as is wanted."""
    first, second = (
        env.form.min_words + 16,
        round((env.form.min_words + 16) * (1.4 if env.form.min_words > 99 else 2.3)),
    )
    shuffled, word = source.split(), max(OWN.subject_words(source), key=len)
    rng.shuffle(shuffled)
    yield "one word and links", looped([word, *LINKS[:3]], first), looped([word, *LINKS], second)
    yield "one word and function words", looped(["it", "is", word], first), looped([word, *LINKS], second)
    yield "the source's words in a bag", looped(shuffled, first), looped([*LINKS, *shuffled[::-1]], second)
    yield "the source's words in alphabetical order", looped(sorted(shuffled), first), looped(sorted(shuffled), second)
    yield (
        "a fixed text",
        looped("We all know that life is hard and work is long".split(), first),
        looped("However, people who work hard every day also need time to rest, because life is short".split(), second),
    )
    yield "one text twice", looped(source.split(), first), looped(source.split(), first)
    yield "the prompt", *prompts


@pytest.mark.parametrize("game", GAMES)
def test_no_pair_of_degenerate_texts_is_a_quarter_of_the_way_to_the_reference(game):
    env, rng, scores = game(), random.Random(0), {}
    for index in range(0, 48, 3):
        observations, _ = env.reset(options={"task": index})
        prompts = [str(observations[agent]) for agent in env.agents]
        for name, *pair in degenerate_pairs(env, env.tasks[index][game.source_field], prompts, rng):
            env.reset(options={"task": index})
            scores.setdefault(name, []).append(played(env, pair)[0])
    means = {name: sum(found) / len(found) for name, found in scores.items()}
    assert len(means) == 7 and max(means.values()) < 0.25 * MAX_SCORE, means


@pytest.mark.parametrize("game", GAMES)
def test_texts_about_something_else_are_paid_for_their_structure_alone(game):
    env, published = game(), game(variant="published")
    env.reset(options={"task": 0})
    elsewhere = reference_replies(env)
    for each, expected in ((env, 0.5), (published, 2.98)):
        each.reset(options={"task": 1})
        assert played(each, elsewhere)[0] == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize("game", GAMES)
def test_prompts_may_be_a_users_own(game, tmp_path):
    own, _ = game().reset(seed=0)
    (tmp_path / "writer_0.txt").write_text("Kurz: {source}")
    for given in ({"writer_0": "Kurz: {source}", "system": "Be brief."}, tmp_path):
        env = game(prompts=given)
        observations, _ = env.reset(seed=0)
        *system, asked = observations["writer_0"].messages
        assert asked.content == f"Kurz: {env._source}"
        assert [message[:2] for message in system] == ([("system", "Be brief.")] if isinstance(given, dict) else [])
        assert observations["writer_1"].messages[-1] == own["writer_1"].messages[-1]


@pytest.mark.parametrize("reply", ["", "word " * 20_000, "\x00" * 50, "\ud800" * 9, "👍🏽 " * 300, "<|im_end|>" * 40])
def test_any_reply_is_scored(reply):
    env = ArxivExpansion()
    env.reset(seed=0)
    reward, _ = played(env, (reply, reply))
    assert reward == 0


def test_a_task_is_picked_by_index_or_id():
    env = TLDR()
    by_index, _ = env.reset(options={"task": 5})
    by_id, _ = env.reset(options={"task": env.tasks[5]["id"]})
    assert by_index == by_id
    with pytest.raises(ValueError, match=r"0\.\.47.*'post-01'"):
        env.reset(options={"task": 48})


def test_seeds_draw_different_tasks():
    env = TLDR()
    assert len({env.reset(seed=seed)[0]["writer_0"] for seed in range(40)}) > 15


@pytest.mark.parametrize(
    ("kwargs", "complaint"),
    [
        ({"variant": "paper"}, "variant must be one of"),
        ({"prompts": {"writer_0": "Sum up {post}."}}, r"unknown placeholder \{post\}.*\{source\}"),
        ({"prompts": {"writer_0": "Sum up."}}, r"does not tell the task; give it \{source\}"),
        ({"prompts": {"editor_0": "{source}"}}, r"texts for some of .*got \['editor_0'\]"),
        ({"split": "dev"}, "no built-in data for the split 'dev'"),
        ({"columns": {"abstract": "source"}}, "columns renames unknown fields"),
    ],
)
def test_wrong_arguments_are_refused(kwargs, complaint):
    with pytest.raises(ValueError, match=complaint):
        TLDR(**kwargs)


def test_a_reference_reply_needs_an_episode():
    with pytest.raises(RuntimeError, match="call reset"):
        TLDR().reference_reply("writer_0")


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize(("split", "file", "num_rows"), [("train", "train", 1992), ("test", "dev", 619)])
def test_every_row_of_real_abstracts_can_be_played(game, split, file, num_rows):
    if not SCITLDR.is_dir():
        pytest.skip("the SciTLDR files are not here")
    env = game(
        data={"train": f"{SCITLDR}/train.jsonl", "test": f"{SCITLDR}/dev.jsonl"},
        split=split,
        columns={game.source_field: "source", "id": "paper_id"},
    )
    lines = (SCITLDR / f"{file}.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(env.tasks) == len(lines) == num_rows
    replies = ("a paper on learning " * 33, "this paper shows how models learn " * 32)
    for index, line in enumerate(lines):
        row = json.loads(line)
        observations, _ = env.reset(options={"task": index})
        assert " ".join(row["source"]) in observations["writer_0"]
        assert played(env, replies)[0] > 0


def test_the_reference_passes_every_gate_on_real_abstracts():
    if not SCITLDR.is_dir():
        pytest.skip("the SciTLDR files are not here")
    for game in GAMES:
        env = game(data=f"{SCITLDR}/train.jsonl", columns={game.source_field: "source"})
        for index in random.Random(0).sample(range(len(env.tasks)), 20):
            env.reset(options={"task": index})
            assert played(env, reference_replies(env))[1]["metric/gates_passed"] == 3
