"""The report of `minorm check`. check.py makes the report; check_view.py and check_page.py show the report."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minorm.onnx.checking.inspection import Inspection
    from minorm.onnx.checking.layers import LayerRow


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A verdict of minorm, the checker or onnxruntime.

    `state` is "ok", "FAILED" or, if there was no run or no decision, "-".
    """

    judge: str
    state: str
    text: str


@dataclasses.dataclass(frozen=True)
class Report:
    """All findings on a file.

    `size` has the shapes of the inputs on which minorm ran the model. It is {} if minorm did not run the model.
    """

    found: Inspection
    verdicts: list[Verdict]
    size: dict[str, tuple[int, ...]]
    layers: list[LayerRow]

    @property
    def multiplications(self) -> int | None:
        """The multiplications of one run at `size`."""
        return sum(layer.multiplications or 0 for layer in self.layers) if self.size else None
