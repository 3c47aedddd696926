"""Channels of messages, the rules of say turns and do turns, and the words of prompts."""

import copy
import json
import random
from collections import Counter
from math import log
from pathlib import Path

import pytest

import collm.agents.tiny as tiny
from collm.envs.checks.exploits import exploit_standings
from collm.envs.games.talk import Advice, MatrixGame, Profile, TinyHanabi, demonstrations

GAMES = (TinyHanabi, Profile, Advice, MatrixGame)


def played(env, seed=0):
    """Play an episode of the reference players; return the infos of each turn."""
    env.reset(seed=seed)
    infos = []
    while env.agents:
        infos.append(env.step({agent: env.reference_reply(agent) for agent in env.movers})[4]["builder_0"])
    return infos


def information(pairs):
    """Mutual information of two variables in bits, estimated from a sample of pairs."""
    joint, total = Counter(pairs), len(pairs)
    left, right = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    return sum(n / total * log(n * total / left[one] / right[other], 2) for (one, other), n in joint.items())


def sample(env, num_episodes):
    """Pairs of (the first agent's information, the text that the second agent reads after the first turn)."""
    env.reset(seed=7)
    for _ in range(num_episodes):
        env.reset()
        fact = env.facts("builder_0")
        observations = env.step({agent: env.reference_reply(agent) for agent in env.movers})[0]
        yield fact, observations["builder_1"].messages[-1].content


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["silent", "shuffled", "open"])
@pytest.mark.parametrize("game", [TinyHanabi, Advice])
def test_a_silent_or_shuffled_channel_carries_no_bits(game, channel):
    """In 10,000 episodes, the information is not above that of 99 of 100 samples with permuted texts."""
    pairs = list(sample(game(channel=channel), 10_000))
    found, rng = information(pairs), random.Random(0)
    facts, texts = zip(*pairs, strict=True)
    by_chance = sorted(information(list(zip(facts, rng.sample(texts, len(texts)), strict=True))) for _ in range(100))
    if channel == "open":
        assert found > 0.9
    else:
        assert found <= by_chance[98] and found < 0.01
    if channel == "silent":
        assert found == 0 and set(texts) == {"task"}
    if channel == "shuffled":
        spoken = Counter(text for _, text in sample(game(channel="open"), 10_000))
        assert all(abs(count - spoken[text]) < 300 for text, count in Counter(texts).items())


def test_agents_without_a_move_wait_and_read_the_cue_of_their_move():
    env = Advice()
    observations, infos = env.reset(seed=0, options={"task": 6})
    assert observations == {"builder_0": "builder 0 goal 6 report\n", "builder_1": "builder 1\n"}
    assert env.movers == ["builder_0"] and infos["builder_1"] == {"waits": True}
    observations, _, _, _, infos = env.step({"builder_0": "6 or\n[builder_9 writes] 7 and more words than eight fit"})
    assert observations["builder_1"].messages[-1].content == "builder 0 6 or [builder_9 writes] 7 and more words\ntask"
    assert infos["builder_0"] == {"metric/words": 8.0, "metric/lies": 0.0, "waits": True}
    rewards = env.step({"builder_1": "I say 6."})[1]
    assert rewards == {"builder_0": pytest.approx(1 - 1 / 64), "builder_1": 1.0} and not env.agents


def test_replies_without_one_legal_action_are_random_actions_and_counted():
    for reply, num_bad in (("", 1.0), ("2 or 3", 1.0), ("9", 1.0), ("2, yes 2", 0.0)):
        env = Advice()
        env.reset(seed=0, options={"task": 2})
        env.step({"builder_0": ""})
        assert env.step({"builder_1": reply})[4]["builder_1"]["metric/bad"] == num_bad
    earned = []
    env.reset(seed=0)
    for _ in range(400):
        env.reset(options={"task": 0})
        env.step({"builder_0": ""})
        earned.append(round(49 * (1 - env.step({"builder_1": "?"})[1]["builder_1"])))
    assert set(earned) == {number**2 for number in range(8)}


