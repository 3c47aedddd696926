"""Command-line parser for settings classes: grouped options, with aliases as in other libraries."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, make_dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin

from .._errors import UserError
from .._ranges import Checked, Needs, bare
from .._settings import FOREIGN_NAMES, Setting, settings_of

Arguments = TypeVar("Arguments")
HELP_ALL = "--help-all"
PYTHON = {"True": True, "False": False, "None": None}


@dataclass(frozen=True, kw_only=True)
class TrustArguments(Checked):
    """Base class of the arguments of commands that read the settings of a run."""

    trust: bool = False
    """Allow settings of a run from elsewhere that import code, loosen the sandbox, or refer to files and servers
    outside of its folder. Only for folders whose author you trust."""


def parsed(
    kind: type[Arguments],
    command: str,
    args: Sequence[str],
    *,
    nested: Mapping[str, type] | None = None,
    leading: Sequence[str] = (),
    left_out: Sequence[str] = (),
    given: Mapping[str, Any] | None = None,
    examples: Sequence[str] = (),
) -> Arguments:
    """Parse arguments into a dataclass. The fields of nested dataclasses become options without a prefix.

    --help shows the settings that are not advanced, --help-all shows all settings.

    Args:
        command: name of the command, and of the algorithm if `kind` depends on it.
        nested: classes of fields with a generic annotation.
        leading: settings that --help shows first.
        left_out: settings of nested dataclasses that are not options and keep their defaults.
        given: values that replace defaults, for example from a file.
    """
    import tyro  # late import, because it is slow

    inside = nested_classes(kind) | dict(nested or {})
    settings = {name: each for name, each in settings_of(kind).items() if name not in inside}
    for other in inside.values():
        settings |= {name: each for name, each in settings_of(other).items() if name not in left_out}
    shown, about, args = settings, " ".join((kind.__doc__ or "").split()), list(args)
    if HELP_ALL in args:
        args = ["--help"]
    elif {"-h", "--help"} & set(args):
        shown = {name: each for name, each in settings.items() if not each.is_advanced}
        if num_hidden := len(settings) - len(shown):
            about += f"\n\n`collm {command} {HELP_ALL}` shows {num_hidden} more options."
    form = _form(shown, leading, given or {})
    if examples:
        about += "\n\nexamples:\n" + "\n".join(f"  {example}" for example in examples)
    _refuse_empty_paths([each for each in settings.values() if "Path" in str(each.hint)], args)
    if inside:
        _refuse_foreign_names(command, settings.values(), args)
        args = _with_whole_tuples(settings.values(), given or {}, args)
    args = _with_lists(settings.values(), _with_flags(settings.values(), args))
    options = (tyro.conf.OmitArgPrefixes,)
    filled: Any = tyro.cli(form, prog=f"collm {command}", description=about, args=list(args), config=options)
    values = {name: value for group in vars(filled).values() for name, value in vars(group).items()}
    parts = {
        name: other(**{each: values[each] for each in settings_of(other) if each not in left_out})
        for name, other in inside.items()
    }
    own = {name: values[name] for name in settings_of(kind) if name not in inside}
    arguments = kind(**own, **parts)
    _check_options(arguments, inside, args)
    return arguments


def nested_classes(kind: type) -> dict[str, type]:
    """Return the fields of a dataclass whose types are dataclasses, as a dict from field name to type."""
    return {
        name: bare(each.hint)
        for name, each in settings_of(kind).items()
        if isinstance(bare(each.hint), type) and is_dataclass(bare(each.hint))
    }


def keyword_arguments(pairs: Sequence[str], option: str = "--env-kwargs") -> dict[str, Any]:
    """Parse `key=value` pairs. Values are JSON, True, False or None, otherwise strings.

    Raise UserError for a pair without "=", and for a key that occurs twice."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise UserError(f"{option} takes key=value pairs, got {pair!r}; write for example key=4")
        if key in found:
            raise UserError(f"{option} has {key!r} twice; give it once")
        try:
            found[key] = PYTHON[value] if value in PYTHON else json.loads(value)
        except (ValueError, RecursionError):  # not JSON, too many digits, or too many nested levels
            found[key] = value
    return found


