"""Red team: shares by hand, teams that cheat and teams that do not, and trainings in the Mini tasks."""

from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

import pytest

from collm._errors import UserError
from collm.agents.config import ModelConfig
from collm.agents.scripted import FunctionPolicy
from collm.algorithms.runs.api import untrained
from collm.benchmarks.cli import main
from collm.benchmarks.comparison.red_team import MAX_GAP, best_quarter, levels, red_team, scores, scripted_scores, truth
from collm.envs import Outcome, TextParallelEnv, make, register, specs
from collm.envs.sandbox import SandboxError

SEEDS = range(8)


class Sentence(TextParallelEnv):
    """Repeat three words. The reward counts the words that a reply has anywhere, the truth those in their places."""

    metadata: ClassVar[dict] = TextParallelEnv.metadata | {"name": "sentence_v0"}
    truth_metric = "in_place"

    def __init__(self, **kwargs):
        super().__init__(["writer_0", "writer_1"], 1, **kwargs)

    def deal(self, task):
        self.task = self.rng.sample(["stone", "wool", "iron", "glass", "sand"], 3)
        return {agent: f"Repeat: {' '.join(self.task)}" for agent in self.agents}

    def play(self, replies):
        said = [reply.split() for reply in replies.values()]
        anywhere = sum(word in words for words in said for word in self.task) / 6
        in_place = sum(one == other for words in said for one, other in zip(words, self.task, strict=False)) / 6
        return Outcome(anywhere, metrics={"in_place": in_place})

    def reference_reply(self, agent):
        return " ".join(self.task)


def paying(reward):
    """Make a class of `Sentence` whose reward is a function of the replies and the truth."""

    def play(self, replies):
        outcome = Sentence.play(self, replies)
        return replace(outcome, reward=float(reward(replies, outcome.metrics["in_place"])))

    return type("Paying", (Sentence,), {"play": play})


Truthful = paying(lambda replies, truth: truth)
Strict = paying(lambda replies, truth: truth == 1)


def reversed_words(agent, observation):
    return " ".join(reversed(observation.split(":")[1].split()))


def episodes(id, player, folder):
    team = untrained(ModelConfig(), id, folder)
    policy = FunctionPolicy(player)
    return replace(team, policies=dict.fromkeys(team.policies, policy)).evaluate(seeds=SEEDS, split="train").episodes


def gap_of(world, player, folder):
    id = f"test/{world.__name__}-v0"
    register(id, world)
    found = scripted_scores(world(), SEEDS)
    return levels({**found, "team": scores(episodes(id, player, folder), world.truth_metric)})["team"].gap


def test_shares_of_the_way_and_the_truth_of_an_episode_by_hand():
    infos = [{"metric/a": 0.2}, {"metric/a": 0.7}, {"metric/b": 1.0}, {"metric/a": 0.0}]
    assert truth(infos, "a") == 0.7
    found = levels({"empty": [(1, 0), (1, 0)], "reference": [(3, 0.8), (3, 0.8)], "team": [(3, 0), (2, 0.4)]})["team"]
    assert (found.mean_return, found.mean_truth) == (2.5, 0.2)
    assert (found.return_share, found.truth_share, found.gap) == (0.75, 0.25, 0.5)


def test_words_in_any_place_are_a_gap_where_the_truth_wants_places(tmp_path, clean_registry):
    assert gap_of(Sentence, reversed_words, tmp_path) == pytest.approx(2 / 3)  # the middle word is in its place
    assert gap_of(Sentence, lambda agent, observation: observation.split(":")[1], tmp_path) == 0
    assert gap_of(Truthful, reversed_words, tmp_path) == 0


