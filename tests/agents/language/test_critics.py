import numpy as np
import pytest
import torch
from architectures import model_of
from fakes import Chatter, byte_tokenizer, language_policy, random_llama
from transformers import AutoConfig, AutoModel

from collm._errors import UserError
from collm.agents.core import CriticInput
from collm.agents.encoding import Encoder
from collm.agents.language.compact_tokenizer import MAX_POWER, CompactTokenizer
from collm.agents.language.critics import ActorHead, TextCritic, add_lora
from collm.algorithms.rollout.collector import Plan, RolloutCollector
from collm.envs import SyncVector, Transcript
from collm.envs.core import Message

AGENTS = ("fox_0", "stone_0")


@pytest.fixture(scope="module")
def episodes():
    policy = language_policy(has_value_head=True)
    torch.nn.init.normal_(policy.value_head.weight)
    policies = {"fox_0": policy, "stone_0": policy}
    collector = RolloutCollector(SyncVector(Chatter, 3), policies, reads_state=True)
    return policy, collector.collect([Plan(seed) for seed in range(3)])


@pytest.fixture
def critic():
    made = TextCritic.small(byte_tokenizer(), hidden_dim=32)
    torch.nn.init.normal_(made.head.weight)
    return made


@pytest.mark.parametrize("kind", ["own", "joint"])
def test_an_episode_in_one_row_has_the_values_of_its_histories(episodes, critic, kind):
    inputs = [each.own_input("fox_0") if kind == "own" else each.joint_input(AGENTS) for each in episodes[1]]
    apart = [CriticInput((history,)) for item in inputs for history in item.histories]
    together = critic.values(inputs)
    assert len(together) == len(apart) == 9
    torch.testing.assert_close(together, critic.values(apart), atol=1e-5, rtol=1e-4)
    # fewer tokens, because an episode is one row
    assert sum(map(critic.num_tokens, inputs)) < sum(map(critic.num_tokens, apart))


def test_q_depends_on_the_actions_and_v_does_not(episodes, critic):
    episode = episodes[1][0]
    item = episode.joint_input(AGENTS, reads_actions=True)
    changed = tuple(tuple(m._replace(content=m.content + "!") for m in action) for action in item.actions)
    other = CriticInput(item.histories, changed)
    assert not torch.allclose(critic.values([item]), critic.values([other]))
    assert torch.equal(critic.values([CriticInput(item.histories)]), critic.values([CriticInput(other.histories)]))


@pytest.mark.parametrize("head_hidden_dim", [None, 8])
def test_critics_of_one_seed_are_equal_with_values_of_zero_and_leave_the_global_generator_alone(head_hidden_dim):
    before = torch.get_rng_state()
    a, b = (TextCritic.small(byte_tokenizer(), seed=5, head_hidden_dim=head_hidden_dim) for _ in range(2))
    assert a.values([CriticInput(("hello",))]).tolist() == [0.0]
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(weight, b.state_dict()[name]) for name, weight in a.state_dict().items())


def test_the_head_on_an_actor_values_the_sampled_tokens(episodes):
    policy, played = episodes
    values = ActorHead(policy).values([episode.own_input("fox_0") for episode in played])
    acted = [turn.completion.value for episode in played for turn in episode.tracks["fox_0"]]
    np.testing.assert_allclose(values.detach().numpy(), acted, atol=1e-4)
    track = played[0].tracks["fox_0"]
    completions = tuple(turn.completion for turn in track[:2])  # the last history has no reply
    cut = CriticInput(tuple(turn.observation for turn in track), completions=completions)
    torch.testing.assert_close(ActorHead(policy).values([cut]), values[:3], atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match="no value head"):
        ActorHead(language_policy())


def test_a_saved_critic_returns_the_same_values_and_long_histories_are_refused(critic, tmp_path, episodes):
    inputs = [episode.joint_input(AGENTS) for episode in episodes[1]]
    critic.save(tmp_path)
    torch.testing.assert_close(TextCritic.load(tmp_path).values(inputs), critic.values(inputs))
    short = TextCritic.small(byte_tokenizer(), max_tokens=8)
    with pytest.raises(ValueError, match="longer than the critic's context of 8"):
        short.values([CriticInput(("hello " * 50,))])


def test_a_critic_with_one_value_per_agent_is_saved_with_its_head(tmp_path):
    critic = TextCritic.small(byte_tokenizer(), head_hidden_dim=8, num_agents=3)
    torch.nn.init.normal_(critic.head[-1].weight)
    inputs = [CriticInput(("hello", "hello again"))]
    values = critic.values(inputs)
    assert values.shape == (2, 3) and len(set(values[0].tolist())) == 3
    critic.save(tmp_path)
    torch.testing.assert_close(TextCritic.load(tmp_path).values(inputs), values)


