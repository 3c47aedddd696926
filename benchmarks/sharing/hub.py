"""Upload of runs to the Hugging Face hub, and download. Downloads contain no code and no pickled files.

A model repository has the layout of a run folder:

config.json         settings of the run, without local paths
agents/<agent>/     model or adapter, and tokenizer
metrics.jsonl       also evaluation.jsonl
README.md           model card

The dataset repository with the suffix `-episodes` contains episodes.jsonl and a card for `datasets.load_dataset`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..._errors import UserError
from ..._json import explained_content, read_json
from ..._ownership import new_folder, note, refuse_full_folder
from .export import ADAPTER, CARD, EPISODES, REPOSITORY, SharedRun, dataset_card

SHARED_FILES = ["*.json", "*.jsonl", "*.safetensors", "*.md", "*.txt", "*.jinja", "*.model"]
"""Patterns of the files that are uploaded and downloaded. None of these formats can contain Python code or pickles."""


HUB_TIMEOUT_S = 60.0  # seconds without an answer after which an attempt fails


def push(
    directory: Path,
    repo: str,
    *,
    private: bool = False,
    license: str | None = None,
    base_model: str | None = None,
    dry_run: bool = False,
    trust: bool = False,
) -> str:
    """Upload the team of a run to a model repository, and its episodes to the dataset repository `repo`-episodes.

    Returns:
        The address of the model repository. With `dry_run`, nothing is uploaded: the model card and a list of files.

    Raises:
        UserError: if a file cannot be uploaded, or a repository is public although `private` is True.
    """
    from huggingface_hub import HfApi  # late import: help needs no hub

    from ...algorithms.runs.files import explained

    check_name(repo)
    with TemporaryDirectory(prefix="collm-push-") as folder:
        opened = SharedRun.opened(directory, None, base_model, trust=trust)
        with explained(Path(folder)), explained_content(directory), opened as shared:
            license_id = license or (None if dry_run else license_of(shared))
            write_upload(shared, Path(folder), repo, license_id, trust=trust)
        names = {"model": repo, "dataset": f"{repo}-episodes"}
        kinds = sorted(names.keys() & {path.name for path in Path(folder).iterdir()}, reverse=True)
        if dry_run:
            files = [f"{kind} {names[kind]}: {name}" for kind in kinds for name in shared_files(Path(folder, kind))]
            return "\n".join([Path(folder, "model", CARD).read_text("utf-8"), *files])
        with hub_errors(repo):
            api, urls = HfApi(), {}
            for kind in kinds:
                name = names[kind]
                urls[kind] = api.create_repo(name, repo_type=kind, private=private or None, exist_ok=True)
                is_private = bool(api.repo_info(name, repo_type=kind).private)
                if private and not is_private:
                    raise UserError(f"{name!r} exists and is public; make it private on the hub, or remove --private")
                private = is_private  # the episodes of a private team are private
            for kind in kinds:
                api.upload_folder(
                    repo_id=names[kind],
                    repo_type=kind,
                    folder_path=Path(folder, kind),
                    commit_message="Upload a team of collm",
                    allow_patterns=SHARED_FILES,
                )
            return str(urls["model"])


def write_upload(shared: SharedRun, target: Path, repo: str, license_id: str | None, *, trust: bool) -> None:
    """Write the folders `model` and `dataset`, the latter only if the run has episodes.

    Adapters of a local base model are merged into a copy of it, unless the base model is given a name.
    """
    from ...algorithms.runs.assembly.trust import refuse_untrusted_models  # late imports: help needs no torch
    from ...algorithms.runs.checkpoint import RECORDS
    from ...algorithms.runs.files import write_config

    if not trust:
        refuse_untrusted_models(shared.directory)
    model, dataset = target / "model", target / "dataset"
    for agent, folder in shared.models.items():
        file = folder / ADAPTER
        base = read_json(file).get("base_model_name_or_path") if file.is_file() else None
        is_merged = base is not None and Path(str(base)).exists() and shared.base_model is None
        shared.export(agent, model / "agents" / agent, is_merged=is_merged)
    write_config(model, shared.public_config)
    for file in (shared.directory / name for name in RECORDS):
        if file.is_symlink():
            raise UserError(f"{file} is a symbolic link; replace the link by the file")
        if file.name == EPISODES and file.is_file() and file.stat().st_size:
            dataset.mkdir()
            shutil.copyfile(file, dataset / EPISODES)
            (dataset / CARD).write_text(dataset_card(repo, license_id), encoding="utf-8")
        elif file.name != EPISODES and file.is_file():
            shutil.copyfile(file, model / file.name)
    datasets = [f"{repo}-episodes"] if dataset.is_dir() else None
    text = shared.card(repo, library_name="collm", license=license_id, datasets=datasets)
    (model / CARD).write_text(text, encoding="utf-8", errors="backslashreplace")


def shared_files(folder: Path) -> list[str]:
    """Return the paths of the files in a folder that are uploaded and downloaded, relative to the folder."""
    from huggingface_hub.utils import filter_repo_objects

    found = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file()]
    return list(filter_repo_objects(found, allow_patterns=SHARED_FILES))


def license_of(shared: SharedRun) -> str | None:
    """Return the license in the model card of a run's base model. None: several base models, or unknown."""
    from huggingface_hub import ModelCard

    if len(shared.bases) != 1:
        return None
    try:
        with hub_errors(shared.bases[0]):
            found = ModelCard.load(shared.bases[0]).data.license
    except (OSError, ValueError):  # no card, an invalid card, or no access
        return None
    return found if isinstance(found, str) else None


