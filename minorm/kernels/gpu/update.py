"""Optimizer steps on CuPy arrays: one launch updates up to 48 parameters of one type; see update.cu.

A launch takes the host some microseconds, which is longer than the device needs for a small parameter. So a step of a
small network is much faster with one launch for a whole list. The kernels take dense arrays; the arrays of a parameter
must have the same layout. Parameters whose arrays are laid out in different ways are updated by the reference.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from minorm.devices import capture, dtypes
from minorm.kernels.gpu import launch
from minorm.kernels.gpu.copying import lies_as
from minorm.kernels.gpu.operands import arranged, dense
from minorm.kernels.gpu.plans import update_plan
from minorm.kernels.gpu.plans.structs import Struct
from minorm.kernels.gpu.program import Program
from minorm.kernels.order import is_dense
from minorm.kernels.reference import update as reference

_program = Program("update.cu")

square_sum = reference.square_sum  # a number on the host; clip_grad_norm_ does not use it on a GPU


def sgd(
    parameters: list[Any],
    gradients: list[Any],
    buffers: list[Any],
    *,
    lr: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    maximize: bool = False,
) -> None:
    states = [buffers] if momentum else []
    for group, left in _groups(parameters, gradients, states):
        if left:
            reference.sgd(
                *_entries_at(group, parameters, gradients, buffers),
                lr=lr,
                momentum=momentum,
                dampening=dampening,
                weight_decay=weight_decay,
                nesterov=nesterov,
                maximize=maximize,
            )
            continue
        p, g, *state = _entries_at(group, parameters, gradients, *states)
        numbers = (lr, momentum, 1 - dampening, weight_decay, -1.0 if maximize else 1.0)
        roles = dict(zip(("p", "g", "m"), (p, g, *state), strict=False))
        _run("sgd", (bool(momentum), bool(momentum and nesterov)), roles, {}, numbers)


def adam(
    parameters: list[Any],
    gradients: list[Any],
    means: list[Any],
    squares: list[Any],
    peaks: list[Any],
    steps: list[int],
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float = 0.0,
    decoupled: bool = False,
    maximize: bool = False,
) -> None:
    states = [means, squares, *([peaks] if peaks else [])]
    for group, left in _groups(parameters, gradients, states):
        if left:
            reference.adam(
                *_entries_at(group, parameters, gradients, means, squares, peaks, steps),
                lr=lr,
                beta1=beta1,
                beta2=beta2,
                eps=eps,
                weight_decay=weight_decay,
                decoupled=decoupled,
                maximize=maximize,
            )
            continue
        p, g, t, *state = _entries_at(group, parameters, gradients, steps, *states)
        decay, shrink = (0.0, 1 - lr * weight_decay) if decoupled else (weight_decay, 1.0)
        numbers = (beta2, 1 - beta1, 1 - beta2, eps, decay, shrink, -1.0 if maximize else 1.0)
        roles = dict(zip(("p", "g", "m", "v", "peak"), (p, g, *state), strict=False))
        of_steps = {
            "rate": [lr / (1 - beta1**step) for step in t],
            "root": [math.sqrt(1 - beta2**step) for step in t],
        }
        _run("adam", (bool(peaks),), roles, of_steps, numbers)


def scale(arrays: list[Any], factor: float) -> None:
    """Set x *= factor for every array."""
    for group, left in _groups(arrays, arrays, []):
        chosen = [arrays[i] for i in group]
        if left:
            reference.scale(chosen, factor)
        else:
            _run("scale", (), {"p": chosen}, {}, (factor,))


def _groups(parameters: list[Any], gradients: list[Any], states: list[list[Any]]) -> Iterator[tuple[list[int], bool]]:
    """Yield the indices of the parameters of one type, and whether the reference must update these parameters."""
    groups: dict[Any, list[int]] = {}
    recording = capture.recording()
    replaying = recording is not None and recording.replaying  # the arrays are those of the capture
    for i, p in enumerate(parameters):
        if not p.size:
            continue
        if replaying:
            groups.setdefault(p.dtype, []).append(i)
            continue
        covered = _is_covered(p, gradients[i], [values[i] for values in states])
        groups.setdefault(p.dtype if covered else None, []).append(i)
    if None in groups and recording is not None:
        raise RuntimeError(
            "cuda.graph: parameters, gradients and the optimizer's state have several types or layouts, for which "
            "there is no kernel; expected one type and one layout in a captured step"
        )
    for dtype, group in groups.items():
        yield group, dtype is None


def _is_covered(p: Any, gradient: Any, states: list[Any]) -> bool:
    """Return True if there is a kernel: p has no gaps, the states lie as p, and all arrays have one float type."""
    dtype = p.dtype
    if dtype not in dtypes.FLOATS or gradient.dtype != dtype or not is_dense(p):
        return False
    for state in states:  # noqa: SIM110  all() would be a call for each array
        if state.dtype != dtype or not lies_as(state, p):
            return False
    return True


def _laid(gradients: list[Any], parameters: list[Any]) -> list[Any]:
    """Return the gradients in the layout of their parameters."""
    pairs = zip(gradients, parameters, strict=True)
    return [g if lies_as(g, p) else arranged(dense(g), p) for g, p in pairs]


def _run(
    name: str, options: tuple[bool, ...], roles: dict[str, list[Any]], of_steps: dict[str, list[float]], numbers: Any
) -> None:
    """Launch a kernel for arrays of one type. The keys of `roles` are fields of the struct Parts. A second struct has
    the numbers of the step.

    During the capture of a CUDA graph, both structs are stored on the device. Before a replay, only the numbers in
    these structs are renewed.
    """
    parameters = roles["p"]
    dtype = parameters[0].dtype
    compute = dtypes.compute_type(dtype)
    step = np.array(tuple(numbers), [(f"n{i}", compute) for i in range(len(numbers))])
    recording = capture.recording() if name != "scale" else None  # a graph repeats the factor of the capture
    if recording is not None and recording.replaying:
        _renew(recording, len(parameters), step, of_steps)
        return
    if "g" in roles:
        roles["g"] = _laid(roles["g"], parameters)
    addresses = {role: [a.data.ptr for a in arrays] for role, arrays in roles.items()}
    launches = update_plan.launches([p.size for p in parameters], **addresses, **of_steps)
    places = functools.reduce(operator.or_, itertools.chain(*addresses.values()))
    width = 1 if places % launch.ACCESS else launch.ACCESS // dtype.itemsize
    if recording is None:
        kernel, given = _program.kernel(name, dtype, compute, width, *options), Struct(step)
        for struct, grid in launches:
            kernel(grid, (update_plan.THREADS,), (Struct(struct), given))
        return
    kernel = _program.kernel(f"{name}_kept", dtype, compute, width, *options)
    for struct, grid in launches:
        both = np.zeros((), [("parts", struct.dtype), ("step", step.dtype)])
        both["parts"], both["step"] = struct, step
        kept = recording.keep(both).device
        kernel(grid, (update_plan.THREADS,), (kept, kept[struct.nbytes :]))


def _renew(recording: capture.Recording, count: int, step: Any, of_steps: dict[str, list[float]]) -> None:
    """Write the numbers for the next replay. The optimizer has checked that the parameters are in the same memory."""
    for start in range(0, count, update_plan.MOST):
        kept = recording.next().host
        for name, values in of_steps.items():
            part = values[start : start + update_plan.MOST]
            kept["parts"][name][: len(part)] = part
        kept["step"] = step


def _entries_at(indices: list[int], *lists: list[Any]) -> list[list[Any]]:
    """Return the entries at `indices` of every list.

    If the optimizer does not keep a state, the list of this state is empty, and stays empty.
    """
    return [[values[i] for i in indices] if values else values for values in lists]
