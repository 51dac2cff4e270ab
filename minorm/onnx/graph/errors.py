"""The errors of export, load and conversion."""

from __future__ import annotations

from typing import Any

from minorm.support.documented import documented


class ExportError(ValueError):
    """The model cannot be written as ONNX; the message lists every reason at once."""


@documented(
    {},
    message="what is wrong with the file",
    unsupported=(
        "a dict for the nodes that minorm does not support, from the names of a node's outputs to the reason; None "
        "means {}"
    ),
    cuts="names of values before the unsupported nodes; `load(..., outputs=[...])` can return these values",
)
class LoadError(ValueError):
    """The ONNX file cannot be imported; the message says whether the file is damaged, or what minorm lacks.

    Example:
        >>> try:
        ...     mn.onnx.load(b"no model")
        ... except mn.onnx.LoadError as error:
        ...     error.cuts
        ()
    """

    def __init__(
        self, message: str, unsupported: dict[tuple[str, ...], str] | None = None, cuts: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.unsupported = unsupported or {}
        self.cuts = cuts


class Unsupported(Exception):
    """The error of a reading rule for a node that the rule cannot import; one LoadError lists all these nodes."""


class VerifyError(ValueError):
    """The runtime's results for the file differ from the model's results."""


class RuleNotApplicable(Exception):
    """The error of a writing rule that does not fit a call at an opset; the writer then tries the next rule.

    length    a length for which there is no formula in the free axes, if this length is the reason; else None
    """

    def __init__(self, message: str, length: Any = None) -> None:
        super().__init__(message)
        self.length = length


class Unstable(Exception):
    """Two runs of one model took different paths, so no single graph describes both."""


class Split(Exception):
    """At this opset, the normalization that the message names takes more nodes than at a later opset."""