def pull(repo: str, out: Path) -> None:
    """Download a team into a new folder, which has the layout of a run folder."""
    from ...algorithms.runs.files import explained, read_config

    check_name(repo)
    refuse_full_folder(out)
    source = downloaded(repo)
    read_config(source)  # raises an error if the repository is not a team
    names = shared_files(source)
    with explained(out), new_folder(out) as new:
        for name in names:
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, new / name)  # copies the file, because the cache contains links
        note(new, names)


def run_folder(directory: Path, *, trust: bool) -> Path:
    """Return the folder of a run. A hub name, owner/name without a folder `owner`, is downloaded to the hub's cache."""
    name = directory.as_posix()
    if directory.exists() or directory.parent.exists() or not REPOSITORY.fullmatch(name):
        return directory
    if trust:
        raise UserError(f"--trust is not allowed for {name} from the hub; run collm pull, and read its files")
    return downloaded(name)


@lru_cache
def downloaded(repo: str) -> Path:
    """Download the shared files of a repository to the hub's cache, and return their folder."""
    from huggingface_hub import snapshot_download

    with hub_errors(repo):
        return Path(snapshot_download(repo, allow_patterns=SHARED_FILES))


def check_name(repo: str) -> None:
    from huggingface_hub.utils import validate_repo_id

    with hub_errors(repo):
        validate_repo_id(repo)
    if not REPOSITORY.fullmatch(repo):
        raise UserError(f"REPO {repo!r} is not a repository of the hub; give owner/name")


@contextmanager
def hub_errors(repo: str) -> Iterator[None]:
    """Convert errors of the hub to `UserError`, and limit the time without an answer."""
    from huggingface_hub import constants, errors
    from huggingface_hub.utils import get_session

    session = get_session()
    if _limit_time not in session.event_hooks["request"]:
        session.event_hooks = {**session.event_hooks, "request": [*session.event_hooks["request"], _limit_time]}
    try:
        yield
    except errors.HFValidationError as error:
        raise UserError(f"REPO {repo!r} is not a name of the hub: {error}") from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(
            f"the hub has no repository {repo!r} that you may read; correct the name, or log in: hf auth login"
        ) from error
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError, errors.HTTPError) as error:
        cause = error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) else error
        if isinstance(cause, errors.HfHubHTTPError):
            raise UserError(
                f"the hub failed for {repo!r}: {_line(cause)}; to log in: hf auth login, or set HF_TOKEN"
            ) from error
        raise UserError(
            f"{repo!r} needs the hub, which cannot be reached; check the name, the connection and HF_HUB_OFFLINE "
            f"({_line(cause)})"
        ) from error
    except (UserError, OSError):
        raise
    except Exception as error:  # huggingface_hub can raise any exception for a malformed answer
        raise UserError(
            f"{constants.ENDPOINT} did not answer as a hub for {repo!r}; check HF_ENDPOINT and the connection "
            f"({_line(error)})"
        ) from error


def _line(error: BaseException | None) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _limit_time(request: Any) -> None:
    limits = request.extensions.get("timeout", {})
    names = ("connect", "read", "write", "pool")
    request.extensions["timeout"] = {name: limits.get(name) or HUB_TIMEOUT_S for name in names}
