"""Run directories: settings, metrics, episodes, models, and checkpoints from which training resumes bit for bit.

.collm                  list of the files that collm wrote, the first file in a new folder; the lock of the process
config.json             the experiment
metrics.jsonl           one line per update
episodes.jsonl          one line per episode: transcripts, rewards, token ids
evaluation.jsonl        one line per evaluation
checkpoints/<update>/   state that training resumes from, the last two: state.json, tensors.safetensors, SHA256SUMS
start/                  weights that the run began with, where they are another run's, in the same form
agents/<agent>/         the policies at the end of training, in Hugging Face format; .update says after which update
critics/<name>/         the critics

`folder` knows which of these files a new run may delete. Everything is data: nothing that is read from it is run.
Settings that lead out of the folder need `--trust`; see `assembly/trust.py` and docs/threat_model.md.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..._errors import UserError
from ..._json import read_json
from ..._ownership import TEMPORARY
from ...agents.core import Divergence, FittedCritic, Policy, TrainablePolicy
from ..learning.critic_learner import CriticLearner
from ..learning.state import Packed, not_finite, packed, unpacked
from ..learning.trainer import Trainer
from .files import DamagedRunError, write_folder

RECORDS = ("metrics.jsonl", "episodes.jsonl", "evaluation.jsonl")
CHECKPOINTS = "checkpoints"
START = "start"
NUM_KEPT = 2
STATE_FILES = _STATE_FILE, _TENSORS_FILE, _SUMS_FILE = "state.json", "tensors.safetensors", "SHA256SUMS"
_UPDATE_FILE = ".update"  # no agent's name begins with a dot


@dataclass(frozen=True)
class Checkpoint:
    """State of a run after an update."""

    trainer: Mapping[str, Any]
    """What `Trainer.state_dict` returned."""
    num_lines: Mapping[str, int]
    """Lines of each record, by file name."""
    path: Path
    damage: Sequence[str] = ()
    """Newer checkpoints that are damaged, and how."""

    @property
    def update(self) -> int:
        """Updates done."""
        return int(self.trainer["update"])


def has_checkpoint(directory: Path) -> bool:
    """Whether a folder holds a checkpoint, sound or damaged."""
    return bool(_generations(directory))


def save_checkpoint(directory: Path, trainer: Trainer, num_lines: Mapping[str, int] | None = None) -> None:
    """Write a checkpoint, whole or not at all, and delete those before the last two.

    Args:
        num_lines: lines of each record, by file name.

    Raises:
        Divergence: if a number is not finite, naming its tensor; the checkpoints before stay.
    """
    content = packed({"trainer": trainer.state_dict(), "num_lines": dict(num_lines or {})})
    if content.not_finite is not None:
        divergence = Divergence(
            f"a number is not finite in {content.not_finite}: no checkpoint is written, the one before stays"
        )
        divergence.update = trainer.progress.update
        raise divergence
    folder = directory / CHECKPOINTS
    newer = [path for path in _generations(directory) if int(path.name) >= trainer.progress.update]  # these are damaged
    for path in (*newer, *_half_written(folder)):
        shutil.rmtree(path)
    _write(folder / f"{trainer.progress.update:08d}", content)
    for path in _generations(directory)[NUM_KEPT:]:
        shutil.rmtree(path)


def tidy(directory: Path, checkpoint: Checkpoint) -> None:
    """Delete what a process that was killed in the middle of saving left, as seen from the checkpoint to go on from."""
    older = [path for path in _generations(directory) if int(path.name) < checkpoint.update]
    for path in [*older[NUM_KEPT - 1 :], *_half_written(directory / CHECKPOINTS)]:
        shutil.rmtree(path)


def newest_checkpoint(directory: Path) -> Checkpoint | None:
    """The newest checkpoint that is sound; None where a run has not come to its first one.

    Raises:
        DamagedRunError: if all are damaged.
    """
    damage: list[str] = []
    for path in _generations(directory):
        try:
            return Checkpoint(**_read(path), path=path, damage=damage)
        except DamagedRunError as error:
            damage.append(str(error))
    if damage:
        raise DamagedRunError(f"{'; '.join(damage)}: there is no sound one to go on from; start again elsewhere")
    return None


def newest_update(directory: Path) -> int | None:
    """Updates done at the newest checkpoint that is sound; None without one."""
    return next((int(path.name) for path in _generations(directory) if _fault(path) is None), None)


def save_start(directory: Path, weights: Mapping[str, Any]) -> None:
    """Keep the weights that a run begins with."""
    _write(directory / START, packed(weights))


def read_start(directory: Path) -> Mapping[str, Any] | None:
    """The weights that a run began with; None where its settings alone say them.

    Raises:
        DamagedRunError: if they are damaged.
    """
    path = directory / START
    if not any((path / name).exists() for name in STATE_FILES):
        return None
    try:
        return _read(path)
    except DamagedRunError as error:
        raise DamagedRunError(f"{error}, with the weights that the run began with") from error


def save_models(directory: Path, trainer: Trainer) -> None:
    """Write the policies, one folder per agent, and the critics, one folder each; all of them or none."""

    def write_critics(folder: Path) -> None:
        for critic in trainer.unique_critics:
            critic.critic.save(folder / critic.agents[0])

    def write_agents(folder: Path) -> None:
        (folder / _UPDATE_FILE).write_text(f"{trainer.progress.update}\n", encoding="utf-8")
        for agent, learner in trainer.learners.items():
            learner.policy.save(folder / agent)

    if trainer.critics:
        write_folder(directory / "critics", write_critics)
    write_folder(directory / "agents", write_agents)


def models_update(directory: Path) -> int | None:
    """Updates that the policies in `agents/` have learned from; None where there are none, or nothing says it."""
    file = directory / "agents" / _UPDATE_FILE
    text = file.read_text(encoding="utf-8").strip() if file.is_file() else ""
    return int(text) if text.isdecimal() else None


def has_newest_models(directory: Path) -> bool:
    """Whether `agents/` is not older than the newest checkpoint, as it is once a run goes on beyond its first end."""
    newest = next((int(path.name) for path in _generations(directory)), None)
    return newest is None or newest == models_update(directory)


def _generations(directory: Path) -> list[Path]:
    """Folders of the checkpoints, newest first; one that was being written is not among them."""
    folder = directory / CHECKPOINTS
    found = [path for path in folder.glob("*") if path.name.isdecimal() and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name), reverse=True)


def _half_written(folder: Path) -> list[Path]:
    """Folders of checkpoints that a process was writing or replacing when it was killed."""
    return list(folder.glob(f"{TEMPORARY}*"))


def _write(path: Path, content: Packed) -> None:
    def fill(folder: Path) -> None:
        (folder / _STATE_FILE).write_text(json.dumps(content.values), encoding="utf-8")
        save_file(content.tensors, folder / _TENSORS_FILE)
        lines = [f"{_checksum(folder / name)}  {name}\n" for name in (_STATE_FILE, _TENSORS_FILE)]
        (folder / _SUMS_FILE).write_text("".join(lines), encoding="utf-8")

    write_folder(path, fill)


def _read(path: Path) -> dict[str, Any]:
    """What a folder's files hold.

    Raises:
        DamagedRunError: if they are not as they were written, or hold what training cannot go on with.
    """
    fault = _fault(path)
    if fault is None:
        try:
            tensors = load_file(path / _TENSORS_FILE)
            name = not_finite(tensors)
            if name is None:
                content: dict[str, Any] = unpacked(read_json(path / _STATE_FILE), tensors)
                return content
            fault = f"a number is not finite in {name}"
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, SafetensorError) as error:
            fault = f"it holds what no run writes, {type(error).__name__}: {error}"
    raise DamagedRunError(f"{path} is damaged ({fault})")


def _fault(path: Path) -> str | None:
    """What is wrong with a folder's files; None if they are as they were written."""
    sums = path / _SUMS_FILE
    lines = sums.read_text(encoding="utf-8", errors="replace").splitlines() if sums.is_file() else []
    expected = {name: checksum for checksum, _, name in (line.partition("  ") for line in lines)}
    for name in (_STATE_FILE, _TENSORS_FILE):
        if name not in expected:
            return f"{_SUMS_FILE} does not name {name}"
        if not (path / name).is_file():
            return f"{name} is missing"
        if _checksum(path / name) != expected[name]:
            return f"{name} is not as it was written"
    return None


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


