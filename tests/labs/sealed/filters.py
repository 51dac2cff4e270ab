"""Run a filter's instructions on a call, as the kernel runs them, and return the verdict."""

from __future__ import annotations

import platform
import struct
from collections.abc import Sequence

from minorm.labs.sealed import syscalls


def said(program: Sequence[bytes], name: str, arguments: tuple[int, ...] = ()) -> int:
    """Return the filter's value for a call of this name; a name in no list has the number 999."""
    number = (syscalls.numbers() | syscalls.starting()).get(name, 999)
    machine = syscalls.ARCHITECTURES[platform.machine()]
    data = struct.pack("=iIQ6Q", number, machine, 0, *(arguments + (0,) * 6)[:6])
    lines = [struct.unpack("=HBBI", line) for line in program]
    value = place = 0
    while True:
        code, yes, no, constant = lines[place]
        place += 1
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, constant)
        elif code == 0x06:
            return int(constant)
        else:
            test = {0x15: value == constant, 0x35: value >= constant, 0x45: bool(value & constant)}[code]
            place += yes if test else no
