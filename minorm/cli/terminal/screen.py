"""Writes to the terminal through rich. Escape sequences that rich makes are kept; those in texts are escaped."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from minorm.cli.terminal import output


class Screen(Console):
    """A Console on standard output that escapes every text, including those in tables and bars.

    Texts have no markup: "[red]" and ":star:" in a name are printed as they are. Styles are given as `rich.text.Text`.
    """

    def __init__(self) -> None:
        super().__init__(file=output.unmasked(sys.stdout), highlight=False, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield rich's segments of the renderable, with each text escaped."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else output.safe(text, self.encoding), style, control)
