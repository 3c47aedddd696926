"""`collm doctor [train ALGORITHM …]`: describe this machine, or list the memory of a training per phase."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Column, Table

from ...._errors import UserError
from ...._extras import FOR_TRAINING, install_command, require
from ...._terminal import terminal
from ...doctor import examined, machine
from ...errors import refusals


def run(args: Sequence[str]) -> None:
    try:
        options, rest = _parser().parse_known_args(list(args))
    except argparse.ArgumentError as error:
        raise UserError(f"{error}; `collm doctor --help` lists the options") from error
    if rest in (["-h"], ["--help"]):
        _parser().print_help()
        return
    if not rest:
        if options.memory or options.gpu or options.ranks != 1:
            raise UserError(
                "--memory, --gpu and --ranks need a training command; write collm doctor train ALGORITHM --env ID …"
            )
        _show_machine(options.json)
        return
    if rest[0] != "train" or len(rest) < 2:
        raise UserError(
            f"collm doctor {rest[0]!r} is not a training command; write collm doctor train ALGORITHM --env ID …"
        )
    _show_training(rest[1:], options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="collm doctor",
        description=__doc__,
        usage="collm doctor [options] [train ALGORITHM …]",
        allow_abbrev=False,
        add_help=False,
        exit_on_error=False,
    )
    parser.add_argument("--memory", help="memory of the device, such as 80GB or 24GiB; default: this machine's")
    parser.add_argument("--gpu", help="GPU type, such as h100; default: the device of this machine")
    parser.add_argument("--ranks", type=int, default=1, help="number of torchrun processes; memory is per process")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser


def _show_machine(is_json: bool) -> None:
    found = machine()
    if is_json:
        print(json.dumps(found, indent=2))
        return
    table = Table(show_header=False)
    table.add_row("versions", ", ".join(f"{name} {version}" for name, version in found["versions"].items()))
    for device in found["devices"]:
        said = [f"{device['kind']}, {_gib(device['memory'])} GiB"]
        said += [f"{_gib(device['free'])} GiB free"] if "free" in device else []
        said += [f"compute capability {device['compute_capability']}"] if "compute_capability" in device else []
        said += [f"{device['cores']} cores"] if "cores" in device else []
        table.add_row(device["name"], ", ".join(said))
    if not found["devices"]:
        table.add_row("training", escape(f"torch is not installed; install it: {install_command('train')}"))
    else:
        if len(found["devices"]) == 1:
            table.add_row("GPU", "none for torch")
        slower = "no C++ compiler, or kernels disabled: decoding on a CPU is slower"
        table.add_row("compiler", found["compiler"] or slower)
    extras = ", ".join(found["missing"])
    table.add_row("missing extras", escape(f"{extras} ({install_command('NAME')})") if extras else "none")
    table.add_row("sandbox", f"tier {found['sandbox']}")
    terminal().print(table)


def _show_training(args: Sequence[str], options: argparse.Namespace) -> None:
    require(*FOR_TRAINING)
    from ..train import experiment_of, training  # late import: the description of the machine needs no torch

    algorithm, arguments, given = training(list(args), "doctor train")
    with refusals():
        experiment = experiment_of(algorithm, arguments, given)
        report = examined(experiment, options.memory, options.gpu, options.ranks)
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        for device in report["devices"]:
            terminal().print(_table(device))
        print(report["verdict"])
    if not report["fits"]:
        raise SystemExit(2)


def _table(device: dict[str, Any]) -> Table:
    columns = [name for name in device["phases"][0] if name != "name"]
    table = Table(
        "GiB",
        *(Column(name, justify="right", no_wrap=True) for name in columns),
        title=f"{device['device']}: {_gib(device['memory'])} GiB usable",
        box=SIMPLE_HEAD,  # the table must fit into 80 columns
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    for phase in device["phases"]:
        table.add_row(phase["name"], *(_gib(phase[name]) for name in columns))
    return table


def _gib(amount: int) -> str:
    return f"{amount / 2**30:.1f}"
