"""C3: the expected gradient is exact, and branches repeat the base episode up to the decision."""

from collections import Counter, defaultdict
from copy import deepcopy
from functools import partial
from itertools import combinations_with_replacement, product
from math import exp, factorial, prod
from random import Random

import numpy as np
import pytest
import torch
from probes import AGENTS, TextProbe, small_team, word_policies
from safetensors.torch import save
from small_trainers import text_trainer, through_a_file, weights

from collm.agents.core import Completion
from collm.agents.scripted import FunctionPolicy
from collm.algorithms import C3Config, algorithm_spec
from collm.algorithms.learning.credit import assign_credit
from collm.algorithms.learning.rewards import with_own_rewards, with_team_rewards
from collm.algorithms.learning.state import packed
from collm.algorithms.rollout.branching import WEIGHT, Decision
from collm.algorithms.rollout.collector import RolloutCollector
from collm.algorithms.rollout.episode import Cost, Episode, Turn
from collm.algorithms.rollout.plays import ReplayError
from collm.algorithms.runs.assembly.experiment import MAX_DEFAULT_ENVS, Experiment
from collm.algorithms.runs.records import episode_records
from collm.envs import make
from collm.envs.vectors.processes import ProcessVector
from collm.envs.vectors.vector import SyncVector


class Table:
    """Random probabilities of few replies after each observation."""

    def __init__(self, replies):
        self.replies = replies

    def __call__(self, agent, observation):
        rng = Random(f"{agent} {observation}")
        weights = {reply: exp(rng.gauss(0, 1)) for reply in self.replies(str(observation))}
        return {reply: weight / sum(weights.values()) for reply, weight in weights.items()}


def hanabi():
    return make("collm/TinyHanabi-v0", game="E").unwrapped, Table(lambda text: ("lamp", "rug", "desk")), range(4)


def shift(num_agents=2):
    env = make("collm/MiniShift-v0", num_agents=num_agents, max_turns=2, reward="terminal").unwrapped

    def replies(text):
        words = text.rpartition("goal ")[2].split()
        return " ".join(words[:2]), " ".join(words[2:4])

    return env, Table(replies), range(2)


def shift_of_three():
    return shift(3)


def courses(env, table, seed):
    """Return the probability of each episode with one seed and task."""
    found, num_agents = [], len(env.possible_agents)

    def extend(state, observations, chance, tracks, waiting, time):
        if not state.agents:
            finals, ends = dict.fromkeys(tracks), dict.fromkeys(tracks, True)
            tracks = {agent: tuple(track) for agent, track in tracks.items()}
            infos = ({},) * time
            ended = Episode(0, seed, 0, tracks, (), finals, ends, infos, num_agents=num_agents, waiting=waiting)
            found.append((chance, ended))
            return
        movers = list(state.movers)
        tables = [table(agent, observations[agent]) for agent in movers]
        for replies in product(*tables):
            joint, after = dict(zip(movers, replies, strict=True)), deepcopy(state)
            seen, rewards, *_ = after.step(joint)
            done = {agent: list(track) for agent, track in tracks.items()}
            for agent, reply in joint.items():
                done[agent].append(Turn(observations[agent], Completion(reply), rewards[agent], time))
            paid = {agent: {**waiting[agent], **({} if agent in joint else {time: rewards[agent]})} for agent in tracks}
            now = prod(t[r] for t, r in zip(tables, replies, strict=True))
            extend(after, seen, chance * now, done, paid, time + 1)

    state = deepcopy(env)
    observations, _ = state.reset(seed=seed, options={"task": seed})
    extend(
        state,
        observations,
        1.0,
        {agent: [] for agent in env.possible_agents},
        {agent: {} for agent in env.possible_agents},
        0,
    )
    return found


def add_score(gradient, table, agent, turn, factor):
    """Add `factor` times the gradient of the log-probability with respect to the logits of the table."""
    for reply, chance in table(agent, turn.observation).items():
        gradient[agent, str(turn.observation), reply] += factor * ((reply == turn.completion.action) - chance)


def true_gradient(games, table, returns):
    gradient = defaultdict(float)
    for _, episodes in games:
        for chance, episode in episodes:
            for agent, track in episode.tracks.items():
                for turn in track:
                    add_score(gradient, table, agent, turn, chance * returns(episode, agent, turn.time) / len(games))
    return gradient