def option_names(args: Sequence[str]) -> frozenset[str]:
    """Return the names of the settings in a command line, as they are written there (possibly aliases)."""
    names = {_name_of(word) for word in args} - {""}
    return frozenset(names | {name.removeprefix("no_") for name in names})


def _check_options(arguments: Any, inside: Mapping[str, type], args: Sequence[str]) -> None:
    """Raise UserError for an option without effect (`Needs`), and for a list that contains a text or path twice."""
    words = option_names(args)
    for name, setting in settings_of(type(arguments)).items():
        owner = getattr(arguments, name) if name in inside else arguments
        for option in settings_of(inside[name]).values() if name in inside else [setting]:
            value, is_positional = getattr(owner, option.name), "Positional" in str(option.hint)
            is_default = value == option.default and (is_positional or isinstance(value, bool))
            if is_default or not (is_positional or words & {option.name, *option.also}):
                continue
            items = value if isinstance(value, tuple) else () if isinstance(value, bool) else (value,)
            option_name = option.name.upper() if is_positional else f"--{option.name.replace('_', '-')}"
            given = " ".join(map(str, [option_name, *items]))
            for condition in getattr(setting.hint, "__metadata__", ()):  # of a nested class: of all its options
                if isinstance(condition, Needs) and not condition.holds(arguments):
                    raise UserError(f"{given} needs {condition.text}; change this, or remove the option")
            same = [each.resolve() if isinstance(each, Path) else each for each in items]
            for number, each in enumerate(same):
                if each in same[:number] and isinstance(each, str | Path):
                    raise UserError(f"{given} has {str(items[number])!r} twice; give it once")


def _refuse_empty_paths(settings: Sequence[Setting], args: Sequence[str]) -> None:
    """Raise UserError for an empty path argument, because pathlib reads "" as the working directory."""
    options = {f"--{name.replace('_', '-')}" for each in settings for name in (each.name, *each.also)}
    has_positional = any("Positional" in str(each.hint) for each in settings)
    for before, word in pairwise(["", *args]):
        option = before if word == "" else word.removesuffix("=")
        is_empty = word == "" or option != word
        if is_empty and option.replace("_", "-") in options:
            raise UserError(f"{option} is empty; give a path, or . for this folder")
        if word == "" and has_positional and not before.startswith("-"):
            raise UserError("a path is empty; give a path, or . for this folder")


def _refuse_foreign_names(command: str, settings: Iterable[Setting], args: Sequence[str]) -> None:
    known = {name for each in settings for name in (each.name, *each.also)}
    for word in args:
        name = _name_of(word)
        instead = FOREIGN_NAMES.get(name)
        if instead and name not in known:
            raise UserError(f"collm {command} has no {word.partition('=')[0]}; {instead}")


def _with_whole_tuples(settings: Iterable[Setting], given: Mapping[str, Any], args: Sequence[str]) -> list[str]:
    """Replace options for one element of a tuple, such as --adam-beta1 0.8, by the option of the tuple."""
    words = list(args)
    for setting in (each for each in settings if each.parts):
        values = list(given.get(setting.name, setting.default))
        found = [place for place, word in enumerate(words) if _name_of(word) in setting.parts]
        if found and any(_name_of(word) in (setting.name, *setting.also) for word in words):
            raise UserError(
                f"{words[found[0]].partition('=')[0]} is part of --{setting.name}; give only one of these options"
            )
        for place in reversed(found):
            option, equals, value = words.pop(place).partition("=")
            if not equals:
                if place == len(words):
                    raise UserError(f"{option} needs a value")
                value = words.pop(place)
            values[setting.parts.index(_name_of(option))] = value
        if found:
            words += [f"--{setting.name.replace('_', '-')}", *map(str, values)]
    return words


