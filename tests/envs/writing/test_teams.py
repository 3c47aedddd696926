"""Teams of two, three and four writers."""

import random

import pytest
from replies import begun, references

from collm.envs.wrappers import Shares
from collm.envs.writing import TLDR, ArxivExpansion, MiniWriting
from collm.envs.writing.documents.rules import ARXIV_EXPANSION, MAX_SCORE, measures, team_terms, terms
from collm.envs.writing.documents.rules import TLDR as TLDR_FORM
from collm.envs.writing.mini_writing import rules as mini
from collm.envs.writing.mini_writing.prompts import WRITERS, careless_reply, prompt_vocabulary, reference_reply

GAMES = (MiniWriting, TLDR, ArxivExpansion)
each_game = pytest.mark.parametrize("game", GAMES)


@each_game
@pytest.mark.parametrize("team", [2, 3, 4])
def test_the_reference_team_earns_nearly_the_maximum(game, team):
    env, best = game(num_agents=team), 1.0 if game is MiniWriting else MAX_SCORE
    for seed in range(2):
        env.reset(seed=seed)
        assert list(env.agents) == [f"writer_{seat}" for seat in range(team)]
        rewards = env.step(references(env))[1]
        assert len(set(rewards.values())) == 1 and 0.9 * best < rewards["writer_0"] <= best + 1e-9


@each_game
@pytest.mark.parametrize("team", [3, 4])
def test_every_writer_of_a_larger_team_has_a_part_of_its_own_and_a_share_of_the_reward(game, team):
    env = Shares(game(num_agents=team))
    read = env.reset(seed=0)[0]
    assert len(set(read.values())) == team
    if game is not MiniWriting:
        source = env.unwrapped.task[env.unwrapped.source_field]
        assert all(text.count(source) == 1 for text in read.values())
    infos = env.step(references(env))[4]["writer_0"]
    assert all(infos[f"metric/share/writer_{seat}"] > 0.05 for seat in range(team))


@pytest.mark.parametrize("game", [TLDR, ArxivExpansion])
def test_no_exploit_earns_a_quarter_of_the_maximum(game):
    env = game()
    for name, player in env.exploits().items():
        scores = []
        for task in range(0, 48, 6):
            env.reset(options={"task": task})
            scores.append(env.step({agent: player(agent) for agent in env.agents})[1]["writer_0"])
        assert sum(scores) / len(scores) < 0.25 * MAX_SCORE, name


@pytest.mark.parametrize("seat", [2, 3])
def test_a_later_writer_that_repeats_adds_nothing_and_careless_ones_keep_to_the_vocabulary(seat):
    post = mini.random_post(random.Random(0), seat + 1)
    texts = [reference_reply(post, agent) for agent in WRITERS[: seat + 1]]
    repeated, silent = (mini.terms(post, *texts[:seat], last) for last in (texts[seat - 2], ""))
    assert repeated == silent and repeated["weakest"] == 0
    rng = random.Random(1)
    for _ in range(50):
        reply = careless_reply(rng, mini.random_post(rng, seat + 1), WRITERS[seat])
        assert reply and set(reply.replace(".", "").split()) <= prompt_vocabulary()


@pytest.mark.parametrize("form", [TLDR_FORM, ARXIV_EXPANSION])
def test_a_team_earns_the_mean_of_its_pairs_unless_later_texts_are_equal(form):
    env = begun((TLDR if form is TLDR_FORM else ArxivExpansion)(num_agents=3), seed=1)
    source = env.task[env.source_field]
    texts = [env.reference_reply(agent) for agent in env.agents]
    pairs = [measures(form, source, texts[0], text) for text in texts[1:]]
    team = sum(team_terms(form, source, texts, pairs).values())
    assert team <= sum(sum(terms(form, seen).values()) for seen in pairs) / 2 + 1e-9
    same = sum(team_terms(form, source, [*texts[:2], texts[1]], [pairs[0], pairs[0]]).values())
    assert same == pytest.approx(0.5)  # the points of structure