def c3_gradient(games, table, algorithm):
    """Enumerate base episodes, decisions and alternatives; sum the advantages times the scores."""
    count, rows, group = algorithm.config.num_alternatives, [], 0
    for _, episodes in games:
        for chance, base in episodes:
            places = [(agent, turn) for agent, track in base.tracks.items() for turn in track]
            for agent, turn in places:
                decision = Decision(base, agent, turn, 0, len(places), 1)
                script = decision.plan().script
                branches = [each for each in episodes if repeats(each[1], script)]
                total = sum(each for each, _ in branches)
                for chosen in combinations_with_replacement(branches, count - 1):
                    orders = factorial(count - 1)
                    for number in Counter(id(each) for _, each in chosen).values():
                        orders //= factorial(number)
                    weight = chance * orders * prod(each / total for each, _ in chosen) / len(places) / len(games)
                    group += 1
                    found = [
                        decision._replace(group=group).alternative(each, 0, Cost(0, 0))
                        for each in (base, *[e for _, e in chosen])
                    ]
                    rows.append((weight, agent, found))
    episodes = [each for _, _, found in rows for each in found]
    shaped = (with_team_rewards if algorithm.config.credited_reward == "team" else with_own_rewards)(episodes, 1.0)
    agents = list(games[0][1][0][1].tracks)
    credit, _ = assign_credit(algorithm, shaped, agents, {})
    advantages = {agent: iter(each.advantages.tolist()) for agent, each in credit.items()}
    gradient = defaultdict(float)
    for weight, agent, found in rows:
        for each in found:
            add_score(gradient, table, agent, each.tracks[agent][0], weight * next(advantages[agent]) / count)
    return gradient


def repeats(episode, script):
    """Return True if an episode has the replies of a branch's script."""
    said = [{} for _ in episode.infos]
    for agent, track in episode.tracks.items():
        for turn in track:
            said[turn.time][agent] = turn.completion.action
    return all(
        said[time].get(agent) == done.action for time, joint in enumerate(script) for agent, done in joint.items()
    )


@pytest.mark.parametrize("credited", ["team", "own"])
@pytest.mark.parametrize(("game", "count"), [*product((hanabi, shift), (2, 4)), (shift_of_three, 2)])
def test_the_expected_gradient_is_exact(game, count, credited):
    env, table, seeds = game()
    games = [(seed, courses(env, table, seed)) for seed in seeds]
    assert all(sum(chance for chance, _ in episodes) == pytest.approx(1) for _, episodes in games)
    config = C3Config(num_alternatives=count, credited_reward=credited)
    algorithm = algorithm_spec("c3").make(config)

    def returns(episode, agent, time):
        rewards = episode.team_rewards if credited == "team" else episode.own_rewards(agent)
        return sum(rewards[time:])

    expected, found = true_gradient(games, table, returns), c3_gradient(games, table, algorithm)
    assert max(map(abs, expected.values())) > 0.01
    error = np.linalg.norm([found[key] - value for key, value in expected.items()])
    assert error / np.linalg.norm(list(expected.values())) <= 1e-6


def c3_trainer(world=lambda: TextProbe("delayed"), **changes):
    chosen = {"num_generations": 1, "rollout_buffer_size": 3, "num_alternatives": 3}
    return text_trainer("c3", world, **(chosen | changes))


@pytest.mark.parametrize(("num_decisions", "num_drawn"), [(1, 1), (2, 2), (None, 6)])
def test_branches_repeat_the_base_episode_up_to_the_decision(num_decisions, num_drawn, monkeypatch):
    trainer = c3_trainer(num_decisions=num_decisions)
    played = []
    play = RolloutCollector.play
    monkeypatch.setattr(
        RolloutCollector, "play", lambda *args, **options: played.append(play(*args, **options)) or played[-1]
    )
    episodes, metrics = trainer.step()
    bases, branches = (each.done for each in played)
    assert (len(bases), len(branches), len(episodes)) == (3, 3 * num_drawn * 2, 3 * num_drawn * 3)
    assert len({episode.index for episode in episodes}) == len(episodes)
    of_index, base_of = {each.index: each for each in branches}, {base.seed: base for base in bases}
    assert len({each.seed for each in bases}) == 3
    for group in {episode.group for episode in episodes}:
        first, *others = [episode for episode in episodes if episode.group == group]
        base, (agent,) = base_of[first.seed], first.tracks
        (turn,) = first.tracks[agent]
        assert turn in base.tracks[agent] and first.team_return == base.team_return
        for other in others:
            branch, (own,) = of_index[other.index], other.tracks[agent]
            assert (
                own.time == turn.time
                and own.observation == turn.observation
                and other.team_return == branch.team_return
            )
            for name, track in base.tracks.items():
                for mine, theirs in zip(track, branch.tracks[name], strict=True):
                    if mine.time < turn.time or (mine.time == turn.time and name != agent):
                        assert mine.completion.action == theirs.completion.action
                        assert np.array_equal(mine.completion.logprobs, theirs.completion.logprobs)
    assert any(
        of_index[e.index].tracks[a][t.time].completion.action != base_of[e.seed].tracks[a][t.time].completion.action
        for e in episodes
        if e.index in of_index
        for a, (t,) in e.tracks.items()
    )
    assert metrics["environment_steps"] == 3 * (len(bases) + len(branches))
    sampled = sum(base.num_tokens for base in bases) + sum(
        len(done.completion.logprobs)
        for episode in episodes
        if episode.index in of_index
        for agent, (turn,) in episode.tracks.items()
        for name, track in of_index[episode.index].tracks.items()
        for done in track
        if done.time > turn.time or (done.time == turn.time and name == agent)
    )
    assert metrics["sampled_tokens"] == sampled
    weight = 6 / num_drawn
    assert {info[WEIGHT] for episode in episodes for info in episode.infos if WEIGHT in info} == {weight}


