"""MiniWriting: the posts, the score, the prompts and demonstrations, and the environment."""

from math import sqrt
from random import Random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collm.envs.writing import MiniWriting
from collm.envs.writing.mini_writing import rules as mini_rules
from collm.envs.writing.mini_writing.prompts import (
    AGENTS,
    careless_reply,
    demonstration,
    prompt,
    prompt_vocabulary,
    reference_reply,
)
from collm.envs.writing.mini_writing.rules import (
    LONG,
    SHORT,
    TOPICS,
    Post,
    generated_post,
    random_post,
    score,
    split_of,
    terms,
    vocabulary,
    words_of,
)

POST = Post("farm", ("the dusty goat fed the barn.", "the golden hay plowed the tractor."))


def terms_of(short: str, long: str) -> dict[str, float]:
    return terms(POST, short, long)


@pytest.fixture
def faithful(monkeypatch):
    """Every text counts as grounded, so that the other terms are seen alone."""
    monkeypatch.setattr(mini_rules, "grounded", lambda *_: 1.0)


def test_topics_have_twelve_words_each_and_share_none():
    assert len({word for topic in TOPICS.values() for word in topic.words}) == 12 * len(TOPICS) == 120


def test_the_two_splits_share_no_post():
    posts = {split: {generated_post(Random(seed), split).text for seed in range(300)} for split in ("train", "test")}
    assert not posts["train"] & posts["test"]
    assert len(posts["train"]) > 290


def test_one_post_in_five_is_a_test_post():
    rng = Random(0)
    assert mean(split_of(random_post(rng)) == "test" for _ in range(4000)) == pytest.approx(0.2, abs=0.03)


@given(st.integers(0, 2**32))
def test_the_first_two_sentences_hold_all_content_of_a_post(seed):
    post = generated_post(Random(seed))
    content = [mini_rules.content_of(words_of(text, 99)) for text in (" ".join(post.sentences[:2]), post.text)]
    assert content[0] == content[1] and len(content[0]) == 8 and len(post.sentences) == 4


@given(st.integers(0, 2**32), st.sampled_from(["train", "test"]))
def test_the_reference_scores_one(seed, split):
    post = generated_post(Random(seed), split)
    replies = [reference_reply(post, agent) for agent in AGENTS]
    assert score(terms(post, *replies)) == pytest.approx(1.0)
    assert len(replies[0].split()) <= 14 and len(replies[1].split()) <= 36


def test_terms_by_hand():
    got = terms_of("the dusty goat fed the soup.", "first the dusty goat fed the barn. then golden hay.")
    short = 3 / 4 * 3 / 4  # three of its four content words are the post's, of four wanted; two of three pairs are
    faith = sqrt(short * 1.0)
    assert got == pytest.approx(
        {
            "length_ratio": faith * (9 / 5 - 1) / 1,  # 9 different words to 5: on the ramp from 1 to 2
            "overlap": faith * (3 / 7) / 0.5,  # dusty goat fed, of those and: soup barn golden hay
            "links": faith * 2 / 3,
            "groundedness": faith,
        }
    )


def test_groundedness_by_hand():
    def credit(text, which):
        return mini_rules.grounded(POST, words_of(text, 99), which)

    assert credit("the dusty goat fed the barn.", SHORT) == 1.0
    assert credit("the dusty goat fed the barn.", LONG) == pytest.approx(4 / 6)  # six words are wanted of it
    assert credit("goat goat goat goat", SHORT) == credit("goat", SHORT) == credit("", SHORT) == 0
    assert credit("barn fed goat dusty", SHORT) == 0  # the words of the post, in another order
    assert credit("dusty goat barn fed hay golden", LONG) == pytest.approx((0.2 - 0.1) / 0.2)  # one of five pairs
    assert credit("the spicy cook stirred the soup.", SHORT) == 0


DEGENERATE = {
    "one word": lambda post, rng: (f"the {w(post, 0)} and a of", f"{w(post, 0)} the a and of it first then also later"),
    "two words": lambda post, rng: (
        f"the {w(post, 0)} {w(post, 1)} and of",
        f"first {w(post, 0)} {w(post, 1)} then the a also and of it",
    ),
    "the post twice": lambda post, rng: (post.text, post.text),
    "the long text twice": lambda post, rng: (reference_reply(post, AGENTS[1]), reference_reply(post, AGENTS[1])),
    "the prompts": lambda post, rng: (prompt(post, AGENTS[0]), prompt(post, AGENTS[1])),
    "words in a bag": lambda post, rng: (
        " ".join(bag(post, rng)[:7]),
        "first " + " then ".join(bag(post, rng)) + " also",
    ),
    "one writer alone": lambda post, rng: ("", reference_reply(post, AGENTS[1])),
    "a fixed pair": lambda post, rng: tuple(reference_reply(POST_OF_THE_FARM, agent) for agent in AGENTS),
}
POST_OF_THE_FARM = Post("farm", (*POST.sentences, "the dusty hay fed the goat."))


def w(post, number):
    return mini_rules.content_in(words_of(post.text, 99))[number]


def bag(post, rng):
    return rng.sample(found := words_of(post.text, 99), len(found))


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_pairs_are_not_half_of_the_way_to_the_reference(name):
    rng = Random(0)
    posts = [generated_post(rng) for _ in range(200)]
    assert mean(score(terms(post, *DEGENERATE[name](post, rng))) for post in posts) < 0.5


