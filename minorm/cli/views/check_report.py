"""What `minorm check` has to say of a file: check.py finds it out, check_view.py and check_page.py show it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minorm.onnx.checking.inspection import Inspection
    from minorm.onnx.checking.layers import LayerRow


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What one of the judges says: "ok", "FAILED", or "-" where it was not asked or has no say."""

    judge: str
    state: str
    text: str


@dataclasses.dataclass(frozen=True)
class Report:
    """All that is said of a file. `size`: the shapes of the inputs that minorm ran on, none where it did not run."""

    found: Inspection
    verdicts: list[Verdict]
    size: dict[str, tuple[int, ...]]
    layers: list[LayerRow]

    @property
    def multiplications(self) -> int | None:
        """Of one run at `size`."""
        return sum(layer.multiplications or 0 for layer in self.layers) if self.size else None