def test_adapters_learn_from_equal_episodes_with_any_number_of_copies_and_processes():
    world, found = partial(TextProbe, "delayed"), []
    with ProcessVector(world, 2, num_workers=1) as processes:
        for vector in (SyncVector(world, 1), SyncVector(world, 5), processes):
            team = small_team("adapters", max_new_tokens=1)
            for policy in team.values():
                policy.fix_shapes()
            trainer = c3_trainer(policies=team, vector=vector, num_decisions=None)
            before = weights(trainer)
            episodes = [each for _ in range(2) for each in trainer.step()[0]]
            assert not any(map(torch.equal, before, weights(trainer)))
            found.append(packed([episodes, weights(trainer)]))
    first, *others = ((each.values, save(each.tensors)) for each in found)
    assert others == [first, first]


@pytest.mark.parametrize(("num_decisions", "expected"), [(1, 6), (2, 12), (None, MAX_DEFAULT_ENVS)])
def test_branches_of_an_update_play_at_the_same_time_by_default(num_decisions, expected):
    config = C3Config(rollout_buffer_size=3, num_alternatives=3, num_decisions=num_decisions)
    assert Experiment(algorithm="c3", config=config, env="collm/TinyHanabi-v0").num_envs == expected


def test_decisions_of_agents_that_do_not_learn_are_not_drawn():
    policies = word_policies(max_new_tokens=2)
    partner = FunctionPolicy(lambda agent, observation: "red")
    trainer = c3_trainer(policies={**policies, AGENTS[1]: partner}, num_decisions=None)
    episodes, metrics = trainer.step()
    assert {agent for episode in episodes for agent in episode.tracks} == {AGENTS[0]} and metrics[
        "environment_steps"
    ] > 0


def test_an_environment_that_its_seed_does_not_determine_is_reported():
    class Fickle(TextProbe):
        def deal(self, task):
            self.rng = Random()
            return super().deal(task)

    with pytest.raises(ReplayError, match=r"another observation of speaker_. in turn 0 .*not deterministic"):
        c3_trainer(lambda: Fickle("delayed"), rollout_buffer_size=8).step()


def test_resumed_updates_are_equal_bit_for_bit():
    first, second = (c3_trainer(max_new_tokens=1, num_decisions=None) for _ in range(2))
    first.step()
    second.load_state_dict(through_a_file(first.state_dict()))
    before = weights(second)
    one, other = first.step()[0], second.step()[0]
    assert [str(episode) for episode in one] == [str(episode) for episode in other]
    assert all(map(torch.equal, weights(first), weights(second)))
    assert not any(map(torch.equal, before, weights(second)))


def test_records_contain_all_turns_and_the_credit_of_the_decision():
    trainer = c3_trainer()
    recorded = []
    episodes, _ = trainer.step(lambda update, episodes, credits: recorded.extend(episode_records(episodes, credits)))
    assert len(recorded) == len(episodes)
    for episode, record in zip(episodes, recorded, strict=True):
        turns = [(agent, turn) for agent, each in record["agents"].items() for turn in each["turns"]]
        assert len(turns) == 6 and record["return"] == pytest.approx(sum(t["reward"] for _, t in turns) / 2)
        ((agent, (own,)),) = episode.tracks.items()
        assert [(name, turn["time"]) for name, turn in turns if "advantage" in turn] == [(agent, own.time)]


def test_settings_that_contradict_c3_are_refused():
    with pytest.raises(ValueError, match="num_alternatives instead"):
        algorithm_spec("c3").make(C3Config(num_generations=4))
    with pytest.raises(ValueError, match="turns_per_update"):
        algorithm_spec("c3").make(C3Config(turns_per_update=4))