class UnfitWeightsError(UserError):
    """A run has no weights for another one's models."""


@dataclass(frozen=True)
class StartingWeights:
    """Weights by agent, and critics by name. What another run has learned of optimizers and tasks is not among them."""

    source: str
    """Run that they come from, for messages."""
    policies: Mapping[str, Mapping[str, Tensor]]
    """`Policy.state_dict` of each agent that learned."""
    critics: Mapping[str, Mapping[str, Any]]
    """Critics by name: each one's `state_dict` under "critic", and the unit of its values under "moments"."""

    @classmethod
    def of_run(cls, directory: Path) -> StartingWeights:
        """The weights of a run's newest checkpoint.

        Raises:
            UnfitWeightsError: if it has none.
        """
        check_start(directory)
        found = newest_checkpoint(directory)
        assert found is not None
        state = found.trainer
        return cls(
            source=str(directory),
            policies={agent: state["learners"][name]["policy"] for agent, name in state["learner_of"].items()},
            critics={
                name: {"critic": critic["critic"], "moments": critic["moments"]}
                for name, critic in state["critics"].items()
            },
        )

    @classmethod
    def kept_in(cls, directory: Path) -> StartingWeights | None:
        """The weights that a run began with; None where its settings alone say them."""
        kept = read_start(directory)
        return None if kept is None else cls(**kept)

    def to_state(self) -> dict[str, Any]:
        """As a run directory keeps them."""
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in vars(self).items()}

    def give_policies(self, policies: Mapping[str, Policy]) -> None:
        """Let policies that learn begin with these weights.

        Raises:
            UnfitWeightsError: if there are none for an agent, or none of its shape.
        """
        given: set[int] = set()
        for agent, policy in policies.items():
            if not isinstance(policy, TrainablePolicy) or id(policy) in given:
                continue
            if agent not in self.policies:
                raise UnfitWeightsError(f"{self.source} has no weights for {agent!r}, but for {sorted(self.policies)}")
            self._check(repr(agent), self.policies[agent], policy.state_dict())
            policy.load_state_dict(dict(self.policies[agent]))
            given.add(id(policy))

    def give_critics(self, critics: Sequence[CriticLearner]) -> None:
        """Load these weights into critics of the same agents; other critics, and fitted ones, keep their own.

        Raises:
            UnfitWeightsError: if a critic of this name has another shape.
        """
        for learner in critics:
            name = learner.agents[0]
            if name in self.critics and not isinstance(learner.critic, FittedCritic):
                kept = self.critics[name]
                self._check(f"the critic {name!r}", kept["critic"], learner.critic.state_dict())
                learner.critic.load_state_dict(dict(kept["critic"]))
                learner.moments = kept["moments"]

    def _check(self, owner: str, kept: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
        """Refuse weights of another shape."""
        for name in sorted(own.keys() | kept.keys()):
            there, here = (f"of shape {tuple(each[name].shape)}" if name in each else "missing" for each in (kept, own))
            if there != here:
                raise UnfitWeightsError(
                    f"{self.source} has other weights for {owner}: {name} is {there} there and {here} here; begin with "
                    "a run of the same models"
                )


def check_start(directory: Path) -> None:
    """Refuse a folder that a run cannot begin with.

    Raises:
        UnfitWeightsError: if it has no checkpoint.
    """
    if not has_checkpoint(directory):
        raise UnfitWeightsError(f"{directory} has no checkpoint to begin with; give a run of `collm train`")
