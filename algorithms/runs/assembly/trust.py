"""Safety check of run folders from other authors: some settings need `--trust`.

Any text that could refer to code, a file or a server needs `--trust`. Exceptions are registered names, Hugging Face
model names and files inside the folder.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from ...._errors import UserError
from ...._json import explained_content, read_json
from ...._settings import settings_of
from ....agents.config import BAG_OF_WORDS, CHAT, TINY, ModelConfig
from ....agents.language.model_files import GGUF, unusual_setting
from ....agents.language.policy import ADAPTER_CONFIG_FILE
from ....agents.numeric.config import NetworkConfig
from ....agents.registry import registered_critic, registered_policy
from ....agents.tiny import STARTS, TINY_DIRECTORY
from ....envs.data import BUILTIN
from ....envs.games.sources import GENERATED
from ....envs.registration.registry import imports_module, registry
from ....envs.wrappers.reward_functions import OWN
from ...registry import algorithm_spec
from ..files import CONFIG_FILE, agents_folder, read_config, settings_file, write_config
from ..own_runs import is_own_run, note_own_run
from .experiment import Experiment, refuse_parts

MODELS = ("model", "critic_model_name_or_path", "reward_model")  # Settings whose values are names of models
HARMLESS = (
    *("difficulty_schedule", "agent_learning_rates", "lora_target_modules", "template_kwargs"),
    *("device", "critic_device", "reference_device"),
)
"""Free-text settings that cannot refer to code, files or servers."""
_CONFINED = ("auto", "A")  # values of isolation= that are not weaker than the default
_BUILT_IN_MODELS = (TINY, *STARTS, BAG_OF_WORDS, "small", "actor")
_HUB = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


class UntrustedCodeError(UserError):
    """Error for settings that refer to code, servers or files outside the run folder, if `--trust` is missing."""


def load_experiment(directory: Path, *, trust: bool = False, is_env_given: bool = False) -> Experiment:
    """Load the experiment of a run folder, which may be from another author.

    If the caller replaces the environment (`is_env_given`), the folder's environment is not checked. Raises
    `UntrustedCodeError` if a setting or a saved adapter needs `trust`, unless the run is this user's own. Raises
    `FileNotFoundError` or `ValueError` if the folder contains no run or settings are damaged.
    """
    saved = read_config(directory)
    refuse_parts(saved)
    experiment = Experiment.from_json(saved)
    if not trust:
        shown = {name: value for name, value in saved.items() if name not in ("env", "env_kwargs") or not is_env_given}
        if (reason := needs_trust(shown, directory)) and not is_own_run(file := settings_file(directory)):
            raise UntrustedCodeError(_message(file, reason))
        refuse_untrusted_models(directory)
    return experiment


def save_settings(directory: Path, config: Mapping[str, Any]) -> None:
    """Write the settings of a run. A new run of this user, and no run from elsewhere, becomes or stays an own run."""
    file = directory / CONFIG_FILE
    is_own = not file.exists() or is_own_run(file)
    write_config(directory, config)
    if is_own:
        note_own_run(file)


def _message(file: Path, reason: str) -> str:
    return f"{file} {reason}; if you trust this folder, add --trust (trust=True)"


def needs_trust(saved: Mapping[str, Any], directory: Path | None = None) -> str | None:
    """Return the reason why parts of a config.json need `--trust`, or None. Files in `directory` are allowed."""
    return next(_reasons(saved, directory), None)


def refuse_untrusted_models(directory: Path) -> None:
    """Raise `UntrustedCodeError` if a saved adapter has a base model outside the folder, or unknown settings.

    Unknown settings of peft can refer to modules to import and files to read. Own runs may have any base model.
    """
    is_own = is_own_run(settings_file(directory))
    for file in sorted(agents_folder(directory).glob(f"*/{ADAPTER_CONFIG_FILE}")):
        saved = read_json(file)
        base = None if is_own else saved.get("base_model_name_or_path")
        reason = None if base is None else _model_reason("base_model_name_or_path", base, directory)
        if reason is None and (unusual := unusual_setting(saved)):
            reason = f"has {unusual}, which collm does not save and which may refer to code or files"
        if reason is not None:
            raise UntrustedCodeError(_message(file, reason))


def _reasons(saved: Mapping[str, Any], directory: Path | None) -> Iterator[str]:
    env, env_kwargs = saved.get("env"), saved.get("env_kwargs", {})
    if env is not None and imports_module(env):
        yield f"has the environment {env!r}, which imports and runs code that is not registered"
    for name, value in env_kwargs.items():
        if reason := _argument_reason(str(env), name, value, directory):
            yield f"has the environment argument {name}={_short(value)}, {reason}"
    kinds: dict[str, type] = {"model": ModelConfig, "network": NetworkConfig}
    if "algorithm" in saved:
        kinds["config"] = algorithm_spec(saved["algorithm"]).config
    for part, kind in kinds.items():
        for name, value in saved.get(part, {}).items():
            setting = settings_of(kind).get(name)
            if setting is None or value is None or name in HARMLESS or not is_free_text(setting.hint):
                continue
            if name in MODELS:
                names = [each.strip() for each in str(value).split(",")]
                reasons = (_model_reason(name, each, directory) for each in names)
                yield from filter(None, reasons)
            elif setting.is_required or value != setting.default:
                yield f"has the setting {name}={_short(value)}, which may refer to a server or a file elsewhere"


def is_free_text(hint: Any) -> bool:
    """Return True if the type of a setting allows arbitrary text."""
    if get_origin(hint) is Literal:
        return False
    return hint in (str, Any, Path) or any(map(is_free_text, get_args(hint)))


def _argument_reason(env: str, name: str, value: Any, directory: Path | None) -> str | None:
    """Return the reason why an argument of an environment needs `--trust`. None: the argument is harmless."""
    if value is None:
        return None
    if name == "isolation":
        weaker = "which runs programs of the folder in a weaker sandbox than the default"
        return None if value in _CONFINED else weaker
    if name == "packages":
        return "which lets programs import installed packages" if value else None
    if name == "reward_funcs":
        judges = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else [value]
        return None if all(judge == OWN for judge in judges) else "which imports and runs code that is not registered"
    if name in ("data", "prompts"):
        places = value.values() if isinstance(value, Mapping) and name == "data" else [value]
        known = (BUILTIN, GENERATED) if name == "data" else ()
        named = [each for each in places if isinstance(each, str | Path) and each not in known]
        return None if all(_is_inside(each, directory) for each in named) else "which is not in the run folder"
    registered = registry.get(env)
    if registered is not None and str(registered.entry_point).startswith("collm.envs."):
        return None  # other arguments of collm's environments cannot refer to code or files
    return None if all(map(_is_plain, _texts(value))) else "which may refer to code, a file or a server"


def _model_reason(setting: str, name: Any, directory: Path | None) -> str | None:
    """Return the reason why the name of a model needs `--trust`. None: the name is harmless."""
    if not isinstance(name, str):
        return f"has {setting}={_short(name)}, which is not a model name"
    if name.startswith(CHAT):
        return f"sends texts to the chat server of {name!r}, and may send a secret key from an environment variable"
    if name in _BUILT_IN_MODELS or registered_policy(name) is not None or registered_critic(name) is not None:
        return None
    try:
        is_file = Path(name).suffix.lower() == GGUF
        is_hub_name = bool(_HUB.fullmatch(name)) and not is_file and not Path(name).exists()
        is_tiny = Path(name).resolve() in {TINY_DIRECTORY.resolve(), *(start.resolve() for start in STARTS.values())}
    except (OSError, ValueError):  # the name is too long, or has a null character
        is_hub_name = is_tiny = False
    if is_hub_name or is_tiny or _is_inside(name, directory):
        return None
    return f"has {setting}={_short(name)}, which is not in the run folder"


def _is_inside(place: str | Path, directory: Path | None) -> bool:
    """Return True if a path and all files below it are inside the run folder, after links are resolved."""
    if directory is None:
        return False
    try:
        path, root = Path(place).expanduser(), directory.resolve()
        return path.exists() and all(each.resolve().is_relative_to(root) for each in (path, *path.rglob("*")))
    except (OSError, ValueError, RuntimeError):  # path too long, null character, loop of links, unknown ~user
        return False


def _is_plain(text: str) -> bool:
    """True if a text cannot refer to a file, a module or a server."""
    return re.fullmatch(r"[\w .,+-]*", text) is not None and len(text) <= 100 and not (text and Path(text).exists())


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


_TRUSTING = ("resume", "evaluate", "chat", "replay")  # Commands that have the option `--trust`


def run_command(name: str, directory: Path, *options: str, env: str | None = None) -> str:
    """Return a command line for a run, with `--trust` if the settings need it and the run is not this user's own.

    With `env`, as for a replay, only this environment is checked for trust. None: all settings are checked.
    """
    words = ["collm", name, str(directory), *options]
    if name in _TRUSTING:
        with suppress(FileNotFoundError, UserError), explained_content(directory):  # the command will report the error
            saved = read_config(directory) if env is None else {"env": env}
            if needs_trust(saved, directory) is not None and not is_own_run(settings_file(directory)):
                words.append("--trust")
    return shlex.join(words)


def next_commands(directory: Path) -> str:
    commands = [run_command(name, directory) for name in ("report", "evaluate", "chat")]
    return ", ".join([*commands, run_command("export", directory, "OUT")])
