"""Supervised training on demonstrations, and the start checkpoints of the package."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from collm.agents.encoding import Encoder
from collm.agents.language.imitation import batch, imitate, target_loss, transcript_lesson
from collm.agents.loading import where_of
from collm.agents.tiny import STARTS, TINY_DIRECTORY
from collm.algorithms.iac import IACConfig
from collm.algorithms.runs.assembly.experiment import Experiment
from collm.algorithms.runs.run import named_starts
from collm.benchmarks.cli import main
from collm.envs.core import Message
from collm.envs.registration.registry import registry

TALK = (Message("user", "task wood"), Message("assistant", "door wood"), Message("user", "next"))


def always_door(rng):
    """Return one agent's transcript, always the same."""
    return {"builder_0": TALK}


@pytest.fixture
def tiny():
    tokenizer = AutoTokenizer.from_pretrained(TINY_DIRECTORY)
    return AutoModelForCausalLM.from_pretrained(TINY_DIRECTORY, dtype=torch.float32), tokenizer


def test_only_replies_and_their_ends_are_targets(tiny):
    encoder = Encoder(tiny[1])
    lesson = transcript_lesson(TALK, encoder)
    learned = [index for index, is_target in zip(lesson.ids, lesson.is_target, strict=True) if is_target]
    assert learned == [*encoder.content("door wood"), encoder.end_id]
    assert lesson.ids[: -len(learned)] == tuple(encoder.content("task wood\n"))


def test_the_loss_is_the_mean_cross_entropy_of_the_targets(tiny):
    model, tokenizer = tiny
    lessons = [transcript_lesson(TALK, Encoder(tokenizer)), transcript_lesson(TALK[:2], Encoder(tokenizer))]
    longer = transcript_lesson((Message("user", "goal"), *TALK[:2]), Encoder(tokenizer))
    ids, is_target = batch([*lessons, longer], tokenizer.pad_token_id)
    losses = []
    for lesson in (*lessons, longer):
        logprobs = model(torch.tensor([lesson.ids])).logits[0].log_softmax(dim=-1)
        losses += [-logprobs[i - 1, index] for i, index in enumerate(lesson.ids) if lesson.is_target[i]]
    torch.testing.assert_close(target_loss(model, ids, is_target), torch.stack(losses).mean())


def test_a_model_learns_the_demonstrated_reply(tiny):
    model, tokenizer = tiny
    losses = []
    imitate(
        model, tokenizer, always_door, num_updates=30, batch_size=2, on_update=lambda update, loss: losses.append(loss)
    )
    assert len(losses) == 30 and losses[0] > 1 and losses[-1] < 0.05


def test_the_command_writes_a_model_and_refuses_wrong_calls(tmp_path, capsys):
    out = tmp_path / "start"
    name = "collm.envs.games.mini_shift:varied_demonstration"
    few = ("--num-updates", "2", "--batch-size", "2")
    assert main(["imitate", name, str(out), *few]) == 0
    assert AutoModelForCausalLM.from_pretrained(out).dtype == torch.float32
    for args, fault in (
        ((name, str(out)), "is not an empty folder"),
        (("collm.envs.games.mini_shift:nothing", str(tmp_path / "a")), "cannot be loaded"),
        (("collm.envs.games.mini_shift", str(tmp_path / "a")), "cannot be loaded"),
    ):
        assert main(["imitate", *args, *few]) == 2
        assert fault in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_the_model_tiny_is_the_start_checkpoint_of_the_environment():
    shift = Experiment(algorithm="iac", config=IACConfig(), env="collm/MiniShift-v0")
    assert where_of(shift.team_model.model) == TINY_DIRECTORY / "starts" / "MiniShift"
    assert named_starts(shift) == ["model tiny: tiny-MiniShift, the start checkpoint for collm/MiniShift-v0"]
    building = Experiment(algorithm="iac", config=IACConfig(), env="collm/MiniBuild-v0")
    assert building.team_model.model == "tiny" and named_starts(building) == []


def test_every_start_belongs_to_an_environment_and_all_are_small():
    assert sorted(STARTS) == sorted(each.start for each in registry.values() if each.start)
    assert sum(path.stat().st_size for path in (TINY_DIRECTORY / "starts").rglob("*")) < 8_000_000
