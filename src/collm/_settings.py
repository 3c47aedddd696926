"""Docstrings, groups and aliases of settings for help texts, read from the source code of settings dataclasses.

    @dataclass(frozen=True, kw_only=True)
    class Settings(Checked):
        # Optimizing.

        num_updates: Annotated[Count, Also("max_steps")] = 100
        \"\"\"Number of updates.\"\"\"

A one-line comment starts a group of settings. The group of settings before the first comment is named after the class.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from types import MappingProxyType
from typing import Any

from ._errors import UserError, nearest
from ._lazy import parse
from ._ranges import ADVANCED, Also, Parts, allowed


class UnknownSettingError(UserError, TypeError):
    """Error for a name that is not a setting."""


_TITLE = re.compile(r"    # ([A-Z][^.]*)\.\s*$")


@dataclass(frozen=True)
class Setting:
    """One field of a settings class."""

    name: str
    hint: Any  # Type, with its range
    field: Field[Any]
    text: str  # Docstring, joined to one line; empty if the field has none
    group: str  # Title of the group that contains the setting
    also: tuple[str, ...]  # Aliases, such as the names of this setting in other libraries
    parts: tuple[str, ...]  # Names of the items of a tuple setting; empty for other settings

    @property
    def is_advanced(self) -> bool:
        return ADVANCED in getattr(self.hint, "__metadata__", ())

    @property
    def is_required(self) -> bool:
        return self.field.default is MISSING and self.field.default_factory is MISSING

    @property
    def default(self) -> Any:
        factory = self.field.default_factory
        return self.field.default if factory is MISSING else factory()


FOREIGN_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "batch_size": "use rollout_buffer_size (episodes per update) or mini_batch_size (episodes per optimizer step)",
        "num_train_epochs": "use num_updates, updates of rollout_buffer_size episodes each: there are no epochs, tasks "
        "are sampled",
        "per_device_train_batch_size": "use mini_batch_size (episodes per optimizer step) or max_batch_tokens (tokens "
        "per forward pass)",
        "reward_weights": "give them to the environment: --env-kwargs 'reward_weights=[1, 0.5]'",
        "run_name": "use the environment variable WANDB_NAME",
        "steps": "use num_updates",
    }
)
"""Name of a setting in other libraries -> end of the error message if the name is given."""


def settings_of(kind: type) -> Mapping[str, Setting]:
    """Return a dict name -> `Setting`, in field order. The docstring is that of the first base class with the field."""
    hashable: Any = kind  # mypy does not accept dataclasses as hashable
    return _settings_of(hashable)


@cache
def _settings_of(kind: Any) -> Mapping[str, Setting]:
    hints = allowed(kind)
    texts: dict[str, tuple[str, str]] = {}
    for base in reversed(kind.__mro__):
        if "__dataclass_fields__" in vars(base):
            for name, declared in _declared(base).items():
                texts.setdefault(name, declared)
    found = {}
    for each in fields(kind):
        text, group = texts.get(each.name, ("", kind.__name__))
        hint = hints[each.name]
        found[each.name] = Setting(each.name, hint, each, text, group, _names(hint, Also), _names(hint, Parts))
    return found


def sorted_out(given: Mapping[str, Any], kinds: Iterable[type], where: str, listed: str = "") -> list[dict[str, Any]]:
    """Assign each value to the first settings class with a setting of its name. Returns a dict of values per class.

    Args:
        given: name -> value. Names of settings, aliases, and names of items of tuple settings are allowed.
        kinds: settings classes.
        where: source of the values, with which error messages begin.
        listed: hint in the error message if no name is similar, such as the command that lists all names.

    Raises `UnknownSettingError` if no class has the setting, and `UserError` if one setting is given by two names.
    """
    classes = list(kinds)
    owners: dict[str, tuple[int, Setting]] = {}
    for number, kind in enumerate(classes):
        for setting in settings_of(kind).values():
            for name in (setting.name, *setting.also, *setting.parts):
                owners.setdefault(name, (number, setting))
    found: list[dict[str, Any]] = [{} for _ in classes]
    single: dict[str, dict[str, Any]] = {}  # setting -> item name -> value
    written: dict[tuple[int, str], str] = {}  # setting -> name in `given`
    for name, value in given.items():
        if name not in owners:
            near = nearest(name, owners)
            hint = near if near.startswith("did you mean") or not listed else listed
            raise UnknownSettingError(f"{where} has no setting {name!r}; {FOREIGN_NAMES.get(name, hint)}")
        number, setting = owners[name]
        first = written.setdefault((number, setting.name), name)
        if first != name and not (name in setting.parts and setting.name in single):
            raise UserError(f"{where} gives {setting.name!r} twice, as {first!r} and as {name!r}; give only one")
        if name in setting.parts:
            values = single.setdefault(setting.name, {})
            values[name] = value
            value = tuple(values.get(part, each) for part, each in zip(setting.parts, setting.default, strict=True))
        found[number][setting.name] = value
    return found


def _declared(kind: type) -> dict[str, tuple[str, str]]:
    """Return a dict field -> (docstring, group) for the fields declared in a class, without its base classes."""
    try:
        lines, _ = inspect.getsourcelines(kind)
    except (OSError, TypeError):  # defined in an interactive session without source
        return {}
    indent = len(lines[0]) - len(lines[0].lstrip())
    lines = [line[indent:] for line in lines]
    tree = parse("".join(lines)).body[0]
    assert isinstance(tree, ast.ClassDef)
    titles = {number: match[1] for number, line in enumerate(lines, 1) if (match := _TITLE.match(line))}
    found = {}
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            group = next((titles[number] for number in range(node.lineno, 0, -1) if number in titles), kind.__name__)
            found[node.target.id] = (_text(after), group)
    return found


def _text(node: ast.stmt | None) -> str:
    value = node.value if isinstance(node, ast.Expr) else None
    is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
    return " ".join(value.value.split()) if is_text else ""  # type: ignore[union-attr]


def _names(hint: Any, kind: type[Also]) -> tuple[str, ...]:
    metadata = getattr(hint, "__metadata__", ())
    return tuple(name for each in metadata if type(each) is kind for name in each.names)
