"""Saves and loads a state_dict. Everything is checked before anything is loaded, so a failed load changes nothing.

Programs written for PyTorch override `state_dict`, `_save_to_state_dict` and `_load_from_state_dict` in a layer. A
model that holds the layer calls these overrides.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from minorm import devices
from minorm.kernels import select
from minorm.nn.attributes import MODULE
from minorm.nn.offer import EXTRA, Offer
from minorm.support.safe_names import printable
from minorm.support.states import completed
from minorm.tensor.tensor import Tensor


class LoadResult(NamedTuple):
    """The result of `load_state_dict`: the missing and the unexpected keys."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"LoadResult(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def save(module: Any, entries: dict[str, Any], path: str, keep_vars: bool) -> None:
    """Add the entries of the module and of the modules below it to `entries`, under keys that begin with `path`."""
    module._save_to_state_dict(entries, f"{path}." if path else "", keep_vars)
    for name, child in module._own(MODULE):
        child._save_below(entries, f"{path}.{name}" if path else name, keep_vars)


def load(module: Any, given: Any, strict: bool, assign: bool) -> LoadResult:
    """Do the work of `Module.load_state_dict`. If the state does not fit, a ValueError lists all problems and nothing
    changes.
    """
    if not isinstance(given, Mapping):
        raise TypeError(
            f"load_state_dict: state is a {type(given).__name__}; expected a mapping of names to tensors; "
            "pass what state_dict() or minorm.load(path) returned"
        )
    own = module._loadable()
    places = [(f"{path}." if path else "", place) for path, place in module._named_modules("")]
    extra = {prefix + EXTRA: place for prefix, place in places if place._has_extra_state()}
    offer = Offer(places, own)
    offer.show(given)
    extras = {key: copy.deepcopy(place.get_extra_state()) for key, place in extra.items() if key in offer.taken}
    before = [(tensor, tensor.array, devices.copied(tensor.array)) for tensor in own.values()] if extras else []
    load_into(type(module).__name__, own, offer, strict, assign)
    try:
        for key in extras:
            extra[key].set_extra_state(offer.taken[key])
    except BaseException:
        restore(before)
        for key, kept in extras.items():
            extra[key].set_extra_state(kept)
        raise
    return LoadResult([*offer.missing], [*offer.unexpected])


def load_into(owner: str, own: Mapping[str, Tensor], offer: Offer, strict: bool, assign: bool = False) -> None:
    """Copy the taken entries into the tensors of `own`. If entries do not fit, raise one ValueError that lists all
    problems.
    """
    state, missing, unexpected = offer.taken, offer.missing, offer.unexpected
    arrays: dict[str, Any] = {}
    problems = []
    if strict and missing:
        problems.append(f"missing keys: {', '.join(map(printable, missing))}")
    if strict and unexpected:
        problems.append(f"unexpected keys: {', '.join(map(printable, unexpected))}")
    problems += offer.errors
    for key, tensor in own.items():
        if key in state:
            try:
                arrays[key] = array = _array(state[key])
            except Exception as error:  # noqa: BLE001  np.asarray of a foreign object can raise anything
                problems.append(
                    f"{printable(key)}: a {type(state[key]).__name__} that does not convert to an array ({error})"
                )
                continue
            if array.shape != tensor.shape:
                problems.append(f"{printable(key)}: shape is {array.shape}, expected {tensor.shape}")
            if not assign and array.dtype.newbyteorder("=") != tensor.dtype:
                problems.append(f"{printable(key)}: dtype is {array.dtype}, expected {tensor.dtype}")
    if problems:
        raise ValueError(
            f"load_state_dict: the state does not fit {owner}; nothing was loaded\n  "
            + "\n  ".join(problems)
            + f"\n{_fix(missing, unexpected, problems)}".rstrip()
        )
    if not assign:
        arrays = {key: devices.to_device(array, own[key].device) for key, array in arrays.items()}

    def copy_all() -> None:
        for key, array in arrays.items():
            if assign:
                own[key].set_array(array)
            else:
                fill(own[key], array)

    completed(copy_all)


def fill(tensor: Tensor, array: Any) -> None:
    """Copy an array into a tensor's array."""
    with devices.on_device_of(tensor.array):
        tensor.array[...] = array
    tensor.version.count += 1


def restore(before: Iterable[tuple[Tensor, Any, Any]]) -> None:
    """Restore the array of each tensor, and the contents of the array. `before` holds (tensor, array, contents)."""
    for tensor, array, contents in before:
        tensor.set_array(array)
        fill(tensor, contents)


def _array(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.array
    if hasattr(value, "detach"):  # a PyTorch tensor refuses to become an array while it requires grad
        value = value.detach().cpu()
    return select.as_array(value)


def _fix(missing: list[str], unexpected: list[str], problems: list[str]) -> str:
    fixes = []
    for key in map(str, unexpected):
        ending = key.partition(".")[2]
        if ending in missing:
            prefix = key[: len(key) - len(ending)]
            fixes.append(f"remove the prefix {prefix!r} from the state's keys")
            break
    if missing or unexpected:
        fixes.append("build the model as it was when the state was saved, or pass strict=False to load what matches")
    if any(": dtype is " in problem for problem in problems):
        fixes.append("convert the model first, for example model.to(minorm.float16)")
    if any(": shape is " in problem for problem in problems):
        fixes.append("give the layers the sizes they had when the state was saved")
    return "; ".join(fixes)
