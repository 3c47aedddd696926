"""Supervised training on demonstrations, and the start checkpoints of the package."""

import json
import shutil

import pytest
import torch
from architectures import smallest_model
from fakes import byte_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from collm._errors import UserError
from collm.agents.encoding import Encoder
from collm.agents.language.imitation import batch, imitate, target_loss, transcript_lesson
from collm.agents.language.model import LanguageModel
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


@pytest.mark.parametrize("kind", ["llama", "gemma2", "opt", "bloom", "mamba"])
def test_the_loss_is_the_mean_cross_entropy_of_the_targets(kind):
    model, encoder = smallest_model(kind), Encoder(byte_tokenizer())
    longer = (Message("user", "goal"), *TALK[:2])
    lessons = [transcript_lesson(messages, encoder) for messages in (TALK, TALK[:2], longer)]
    ids, is_target = batch(lessons, encoder.end_id)
    losses = []
    for lesson in lessons:
        logprobs = model(torch.tensor([lesson.ids])).logits[0].log_softmax(dim=-1)
        losses += [-logprobs[i - 1, index] for i, index in enumerate(lesson.ids) if lesson.is_target[i]]
    torch.testing.assert_close(target_loss(model, ids, is_target), torch.stack(losses).mean())


def test_a_model_learns_the_demonstrated_reply(tiny):
    losses = []
    model = LanguageModel(*tiny)
    imitate(model, always_door, num_updates=30, batch_size=2, on_update=lambda update, loss: losses.append(loss))
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
        ((name, str(tmp_path / "a"), "--model", str(tmp_path)), "contains no model"),
        ((name, str(tmp_path / "a"), "--learning-rate", "1e38", "--num-updates", "9"), "the loss of update"),
        ((name, str(tmp_path / "a"), "--learning-rate", "1e38", "--num-updates", "1"), "not finite in float16"),
    ):
        assert main(["imitate", *few, *args]) == 2
        (*_, last) = capsys.readouterr().err.splitlines()
        assert last.startswith("error: ") and fault in last
    assert not (tmp_path / "a").exists()


def raise_error(rng):
    raise RuntimeError("two\nlines")


def leave(rng):
    raise SystemExit(0)


@pytest.mark.parametrize(
    ("demonstrate", "fault"),
    [
        *(
            (lambda rng, played=played: played, "must return the messages")
            for played in ({}, None, [TALK], {"a": "hi"})
        ),
        (lambda rng: {"a": ["hi"], "b": TALK}, "must return the messages"),
        (lambda rng: {"a": TALK, "b": TALK[:1]}, "must return the messages"),
        (lambda rng: {"a": (Message("user", "goal " * 3000), TALK[1])}, "context has 512"),
        (lambda: {}, "raised TypeError"),
        (raise_error, r"raise_error raised RuntimeError.*test_imitation\.py, line"),
        (leave, "raised SystemExit: 0"),
    ],
)
def test_faulty_demonstrations_are_refused(demonstrate, fault):
    model = LanguageModel(smallest_model("llama"), byte_tokenizer())
    with pytest.raises(UserError, match=f"(?s){fault}"):
        imitate(model, demonstrate, num_updates=1, batch_size=1)


def test_models_are_loaded_without_their_code(tmp_path, capsys):
    folder = shutil.copytree(TINY_DIRECTORY, tmp_path / "model", ignore=shutil.ignore_patterns("starts", "*.py"))
    (folder / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}}))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'RAN')!r}, 'w')")
    call = ("collm.envs.games.mini_shift:demonstration", str(tmp_path / "out"), "--model", str(folder))
    assert main(["imitate", *call]) == 2
    assert "auto_map" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"model"}


def test_the_model_tiny_is_the_start_checkpoint_of_the_environment():
    shift = Experiment(algorithm="iac", config=IACConfig(), env="collm/MiniShift-v0")
    assert where_of(shift.team_model.model) == TINY_DIRECTORY / "starts" / "MiniShift"
    assert named_starts(shift) == ["model tiny: tiny-MiniShift, the start checkpoint for collm/MiniShift-v0"]
    building = Experiment(algorithm="iac", config=IACConfig(), env="collm/MiniBuild-v0")
    assert building.team_model.model == "tiny" and named_starts(building) == []


def test_every_start_belongs_to_an_environment_and_all_are_small():
    assert sorted(STARTS) == sorted(each.start for each in registry.values() if each.start)
    assert sum(path.stat().st_size for path in (TINY_DIRECTORY / "starts").rglob("*")) < 8_000_000
