"""MiniWriting: posts, grammar, score, degenerate teams, demonstrations, and the environment."""

from random import Random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collm.envs.checks.exploits import LIMIT
from collm.envs.writing import MiniWriting
from collm.envs.writing.mini_writing import prompts, rules
from collm.envs.writing.mini_writing.env import EXPLOITS
from collm.envs.writing.mini_writing.prompts import WRITERS, prompt_vocabulary, text_of
from collm.envs.writing.mini_writing.rules import LINKS, Fact, Post, Sentence, credits, generated_post, terms, truth

MAIN = Fact("dusty", "goat", "fed", "barn")
SECOND = Fact("golden", "hay", "plowed", "tractor")
THIRD = Fact("dusty", "barn", "plowed", "goat")
FOURTH = Fact("golden", "goat", "fed", "hay")
POST = Post("farm", (MAIN, SECOND, THIRD, FOURTH))
LIE = Fact("salty", "cook", "stirred", "soup")
REST = (SECOND, THIRD, FOURTH)

each_team = pytest.mark.parametrize("team", [2, 3, 4])


def reward(*texts: str, post: Post = POST) -> float:
    return sum(terms(post, *texts).values())


def of_scores(*scores: float) -> float:
    return 0.7 * mean(scores) + 0.3 * min(scores)


def words_in(text: str) -> set[str]:
    return set(text.replace(".", "").replace(":", "").split())


def test_topics_share_no_word_splits_no_post_and_demonstrations_leave_room_to_learn():
    assert len({word for topic in rules.TOPICS.values() for word in topic.words}) == 12 * len(rules.TOPICS) == 120
    assert rules.vocabulary() < prompt_vocabulary() and len(prompt_vocabulary()) < 200
    posts = {split: {generated_post(Random(seed), split).text for seed in range(300)} for split in ("train", "test")}
    assert not posts["train"] & posts["test"] and len(posts["train"]) > 290
    rng = Random(0)
    assert mean(rules.split_of(rules.random_post(rng)) == "test" for _ in range(4000)) == pytest.approx(0.2, abs=0.03)
    rng = Random(2)
    posts = [generated_post(rng) for _ in range(400)]
    scores = [
        reward(*(prompts.careless_reply(rng, post, agent) for agent in prompts.AGENTS), post=post) for post in posts
    ]
    assert 0.2 < mean(scores) < 0.35
    assert min(scores) < 0.1 and max(scores) > 0.65
    honest = min(share_of(EXPLOITS[name], 2) for name in ("long writers idle", "whole post by all"))
    lies = ("words recombined", "adjectives swapped", "verbs swapped", "things swapped", "subject and thing swapped")
    assert max(share_of(EXPLOITS[name], 2) for name in lies) < honest


@each_team
@given(seed=st.integers(0, 2**32))
def test_a_post_has_the_facts_of_the_roles_and_eight_words(team, seed):
    post = generated_post(Random(seed), num_writers=team)
    assert len(set(post.facts)) == len(post.facts) == rules.num_facts(team) == {2: 4, 3: 5, 4: 8}[team]
    words = {word for fact in post.facts for word in fact}
    assert words == {*post.facts[0], *post.facts[1]} and len(words) == 8
    assert [sentence.fact for sentence in rules.sentences_of(post.text)] == list(post.facts)


def test_sentences_by_hand():
    for text, expected in [
        ("Then, the DUSTY goat fed the barn!", [(MAIN, "then")]),
        ("  then the *dusty* goat fed the barn ; ", [(MAIN, "then")]),
        ("the dusty goat fed the barn", [(MAIN, "")]),
        ("first then the dusty goat fed the barn", [(None, "first")]),
        # words that are missing, in wrong places, one too many, or of no topic
        *((text, [(None, "")]) for text in ("the goat fed the barn", "the dusty goat fed barn", "dusty goat fed barn")),
        *((text, [(None, "")]) for text in ("the goat dusty fed the barn", "the dusty goat barn the fed")),
        *((text, [(None, "")]) for text in ("the dusty goat fed the barn first", "the dusty dog fed the barn")),
        ("the dusty goat fed the barn and the golden hay plowed the tractor", [(None, "")]),
        ("", []),
        (" . !\n* ", []),
    ]:
        assert rules.sentences_of(text) == expected


