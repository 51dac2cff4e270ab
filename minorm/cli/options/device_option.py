"""`--device` names the device that computes: the CPU, or a GPU."""

from __future__ import annotations

import argparse
from typing import Any

from minorm import devices
from minorm.cli.terminal.one_line_errors import UsageError

DEVICE = "cpu"


def add(parser: argparse.ArgumentParser, *, default: str | None = DEVICE, note: str = "") -> None:
    """Declare the option.

    default  None if a file may also give the device
    note     a remark that is added to the help text
    """
    parser.add_argument(
        "--device", default=default, metavar="NAME", help=f"the device: {DEVICE} (default), cuda or cuda:1{note}"
    )


def add_to_a_reader(parser: argparse.ArgumentParser) -> None:
    """Declare the option for a command that opens a model. A model file does not determine the device."""
    add(parser, note="; the default is the CPU also for a model that was trained on a GPU")


def check(args: argparse.Namespace) -> None:
    """Raise UsageError if the name is not a device, and RuntimeError if this machine has no such device.

    Commands call this first, so that no work is lost.
    """
    try:
        devices.device_index(args.device)
    except (ValueError, RuntimeError) as error:
        kind: Any = UsageError if isinstance(error, ValueError) else RuntimeError
        said = str(error).removeprefix("cuda: ").removeprefix("device: ")
        raise kind(f"--device {args.device}: {said}") from None
