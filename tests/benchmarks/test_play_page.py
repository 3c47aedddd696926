"""The play page: its rules and its models agree with the environments and with transformers, in a browser."""

import json
import random
from collections.abc import Iterator

import pytest
import torch
from chromium import Browser, missing
from transformers import AutoModelForCausalLM, AutoTokenizer

import collm
from collm.agents.encoding import Encoder
from collm.agents.tiny import TINY_DIRECTORY
from collm.benchmarks.cli import main
from collm.benchmarks.play_page import build

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]

SETTINGS = [
    ("MiniBuild-v0", {}),
    ("MiniBuild-v0", {"reward": "dense", "feedback": "both", "num_agents": 3, "max_turns": 4}),
    ("MiniShift-v0", {"threshold": 0.4}),
    ("MiniShift-v0", {"reward": "terminal", "feedback": "own", "is_shuffled": True}),
    ("MiniWriting-v2", {}),
    ("MiniWriting-v2", {"num_agents": 4}),
    ("MiniCode-v1", {"num_operations": 3}),
    ("MiniCode-v1", {"needs_both": False, "num_tests": 3}),
]
CODE = (
    "def aux ( x ) : return x // 0",
    "def aux(x): return -x % 7 * 10 - (x + 007)",
    "```python\ndef aux(x,): return 2 * x\n```",
    "def aux(x: x + 1): return x * x",
    "def aux(x): return aux(x)",
    "def aux(if): return 1",
    "def main ( x , y ) : return aux ( 999 * 999 * x ) - aux ( y ) + x * x",
    "def main(x, y): return aux(x,) - -y // 3 * 1234",
    "def main(x, y): return aux(x, y)",
    "def main(x, x): return x",
    "def main(x, y): return (aux)(x)",
    "def main(x, y): return x % (y - y) + aux(x)",
)
PLAY = """
const [world, settings, agents, episodes] = %s;
return episodes.map(({facts, turns}) => {
  const state = WORLDS[world].start(facts, settings, agents);
  return turns.map(({replies, order}) => WORLDS[world].play(state, replies, order));
});
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        found.open("about:blank")
        yield found


def reply_of(env, agent: str, rng: random.Random) -> str:
    """A reference reply, an exploit, or either with words left out, exchanged or added."""
    exploits = list(env.exploits().values())
    text = rng.choice([env.reference_reply, env.reference_reply, *exploits])(agent)
    if "def" in text and rng.random() < 0.4:
        return rng.choice(CODE)
    words = text.split(" ")
    for _ in range(rng.choice((0, 0, 1, 3))):
        place = rng.randrange(len(words))
        words[place : place + rng.randrange(2)] = rng.choice(
            ([], ["wood"], words[:1], words[-2:], ["the"], ["\n"])
        ) or [""]
    return " ".join(words)


def played(env, settings, number: int) -> tuple[dict, list]:
    """The task and turns of an episode, and the rewards and feedback of the environment."""
    facts = build._task(env, number, settings)["facts"]
    if "inputs" in facts:  # the page samples its own tests
        env._inputs = tuple(map(tuple, facts["inputs"]))
    rng, turns, results = random.Random(number), [], []
    while env.agents:
        before = {agent: len(env._transcripts[agent].messages) for agent in env.agents}
        replies = {agent: reply_of(env, agent, rng) for agent in env.agents}
        same_draws = random.Random()
        same_draws.setstate(env.rng.getstate())
        turns.append({"replies": replies, "order": same_draws.sample(env.possible_agents, len(env.possible_agents))})
        observations, rewards, terminations, _, _ = env.step(replies)
        read = {agent: observations[agent].messages[number + 1 :] for agent, number in before.items()}
        feedback = {agent: messages[0].content for agent, messages in read.items() if messages}
        results.append((rewards[env.possible_agents[0]], feedback, all(terminations.values())))
    return {"facts": facts, "turns": turns}, results


@pytest.mark.parametrize(("name", "kwargs"), SETTINGS)
def test_the_rules_agree_with_the_environment(browser, name, kwargs):
    env = collm.make(f"collm/{name}", split="test", **kwargs)
    settings = build._settings(type(env), kwargs)
    episodes, results = zip(*(played(env, settings, number) for number in range(150)), strict=True)
    given = json.dumps([type(env).__name__, settings, env.possible_agents, episodes])
    found = browser.run(build._asset("worlds.js") + PLAY % given)
    for ours, theirs in zip(results, found, strict=True):
        for (reward, feedback, is_over), turn in zip(ours, theirs, strict=True):
            assert turn == {"reward": pytest.approx(reward, abs=1e-12), "feedback": feedback, "isOver": is_over}
    assert len({reward for turns in results for reward, *_ in turns}) > 1


def test_the_model_and_the_tokenizer_agree_with_transformers(browser):
    model = AutoModelForCausalLM.from_pretrained(TINY_DIRECTORY)
    for weight in model.parameters():  # the page has 16-bit weights
        weight.data = weight.data.half().float()
    encoder = Encoder(AutoTokenizer.from_pretrained(TINY_DIRECTORY))
    env = collm.make("collm/MiniWriting-v2")
    texts = ["builder 0 goal wall brick fence glass", "Zebra—ÄÖ 12,345 naïve\n\n  end", "post:  the the.\n"]
    texts += [str(env.reset(seed=seed)[0]["writer_1"].messages[0].content) for seed in range(5)]
    data = build._model(TINY_DIRECTORY, TINY_DIRECTORY)
    script = (
        f"{build._asset('model.js')} const {{config, weights, tokenizer}} = {json.dumps(data)};"
        "const player = new Player(new LanguageModel(config, weights), new Tokenizer(tokenizer), 24);"
        f"return {json.dumps(texts)}.map((text) => {{ player.ids = []; player.hear(text); const ids = [...player.ids];"
        "player.model.reset(); let logits; for (const id of ids) logits = player.model.read(id);"
        "return {ids, logits: [...logits], reply: player.reply()}; });"
    )
    for text, found in zip(texts, browser.run(script), strict=True):
        ids = encoder.content(f"{text}\n")
        assert found["ids"] == ids
        prompt = torch.tensor([ids])
        logits = model(prompt).logits[0, -1]
        torch.testing.assert_close(torch.tensor(found["logits"]), logits, atol=5e-5, rtol=5e-5)
        chosen = model.generate(prompt, do_sample=False, max_new_tokens=24)[0, len(ids) :]
        assert found["reply"] == encoder.text(chosen.tolist())


def test_a_person_plays_an_episode(browser, tmp_path, capsys):
    run = collm.train("magrpo", env="collm/MiniShift-v0", num_updates=1, out=tmp_path / "run", weights="shared")
    assert main(["play-page", str(run.directory), "--out", str(tmp_path / "page")]) == 0
    browser.open((tmp_path / "page" / "play.html").as_uri())
    browser.run(
        "document.getElementById('seat').value = 'builder_1'; begin();"
        "for (let turn = 0; turn < 8; turn++) { document.getElementById('reply').value = 'wall wood'; send(); }"
    )
    text = browser.run("return document.getElementById('result').innerText")
    assert "The return with you is" in text and "builder_1 (you)" in text
    assert browser.run("return document.querySelectorAll('#result tbody tr').length") == 8
    assert browser.run("return document.getElementById('answer').hidden") is True
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith(("file:", "data:"))] == []


def test_other_environments_raise_an_error(tmp_path, capsys):
    run = collm.train("magrpo", env="collm/StrBuild-v2", num_updates=1, out=tmp_path / "run", max_new_tokens=4)
    assert main(["play-page", str(run.directory), "--out", str(tmp_path / "page")]) == 2
    assert "the page plays only MiniBuild" in capsys.readouterr().err