@each_team
@given(seed=st.integers(0, 2**32), split=st.sampled_from(["train", "test"]))
def test_the_reference_scores_one_and_states_every_fact(team, seed, split):
    post = generated_post(Random(seed), split, team)
    replies = [prompts.reference_reply(post, agent) for agent in WRITERS[:team]]
    assert reward(*replies, post=post) == pytest.approx(1.0)
    assert set(truth(post, *replies).values()) == {1.0}


EVERYTHING = [Sentence(fact) for fact in POST.facts]
NEAR = Sentence(MAIN._replace(thing="soup"))


def test_credits_terms_and_truth_by_hand():
    for first, second, expected in [
        ([Sentence(SECOND)], [Sentence(THIRD)], [[0.5], [1.0]]),  # the first writer missed the main point
        ([Sentence(MAIN)], [Sentence(MAIN), Sentence(MAIN, "then"), Sentence(SECOND)], [[1.0], [0.0, 0.0, 1.0]]),
        (EVERYTHING, EVERYTHING, [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0]]),  # as many facts as the role has
        ([NEAR], [], [[0.4], []]),
        ([NEAR], [Sentence(MAIN)], [[0.15 * 0.5], [1.0]]),  # a true sentence comes first; NEAR has 2 places of FOURTH
    ]:
        assert credits(POST, [first, second]) == expected
    got = terms(POST, text_of([MAIN, LIE]), text_of([SECOND, LIE, THIRD], ("then",)))
    short, facts = 1 / (2 + 1 - 1), 2 / (3 + 3 - 2)
    long = facts * (0.8 + 0.2 / 3)  # one linking word of three
    links = 0.7 * (facts * 0.2 / 3) / 2
    assert got == pytest.approx({"facts": 0.7 * (short + 0.8 * facts) / 2, "links": links, "weakest": 0.3 * long})
    assert sum(got.values()) == pytest.approx(of_scores(short, long))
    one_wrong = MAIN._replace(thing="soup")
    two_wrong = one_wrong._replace(verb="stirred")
    three_wrong = two_wrong._replace(subject="cook")
    paid = [credits(POST, [[Sentence(fact)], []])[0] for fact in (MAIN, one_wrong, two_wrong, three_wrong, LIE)]
    assert paid == [[1.0], [0.4], [0.15], [0.0], [0.0]]
    texts = text_of([MAIN, LIE]), text_of([MAIN, SECOND], LINKS) + " the goat."
    assert truth(POST, *texts) == {"true_sentences": 3 / 5, "well_formed": 4 / 5, "facts": 2 / 4, "fact_f1": 4 / 9}
    assert set(truth(POST, "", "").values()) == {0.0}
    whole = [*POST.facts]
    assert truth(POST, text_of(whole), "")["fact_f1"] == 1
    for worse in (whole[1:], [*whole, MAIN], [*whole, LIE], [MAIN] * 4):
        assert truth(POST, text_of(worse), "")["fact_f1"] < 1


def test_worse_sentences_lower_the_reward_and_different_linking_words_earn_only_before_true_ones():
    for worse in (
        text_of([SECOND, THIRD]),  # too few
        text_of([*REST, LIE]),
        text_of([*REST, MAIN]),  # a fact of the first writer's
        text_of([*REST, FOURTH]),  # a fact twice
        text_of(REST) + " the goat.",
        text_of([SECOND, THIRD, FOURTH._replace(thing="barn")]),
    ):
        assert reward(MAIN.sentence, worse) < reward(MAIN.sentence, text_of(REST))
    plain, linked = text_of(REST), text_of(REST, LINKS)
    assert reward(MAIN.sentence, plain) == pytest.approx(of_scores(1, 0.8))
    assert reward(MAIN.sentence, linked) == pytest.approx(1)
    assert reward(MAIN.sentence, text_of(REST, ["then"] * 3)) == pytest.approx(of_scores(1, 0.8 + 0.2 / 3))
    assert terms(POST, MAIN.sentence, text_of([LIE] * 3, LINKS))["links"] == 0


