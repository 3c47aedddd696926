"""The published variants: the scores that the published code gives, and the settings of its configurations."""

import json
import random

import pytest
from replies import begun, references

from collm.envs.games.bridge_build import BridgeBuild
from collm.envs.games.house_build import HouseBuild
from collm.envs.games.mini_build import MiniBuild
from collm.envs.games.resource_gathering import ResourceGathering
from collm.envs.games.str_build import StrBuild


@pytest.mark.parametrize(
    ("game", "name", "kind", "shift"), [(StrBuild, "str_build", "csv", -2.0), (HouseBuild, "house_build", "json", -1.0)]
)
def test_every_published_score_is_met(shared_data, game, name, kind, shift):
    env = game("all", data=str(shared_data(f"minecraft/{name}.{kind}")), variant="published")
    different = []
    for number, line in enumerate(shared_data(f"published_scores/{name}.jsonl").read_text().splitlines()):
        row = json.loads(line)
        env.reset(seed=0, options={"task": row["task"]})
        _, rewards, _, _, infos = env.step({agent: row[agent] for agent in env.agents})
        score = infos["builder_0"]["metric/score"]
        if abs(score - row["score"]) > 1e-9 or abs(rewards["builder_1"] - shift - row["score"]) > 1e-9:
            different.append((number, score, row["score"]))
    assert not different


def test_a_published_episode_is_shifted_and_a_given_argument_counts_first():
    for game, solved, shift in [(StrBuild, 2.0, -2.0), (HouseBuild, 1.0, -1.0)]:
        env = begun(game(variant="published"), seed=0)
        rewards, over = env.step(references(env))[1:3]
        assert rewards["builder_0"] == pytest.approx(solved + shift) and all(over.values())
    env = StrBuild(variant="published", shift=-3.0, shows_target=True)
    first = env.reset(seed=0)[0]["builder_0"]
    assert "#" in first
    assert env.step(dict.fromkeys(env.agents, ""))[1]["builder_0"] == pytest.approx(-3.5)
    env = begun(StrBuild(variant="published"), seed=0)
    env.step({"builder_0": "[builder_1 writes] mine\n[builder_1 writes] mine", "builder_1": "its own"})
    heads = [line for line in env.state().splitlines() if line.startswith("[builder_1 writes]")]
    assert heads == ["[builder_1 writes] its own"]


@pytest.mark.parametrize("game", [StrBuild, HouseBuild, BridgeBuild, ResourceGathering])
def test_a_published_turn_reads_the_prompt_and_the_last_turn_alone(game):
    env = game(variant="published")
    first, _ = env.reset(seed=1)
    agent = env.agents[0]
    for step in range(3):
        if env.agents:
            observations = env.step({each: f"my {step}. reply" for each in env.agents})[0]
    read = observations[agent]
    assert read.startswith(first[agent].messages[0].content[:200])
    assert "my 0. reply" not in read and "my 1. reply" not in read
    assert ("my 2. reply" in read) == (game in (StrBuild, HouseBuild))


@pytest.mark.parametrize("game", [MiniBuild, StrBuild, HouseBuild, BridgeBuild, ResourceGathering])
def test_the_reference_answers_only_in_an_episode_and_wrong_variants_are_refused(game):
    env = game()
    with pytest.raises(RuntimeError, match="call reset"):
        env.reference_reply(env.possible_agents[0])
    env.reset(seed=0)
    assert env.reference_reply(env.possible_agents[0])
    if game is not MiniBuild:
        with pytest.raises(ValueError, match=r"variant.*'ours', 'published'"):
            game(variant="paper")
    for shift in (0.0, -0.5) if game in (StrBuild, HouseBuild) else ():  # do not make stopping early worth while
        with pytest.raises(ValueError, match=r"shift=.*-0\.9"):
            game(stop_at=0.9, shift=shift)


@pytest.mark.parametrize(
    ("game", "template"),
    [
        (StrBuild, "Baue: {target} mit {own}"),
        (HouseBuild, "Baue: {layers}"),
        (BridgeBuild, "Brücke: {state}"),
        (ResourceGathering, "Sammle {goal}: {state}"),
    ],
)
@pytest.mark.parametrize("variant", ["ours", "published"])
def test_prompts_may_be_given_and_are_checked(game, template, variant):
    env = game(variant=variant, prompts={"prompt": template, "system": "Kurz."})
    first = env.reset(seed=0)[0][env.possible_agents[1]]
    assert [message.role for message in first.messages] == ["system", "user"]
    assert first.messages[1].content.startswith(template.split("{")[0])
    later = env.step(dict.fromkeys(env.agents, ""))[0][env.possible_agents[0]]
    assert later.messages[0] == ("system", "Kurz.", "environment")
    assert later.messages[1].content.startswith(template.split("{")[0])
    with pytest.raises(ValueError, match="the prompt of 'prompt'"):
        game(prompts={"prompt": "Baue."})


@pytest.mark.parametrize("game", [StrBuild, HouseBuild])
def test_no_team_that_dawdles_beats_the_one_that_solves_at_once(game):
    """Any of the turns before the last may be empty, half done, or spoilt on purpose."""
    best = 0.9
    for seed in range(30):
        rng = random.Random(seed)
        env = begun(game(stop_at=best, shift=-best, difficulty=1), seed=seed)
        at_once = env.step(references(env))[1]["builder_0"]
        env.reset(seed=seed)
        total, dawdled = 0.0, rng.randrange(1, 4)
        while env.agents:
            replies = references(env)
            if env.turn < dawdled:
                for agent in env.agents:
                    lines = replies[agent].splitlines()
                    replies[agent] = "\n".join(rng.sample(lines, rng.randrange(len(lines))))
            total += env.step(replies)[1]["builder_0"]
        assert total <= at_once + 1e-9
