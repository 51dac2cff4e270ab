"""A table of earlier calls. If the arguments of a call have the form of an earlier call, they are not checked again.

    form = form_of("layer_norm", backend, (x, weight, bias, mask), (sizes, eps, compute_dtype, activation))
    call = calls.get(form, backend)
    if call is None:
        ...  # all checks; a failed call is not kept
        call = calls.keep(form, NormCall(...))

A form holds everything that the checks look at. For each tensor the form holds its class, kind of array, shape and
type. For each option the form holds the value and the value's type, since 1 == True. If an option can change in place,
the call has no form and is checked every time. A backend that the caller passes is part of the form, but the table does
not keep it alive.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.normalization.call import NormCall

Form = tuple[Any, ...]
MOST = 1024  # the largest number of forms in the table of a thread

_LASTING = {type(None), bool, int, float, str, tuple, type, np.float32, np.float64, *map(type, dtypes.FLOATS)}
_INT = {int}


def form_of(operation: str, backend: Any, tensors: tuple[Any, ...], options: tuple[Any, ...]) -> Form | None:
    """Return the form of a call, which holds everything that the checks look at. Return None if an argument cannot be
    part of a form.
    """
    types = tuple(map(type, options))
    if not _LASTING.issuperset(types) or (backend is not None and not type(backend).__weakrefoffset__):
        return None
    form: list[Any] = [operation, None if backend is None else id(backend), options, types]
    try:
        for x in tensors:
            if x is None:
                form.append(None)
            else:
                array = x.array
                form += x.__class__, array.__class__, array.shape, array.dtype
    except AttributeError:  # an argument is not a tensor; the checks report it
        return None
    return tuple(form)


def whole_numbers(sizes: Any) -> Any:
    """Return `sizes` as an int or a tuple of ints, for comparing the arguments of two calls. For anything else, return
    `...`: since (64.0,) == (64,), two different calls would look equal.
    """
    if type(sizes) is int:
        return sizes
    return tuple(sizes) if type(sizes) in (tuple, list) and _INT.issuperset(map(type, sizes)) else ...


class _Calls(threading.local):
    """The table of earlier calls. Each thread has a separate table."""

    def __init__(self) -> None:
        self.found: dict[Form, NormCall] = {}

    def get(self, form: Form | None, backend: Any) -> NormCall | None:
        """Return the call in the table for this form and this backend; return None if there is no such call."""
        call = None if form is None else self.found.get(form)
        return call if backend is None or (call is not None and call.backend is backend) else None

    def keep(self, form: Form | None, call: NormCall) -> NormCall:
        """Add `call` to the table under the key `form`, and return `call`."""
        if form is not None:
            found = self.found
            if len(found) >= MOST:
                found.clear()
            found[form] = call
            if call is not None and call.handed_in is not None and form[1] is not None:
                call.handed_in.loosen(lambda _: found.pop(form, None))
        return call


calls = _Calls()
