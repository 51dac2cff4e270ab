"""Makes parts of HTML pages: a whole page that loads no other file, tables, lists, and PNG pictures inside the page."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from minorm.cli.views.page_style import STYLE
from minorm.cli.views.report_style import REPORT_STYLE
from minorm.support.safe_names import for_page

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(title: str, parts: Iterable[str]) -> str:
    """Return the whole page; the parts are HTML."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            f"<title>{for_page(title)}</title><style>{STYLE}{REPORT_STYLE}</style></head><body><main>",
            f"<h1>{for_page(title)}</h1>",
            *filter(None, parts),
            "</main></body></html>",
            "",
        ]
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    """Return a table whose last `numbers` columns are aligned to the right."""
    first = len(head) - numbers

    def line(tag: str, cells: Sequence[str]) -> str:
        kinds = [' class="number"' if i >= first else "" for i in range(len(cells))]
        return "".join(f"<{tag}{kind}>{for_page(c)}</{tag}>" for kind, c in zip(kinds, cells, strict=True))

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{line("th", head)}</tr></thead><tbody>{body}</tbody></table></div>'


def pairs(found: Iterable[tuple[str, str]]) -> str:
    """Return a list of names with their values."""
    items = "".join(f"<div><dt>{for_page(k)}</dt><dd>{for_page(v)}</dd></div>" for k, v in found)
    return f'<dl class="pairs">{items}</dl>'


def image(contents: bytes, alt: str) -> str:
    """Return a PNG file as an element of the page."""
    return f'<img alt="{for_page(alt)}" src="data:image/png;base64,{base64.b64encode(contents).decode()}">'


def png(image: Any) -> bytes:
    """Return bytes of shape channels x height x width as a PNG file."""
    channels, height, width = image.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each row begins with its filter, 0
    rows[:, 1:] = image.transpose(1, 2, 0).reshape(height, -1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data
