from collections import defaultdict
from types import SimpleNamespace

import pytest

pytest.importorskip("datasets")

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from collm.agents.interop.trl import Episodes, conversation_class, dataset_of, reward_of
from collm.agents.tiny import TINY_DIRECTORY
from collm.algorithms import algorithm_spec
from collm.algorithms.algorithm import PolicyBatch
from collm.envs import make
from collm.envs.views import SingleAgent

pytestmark = pytest.mark.filterwarnings("ignore")


def team():
    return make("collm/MiniBuild-v0", max_turns=3, reward="terminal")


def builder():
    return SingleAgent(team(), "builder_0")


@pytest.fixture
def trainer():
    """The attributes of a trainer that generation needs."""
    tokenizer = AutoTokenizer.from_pretrained(TINY_DIRECTORY)
    torch.manual_seed(0)
    # top_k=0 is TRL's default; that of transformers is 50.
    settings = GenerationConfig(max_new_tokens=6, do_sample=True, top_k=0, pad_token_id=tokenizer.pad_token_id)
    return SimpleNamespace(
        processing_class=tokenizer,
        model=AutoModelForCausalLM.from_pretrained(TINY_DIRECTORY, dtype=torch.float32),
        accelerator=SimpleNamespace(unwrap_model=lambda model: model),
        generation_config=settings,
        num_generations=2,
    )


def test_the_reward_of_a_completion_is_that_of_its_rows_episode_of_one_turn():
    env = SingleAgent(make("collm/MiniWriting-v2"), "writer_1")
    rows = dataset_of(env, 3)
    assert rows[2]["seed"] == 2 and "post:" in rows[2]["prompt"]
    env.reset(seed=2)
    good, expected = env.env.reference_reply("writer_1"), []
    for reply in (good, ""):
        env.reset(seed=2)
        expected.append(env.step(reply)[1])
    assert reward_of(env)([good, ""], seed=[2, 2]) == pytest.approx(expected) and expected[0] == 1.0
    with pytest.raises(ValueError, match="rollout_func=Episodes"):
        reward_of(builder())(["desk wood"], seed=[0])


def test_an_episode_is_one_row_with_the_log_probabilities_of_the_model(trainer):
    episodes = Episodes(builder, 4)
    prompts = [episodes.dataset[0]["prompt"]] * 2 + [episodes.dataset[1]["prompt"]] * 2
    rows = episodes(prompts, trainer)
    assert rows["prompt_ids"][0] == rows["prompt_ids"][1] != rows["prompt_ids"][2]
    for ids, own, logprobs in zip(rows["completion_ids"], rows["env_mask"], rows["logprobs"], strict=True):
        assert len(ids) == len(own) == len(logprobs)
        assert own[0] == own[-1] == 1 and 0 in own
        assert all(logprob <= 0 for logprob in logprobs)
    assert Episodes.reward(["", "", "", ""], rows["episode_return"]) == rows["episode_return"]
    ids = torch.tensor([rows["prompt_ids"][0] + rows["completion_ids"][0]])
    with torch.no_grad():
        known = trainer.model.eval()(ids).logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None]).squeeze(-1)
    known = known[len(rows["prompt_ids"][0]) - 1 :]
    own = torch.tensor(rows["env_mask"][0]).bool()
    torch.testing.assert_close(torch.tensor(rows["logprobs"][0])[own], known[own], atol=1e-3, rtol=1e-3)


def test_a_conversation_has_one_tool():
    made = conversation_class(builder)
    assert [name for name in vars(made) if not name.startswith("_")] == ["reset", "write", "get_reward"]
    game = made()
    assert "goal" in game.reset(seed=0, prompt="ignored")
    replies = [game.write("desk wood") for _ in range(4)]
    assert replies[0] and replies[-1] == "The episode is over."
    assert 0 <= game.get_reward() <= 1


def test_in_self_play_rows_of_both_agents_are_from_the_same_episodes(trainer):
    episodes = Episodes(team, 3)
    assert list(episodes.dataset["agent"]) == ["builder_0", "builder_1"] * 3
    asked = [episodes.dataset[row]["prompt"] for row in (2, 2, 3, 3)]  # both agents of the second seed, two rollouts
    assert len(set(asked)) == 2
    rows = episodes(asked, trainer)
    assert episodes.num_played == 2
    assert rows["episode_return"][:2] == rows["episode_return"][2:]  # the reward is the team's
    apart = Episodes(team, 2)
    rows = apart([apart.dataset[row]["prompt"] for row in (0, 3, 3)], trainer)
    assert apart.num_played == 3 and len(rows["prompt_ids"]) == 3
    episodes = Episodes(team, 1)
    rows = episodes([episodes.dataset[row]["prompt"] for row in (0, 1)], trainer)
    decode = trainer.processing_class.decode
    said = [replies_of(ids, own, decode) for ids, own in zip(rows["completion_ids"], rows["env_mask"], strict=True)]
    env = team()
    env.reset(seed=0)
    earned = 0.0
    for texts in zip(*said, strict=True):
        _, rewards, *_ = env.step(dict(zip(env.agents, texts, strict=True)))
        earned += rewards["builder_0"]
    assert env.agents == [] and rows["episode_return"] == [earned, earned]


def test_an_agent_that_waits_first_reads_what_happened_in_the_meantime(trainer):
    episodes = Episodes(lambda: make("collm/Advice-v0"), 1)
    rows = episodes(episodes.dataset["prompt"], trainer)
    decode = trainer.processing_class.decode
    message, _ = (decode(ids, skip_special_tokens=True) for ids in rows["completion_ids"])
    env = make("collm/Advice-v0")
    opening = env.reset(seed=0)[0]["builder_0"]
    observations, *_ = env.step({"builder_0": message})
    texts = [decode(ids).split() for ids in rows["prompt_ids"]]
    assert texts == [str(opening).split(), str(observations["builder_1"]).split()] and texts[1][-1] == "task"


