"""Losses that compare `input` with `target`. They return the mean of the losses (the default), the sum, or each loss
("none").

All arguments are checked before anything is computed. The losses of this file that compare input and target element by
element do not broadcast. An input (N, 1) with a target (N) is an error here, while PyTorch silently trains the model on
N x N differences.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.functional.argument_texts import CLASSES, LOSS
from minorm.functional.arguments import floats, number
from minorm.graph import trace
from minorm.ops import loss as ops
from minorm.support.argument_errors import conversion, kind_of, outside
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(
    CLASSES,
    input="logits (N, C, d1, ...) or (C): C is the number of classes",
    target="classes (N, d1, ...) as integers, or probabilities of input's shape and type",
    label_smoothing="s, from 0 to 1: a label t becomes (1 - s) * t + s / C",
)
@trace.operation
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """loss = -sum_c q_c log p_c, where p = softmax(input) along axis 1 and q comes from the target.

    If target holds classes, q_c = weight_c where c is the target, else 0. The mean divides by the sum of the weights of
    all labels that are not ignored. If all labels are ignored, the mean is NaN, with a gradient of 0, so that one such
    batch does not ruin a model. If target holds probabilities, q = weight * target, and the mean divides by the number
    of examples, N * d1 * ... .

    Raises TypeError for a wrong type, and ValueError for a wrong shape or a label outside 0 .. C - 1. On a GPU such a
    label makes the loss NaN instead of raising an error, since the host would have to wait for the check.

    Example:
        >>> logits = mn.tensor([[2.0, 0.0], [0.0, 0.0]])
        >>> F.cross_entropy(logits, mn.tensor([0, 1]), reduction="none")
        tensor([0.1269, 0.6931])
        >>> F.cross_entropy(logits, mn.tensor([0, -100]))  # the second label is ignored
        tensor(0.1269)

    Its ONNX operator is SoftmaxCrossEntropyLoss (opset 13); label smoothing: Szegedy et al. 2016, arXiv:1512.00567.
    """
    name = "cross_entropy"
    _check_scores(name, input, target)
    floats(name, ("weight",), input=input, weight=weight)
    classes = _check_classes(name, input, weight, reduction)
    number(name, "label_smoothing", label_smoothing)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"{name}: label_smoothing is {label_smoothing}; expected 0 <= label_smoothing <= 1")
    if isinstance(target, Tensor) and dtypes.is_float(target.array.dtype):
        _check_probabilities(name, input, target)
        q, count = target, input.numel() // max(1, classes)
        if label_smoothing:
            q = q * (1 - label_smoothing) + label_smoothing / classes
        if weight is not None:
            q = q * weight.detach().reshape(_along_classes(input))
        return ops.SoftCrossEntropy.apply(input, q, reduction=reduction, count=count)
    _check_labels(name, input, target, ignore_index, classes)
    if weight is None:
        return ops.CrossEntropy.apply(
            input, target, reduction=reduction, ignore_index=ignore_index, label_smoothing=float(label_smoothing)
        )
    with devices.on_device_of(weight.array):
        wanted, total, counted = _weights_of_labels(input, target.array, weight.array, ignore_index, label_smoothing)
    return ops.SoftCrossEntropy.apply(input, wanted, reduction=reduction, count=total, counted=counted)


@documented(
    CLASSES,
    input="log-probabilities (N, C, d1, ...) or (C), the output of log_softmax",
    target="classes (N, d1, ...), integers",
)
@trace.operation
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """loss = -weight[target] * input[target] along axis 1: the part of `cross_entropy` after log_softmax.

    The mean divides by the sum of the weights of all labels that are not ignored. If all labels are ignored, the mean
    is NaN, with a gradient of 0. Raises TypeError for a wrong type, and ValueError for a wrong shape or a label outside
    0 .. C - 1.

    Example:
        >>> F.nll_loss(mn.tensor([[-0.1, -2.3]]), mn.tensor([1]))
        tensor(2.3)

    Its ONNX operator is NegativeLogLikelihoodLoss (opset 13).
    """
    _check_scores("nll_loss", input, target)
    floats("nll_loss", ("weight",), input=input, weight=weight)
    classes = _check_classes("nll_loss", input, weight, reduction)
    _check_labels("nll_loss", input, target, ignore_index, classes)
    return ops.NLL.apply(input, target, weight, reduction=reduction, ignore_index=ignore_index)


@documented(LOSS)
@trace.operation
def mse_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """loss = (input - target)^2

    Raises ValueError unless the shapes are equal: input and target do not broadcast.

    Example:
        >>> F.mse_loss(mn.tensor([1.0, 2.0]), mn.tensor([1.0, 4.0]))
        tensor(2.)
    """
    _check_numbers("mse_loss", input, target, reduction)
    return ops.SquaredError.apply(input, target, reduction=reduction)


@documented(LOSS)
@trace.operation
def l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """loss = |input - target|

    Raises ValueError unless the shapes are equal: input and target do not broadcast.

    Example:
        >>> F.l1_loss(mn.tensor([1.0, 2.0]), mn.tensor([1.0, 4.0]))
        tensor(1.)
    """
    _check_numbers("l1_loss", input, target, reduction)
    return ops.AbsoluteError.apply(input, target, reduction=reduction)


@documented(LOSS, beta="where the parabola becomes a line, at least 0; 0 is `l1_loss`")
@trace.operation
def smooth_l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """loss = d^2 / (2 beta) where |d| < beta, else |d| - beta / 2, where d = input - target

    Raises ValueError unless the shapes are equal: input and target do not broadcast.

    Example:
        >>> F.smooth_l1_loss(mn.tensor([0.5, 3.0]), mn.tensor([0.0, 0.0]), reduction="none")
        tensor([0.125, 2.5  ])

    Girshick 2015, arXiv:1504.08083.
    """
    _check_numbers("smooth_l1_loss", input, target, reduction)
    if not beta >= 0:
        raise ValueError(f"smooth_l1_loss: beta is {beta}; expected a number of at least 0")
    return ops.SmoothAbsoluteError.apply(input, target, reduction=reduction, beta=float(beta))


@documented(
    LOSS,
    input="logits of any shape, floats",
    target="probabilities from 0 to 1, of input's shape and type",
    weight="a factor for each element, which broadcasts to input and gets no gradient; None is 1",
    pos_weight="a factor for the loss of positive targets, which broadcasts to input and gets no gradient; None is 1",
)
@trace.operation
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """loss = -weight * (pos_weight * target * log p + (1 - target) * log(1 - p)), where p = sigmoid(input).

    Large logits cause no overflow. The mean divides by the number of elements. Raises ValueError if the shapes do not
    fit together.

    Example:
        >>> F.binary_cross_entropy_with_logits(mn.tensor([0.0, 2.0]), mn.tensor([1.0, 1.0]), reduction="none")
        tensor([0.6931, 0.1269])
    """
    name = "binary_cross_entropy_with_logits"
    _warn_of_probabilities(name, input)
    _check_numbers(name, input, target, reduction)
    floats(name, ("weight", "pos_weight"), input=input, weight=weight, pos_weight=pos_weight)
    for key, factor in (("weight", weight), ("pos_weight", pos_weight)):
        if factor is not None:
            _check_constant(name, key, factor)
            _check_broadcast(name, key, factor, input)
    return ops.BinaryCrossEntropy.apply(input, target, weight, pos_weight, reduction=reduction)


# The functions that return probabilities, by the class of their operation; and the inputs that each loss expects
# instead.
PROBABILITIES = {"Softmax": "softmax", "Sigmoid": "sigmoid"}
SCORES = {
    "cross_entropy": "scores, because the loss computes the softmax; leave the softmax out of the model",
    "nll_loss": "log-probabilities, the output of log_softmax; or use cross_entropy on the scores",
    "binary_cross_entropy_with_logits": "scores, because the loss computes the sigmoid; leave the sigmoid out of the "
    "model, or use binary_cross_entropy",
}


def _check_scores(name: str, input: Any, target: Any) -> None:
    """Raise TypeError if input and target seem to be swapped. Warn if input holds probabilities instead of scores."""
    given = isinstance(input, Tensor) and isinstance(target, Tensor)
    if given and input.array.dtype.kind in "iu" and dtypes.is_float(target.array.dtype) and target.ndim > input.ndim:
        raise TypeError(
            f"{name}: input is {input.dtype} of shape {input.shape}, target is {target.dtype} of shape {target.shape}; "
            f"expected the model's output first, and then the classes: {name}(output, labels)"
        )
    _warn_of_probabilities(name, input)


def _warn_of_probabilities(name: str, input: Any) -> None:
    """Warn if the model ends in softmax or sigmoid, since such a model trains slowly and ends with a larger loss."""
    made_by = PROBABILITIES.get(type(getattr(input, "creator", None)).__name__)
    if made_by:
        warnings.warn(f"{name}: input is the result of {made_by}; expected {SCORES[name]}", stacklevel=outside())


def _check_reduction(name: str, reduction: str) -> None:
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{name}: reduction is {reduction!r}; expected 'mean', 'sum' or 'none'")


def _check_constant(name: str, key: str, factor: Tensor) -> None:
    if factor.requires_grad:
        raise ValueError(f"{name}: {key} requires grad, but no gradient is computed for it; pass {key}.detach()")


def _check_broadcast(name: str, key: str, factor: Tensor, input: Tensor) -> None:
    try:
        fits = np.broadcast_shapes(factor.shape, input.shape) == input.shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name}: {key} has shape {factor.shape}; expected a shape that broadcasts to {input.shape}, the shape of "
            "input"
        )


def _check_numbers(name: str, input: Tensor, target: Tensor, reduction: str) -> None:
    _check_reduction(name, reduction)
    floats(name, input=input)
    if isinstance(target, Tensor) and not dtypes.is_float(target.array.dtype):
        raise TypeError(
            f"{name}: target is {target.dtype}; expected {input.dtype}, the type of input; use target.to(input.dtype)"
        )
    floats(name, input=input, target=target)
    if input.array.shape != target.array.shape:
        raise ValueError(
            f"{name}: target has shape {target.shape}, input has shape {input.shape}; expected equal shapes; "
            "reshape one, for example target.reshape(input.shape)"
        )


def _check_classes(name: str, input: Tensor, weight: Tensor | None, reduction: str) -> int:
    _check_reduction(name, reduction)
    if input.array.ndim == 0:
        raise ValueError(f"{name}: input has shape (); expected (N, C, ...) or (C), where C is the number of classes")
    classes = input.array.shape[min(1, input.array.ndim - 1)]
    if weight is not None:
        _check_constant(name, "weight", weight)
        if weight.shape != (classes,):
            raise ValueError(
                f"{name}: weight has shape {weight.shape}; expected ({classes},), a factor for each of the "
                f"{classes} classes of input {input.shape}"
            )
    return classes


def _check_labels(name: str, input: Tensor, target: Any, ignore_index: int, classes: int) -> None:
    shape = input.array.shape
    wanted = shape[:1] + shape[2:] if len(shape) > 1 else ()
    if not isinstance(target, Tensor):
        raise TypeError(
            f"{name}: target is {kind_of(target)}; expected a Tensor of integer classes {wanted}; "
            f"{conversion('target', target)}"
        )
    labels = target.array
    if labels.dtype.kind not in "iu":
        raise TypeError(
            f"{name}: target is {labels.dtype} of shape {labels.shape}; expected integer classes (int64 or int32) "
            f"of shape {wanted}; convert them with target.long()"
        )
    if labels.shape != wanted:
        hint = ""
        if labels.shape == shape:
            hint = "; for one-hot targets pass target.argmax(1), or probabilities in input's float type"
        elif len(shape) > 1 and labels.shape == (*wanted[:1], 1, *wanted[1:]):
            hint = "; remove the axis of length 1: target.squeeze(1)"
        raise ValueError(
            f"{name}: target has shape {labels.shape}, input has shape {shape}; expected {wanted}, one class per "
            "example" + hint
        )
    if type(labels) is not np.ndarray:
        return  # on a GPU the host would wait; there the kernels give a label outside a loss of NaN
    outside = labels.view(f"u{labels.itemsize}") >= classes  # as unsigned, a negative label is a huge one
    if np.count_nonzero(outside):
        _check_ignored(name, shape, labels, outside & (labels != ignore_index), ignore_index, classes)


def _check_ignored(name: str, shape: tuple[int, ...], labels: Any, wrong: Any, ignore_index: int, classes: int) -> None:
    if wrong.any():
        place = [int(i) for i in np.argwhere(wrong)[0]]
        raise ValueError(
            f"{name}: target{place or ''} is {int(labels[tuple(place)])}; expected a class from 0 to {classes - 1} "
            f"(input {shape} has {classes} classes), or ignore_index={ignore_index}; "
            "give the model as many outputs as there are classes, and count classes from 0"
        )


def _check_probabilities(name: str, input: Tensor, target: Tensor) -> None:
    if target.shape != input.shape:
        wanted = input.shape[:1] + input.shape[2:] if input.ndim > 1 else ()
        raise (TypeError if target.shape == wanted else ValueError)(
            f"{name}: target is {target.dtype} of shape {target.shape}; expected classes as integers of shape {wanted} "
            f"(target.long()), or probabilities of input's shape {input.shape}"
        )
    floats(name, input=input, target=target)


def _along_classes(input: Tensor) -> tuple[int, ...]:
    return (1, -1) + (1,) * (input.ndim - 2) if input.ndim > 1 else (-1,)


def _weights_of_labels(
    input: Tensor, labels: Any, weight: Any, ignore_index: int, label_smoothing: float
) -> tuple[Tensor, Any, Any]:
    """Return the q of `cross_entropy`, the sum of the labels' weights, and a mask that is False for ignored labels. The
    mean of the loss divides by this sum.
    """
    classes, axis = len(weight), min(1, input.ndim - 1)
    compute = dtypes.compute_type(weight.dtype)
    factors = weight.astype(compute).reshape([classes if i == axis else 1 for i in range(input.ndim)])
    counted = known = np.expand_dims(labels != ignore_index, axis)
    chosen = np.expand_dims(labels, axis) == np.arange(classes, like=weight).reshape(factors.shape)
    q = factors * (chosen * compute.type(1 - label_smoothing) + compute.type(label_smoothing / classes)) * counted
    if type(labels) is not np.ndarray:  # on a GPU the labels are unchecked
        known = np.where(counted & ((labels < 0) | (labels >= classes)).reshape(counted.shape), np.nan, counted)
        q = q * known
    total = (factors * chosen * known).sum(dtype=np.float64)
    return Tensor(q.astype(compute)), float(total) if type(weight) is np.ndarray else total, counted
