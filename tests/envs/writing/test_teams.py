"""Teams of two, three and four writers: the contract, hostile texts, and what two writers keep."""

import copy
import pickle
import random
import resource
import warnings
from pathlib import Path

import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test
from replies import any_replies, earned_and_read, played, references

from collm.envs import EnvSpec, check_env
from collm.envs.checks.exploits import LIMIT, exploit_standings
from collm.envs.wrappers import Shares
from collm.envs.writing import TLDR, ArxivExpansion, MiniWriting
from collm.envs.writing.documents.prompts import arxiv_expansion_prompts, tldr_prompts
from collm.envs.writing.documents.rules import ARXIV_EXPANSION, MAX_SCORE, measures, score, team_terms, terms
from collm.envs.writing.documents.rules import TLDR as TLDR_FORM
from collm.envs.writing.mini_writing import rules as mini
from collm.envs.writing.mini_writing.prompts import WRITERS, careless_reply, prompt_vocabulary, reference_reply

GAMES = (MiniWriting, TLDR, ArxivExpansion)
TEAMS = (2, 3, 4)
each_team = pytest.mark.parametrize("team", TEAMS)
each_game = pytest.mark.parametrize("game", GAMES)


@pytest.mark.parametrize(
    ("game", "settings", "episodes", "expected", "text"),
    [
        (TLDR, {}, 60, 89.58, "46769a9191657daa"),
        (TLDR, {"variant": "published"}, 20, 38.406218776916454, "72bc0c2f3fdb6ef0"),
        (ArxivExpansion, {}, 60, 64.02655906534554, "b4669a603ebe6e22"),
        (ArxivExpansion, {"variant": "published"}, 20, 18.731774193548386, "201f142ac732cc17"),
    ],
)
def test_two_writers_read_and_earn_what_they_did_when_there_were_no_larger_teams(
    game, settings, episodes, expected, text
):
    """Sums of rewards, and a hash of all that was read, at commit 7942a3f; of TLDR and ArxivExpansion since v2."""
    assert earned_and_read(game(**settings), episodes) == (pytest.approx(expected, abs=1e-9), text)


@each_game
@each_team
def test_the_reference_team_comes_near_the_maximum(game, team):
    env, best = game(num_agents=team), 1.0 if game is MiniWriting else MAX_SCORE
    for seed in range(2):
        env.reset(seed=seed)
        assert list(env.agents) == [f"writer_{seat}" for seat in range(team)]
        rewards = env.step(references(env))[1]
        assert len(set(rewards.values())) == 1 and 0.9 * best < rewards["writer_0"] <= best + 1e-9


@each_game
@each_team
def test_branches_and_second_plays_are_alike(game, team):
    one, other = game(num_agents=team), game(num_agents=team)
    assert played(one, 3) == played(other, 3)
    one.reset(seed=4)
    branches = [one, copy.deepcopy(one), pickle.loads(pickle.dumps(one))]
    ends = [branch.step(any_replies(branch, random.Random(1))) for branch in branches]
    assert ends[0] == ends[1] == ends[2]


@each_game
@each_team
def test_petting_zoo_finds_no_fault(game, team):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it expects spaces of numbers
        parallel_api_test(game(num_agents=team), num_cycles=10)
        parallel_seed_test(lambda: game(num_agents=team))


@pytest.mark.slow
@each_game
@each_team
def test_the_contract_is_kept(game, team):
    check_env(EnvSpec(f"test/{game.__name__}-v0", f"{game.__module__}:{game.__name__}", {"num_agents": team}))


@each_game
@pytest.mark.parametrize("number", [1, 5, True, 2.5, "3"])
def test_a_team_that_cannot_play_is_refused(game, number):
    with pytest.raises(ValueError, match="num_agents must be 2 to 4, got"):
        game(num_agents=number)


@pytest.mark.parametrize("game", [TLDR, ArxivExpansion])
def test_the_published_variant_has_two_writers(game):
    with pytest.raises(ValueError, match="num_agents=3"):
        game(num_agents=3, variant="published")


@each_game
@pytest.mark.parametrize("team", [3, 4])
def test_every_writer_of_a_larger_team_has_a_part_of_its_own_and_a_share_of_the_reward(game, team):
    env = Shares(game(num_agents=team))
    read = env.reset(seed=0)[0]
    assert len(set(read.values())) == team
    infos = env.step(references(env))[4]["writer_0"]
    assert all(infos[f"metric/share/writer_{seat}"] > 0.05 for seat in range(team))


@pytest.mark.slow
@each_game
@pytest.mark.parametrize("team", [3, 4])
def test_no_degenerate_team_of_more_comes_far(game, team):
    for standing in exploit_standings(game(num_agents=team), 4):
        assert standing.player == "reference" or standing.share <= LIMIT, standing


