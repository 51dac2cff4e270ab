"""The calls made so far, by the form of what they were made for: checks run where a form is new, and not again.

    form = form_of("layer_norm", backend, (x, weight, bias, mask), (sizes, eps, compute_dtype, activation))
    call = calls.get(form, backend)
    if call is None:
        ...  # all checks; what fails is not kept
        call = calls.keep(form, NormCall(...))

A form has all that the checks look at: of each tensor class, kind of array, shape and type; of each option value and
type, since 1 == True. What may change without being another object has no form, and is checked at every call. A backend
that is handed in has its place in the form, and the table does not keep it alive.
"""

from __future__ import annotations

import operator
import threading
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.normalization.call import NormCall

Form = tuple[Any, ...]
MOST = 1024  # forms that a thread keeps

_of_tensor = operator.attrgetter("__class__", "array.__class__", "array.shape", "array.dtype")
_LASTING = {type(None), bool, int, float, str, tuple, type, np.float32, np.float64, *map(type, dtypes.FLOATS)}
_INT = {int}


def form_of(operation: str, backend: Any, tensors: tuple[Any, ...], options: tuple[Any, ...]) -> Form | None:
    """The form of a call; None where it has none."""
    types = tuple(map(type, options))
    if not _LASTING.issuperset(types) or (backend is not None and not type(backend).__weakrefoffset__):
        return None
    try:
        return (
            operation,
            None if backend is None else id(backend),
            options,
            types,
            *[x if x is None else _of_tensor(x) for x in tensors],
        )
    except AttributeError:  # not a tensor: the checks say so
        return None


def whole_numbers(sizes: Any) -> Any:
    """An int, or ints as a tuple, as an option of a form; all else as one that has none: (64.0,) == (64,)."""
    if type(sizes) is int:
        return sizes
    return tuple(sizes) if type(sizes) in (tuple, list) and _INT.issuperset(map(type, sizes)) else ...


class _Calls(threading.local):
    """A table for each thread."""

    def __init__(self) -> None:
        self.found: dict[Form, NormCall] = {}

    def get(self, form: Form | None, backend: Any) -> NormCall | None:
        """The call of this form, if it was kept for this backend, or for none."""
        call = None if form is None else self.found.get(form)
        return call if backend is None or (call is not None and call.backend is backend) else None

    def keep(self, form: Form | None, call: NormCall) -> NormCall:
        """The call itself, from now on found by its form."""
        if form is not None:
            found = self.found
            if len(found) >= MOST:
                found.clear()
            found[form] = call
            if call is not None and call.handed_in is not None and form[1] is not None:
                call.handed_in.loosen(lambda _: found.pop(form, None))
        return call


calls = _Calls()
