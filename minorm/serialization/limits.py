"""How much memory a file may take when it is read: one number for each format; docs/security.md has the table.

A limit counts decoded bytes: those of the arrays or pixels that come out, not those of the file. A reader checks it
before it makes anything. `max_bytes` of the reader, or `--max-bytes` of a command, replaces it.
"""

from __future__ import annotations

MIB = 1 << 20
GIB = 1 << 30

PT = 2 * GIB  # or the file's length, where that is more: a file of plain arrays is no bomb, however large
NPZ = 2 * GIB  # or the file's length
IDX = GIB
IMAGE = 512 * MIB
ONNX = 2 * GIB

CODE = 16 * MIB  # of a FILE.py that builds a model
LOG = 4 * MIB  # of a run's log.csv: 40,000 epochs
HEADER = 100_000_000  # of a safetensors file; the safetensors library refuses more

# What a reader may take for a file before it knows that the file is whole: FACTOR times its length and SPARE.
# Where decoding takes more, a first pass decodes piece by piece and keeps nothing.
FACTOR = 32
SPARE = 32 * MIB


def spare(length: int) -> int:
    """The bytes that may be taken for a file of this length before it is known to be whole."""
    return FACTOR * length + SPARE


def too_large(what: str, decoded: int, most: int) -> str:
    """Text of an error: what was asked for, the limit, and how to raise it."""
    return f"{what} {decoded:,} bytes, more than max_bytes={most}; {raised(decoded)}"


def raised(most: int) -> str:
    """Text of an error: how to raise a limit."""
    return f"pass max_bytes={most}, or --max-bytes {most} to a command"
