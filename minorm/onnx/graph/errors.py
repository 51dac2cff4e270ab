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
        "the reason for each node that minorm does not support, by the names of the node's outputs; None means {}"
    ),
    cuts="values before these nodes, which `load(..., outputs=[...])` can return",
)
class LoadError(ValueError):
    """The ONNX file cannot be imported: it is damaged, or needs something that minorm lacks; the message says which.

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
    """A reading rule raises this for a node that it cannot import; one LoadError lists all these nodes."""


class VerifyError(ValueError):
    """The runtime's results for the file differ from the model's results."""


class RuleNotApplicable(Exception):
    """A writing rule raises this if it does not fit this call at this opset; then the writer tries the next rule.

    length    the length that depends on free axes and has no formula, if that is the reason
    """

    def __init__(self, message: str, length: Any = None) -> None:
        super().__init__(message)
        self.length = length


class Unstable(Exception):
    """Two runs of one model took different paths, so no single graph describes both."""


class Split(Exception):
    """A normalization, which the message names, takes more nodes at this opset than at a later one."""