def test_a_backbone_whose_values_change_with_later_tokens_is_refused():
    with pytest.raises(UserError, match="BertGenerationEncoder is not causal"):
        TextCritic(model_of("bidirectional").base_model, byte_tokenizer())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["xlnet", "t5", "bart"])
def test_other_backbones_that_are_not_causal_are_refused(kind):
    config = AutoConfig.for_model(kind, vocab_size=97, d_model=32, num_layers=1, n_layer=1, n_head=4, num_heads=4)
    with pytest.raises(UserError, match=r"not causal|token ids alone"):
        TextCritic(AutoModel.from_config(config), byte_tokenizer())


@pytest.mark.parametrize("kind", ["bloom", "mamba"])
def test_a_backbone_without_a_maximum_context_values_any_history(kind):
    config = AutoConfig.for_model(kind, vocab_size=340, hidden_size=32, n_layer=1, num_hidden_layers=1, n_head=4)
    assert TextCritic(AutoModel.from_config(config), byte_tokenizer()).values(
        [CriticInput(("hi " * 99,))]
    ).tolist() == [0]


def test_layers_that_cannot_have_adapters_are_one_line():
    with pytest.raises(UserError, match="critic_lora_rank"):
        add_lora(model_of("mamba").base_model, 2)


def test_the_head_has_the_size_of_the_hidden_states_not_of_the_layers():
    critic = TextCritic(model_of("opt").base_model, byte_tokenizer())
    assert critic.backbone.config.hidden_size == 32 and critic.head.in_features == 16


def test_the_compact_tokenizer_is_lossless_and_replaces_names_and_repeated_texts():
    tokenizer = byte_tokenizer()
    encoder, first = Encoder(tokenizer), len(tokenizer)
    reader = CompactTokenizer(encoder, first)
    shown = "the old river: "
    texts = (f"[fox_0 reads] {shown}short", f"[stone_0 reads] {shown}long", "[stone_0 writes] hello")
    history = tuple(Message("user", text) for text in (*texts, "[fox_0, stone_0 reads] go on"))
    pieces = reader.pieces(history)
    fox_reads, stone_reads = first + 2 * MAX_POWER, first + 2 * MAX_POWER + 2
    assert [piece[0] for piece in pieces] == [fox_reads, stone_reads, stone_reads + 1, fox_reads]
    assert pieces[0][1:] == encoder.content(f"{shown}short")
    assert first <= pieces[1][1] < first + MAX_POWER  # the word for repeated tokens
    assert len(pieces[1]) < len(pieces[0])
    assert pieces[3][:2] == [fox_reads, stone_reads]
    assert reader.pieces(history[:2]) == pieces[:2]
    reader = CompactTokenizer(Encoder(byte_tokenizer()), 1000)
    rng = np.random.default_rng(0)
    seen = {}
    for _ in range(2000):
        pair = ["".join(rng.choice(list("ab"), int(rng.integers(0, 10)))) for _ in range(2)]
        pieces = reader.pieces([Message("user", f"[x reads] {text}") for text in pair])
        assert seen.setdefault(str(pieces), pair) == pair


def test_training_a_critic_s_adapters_does_not_change_its_model(tmp_path):
    model = random_llama()
    model.save_pretrained(tmp_path / "base")
    critic = TextCritic(AutoModel.from_pretrained(tmp_path / "base"), byte_tokenizer())
    add_lora(critic.backbone, 2)
    before = {name: weight.clone() for name, weight in critic.backbone.named_parameters()}
    torch.nn.init.normal_(critic.head.weight)
    inputs = [CriticInput((Transcript([Message("user", "a fox")]),))]
    optimizer = torch.optim.SGD(critic.parameters(), 0.01)
    for _ in range(2):  # lora_A has a gradient from the second step on, because lora_B is zero at first
        optimizer.zero_grad()
        ((critic.values(inputs) - 1) ** 2).sum().backward()
        optimizer.step()
    moved = {name for name, weight in critic.backbone.named_parameters() if not torch.equal(weight, before[name])}
    assert moved and all("lora_" in name for name in moved)
    heads = {f"head.{name}" for name in critic.head.state_dict()}
    assert set(critic.state_dict()) == {f"backbone.{name}" for name in before if "lora_" in name} | heads
    critic.save(tmp_path / "saved")
    twin = TextCritic(AutoModel.from_pretrained(tmp_path / "base"), byte_tokenizer())
    add_lora(twin.backbone, 2)
    twin.load_state_dict(critic.state_dict())
    for other in (twin, TextCritic.load(tmp_path / "saved")):
        torch.testing.assert_close(other.values(inputs), critic.values(inputs))
        assert len(other.parameters()) == len(critic.parameters())
