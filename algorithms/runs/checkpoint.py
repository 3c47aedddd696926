"""Checkpoints and models in a run's folder. Resumed training equals uninterrupted training bit for bit.

.collm                  list of the files that collm wrote; also the lock file
config.json             settings of the experiment
metrics.jsonl           one line per update
episodes.jsonl          one line per episode: transcripts, rewards, token ids
evaluation.jsonl        one line per evaluation
checkpoints/<update>/   training state; the last two are kept: state.json, tensors.safetensors, SHA256SUMS
start/                  starting weights from another run (init_from), in the same format
agents/<agent>/         policies at the end of training, in Hugging Face format; .update has the number of the update
critics/<name>/         critics at the end of training

No code is loaded from these files. See `assembly/trust.py` and docs/threat_model.md.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..._errors import UserError
from ..._json import read_json
from ..._ownership import TEMPORARY
from ...agents.core import Divergence, FittedCritic, Policy, TrainablePolicy
from ...envs.data.files import is_data_path
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
    """Training state after an update."""

    trainer: Mapping[str, Any]  # `Trainer.state_dict()`
    num_lines: Mapping[str, int]  # Number of lines of each record file, with file names as keys
    path: Path
    data: Mapping[str, str] = field(default_factory=dict)  # Digests of the environment's data files; see `data_digests`
    damage: Sequence[str] = ()  # Descriptions of newer checkpoints that are damaged

    @property
    def update(self) -> int:
        return int(self.trainer["update"])


def has_checkpoint(directory: Path) -> bool:
    return bool(_generations(directory))


def save_checkpoint(
    directory: Path,
    trainer: Trainer,
    num_lines: Mapping[str, int] | None = None,
    data: Mapping[str, str] | None = None,
) -> None:
    """Write a checkpoint; keep the last two checkpoints only. Raises `Divergence` if a tensor is not finite."""
    content = packed({"trainer": trainer.state_dict(), "num_lines": dict(num_lines or {}), "data": dict(data or {})})
    if content.not_finite is not None:
        divergence = Divergence(
            f"a number is not finite in {content.not_finite}: no checkpoint is written; the previous checkpoint is kept"
        )
        divergence.update = trainer.progress.update
        raise divergence
    folder = directory / CHECKPOINTS
    newer = [path for path in _generations(directory) if int(path.name) >= trainer.progress.update]  # damaged
    for path in (*newer, *_half_written(folder)):
        shutil.rmtree(path)
    _write(folder / f"{trainer.progress.update:08d}", content)
    for path in _generations(directory)[NUM_KEPT:]:
        shutil.rmtree(path)


def data_digests(data: Any) -> dict[str, str]:
    """Return the SHA-256 of each file in the argument `data` of an environment: a path, or a dict of paths."""
    sources = data.values() if isinstance(data, Mapping) else [data]
    names = [str(source) for source in sources if isinstance(source, (str, Path)) and is_data_path(str(source))]
    paths = [Path(name.replace("{split}", split)).expanduser() for name in names for split in ("train", "test")]
    files = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    return {str(file): _checksum(file) for file in files if file.is_file()}


def tidy(directory: Path, checkpoint: Checkpoint) -> None:
    """Delete incomplete checkpoints, and checkpoints older than the last two, which a killed process left."""
    older = [path for path in _generations(directory) if int(path.name) < checkpoint.update]
    for path in [*older[NUM_KEPT - 1 :], *_half_written(directory / CHECKPOINTS)]:
        shutil.rmtree(path)


def newest_checkpoint(directory: Path) -> Checkpoint | None:
    """Load the newest valid checkpoint, or return None. Raises `DamagedRunError` if all checkpoints are damaged."""
    damage: list[str] = []
    for path in _generations(directory):
        try:
            return Checkpoint(**_read(path), path=path, damage=damage)
        except DamagedRunError as error:
            damage.append(str(error))
    if damage:
        raise DamagedRunError(f"{'; '.join(damage)}: no checkpoint is valid; start again in another folder")
    return None


def newest_update(directory: Path) -> int | None:
    """Return the update number of the newest valid checkpoint. None: no checkpoint is valid."""
    return next((int(path.name) for path in _generations(directory) if _fault(path) is None), None)


def save_models(directory: Path, trainer: Trainer) -> None:
    """Save each policy and each critic in its own folder. `agents/` and `critics/` are each replaced atomically."""

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
    """Return the update after which `agents/` was written. None: `agents/` is missing, or the update is unknown."""
    file = directory / "agents" / _UPDATE_FILE
    text = file.read_text(encoding="utf-8").strip() if file.is_file() else ""
    return int(text) if text.isdecimal() else None


def has_newest_models(directory: Path) -> bool:
    """Return True if `agents/` is not older than the newest checkpoint. During a resumed run, `agents/` is older."""
    newest = next((int(path.name) for path in _generations(directory)), None)
    return newest is None or newest == models_update(directory)


def _generations(directory: Path) -> list[Path]:
    """Return the folders of complete checkpoints, newest first."""
    folder = directory / CHECKPOINTS
    found = [path for path in folder.glob("*") if path.name.isdecimal() and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name), reverse=True)


def _half_written(folder: Path) -> list[Path]:
    return list(folder.glob(f"{TEMPORARY}*"))


def _write(path: Path, content: Packed) -> None:
    def fill(folder: Path) -> None:
        (folder / _STATE_FILE).write_text(json.dumps(content.values), encoding="utf-8")
        save_file(content.tensors, folder / _TENSORS_FILE)
        lines = [f"{_checksum(folder / name)}  {name}\n" for name in (_STATE_FILE, _TENSORS_FILE)]
        (folder / _SUMS_FILE).write_text("".join(lines), encoding="utf-8")

    write_folder(path, fill)


def _read(path: Path) -> dict[str, Any]:
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
            fault = f"malformed content, {type(error).__name__}: {error}"
    raise DamagedRunError(f"{path} is damaged ({fault})")


def _fault(path: Path) -> str | None:
    """Describe the first missing or changed file of a checkpoint. None: all checksums match."""
    sums = path / _SUMS_FILE
    lines = sums.read_text(encoding="utf-8", errors="replace").splitlines() if sums.is_file() else []
    expected = {name: checksum for checksum, _, name in (line.partition("  ") for line in lines)}
    for name in (_STATE_FILE, _TENSORS_FILE):
        if name not in expected:
            return f"{_SUMS_FILE} lacks {name}"
        if not (path / name).is_file():
            return f"{name} is missing"
        if _checksum(path / name) != expected[name]:
            return f"the checksum of {name} differs"
    return None


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


class UnfitWeightsError(UserError):
    """Error for weights that do not fit the models of a run."""


@dataclass(frozen=True)
class StartingWeights:
    """Weights of policies and critics that a run starts with, without optimizer states."""

    source: str  # Folder of the run from which the weights are loaded, for error messages
    policies: Mapping[str, Mapping[str, Tensor]]  # `Policy.state_dict` of each trainable agent
    critics: Mapping[str, Mapping[str, Any]]  # per critic: "critic", the `state_dict`; "moments" of the value targets

    @classmethod
    def of_run(cls, directory: Path) -> StartingWeights:
        """Read the weights of a run's newest checkpoint, or raise `UnfitWeightsError` if none exists."""
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
        """Read a run's starting weights. None: no file exists. Raises `DamagedRunError` if the file is damaged."""
        path = directory / START
        if not any((path / name).exists() for name in STATE_FILES):
            return None
        try:
            return cls(**_read(path))
        except DamagedRunError as error:
            raise DamagedRunError(
                f"{error}; this folder contains the starting weights of the run, so start again in another folder"
            ) from error

    def save(self, directory: Path) -> None:
        state = {"source": self.source, "policies": dict(self.policies), "critics": dict(self.critics)}
        _write(directory / START, packed(state))

    def give_policies(self, policies: Mapping[str, Policy]) -> None:
        """Load the weights into trainable policies. Raises `UnfitWeightsError` if a shape or agent differs."""
        given: set[int] = set()
        for agent, policy in policies.items():
            if not isinstance(policy, TrainablePolicy) or id(policy) in given:
                continue
            if agent not in self.policies:
                raise UnfitWeightsError(f"{self.source} has no weights for {agent!r}, only for {sorted(self.policies)}")
            self._check(repr(agent), self.policies[agent], policy.state_dict())
            policy.load_state_dict(dict(self.policies[agent]))
            given.add(id(policy))

    def give_critics(self, critics: Sequence[CriticLearner]) -> None:
        """Load the weights into critics of the same name. Raises `UnfitWeightsError` if the shapes differ."""
        for learner in critics:
            name = learner.agents[0]
            if name in self.critics and not isinstance(learner.critic, FittedCritic):
                kept = self.critics[name]
                self._check(f"the critic {name!r}", kept["critic"], learner.critic.state_dict())
                learner.critic.load_state_dict(dict(kept["critic"]))
                learner.moments = kept["moments"]

    def _check(self, owner: str, kept: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
        for name in sorted(own.keys() | kept.keys()):
            there, here = (f"of shape {tuple(each[name].shape)}" if name in each else "missing" for each in (kept, own))
            if there != here:
                raise UnfitWeightsError(
                    f"{self.source} has other weights for {owner}: {name} is {there} there and {here} in this "
                    "run; start from a run with the same models"
                )


def check_start(directory: Path) -> None:
    """Raise `UnfitWeightsError` if a run has no checkpoint to start from."""
    if not has_checkpoint(directory):
        raise UnfitWeightsError(
            f"{directory} has no checkpoint to start from; give a run of `collm train` with a checkpoint"
        )
