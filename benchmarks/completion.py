"""`collm completion bash|zsh|fish`: prints what a shell needs to complete commands, options and their values."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Literal, get_args, get_origin

from .._errors import UserError, nearest
from .._settings import Setting, settings_of

WORDS = "words"
USAGE = """\
usage: collm completion bash|zsh|fish

Print what a shell needs to complete commands, options and their values. The first line of the output says where to put
it, for bash:  eval "$(collm completion bash)"  in ~/.bashrc"""
SCRIPTS = {
    "bash": """\
# collm: bash completion; put it into ~/.bashrc:  eval "$(collm completion bash)"
_collm() {
  local IFS=$'\\n'
  COMPREPLY=($(collm completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
  [[ ${#COMPREPLY[@]} -gt 0 ]] || compopt -o default
}
complete -F _collm collm""",
    "zsh": """\
# collm: zsh completion; put it into ~/.zshrc after compinit:  eval "$(collm completion zsh)"
_collm() {
  local -a found
  found=("${(@f)$(collm completion words -- "${words[@]:1:$((CURRENT-1))}" 2>/dev/null)}")
  if [[ -n "${found[1]}" ]]; then compadd -a found; else _files; fi
}
compdef _collm collm""",
    "fish": """\
# collm: fish completion; put it into ~/.config/fish/completions/collm.fish
function __collm_words
  set -l words (commandline -opc) (commandline -ct)
  collm completion words -- $words[2..-1] 2>/dev/null
end
complete -c collm -a '(__collm_words)'""",
}


def run(args: Sequence[str], commands: Mapping[str, tuple[str, str]]) -> None:
    """Print a shell's script, or the words that could stand in place of the last one.

    Args:
        args: the shell, or "words -- …" with the words of the command line so far, the last of them unfinished.
        commands: module and summary of each command.

    Raises:
        UserError: if there is no script for the shell.
    """
    if args and args[0] == WORDS:
        typed = list(args[2:]) or [""]
        print("\n".join(word for word in possible(typed[:-1], commands) if word.startswith(typed[-1])))
        return
    if list(args) in (["-h"], ["--help"]):
        print(USAGE)
        return
    if len(args) != 1 or args[0] not in SCRIPTS:
        given = args[0] if args else ""
        raise UserError(f"collm completion takes the name of a shell, got {given!r}; {nearest(given, SCRIPTS)}")
    print(SCRIPTS[args[0]])


def possible(before: Sequence[str], commands: Mapping[str, tuple[str, str]]) -> list[str]:
    """Words that can follow others on the command line of `collm`; none where a file is as good."""
    if not before:
        return [*commands, "--help", "--version"]
    name, *others = before
    if name not in commands:
        return []
    if name == "completion":
        return [] if others else list(SCRIPTS)
    if name == "train" and not others:
        from ..algorithms.registry import algorithm_specs

        return [*(spec.name for spec in algorithm_specs()), "--config"]
    settings = _settings(commands[name][0], others)
    options = {f"--{each.replace('_', '-')}": setting for setting in settings for each in _names(setting)}
    last = others[-1] if others else ""
    if last in options:
        return _values(options[last])
    first = _ids() if name in ("check", "play") and not others else []
    return [*first, *options, "--help"]


def _settings(module: str, others: Sequence[str]) -> list[Setting]:
    """Settings of a command, those of nested classes too."""
    with contextlib.redirect_stdout(sys.stderr):
        loaded = importlib.import_module(module)
    kinds = [each for name, each in vars(loaded).items() if name.endswith("Arguments") and each.__module__ == module]
    found: list[Setting] = []
    for kind in kinds:
        for setting in settings_of(kind).values():
            inner = setting.hint
            if setting.name == "settings":
                inner = _config(others)
            found += settings_of(inner).values() if is_dataclass(inner) else [setting]  # type: ignore[arg-type]
    return found


def _config(others: Sequence[str]) -> Any:
    """Class of the settings of the algorithm that is named; None where none is."""
    from ..algorithms.registry import algorithm_specs

    return next((spec.config for spec in algorithm_specs() if others and spec.name == others[0]), None)


def _names(setting: Setting) -> tuple[str, ...]:
    return (setting.name, *setting.also)


def _values(setting: Setting) -> list[str]:
    """Values that a setting can have, where they can be counted."""
    known: dict[str, Callable[[], list[str]]] = {"env": _ids, "envs": _ids}
    if setting.name in known:
        return known[setting.name]()
    return [str(value) for value in _choices(setting.hint)]


def _choices(hint: Any) -> list[Any]:
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [choice for each in get_args(hint) for choice in _choices(each)]


def _ids() -> list[str]:
    from ..envs.registration.registry import specs

    return [spec.id for spec in specs()]
