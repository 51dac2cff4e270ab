"""The graph history of Tensors that change in place. After a change, the Tensor's creator is the Function that computed
the new value.

The graph's edges lead to creators and not to Tensors. So a Tensor may get another creator, while results computed from
its old value keep the old creator. If a whole tensor x changes, the change is an ordinary operation whose result is
written into x. If a view of x changes, the change is a `SetItem` of x, and every other view of x is made again by the
function that made it. An open trace records both kinds of change.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.graph import grad_mode, trace
from minorm.graph.graph import View
from minorm.kernels import select
from minorm.ops import indexing


def is_recorded(x: Any, operation: str, others: tuple[Any, ...]) -> bool:
    """Return True if the graph must record `operation`, which changes x in place and depends on x and `others`.

    Raises RuntimeError if the graph must record the change but cannot, or if the memory must not change.
    """
    array = x.array
    if 0 in array.strides or not (type(array) is not np.ndarray or array.flags.writeable):
        _check_memory(x, operation)
    if not grad_mode.is_grad_enabled():
        return False
    if not x.requires_grad and not (
        any(getattr(v, "requires_grad", False) for v in others) and dtypes.is_float(x.dtype)
    ):
        return False
    root, links = _origin(x)
    if any(link.detached for link in links):
        raise RuntimeError(
            f"{operation}: x is a view of a tensor that requires grad, and was made inside no_grad() or by an "
            "autograd.Function; expected a view that was made outside; work on x.clone() or x.detach()"
        )
    if root.requires_grad and root.creator is None:
        what = "a leaf" if root is x else "a view of a leaf"
        raise RuntimeError(
            f"{operation}: the tensor is {what} that requires grad, and no recorded operation may change a leaf; "
            "change the tensor inside minorm.no_grad(), or compute a new tensor"
        )
    return True


def _check_memory(x: Any, operation: str) -> None:
    steps = zip(x.array.strides, x.shape, strict=True)
    if x.array.size and any(step == 0 and length > 1 for step, length in steps):
        raise RuntimeError(
            f"{operation}: several elements of x share one place in memory (expand); expected a separate place for "
            "each element; work on x.clone()"
        )
    if type(x.array) is np.ndarray and not x.array.flags.writeable:
        raise RuntimeError(f"{operation}: x holds a read-only array; expected a writable array; use x.clone()")


def _origin(x: Any) -> tuple[Any, list[View]]:
    """Return the tensor of which x is a view, directly or through other views, and the links from this tensor to x."""
    tensor, links = x, []
    while _is_view(tensor):
        links.append(tensor.view_of)
        tensor = tensor.view_of.parent
    return tensor, links[::-1]


def as_before(x: Any) -> Any:
    """Return another Tensor with x's present array and creator."""
    before = x.from_array(x.array)
    before._requires_grad, before.creator, before.output_index = x.requires_grad, x.creator, x.output_index
    return before


def go_on_as(x: Any, result: Any) -> None:
    """Write the value of `result` into x, and give x the graph history of `result`."""
    if _is_view(x):
        set_part(x, ..., result)
        return
    _remember(x)
    with devices.on_device_of(x.array):
        x.array[...] = result.array
    _graft(x, result)
    _changed(x)


def set_part(x: Any, index: Any, part: Any) -> None:
    """Record `x[index] = part` as a change of the tensor of which x is a view."""
    root, links = _origin(x)
    _remember(root)
    steps = tuple((link.function, link.options) for link in links)
    _graft(root, indexing.SetItem.apply(as_before(root), part, steps=steps, index=index))
    _changed(root)


def _is_view(tensor: Any) -> bool:
    """Return whether the tensor is a view that still shares memory with its parent.

    After copy.deepcopy or x.data = y, a view does not share its parent's memory.
    """
    link = tensor.view_of
    return (
        link is not None
        and link.parent.version is tensor.version
        and (tensor.array.size == 0 or select.overlap(tensor.array, link.parent.array))
    )


def keep_copies(creator: Any, array: Any) -> None:
    """Replace `array` in the attributes of `creator` by a copy, before the array is overwritten."""
    names = [name for name, kept in vars(creator).items() if kept is array]
    if names:
        copy = devices.copied(array)
        for name in names:
            setattr(creator, name, copy)


def _graft(tensor: Any, result: Any) -> None:
    """Give `tensor` the history of `result`, in the graph and in an open trace."""
    if grad_mode.is_grad_enabled():
        asked = tensor.creator is not None and tensor.creator.release(tensor)
        tensor._requires_grad, tensor.creator = result.requires_grad, result.creator
        tensor.output_index = result.output_index
        if asked and tensor.creator is not None:
            tensor.creator.retain(tensor)
    trace.changed(tensor)


def _remember(root: Any) -> None:
    """Let an open trace save the values of constants whose memory is about to change."""
    if trace.state.calls is not None:
        for tensor in (root, *root.version.living()):
            trace.remember(tensor.array)


def _changed(root: Any) -> None:
    """Increment the version of `root`, and make every view of `root` again."""
    root.version.count += 1
    if trace.state.calls is not None:
        root.version.traced += 1
    for view in root.version.living():
        link = view.view_of
        if _is_view(view) and not (link.detached and grad_mode.is_grad_enabled()):
            _graft(view, link.function.apply(link.parent, **link.options))
