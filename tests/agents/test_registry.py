import re

import pytest
from probes import TextProbe, word_policy, word_tokenizer

import collm
from collm import agents
from collm.agents import registry as registered
from collm.agents.numeric.config import NetworkConfig
from collm.algorithms import IAC, MAAC, IACConfig, MAACConfig, make_trainer
from collm.algorithms.runs.assembly.checks import check_team
from collm.algorithms.runs.assembly.policies import make_policies
from collm.algorithms.runs.assembly.trainers import make_critics
from collm.envs import make
from collm.envs.vectors.vector import SyncVector

ENV = "collm/MiniWriting-v2"
SMALL = {"num_updates": 1, "rollout_buffer_size": 4, "eval_num_samples": 2, "max_new_tokens": 8, "progress": False}


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.setattr(registered, "_policies", {})
    monkeypatch.setattr(registered, "_critics", {})


@pytest.mark.parametrize("register", [agents.register_policy, agents.register_critic])
@pytest.mark.parametrize("name", ["tiny", "small", "actor", "Mine", "owner/model", ""])
def test_a_name_that_is_a_model_s_is_refused(register, name):
    with pytest.raises(ValueError, match=re.escape(f"got {name!r}")):
        register(name, lambda seat: None)


def test_a_taken_name_is_refused_unless_it_is_replaced():
    first, second = (lambda seat, reply=reply: agents.fixed_policy(reply) for reply in "ab")
    agents.register_policy("mine", first)
    agents.register_policy("mine", first)  # twice does nothing
    with pytest.raises(ValueError, match="'mine' is already registered"):
        agents.register_policy("mine", second)
    agents.register_policy("mine", second, replace=True)


def test_a_registered_policy_plays_the_agent_of_the_settings(tmp_path):
    seats = []
    agents.register_policy("parrot", lambda seat: seats.append(seat) or agents.fixed_policy("the fox"))
    run = collm.train("magrpo", env=ENV, model="tiny,parrot", num_generations=2, out=tmp_path / "run", **SMALL)
    assert [seat.agent for seat in seats] == ["writer_1"] and seats[0].model.max_new_tokens == 8
    assert {turn["wrote"] for row in run.episodes for turn in row["agents"]["writer_1"]["turns"]} == {"the fox"}
    team = collm.load_team(tmp_path / "run")
    assert isinstance(team["writer_0"], agents.LanguagePolicy)
    assert len(seats) == 2  # policies that are not trained are made again


@pytest.fixture
def vector():
    return SyncVector(lambda: TextProbe("constant"), 2)


@pytest.fixture
def policies(vector):
    return {agent: word_policy(number) for number, agent in enumerate(vector.possible_agents)}


def test_a_registered_policy_gets_a_value_head_and_may_be_shared(vector):
    agents.register_policy("words", lambda seat: word_policy(seat.seed, has_value_head=seat.has_value_head))
    config = IACConfig(use_separate_critic=False)
    own = make_policies(IAC(config), vector, agents.ModelConfig(model="words"), NetworkConfig())
    assert all(policy.value_head is not None for policy in own.values())
    assert len({id(policy) for policy in own.values()}) == 2
    shared = make_policies(IAC(config), vector, agents.ModelConfig(model="words", weights="shared"), NetworkConfig())
    assert len({id(policy) for policy in shared.values()}) == 1
    with pytest.raises(ValueError, match="weights='adapters'"):
        check_team(make(ENV), agents.ModelConfig(model="words", weights="adapters"))


def test_registered_critics_are_made_with_seats_and_unknown_policies_need_some(vector, policies):
    seats, made = [], agents.TextCritic.small(word_tokenizer(), hidden_dim=32)
    agents.register_critic("mine", lambda seat: seats.append(seat) or made)
    settings = {"critic_model_name_or_path": "mine", "value_head_hidden_dim": 7, "seed": 5}
    make_critics(MAAC(MAACConfig(**settings)), policies, vector)
    make_critics(IAC(IACConfig(**settings, critic_type="q")), policies, vector)
    assert [seat.agent for seat in seats] == [None, *vector.possible_agents]
    assert [seat.seed for seat in seats] == [5, 5, 6]
    assert all(seat.head_hidden_dim == 7 for seat in seats)
    assert [list(seat.action_spaces) for seat in seats] == [[], *([agent] for agent in vector.possible_agents)]
    learner = type("Unknown", (agents.TrainablePolicy,), dict.fromkeys(agents.TrainablePolicy.__abstractmethods__))()
    with pytest.raises(ValueError, match="there is no critic for the policy class Unknown; give critics="):
        make_critics(MAAC(MAACConfig()), {**policies, "speaker_0": learner}, vector)


@pytest.mark.parametrize(
    ("algorithm", "critics", "reason"),
    [
        (IAC(IACConfig()), agents.TextCritic.small(word_tokenizer(), hidden_dim=32), "each agent has its own"),
        (IAC(IACConfig()), {}, "critics has no key 'speaker_0'"),
        (MAAC(MAACConfig()), {"speaker_0": None}, "critics has no key 'joint', only ['speaker_0']"),
    ],
)
def test_critics_that_do_not_fit_are_refused(vector, policies, algorithm, critics, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        make_trainer(algorithm, vector, policies, critics=critics)
