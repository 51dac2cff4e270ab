"""What can go wrong between a model and its ONNX form."""

from __future__ import annotations

from typing import Any

from minorm.support.documented import documented


class ExportError(ValueError):
    """The model cannot be written as ONNX; the message lists every reason at once."""


@documented(
    {},
    message="what is wrong with the file",
    unsupported="why, for each node that minorm does not have, under the names of the node's outputs; None is none",
    cuts="values in front of these, which `load(..., outputs=[...])` can give",
)
class LoadError(ValueError):
    """The ONNX file cannot be imported: it is damaged, or needs what minorm does not have; the message says which.

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
    """Raised by a reading rule for a node it cannot import; all such nodes are listed in one LoadError."""


class VerifyError(ValueError):
    """What the runtime computes from the file is not what the model computes."""


class RuleNotApplicable(Exception):
    """Raised by a writing rule that does not fit this call at this opset: the next rule is tried.

    length    the one that follows free axes, and that there is no form for
    """

    def __init__(self, message: str, length: Any = None) -> None:
        super().__init__(message)
        self.length = length


class Unstable(Exception):
    """Two runs of one model took different paths, so that no single graph describes both."""


class Split(Exception):
    """A normalization, which the message names, takes more nodes at this opset than at a later one."""