def test_rows_with_equal_prompts_are_used_in_turn(trainer):
    """The decider of Advice reads the same prompt for all seeds."""
    played = []

    def build():
        env = make("collm/Advice-v0")
        reset = env.reset
        env.reset = lambda seed: (played.append(seed), reset(seed=seed))[1]
        return env

    episodes = Episodes(build, 3)
    played.clear()
    for row in (1, 3, 5, 1):
        episodes([episodes.dataset[row]["prompt"]] * 2, trainer)
    assert played == [0, 0, 1, 1, 2, 2, 0, 0]


def replies_of(ids, is_own, decode):
    replies, run = [], []
    for index, own in [*zip(ids, is_own, strict=True), (None, 0)]:
        if own:
            run.append(index)
        elif run:
            replies.append(decode(run, skip_special_tokens=True))
            run = []
    return replies


@pytest.mark.parametrize(("build", "num_seeds", "max_steps"), [(builder, 8, 1), (team, 4, 2)])
def test_the_trainer_trains_all_agents_of_long_episodes(tmp_path, monkeypatch, build, num_seeds, max_steps):
    trl = pytest.importorskip("trl")
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    episodes = Episodes(build, num_seeds)
    num_seats = 1 if build is builder else 2
    sizes = {"per_device_train_batch_size": 4 * num_seats, "num_generations": 4, "max_completion_length": 6}
    quiet = {"logging_steps": 1, "save_strategy": "no", "report_to": "none", "disable_tqdm": True}
    quiet |= {"shuffle_dataset": False, "use_cpu": True, "bf16": False}
    parts = {"reward_funcs": Episodes.reward, "rollout_func": episodes, "train_dataset": episodes.dataset}
    parts |= {"processing_class": AutoTokenizer.from_pretrained(TINY_DIRECTORY)}
    config = trl.GRPOConfig(str(tmp_path), max_steps=max_steps, **sizes, **quiet)
    trainer = trl.GRPOTrainer(AutoModelForCausalLM.from_pretrained(TINY_DIRECTORY), args=config, **parts)
    trainer.train()
    assert "reward" in trainer.state.log_history[0]
    if build is team:
        assert episodes.num_played == max_steps * 4  # each trains both agents


def loss_of_trl(loss_type, level, clip_range, clip_range_high, logprobs, sampled, mask, advantages):
    """TRL's loss of [B, T] log-probabilities, from a trainer with the attributes that the loss needs."""
    trainer = SimpleNamespace(
        args=SimpleNamespace(delta=None, steps_per_generation=1),
        accelerator=SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x),
        model=SimpleNamespace(training=True),
        loss_type=loss_type,
        importance_sampling_level=level,
        epsilon_low=clip_range,
        epsilon_high=clip_range_high,
        beta=0.0,
        max_completion_length=mask.shape[1],
        current_gradient_accumulation_steps=1,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        aux_loss_enabled=False,
        use_vllm=False,
        _entropy_bonus_enabled=False,
        _metrics=defaultdict(lambda: defaultdict(list)),
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (logprobs, torch.zeros_like(logprobs), None),
    )
    empty = torch.zeros(len(mask), 0, dtype=torch.long)
    inputs = {"prompt_ids": empty, "prompt_mask": empty, "completion_ids": mask, "completion_mask": mask}
    inputs |= {"old_per_token_logps": sampled, "advantages": advantages, "num_items_in_batch": mask.sum()}
    return pytest.importorskip("trl").GRPOTrainer._compute_loss(trainer, None, inputs)


@pytest.mark.parametrize(
    ("name", "loss_type", "level"),
    [("dr-grpo", "dr_grpo", "token"), ("dapo", "dapo", "token"), ("gspo", "grpo", "sequence")],
)
def test_losses_and_gradients_equal_trl_s(name, loss_type, level):
    lengths = torch.tensor([1, 5, 3, 2])
    mask = (torch.arange(5) < lengths[:, None]).long()
    generator = torch.Generator().manual_seed(0)
    logprobs, noise = -torch.rand(2, 4, 5, generator=generator, dtype=torch.float64)
    sampled = logprobs + 0.3 * (noise + 0.5)
    advantages = torch.tensor([1.0, -0.5, 0.3, -2.0], dtype=torch.float64)
    spec = algorithm_spec(name)
    algorithm = spec.make(spec.config())
    config = algorithm.config
    high = config.clip_range if config.clip_range_high is None else config.clip_range_high
    theirs = logprobs.clone().requires_grad_()
    loss = loss_of_trl(loss_type, level, config.clip_range, high, theirs, sampled, mask, advantages)
    loss.backward()
    ours = logprobs.clone().requires_grad_()
    is_real = mask.bool()
    num_tokens = int(mask.sum())
    batch = PolicyBatch(
        ours[is_real], sampled[is_real], torch.arange(4).repeat_interleave(lengths), advantages, 4, num_tokens
    )
    # The learner multiplies by tokens / (episodes * turns * largest number of tokens), if the denominator is fixed.
    scale = num_tokens / mask.numel() if config.loss_denominator == "fixed" else 1.0
    found = scale * algorithm.loss(batch).loss
    found.backward()
    assert float((found - loss).detach().abs()) <= 1e-6
    assert float((ours.grad - theirs.grad).abs().max()) <= 1e-6 and bool(ours.grad.any())