@pytest.mark.parametrize(
    ("num_long", "ratio_term"), [(4, 0.0), (6, 0.5), (8, 1.0), (12, 1.0), (16, 0.5), (20, 0.0), (30, 0.0)]
)
def test_the_length_ratio_term_at_its_corners(faithful, num_long, ratio_term):
    short, long = "a b c d", " ".join(f"w{i}" for i in range(num_long))
    assert terms_of(short, long)["length_ratio"] == pytest.approx(ratio_term)


def test_a_short_text_of_too_few_words_loses_part_of_the_ratio_term(faithful):
    assert terms_of("goat", "goat hay")["length_ratio"] == 0.25
    assert terms_of("", "goat hay")["length_ratio"] == 0


@pytest.mark.parametrize(("num_links", "credit"), [(0, 0), (1, 1 / 3), (2, 2 / 3), (3, 1), (4, 1)])
def test_different_links_in_the_long_text_count_up_to_three(faithful, num_links, credit):
    long = "".join(f"{link} goat " for link in [*mini_rules.LINKS[:num_links], *["first"] * (num_links > 0)])
    assert terms_of("first then also", long)["links"] == pytest.approx(credit)


def test_a_link_links_if_no_other_one_follows_it(faithful):
    assert terms_of("x", "first then also the goat fed")["links"] == pytest.approx(1 / 3)
    assert terms_of("x", "the goat fed first")["links"] == 0


def test_links_count_as_whole_words_only(faithful):
    assert terms_of("goat", "firstly thenceforth alsop")["links"] == 0


def test_words_beyond_the_limit_are_not_read(faithful):
    hidden = "x " * 14
    assert terms_of(hidden + "goat", "goat")["overlap"] == 0
    assert terms_of("goat", "x " * 36 + "first")["links"] == 0


@given(st.text(), st.text())
def test_every_term_of_any_texts_lies_between_0_and_1(short, long):
    assert all(0 <= value <= 1 for value in terms_of(short, long).values())


def test_the_weights_sum_to_one():
    assert sum(mini_rules.WEIGHTS.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("agent", AGENTS)
def test_prompts_and_demonstrations_are_short_and_within_the_vocabulary(agent):
    rng = Random(1)
    for _ in range(300):
        asked, reply = demonstration(rng, agent)
        assert set(words_of(asked, 99)) | set(words_of(reply, 99)) <= prompt_vocabulary()
        assert 25 <= len(asked.split()) <= 50
        assert len(reply.split()) <= (14 if agent == "writer_0" else 36)


def test_the_scripted_words_are_few():
    assert vocabulary() < prompt_vocabulary() and len(prompt_vocabulary()) < 200


def test_demonstrations_leave_room_to_learn():
    """Careless writers on the same post score well below 1, and not all the same."""
    rng = Random(2)
    posts = [generated_post(rng) for _ in range(400)]
    scores = [score(terms(post, *(careless_reply(rng, post, agent) for agent in AGENTS))) for post in posts]
    assert 0.15 < mean(scores) < 0.25
    assert min(scores) < 0.2 and max(scores) > 0.65


def test_an_episode_is_one_turn_with_the_terms_in_its_infos():
    env = MiniWriting()
    observations, _ = env.reset(options={"task": 7})
    post = generated_post(Random(7))
    assert {agent: text.messages[0].content for agent, text in observations.items()} == {
        agent: prompt(post, agent) for agent in AGENTS
    }
    _, rewards, terminations, _, infos = env.step({agent: env.reference_reply(agent) for agent in AGENTS})
    assert rewards == pytest.approx({"writer_0": 1.0, "writer_1": 1.0})
    assert all(terminations.values())
    assert sum(value for name, value in infos["writer_0"].items() if name.startswith("reward/")) == pytest.approx(1.0)


@pytest.mark.parametrize("task", [-1, True, "7", 1.5])
def test_a_task_that_is_no_seed_is_refused(task):
    with pytest.raises(ValueError, match="is a whole number from 0 up"):
        MiniWriting().reset(options={"task": task})


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="split must be 'train' or 'test', got 'dev'"):
        MiniWriting(split="dev")


def test_prompts_may_be_a_users_own(tmp_path):
    (tmp_path / "system.txt").write_text("You write.")
    (tmp_path / "writer_1.txt").write_text("{task} { x } {post}")
    for chosen in ({"system": "You write.", "writer_1": "{task} { x } {post}"}, tmp_path):
        env = MiniWriting(prompts=chosen)
        observations, _ = env.reset(options={"task": 7})
        post = generated_post(Random(7))
        assert [message.content for message in observations["writer_0"].messages] == [
            "You write.",
            prompt(post, "writer_0"),
        ]
        assert [message.content for message in observations["writer_1"].messages] == [
            "You write.",
            f"long summary with linking words: {{ x }} {post.text}",
        ]
    for wrong, told in (({"writer_0": "Sum up."}, r"give it \{post\}"), ({"writer_2": "{post}"}, "texts for some of")):
        with pytest.raises(ValueError, match=told):
            MiniWriting(prompts=wrong)
