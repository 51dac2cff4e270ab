"""`minorm predict --html` writes thumbnails with label and probability; the least certain predictions come first.

The page shows only the MAX_PICTURES least certain predictions, so its size does not grow with the folder.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.cli.views import html_parts
from minorm.support.safe_names import for_page, printable

MAX_PICTURES = 1000  # pictures
SIDE = 64  # pixels of a thumbnail
MAX_BROKEN_NAMED = 100  # broken files named on the page


class PredictionsPage:
    """Collects rows one by one, and keeps the least certain predictions."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.labels = Counter[str]()
        self.kept: list[tuple[float, int, dict[str, Any], bytes]] = []  # a heap: the most certain first

    def add(self, row: dict[str, Any], pixels: Any) -> None:
        """Add a prediction; `pixels` is the picture as bytes, channels x size x size."""
        number = self.labels.total()
        self.labels[row["label"]] += 1
        if len(self.kept) < MAX_PICTURES or -row["probability"] > self.kept[0][0]:
            entry = (-row["probability"], -number, row, html_parts.png(thumbnail(pixels)))
            (heapq.heappush if len(self.kept) < MAX_PICTURES else heapq.heapreplace)(self.kept, entry)

    def html(self, broken: Sequence[str]) -> str:
        """Return the whole page. `broken` has a line for each file that could not be read, with the reason."""
        total, shown = self.labels.total(), len(self.kept)
        said = f"{total:,} pictures, predicted by {self.model}. The least certain predictions come first."
        if shown < total:
            said += f" This page shows {shown:,}; --csv writes all."
        counted = [(label, f"{count:,}") for label, count in self.labels.most_common()]
        figures = "".join(_figure(row, contents) for *_, row, contents in sorted(self.kept, reverse=True))
        more = [f"and {len(broken) - MAX_BROKEN_NAMED:,} more"] if len(broken) > MAX_BROKEN_NAMED else []
        missing = "".join(f"<li>{for_page(reason)}</li>" for reason in [*broken[:MAX_BROKEN_NAMED], *more])
        parts = [
            f"<p>{for_page(said)}</p>",
            html_parts.table(("label", "pictures"), counted, numbers=1),
            f'<h2>Pictures</h2><div class="images">{figures}</div>',
            f"<h2>Could not be read</h2><ul>{missing}</ul>" if missing else "",
        ]
        return html_parts.page("Predictions", parts)


def thumbnail(pixels: Any) -> Any:
    """Shrink the picture to at most SIDE x SIDE pixels by averaging blocks."""
    channels, size, _ = pixels.shape
    block = -(-size // SIDE)
    if block == 1:
        return pixels
    side = size // block
    cut = pixels[:, : side * block, : side * block].reshape(channels, side, block, side, block)
    return np.rint(cut.mean((2, 4))).astype(np.uint8)


def _figure(row: dict[str, Any], contents: bytes) -> str:
    label, others = row["label"], row.get("top", ())[1:]
    next_ones = "".join(f"<br>{for_page(o['label'])} {100 * o['probability']:.1f}&nbsp;%" for o in others)
    return (
        f"<figure>{html_parts.image(contents, label)}<figcaption><b>{for_page(label)}</b> "
        f"{100 * row['probability']:.1f}&nbsp;%{next_ones}<br><small>{for_page(printable(row['file']))}</small>"
        "</figcaption></figure>"
    )