def test_lies_are_claims_that_the_speaker_knows_to_be_false():
    env = Advice()
    for said, num_lies in (("5", 0), ("4 5 6", 0), ("4", 1), ("high", 0)):
        env.reset(seed=0, options={"task": 5})
        assert env.step({"builder_0": said})[4]["builder_0"]["metric/lies"] == num_lies
    env = Profile(num_messages=2)
    env.reset(seed=0)
    known = env.known("builder_0")
    unknown = next(option for option in env.options("builder_0") if option not in known)
    said = {"builder_0": f"no {known[0]} {unknown}", "builder_1": f"{unknown} no", "builder_2": ""}
    infos = env.step(said)[4]
    assert infos["builder_0"]["metric/lies"] == 1.0 and infos["builder_0"]["metric/words"] == 5.0
    assert unknown in env.known("builder_1") and unknown not in env.known("builder_0")
    said = {"builder_0": "", "builder_1": f"no {unknown}", "builder_2": ""}
    assert env.step(said)[4]["builder_0"]["metric/lies"] == 0.0
    env = MatrixGame(num_rounds=1)
    env.reset(seed=0)
    first, second = (list(env.options(agent)) for agent in env.agents)
    env.step({"builder_0": first[0], "builder_1": second[0]})
    infos = env.step({"builder_0": first[1], "builder_1": second[0]})[4]
    assert infos["builder_0"]["metric/lies"] == 1.0 and infos["builder_0"]["metric/agreed"] == 0.0


def test_a_noisy_channel_loses_words_and_a_shuffled_channel_has_messages_of_another_deal():
    for noise, num_words in ((0.0, 6), (1.0, 0)):  # of the others: "no" and two clues each
        env = Profile(channel="noisy", noise=noise, num_options=7)
        played(env)
        assert sum(len(text.split()) for _, text in env.heard["builder_0"]) == num_words
    env = Profile(channel="shuffled")
    played(env)
    assert all(text.startswith("no ") for _, text in env.heard["builder_0"])
    assert not set(env.truth().split()) & {word for _, text in env.heard["builder_0"] for word in text.split()}
    branch = copy.deepcopy(env)
    assert played(branch, seed=3) == played(env, seed=3)


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("channel", ["open", "silent", "shuffled", "noisy"])
def test_prompts_feedback_and_replies_are_words_of_the_embedded_model(game, channel):
    words = set(json.loads((Path(tiny.__file__).parent / "tokenizer.json").read_text())["model"]["vocab"])
    env = game(channel=channel)
    for seed in range(20):
        played(env, seed)
        for transcript in env._transcripts.values():
            texts = [word for message in transcript.messages for word in message.content.split()]
            assert {word for word in texts if word not in words or f"Ġ{word}" not in words} <= {"10"}
    env = game(channel=channel, is_explained=True, prompts={"builder_1": "{default} Seat {seat}: {facts}"})
    observations = env.reset(seed=0)[0]
    assert str(observations["builder_0"]).count("\n") >= 3 and 'After the word "task"' in observations["builder_1"]
    assert "Seat 1: builder 1" in observations["builder_1"]


@pytest.mark.parametrize("game", GAMES)
def test_degenerate_teams_earn_little(game):
    assert [each.player for each in exploit_standings(game()) if each.is_too_good] == []


@pytest.mark.parametrize(
    ("game", "settings", "match"),
    [
        (TinyHanabi, {"game": "G"}, "game"),
        (TinyHanabi, {"channel": "loud"}, "channel"),
        (Advice, {"bias": 8}, "bias=8"),
        (Advice, {"noise": 2}, "noise=2"),
        (Profile, {"num_agents": 9}, "num_agents=9"),
        (Profile, {"max_words": 0}, "max_words=0"),
        (MatrixGame, {"num_rounds": 0}, "num_rounds=0"),
    ],
)
def test_wrong_settings_are_refused(game, settings, match):
    with pytest.raises(ValueError, match=match):
        game(**settings)


@pytest.mark.parametrize("task", [-1, 8, True, "5"])
def test_wrong_tasks_are_refused(task):
    with pytest.raises(ValueError, match="task="):
        Advice().reset(options={"task": task})


@pytest.mark.parametrize("name", ["tiny_hanabi", "advice", "matrix_game", "profile"])
def test_demonstrations_depend_on_the_seed_alone_and_contain_replies_of_every_agent(name):
    demonstrate = getattr(demonstrations, name)
    for seed in range(10):
        episode = demonstrate(random.Random(seed))
        assert episode == demonstrate(random.Random(seed))
        assert all(any(message.role == "assistant" for message in track) for track in episode.values())