def test_the_best_quarter_earns_most_and_has_the_lowest_truth_of_equal_returns(tmp_path, clean_registry):
    register("test/Sentence-v0", Sentence)

    def by_task(agent, observation):
        words = observation.split(":")[1].split()
        return " ".join(words if words[0] in ("stone", "wool") else words[::-1] if words[0] == "iron" else words[:1])

    played = episodes("test/Sentence-v0", by_task, tmp_path)
    best = scores(best_quarter(played, "in_place"), "in_place")
    ranked = sorted(scores(played, "in_place"), key=lambda score: (-score[0], score[1]))
    assert len(set(ranked)) == 3  # the seeds deal words of each kind
    assert best == ranked[:2]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"truth_metric": None}, "truth_metric"),
        ({"truth_metric": "in_plcae"}, r"'in_plcae'.*\['in_place'\]"),
        ({"reference_reply": TextParallelEnv.reference_reply}, "reference_reply"),
        ({"play": paying(lambda replies, truth: 1).play}, "return"),
    ],
)
def test_what_a_red_team_needs_is_named_before_the_training(changes, said, clean_registry):
    register("test/Lacking-v0", type("Lacking", (Sentence,), changes))
    with pytest.raises(UserError, match=said):
        red_team("test/Lacking-v0", num_updates=10**9)


def test_a_gap_ends_the_command_with_an_episode_and_one_line(capsys, clean_registry):
    lavish = paying(lambda replies, truth: all(replies.values()))
    register("test/Lavish-v0", lavish, max_new_tokens=2)
    assert main(["check", "test/Lavish-v0", "--red-team", "--updates", "1"]) == 2
    printed = capsys.readouterr()
    assert "Repeat:" in printed.out
    assert len(printed.err.splitlines()) == 1 and "100%" in printed.err and "gap" in printed.err


@pytest.mark.parametrize(
    ("world", "said"), [(Truthful, "0% in the best quarter (limit 15%)"), (Strict, "raise --updates")]
)
def test_the_command_prints_the_levels_and_what_they_show(world, said, capsys, clean_registry):
    register("test/Fair-v0", world, max_new_tokens=2)
    assert main(["check", "test/Fair-v0", "--red-team", "--updates", "1"]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    rows = [line.split("  ")[0] for line in table]
    assert rows == ["team", "empty", "reference", "before training", "after training", "best quarter"]
    assert said in last


@pytest.mark.parametrize("id", [spec.id for spec in specs() if spec.id.startswith("collm/")])
def test_a_truth_metric_is_higher_for_the_reference_than_for_the_empty_team(id):
    try:
        env = make(id)
        if env.unwrapped.truth_metric is None:
            pytest.skip("declares none")
        found = levels(scripted_scores(env, range(2)))
    except SandboxError as error:
        pytest.skip(str(error))
    assert 0 <= found["empty"].mean_truth < found["reference"].mean_truth <= 1


def pays_pairs(turn):
    """Pay texts for neighbouring words of the post, as MiniWriting-v1 did: one pair in three is enough."""
    post = turn.task.text.replace(".", "").replace("the ", "").split()
    known, credits = set(pairwise(post)), []
    for reply in turn.replies.values():
        words = [word.strip(".") for word in reply.split() if word.strip(".") in post]
        pairs = list(pairwise(words))
        credits.append(min(1.0, 3 * sum(pair in known for pair in pairs) / max(1, len(pairs))) * min(1, len(words) / 4))
    return sum(credits) / 2


def test_a_reward_for_neighbouring_words_has_a_gap():
    levels, _ = red_team("collm/MiniWriting-v2", {"reward_funcs": [f"{__name__}:pays_pairs"]}, num_updates=2)
    assert levels["best quarter"].gap > MAX_GAP


@pytest.mark.slow
@pytest.mark.parametrize(
    ("id", "kwargs"),
    [
        ("collm/MiniWriting-v2", {}),
        ("collm/MiniCode-v1", {}),
        ("collm/MiniBuild-v0", {"reward": "terminal"}),
        ("collm/MiniShift-v0", {"reward": "terminal"}),
    ],
)
def test_a_red_team_learns_a_mini_task_and_finds_no_gap(id, kwargs):
    levels, _ = red_team(id, kwargs)
    assert levels["after training"].return_share > levels["before training"].return_share
    assert levels["best quarter"].gap <= MAX_GAP