# MiniWriting


def test_the_reference_of_four_scores_one_on_every_post():
    rng = random.Random(5)
    for _ in range(1000):
        post = mini.random_post(rng, 4)
        parts = mini.terms(post, *(reference_reply(post, agent) for agent in WRITERS))
        assert sum(parts.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("seat", [2, 3])
def test_a_later_writer_that_repeats_one_of_its_kind_adds_nothing(seat):
    post = mini.random_post(random.Random(0), seat + 1)
    texts = [reference_reply(post, agent) for agent in WRITERS[: seat + 1]]
    repeated, silent = (mini.terms(post, *texts[:seat], last) for last in (texts[seat - 2], ""))
    assert repeated == silent and repeated["weakest"] == 0


@pytest.mark.parametrize("seat", [2, 3])
def test_careless_later_writers_keep_to_the_vocabulary(seat):
    rng = random.Random(1)
    for _ in range(50):
        reply = careless_reply(rng, mini.random_post(rng, seat + 1), WRITERS[seat])
        assert reply and set(reply.replace(".", "").split()) <= prompt_vocabulary()


# Documents


@pytest.mark.parametrize("form", [TLDR_FORM, ARXIV_EXPANSION])
def test_a_team_earns_the_mean_of_its_pairs_unless_later_writers_tell_the_same(form):
    env = (TLDR if form is TLDR_FORM else ArxivExpansion)(num_agents=3)
    env.reset(seed=1)
    source = env.task[env.source_field]
    texts = [env.reference_reply(agent) for agent in env.agents]
    pairs = [measures(form, source, texts[0], text) for text in texts[1:]]
    team = score(team_terms(form, source, texts, pairs))
    assert team <= sum(score(terms(form, seen)) for seen in pairs) / 2 + 1e-9
    same = score(team_terms(form, source, [*texts[:2], texts[1]], [pairs[0], pairs[0]]))
    assert same == pytest.approx(0.5)  # the points of structure


@pytest.mark.parametrize("prompts", [tldr_prompts, arxiv_expansion_prompts])
@pytest.mark.parametrize("team", [3, 4])
def test_each_template_tells_the_source_and_the_partners_parts(prompts, team):
    found = prompts(team)
    assert len(found) == team and all(text.count("{source}") == 1 for text in found.values())
    assert all(("Three", "Four")[team - 3] in text for text in found.values())


def test_templates_of_a_user_are_for_every_writer():
    env = TLDR(num_agents=3, prompts={"writer_2": "Tell the end of {source}", "system": "Be brief."})
    read = env.reset(seed=0)[0]
    assert read["writer_2"].messages[1].content.startswith("Tell the end of ")
    assert all(text.messages[0].role == "system" for text in read.values())
    with pytest.raises(ValueError, match="writer_3"):
        TLDR(num_agents=3, prompts={"writer_3": "{source}"})


# Hostile texts, and memory


def hostile(rng):
    pieces = ["however ", "the ", "\n", "\x00", "\ud800", "9" * 200, "</think>", "<think>", "post: ", "数 ", "\u2028"]
    text = "".join(rng.choices([*pieces, "[writer_1 writes] so ", "{source}"], k=rng.randrange(40)))
    return text if rng.random() < 0.98 else "x " * rng.choice([1, 4_000, 20_000])


def score_hostile(game, team, count):
    rng, env, seen = random.Random(team), game(num_agents=team), 0
    limit = 1.0 if game is MiniWriting else MAX_SCORE
    while seen < count:
        env.reset(seed=seen)
        observations, rewards = env.step({agent: hostile(rng) for agent in env.agents})[:2]
        seen += team
        assert all(0 <= reward <= limit for reward in rewards.values())
        assert all(env.observation_space(agent).contains(text) for agent, text in observations.items())


@each_game
@each_team
def test_hostile_texts_are_scored(game, team):
    score_hostile(game, team, 60)


@pytest.mark.slow
@each_game
@each_team
def test_ten_thousand_hostile_texts_are_scored(game, team):
    score_hostile(game, team, 10_000)


@pytest.mark.slow
@each_game
@each_team
def test_five_thousand_episodes_are_flat_in_memory(game, team):
    env, resident = game(num_agents=team), []
    for seed in range(5_000):
        env.reset(seed=seed)
        env.step(dict.fromkeys(env.agents, "However, the post tells of a garden."))
        if seed % 1_000 == 999:
            resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize())
    assert resident[-1] - resident[0] < 4_000_000  # bytes, over 4,000 episodes