def _with_flags(settings: Iterable[Setting], args: Sequence[str]) -> list[str]:
    """Replace --name=True by --name, and --name=False by --no-name. W&B sweeps call programs with these forms.

    A setting that can also be None gets a value: --name and --no-name become --name=True and --name=False.
    """
    kinds = {name: (each.name, bare(each.hint)) for each in settings for name in (each.name, *each.also)}
    flags = {name: setting for name, (setting, kind) in kinds.items() if kind is bool}
    optional = {name for name, (_, kind) in kinds.items() if kind == bool | None}
    negations = {"true": "", "false": "no-"}
    words = []
    for word, following in zip(args, [*args[1:], ""], strict=False):
        name, (option, equals, value) = _name_of(word), word.partition("=")
        if name in flags and equals:
            if value.lower() not in negations:
                raise UserError(f"{option} is True or False, got {value!r}")
            word = f"--{negations[value.lower()]}{flags[name].replace('_', '-')}"
        elif name in optional and not equals and following not in PYTHON:
            word = f"{word}=True"
        elif name in optional and value.lower() in negations:
            word = f"{option}={value.capitalize()}"
        elif name.startswith("no_") and name.removeprefix("no_") in optional:
            word = f"--{name.removeprefix('no_').replace('_', '-')}=False"
        words.append(word)
    return words


def _with_lists(settings: Iterable[Setting], args: Sequence[str]) -> list[str]:
    """Replace --name=[64, 64] and --name "[64, 64]" by --name 64 64. W&B sweeps write lists in this form."""
    tuples = {name for each in settings if get_origin(bare(each.hint)) is tuple for name in (each.name, *each.also)}
    words: list[str] = []
    for word in args:
        option, _, value = word.partition("=")
        if _name_of(word) in tuples and value.startswith("["):
            words.append(option)
            word = value
        if not word.startswith("[") or not words or _name_of(words[-1]) not in tuples:
            words.append(word)
            continue
        try:
            words += map(str, ast.literal_eval(word))
        except (SyntaxError, ValueError) as error:
            raise UserError(f"{words[-1]} takes a list such as [64, 64], got {word!r}") from error
    return words


def _name_of(word: str) -> str:
    """Name of the setting that an option sets. Empty: the word is not an option."""
    return word.partition("=")[0].removeprefix("--").replace("-", "_") if word.startswith("--") else ""


def _form(settings: Mapping[str, Setting], leading: Sequence[str], given: Mapping[str, Any]) -> type:
    """Create the dataclass that tyro parses, with one nested dataclass per group of settings."""
    groups: dict[str, list[Setting]] = {"": [settings[name] for name in leading]}
    for name, setting in settings.items():
        if name not in leading:
            groups.setdefault(setting.group, []).append(setting)
    form = partial(make_dataclass, kw_only=True, repr=False, eq=False)
    fields: list[Any] = []
    for title, members in groups.items():
        if members:
            words = title.removesuffix("Config").removesuffix("Arguments") or "main"
            options = [_option(each, given) for each in members]
            inner = form(title or "Main", options, namespace={"__doc__": ""})
            fields.append((words.lower().replace(" ", "_"), inner))
    return form("Form", fields)


def _option(setting: Setting, given: Mapping[str, Any]) -> Any:
    import tyro

    also = tuple(f"--{name.replace('_', '-')}" for name in setting.also)
    is_required = setting.is_required and setting.name not in given
    value = None if is_required else given.get(setting.name, setting.default)
    described = tyro.conf.arg(
        help=setting.text,
        aliases=also or None,
        metavar=_metavar(setting.hint),
        help_behavior_hint="(default: none)" if value in ((), {}) else None,
    )
    hint = Annotated[setting.hint, described]  # type: ignore[name-defined]
    return (setting.name, hint) if is_required else (setting.name, hint, field(default_factory=lambda: value))


def _metavar(hint: Any) -> str | None:
    """Return INT for `int | None`, because tyro shows {None}|INT. None: tyro's text."""
    kinds = [each for each in get_args(bare(hint)) if each is not NoneType]
    kind = bare(kinds[0]) if len(kinds) == 1 else None
    return kind.__name__.upper() if kind in (int, float, str, Path) else None
