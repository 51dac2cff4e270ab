"""Limits how much memory reading a file may take: one number for each format; docs/security.md has a table.

A limit counts decoded bytes: the bytes of the resulting arrays or pixels, not of the file. A reader checks the limit
before it allocates anything. The argument `max_bytes` of a reader, or the option `--max-bytes` of a command, replaces
the limit.
"""

from __future__ import annotations

MIB = 1 << 20
GIB = 1 << 30

PT = 2 * GIB  # or the file's length, if this is more, because a file of plain arrays is safe at any size
NPZ = 2 * GIB  # or the file's length
IDX = GIB
IMAGE = 512 * MIB
ONNX = 2 * GIB

CODE = 16 * MIB  # of a FILE.py that builds a model
LOG = 4 * MIB  # of a run's log.csv: 40,000 epochs
HEADER = 100_000_000  # of a safetensors file; the safetensors library refuses more

# Before a reader knows that a file is whole, it may take FACTOR times the file's length plus SPARE.
# If decoding takes more memory, a first pass decodes piece by piece and keeps nothing.
FACTOR = 32
SPARE = 32 * MIB


def spare(length: int) -> int:
    """Return how many bytes a reader may allocate before it knows that a file of this length is complete."""
    return FACTOR * length + SPARE


def too_large(what: str, decoded: int, most: int) -> str:
    """Return the text of an error: the bytes needed, the limit, and how to raise the limit."""
    return f"{what} {decoded:,} bytes, more than max_bytes={most}; {raised(decoded)}"


def raised(most: int) -> str:
    """Return the text that says how to raise a limit."""
    return f"pass max_bytes={most}, or --max-bytes {most} to a command"