@each_team
@given(data=st.data())
def test_every_reward_is_between_0_and_1(team, data):
    post = generated_post(Random(data.draw(st.integers(0, 99))), num_writers=team)
    facts = st.lists(st.sampled_from([*post.facts, LIE]), max_size=6)
    said = st.text() | facts.map(lambda facts: text_of(facts, LINKS))
    parts = terms(post, *(data.draw(said) for _ in range(team)))
    assert min(parts.values()) >= 0 and sum(parts.values()) <= 1 + 1e-9


def share_of(player, team: int, num_posts: int = 100) -> float:
    rng = Random(0)
    posts = [generated_post(rng, num_writers=team) for _ in range(num_posts)]
    return mean(reward(*(player(post, agent) for agent in WRITERS[:team]), post=post) for post in posts)


@each_team
@pytest.mark.parametrize("name", EXPLOITS)
def test_no_degenerate_team_earns_more_than_its_limit(name, team):
    share = share_of(EXPLOITS[name], team)
    assert share <= LIMIT
    if name in ("one word", "words rotated by three", "linking words alone", "one run-on sentence", "another topic"):
        assert share == 0
    if name in ("adjectives swapped", "verbs swapped", "things swapped"):
        assert share < 1 / 3


@pytest.mark.parametrize("agent", prompts.AGENTS)
def test_prompts_and_demonstrations_are_short_and_within_the_vocabulary(agent):
    rng = Random(1)
    for _ in range(300):
        asked, reply = prompts.demonstration(rng, agent)
        assert words_in(asked) | words_in(reply) <= prompt_vocabulary()
        assert 25 <= len(asked.split()) <= 50
        assert 6 <= len(reply.split()) <= 28


@each_team
def test_an_episode_has_one_turn_and_infos_with_terms_and_truth(team):
    env = MiniWriting(num_agents=team)
    observations, _ = env.reset(options={"task": 7})
    post = generated_post(Random(7), num_writers=team)
    assert [text.messages[0].content for text in observations.values()] == [
        prompts.prompt(post, a) for a in WRITERS[:team]
    ]
    replies = {agent: "" if agent == "writer_1" else env.reference_reply(agent) for agent in env.agents}
    _, rewards, terminations, _, infos = env.step(replies)
    assert rewards == pytest.approx(dict.fromkeys(replies, reward(*replies.values(), post=post)))
    assert all(terminations.values())
    found = infos["writer_0"]
    parts = [value for name, value in found.items() if name.startswith("reward/")]
    assert sum(parts) == pytest.approx(rewards["writer_0"])
    assert (found["metric/true_sentences"], found["metric/well_formed"]) == (1, 1)
    assert found["metric/facts"] == 1 - 3 / rules.num_facts(team)


def test_the_rules_are_explained_on_demand():
    for seed in range(3):
        short, long = (MiniWriting(is_explained=each).reset(seed=seed)[0] for each in (False, True))
        for agent, history in long.items():
            text = history.messages[0].content
            assert text.endswith("\n" + short[agent].messages[0].content)
            assert f"You are {agent}." in text and all(link in text for link in LINKS)


def test_prompts_may_be_a_users_own_and_wrong_splits_and_tasks_are_refused():
    env = MiniWriting(prompts={"system": "You write.", "writer_1": "{task} { x } {post}"})
    read = [message.content for message in env.reset(options={"task": 7})[0]["writer_1"].messages]
    assert read == ["You write.", f"long summary with linking words: {{ x }} {generated_post(Random(7)).text}"]
    with pytest.raises(ValueError, match="split='dev'"):
        MiniWriting(split="dev")
    for task in (-1, True, "7", 1.5):
        with pytest.raises(ValueError, match=f"task={task!r}"):
            MiniWriting().reset(options={"task": task})
