"""Kernels compiled for devices that are not here: NVRTC needs no driver, and tells of registers and spills."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

try:
    import nvidia
    from cupy.cuda import nvrtc
except ImportError:
    nvrtc = None

WIDEST = "sm_90"  # of which every type and option is compiled
REGISTERS = 1 << 16  # of a multiprocessor, so of a block


def _includes() -> list[str]:
    roots = [Path(root) for root in nvidia.__path__]
    return [f"-I{path.parent}" for root in roots for path in root.glob("**/include/cuda_fp16.h")]


available = nvrtc is not None and bool(_includes())


def _architectures() -> tuple[str, ...]:
    """One of each generation that this NVRTC knows, from Volta, which 13 forgot, to Blackwell, which 12.8 learned."""
    version = nvrtc.getVersion() if available else (0, 0)
    known = {"sm_70": version < (13, 0), "sm_75": True, "sm_80": True, WIDEST: True, "sm_100": version >= (12, 8)}
    return tuple(name for name, is_known in known.items() if is_known)


ARCHITECTURES = _architectures()


class Resources(NamedTuple):
    """The resources of a device that one kernel takes."""

    name: str
    registers: int
    spilled: int  # bytes, stores and loads
    stack: int  # bytes of a thread's arrays that are not in registers
    shared: int  # bytes

    def fits(self, threads: int) -> bool:
        """Does a block of so many threads find its registers? A thread is given eight at a time."""
        return -(-self.registers // 8) * 8 * threads <= REGISTERS


def resources(
    code: str, names: list[str], architecture: str, options: tuple[str, ...] = ("-std=c++17", "-default-device")
) -> list[Resources]:
    """Compile these instances; an error of the compiler is an AssertionError with its words."""
    program = _compiled(code, names, architecture, options)
    try:
        return _told(program, names)
    finally:
        nvrtc.destroyProgram(program)


def _told(program: Any, names: list[str]) -> list[Resources]:
    """Return what the compiler's log tells of each kernel."""
    lowered = {nvrtc.getLoweredName(program, name): name for name in names}
    log = nvrtc.getProgramLog(program)
    found = []
    for part in log.split("Compiling entry function")[1:]:
        symbol = re.search(r"'(\w+)'", part)[1]
        spills = [int(n) for n in re.findall(r"(\d+) bytes spill", part)]
        stack = re.search(r"(\d+) bytes stack frame", part)
        shared = re.search(r"(\d+) bytes smem", part)
        registers = int(re.search(r"Used (\d+) registers", part)[1])
        name = lowered.get(symbol, symbol)
        found.append(Resources(name, registers, sum(spills), int(stack[1]), int(shared[1]) if shared else 0))
    assert len(found) >= len(names), log
    return found


class Flight(NamedTuple):
    """Loads from global memory that a thread has on their way at once: instructions and bytes."""

    loads: int
    bytes: int


def arithmetic(code: str, name: str, options: tuple[str, ...]) -> list[str]:
    """The sums, products, quotients and roots of floats in a kernel's PTX, in order: ["mul.rn.ftz.f32", ...]."""
    program = _compiled(code, [name], "compute_80", options)
    try:
        found = nvrtc.getPTX(program)
    finally:
        nvrtc.destroyProgram(program)
    text = found.decode() if isinstance(found, bytes) else found
    return re.findall(r"\b(?:add|sub|mul|fma|div|sqrt)\.(?:[a-z]+\.)*f(?:32|64)\b", text)


def _compiled(
    code: str, names: list[str], architecture: str, options: tuple[str, ...] = ("-std=c++17", "-default-device")
) -> Any:
    program: Any = nvrtc.createProgram(code, "kernel.cu", (), ())
    for name in names:
        nvrtc.addNameExpression(program, name)
    chosen = (f"--gpu-architecture={architecture}", *options, "-ftz=true", *_includes())
    if architecture.startswith("sm"):
        chosen += ("--ptxas-options=-v",)
    try:
        nvrtc.compileProgram(program, chosen)
    except nvrtc.NVRTCError:
        raise AssertionError(nvrtc.getProgramLog(program)) from None
    return program


def loads_in_flight(code: str, name: str) -> int:
    """Loads from global memory that a kernel has on their way before it uses the first of them, at best.

    Read from the machine code, by nvdisasm: the order of PTX is not the one in which a device loads.
    """
    ((_, flight),) = examined(code, [name], WIDEST)
    return flight.loads


def disassembled(code: str, name: str) -> str:
    """The machine code of a kernel for the architecture WIDEST, as text."""
    program = _compiled(code, [name], WIDEST)
    try:
        return _machine_code(program)
    finally:
        nvrtc.destroyProgram(program)


def examined(
    code: str, names: list[str], architecture: str, options: tuple[str, ...] = ("-std=c++17", "-default-device")
) -> list[tuple[Resources, Flight]]:
    """Compile these instances together; return the resources of each, and its loads in flight."""
    program = _compiled(code, names, architecture, options)
    try:
        told = {one.name: one for one in _told(program, names)}
        symbols = {name: nvrtc.getLoweredName(program, name) for name in names}
        text = _machine_code(program)
    finally:
        nvrtc.destroyProgram(program)
    heads = re.split(r"^\s*\.section\s+\.text\.([^,\s]+).*$", text, flags=re.MULTILINE)
    texts = dict(zip(heads[1::2], heads[2::2], strict=True))
    return [(told[name], flight(texts[symbols[name]])) for name in names]


def _machine_code(program: Any) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(nvrtc.getCUBIN(program) + b"\0")  # CuPy cuts off the last byte, as of a text
        file.flush()
        return subprocess.run([disassembler, "-c", file.name], capture_output=True, text=True, check=True).stdout


def _disassembler() -> str | None:
    roots = [Path(root) for root in nvidia.__path__]
    return next((str(p) for root in roots for p in root.glob("**/bin/nvdisasm")), shutil.which("nvdisasm"))


disassembler = _disassembler() if available else None  # nvidia-cuda-nvdisasm brings it


def most_in_flight(assembly: str) -> int:
    """Return the instructions of `flight`."""
    return flight(assembly).loads


def flight(assembly: str) -> Flight:
    """Find the longest run of loads, in the order of the text, none of which is used before the last is under way."""
    most, now, pending = Flight(0, 0), Flight(0, 0), set[str]()
    for line in assembly.splitlines():
        found = re.search(r"(?:\*/|^)\s*(?:@!?[U%]*[Pp]\w+ )?\s*([A-Za-z][\w.]*)\s+(.*?);", line)
        if not found:
            continue
        name, operands = found.groups()
        result, _, others = operands.partition("}," if operands.startswith("{") else ",")
        if name.startswith(("ST", "st.")):
            others = operands
        if pending & set(re.findall(r"\bR\d+\b|%[a-z]+\d+", others)):
            pending, now = set(), Flight(0, 0)
        if name.startswith(("LDG", "ld.global")):
            now = Flight(now.loads + 1, now.bytes + _width(name))
            most = max(most, now)
            pending |= set(re.findall(r"%[a-z]+\d+", result))
            if register := re.fullmatch(r"R(\d+)", result):
                pending |= {f"R{int(register[1]) + i}" for i in range(max(1, _width(name) // 4))}
    return most


def _width(name: str) -> int:
    """Return the bytes that one load of this name brings: LDG.E.128.CONSTANT 16, LDG.E.U8 1, LDG.E 4."""
    for part in name.split("."):
        if bits := re.fullmatch(r"[USBF]?(8|16|32|64|128)", part):
            return int(bits[1]) // 8
    return 4
