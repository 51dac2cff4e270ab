"""Reads and writes checkpoints as safetensors files: arrays by name, and one JSON text for everything else; no pickle.

`save` and `load` handle a `state_dict`. `save_training` and `load_training` handle everything that a training run needs
to resume with the same bits: any nest of dicts, lists, tuples, numbers, texts, arrays and Tensors. The arrays become
entries with dotted names (`model.conv1.weight`, `optimizer.state.0.exp_avg`). Everything else becomes one JSON text in
the file's metadata, in which `{"$array": name}` stands for an array. Integers in the text may have any size, so the
128-bit state of a random generator is restored exactly. Floats have enough digits to be restored with the same bits.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minorm import devices
from minorm.kernels import select
from minorm.serialization import opening, safetensors_file, torch_file
from minorm.serialization.atomic import FilePath
from minorm.serialization.safetensors_file import Array
from minorm.support.argument_errors import checked
from minorm.support.documented import documented
from minorm.support.states import shown
from minorm.tensor.tensor import Tensor

TREE = "minorm.tree"  # the metadata key of the JSON text
MAX_DEPTH = 50
ITEMS = "$items"  # the mark of a dict with keys that are not texts


@documented(
    {},
    state_dict="a mapping of names to Tensors, NumPy arrays or NumPy scalars, in any memory order. If metadata is "
    "None, values may also be dicts, lists, tuples, None, bools, numbers and texts, which `load` returns as they were",
    path="the path of the file",
    metadata="a mapping of names to texts, for the file's header; None writes no texts",
)
@checked
def save(state_dict: Mapping[str, Any], path: FilePath, metadata: Mapping[str, str] | None = None) -> None:
    """Write Tensors or arrays by name to a safetensors file. The dict may be nested: {"net": state, "epoch": 3}.

    The file at `path` is replaced in one step, when the new file is complete and on the disk. Until then, and after any
    error, the old file stays unchanged. If `path` is a symbolic link, the file to which the link points is replaced.
    The file does not record whether a Tensor was on a GPU.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     mn.save({"weight": mn.ones(2)}, f"{folder}/state.safetensors")
        ...     mn.load(f"{folder}/state.safetensors")
        {'weight': tensor([1., 1.])}
    """
    given: Any = state_dict
    if not isinstance(given, Mapping):
        kind, fix = type(given).__name__, "; pass its state_dict()" if hasattr(given, "state_dict") else ""
        raise TypeError(f"save: state_dict is a {kind}; expected a mapping of names to Tensors{fix}")
    arrays = {}
    for name, value in state_dict.items():
        array = _array_of(value)
        nested = array is None and isinstance(value, (dict, list, tuple, str, int, float, type(None)))
        if metadata is None and (nested or not isinstance(name, str)):
            _write_tree("save", path, state_dict)
            return
        if not isinstance(name, str):
            raise TypeError(
                f"save: the key {name!r} is a {type(name).__name__}; expected texts as keys if metadata is given"
            )
        if array is None:
            raise TypeError(f"save: {name!r} is a {type(value).__name__}; expected a Tensor or an array. "
                            "Numbers and texts go into metadata, nested state into save_training")  # fmt: skip
        arrays[name] = array
    safetensors_file.write(arrays, path, metadata)


@documented(
    {},
    path="the file: safetensors, or PyTorch's .pt",
    map_location='the device of the Tensors, "cpu" or "cuda"; None is the CPU. Functions and dicts are accepted, '
    "but have no effect, because minorm reads no device from a file",
    weights_only="accepted, without effect: code in a file never runs",
    max_bytes="the bytes that all tensors of a .pt file may take together; None allows 2 GiB, or the file's length if "
    "that is more. A safetensors file never takes more than its length",
)
@checked
def load(
    path: FilePath,
    map_location: Any = None,
    *,
    weights_only: bool = True,  # noqa: ARG001
    max_bytes: int | None = None,
) -> Any:
    """Load the Tensors of a safetensors file by name, on the CPU and detached, for `module.load_state_dict`.

    A nested dict that `save` wrote is returned as a nested dict. PyTorch's .pt files are read too, if they hold only
    tensors, numbers, texts and plain containers, as a state_dict does; code in them does not run. Raises ValueError if
    the file is damaged or of another kind.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     mn.save({"net": {"weight": mn.ones(2)}, "epoch": 3}, f"{folder}/state.safetensors")
        ...     mn.load(f"{folder}/state.safetensors")
        {'net': {'weight': tensor([1., 1.])}, 'epoch': 3}
    """
    if callable(map_location) or isinstance(map_location, dict):
        map_location = None
    if map_location is not None and not devices.is_device(map_location):
        raise ValueError(f"load: map_location is {map_location!r}; expected 'cpu', 'cuda' or 'cuda:0'")
    with opening.regular(path, "load") as file:
        if torch_file.is_one(file):
            return torch_file.read(file, path, max_bytes, lambda array: _placed(array, map_location))
    arrays, metadata = safetensors_file.read(path)
    if TREE not in metadata:
        return _placed(arrays, map_location)
    try:
        tree = _tree(metadata.pop(TREE), arrays)
    except ValueError as error:
        raise ValueError(f"load: {path}: {error}") from None
    return tree if map_location is None else _placed(tree, map_location)


def _placed(value: Any, device: Any) -> Any:
    """Return the nested value with a Tensor for each array; all Tensors are on `device`.

    If `device` is None, each Tensor stays on its present device.
    """
    if isinstance(value, (np.ndarray, Tensor)):
        tensor = Tensor(value) if isinstance(value, np.ndarray) else value
        return tensor if device is None else tensor.to(device)
    if isinstance(value, dict):
        return {key: _placed(item, device) for key, item in value.items()}
    return type(value)([_placed(item, device) for item in value]) if isinstance(value, (list, tuple)) else value


@checked
def load_arrays(path: FilePath) -> dict[str, Array]:
    """Load the arrays of a safetensors file by name, as NumPy arrays instead of Tensors."""
    return safetensors_file.read(path)[0]


@checked
def load_metadata(path: FilePath) -> dict[str, str]:
    """Return the metadata of a file that `save` wrote."""
    return safetensors_file.read(path)[1]


def save_training(path: FilePath, /, **parts: Any) -> None:
    """Write the state of a training run to one file, which is replaced in one step, as in `save`.

        save_training("run.safetensors", model=model, optimizer=optimizer, scheduler=scheduler, loader=loader,
                      random=mn.random.get_state(), epoch=3)

    A part is an object with `state_dict()`, or a value made of dicts, lists, tuples, None, bool, numbers, texts, arrays
    and Tensors.
    """
    _write_tree("save_training", path, parts)


def load_training(path: FilePath, /, **parts: Any) -> dict[str, Any]:
    """Read a file of `save_training`: pass each given object its part by `load_state_dict`, and return all other parts.

        rest = load_training("run.safetensors", model=model, optimizer=optimizer, scheduler=scheduler, loader=loader)
        mn.random.set_state(rest["random"])

    The whole file is read and checked before the first object is changed. If an object refuses its part, or the user
    presses Ctrl-C, all objects get their old state back. The returned parts have the values that were saved; a part
    that was an object is returned as its state dict.
    """
    for name, part in parts.items():
        if not hasattr(part, "load_state_dict"):
            raise TypeError(f"load_training: {name} is {shown(part)}; expected an object with load_state_dict()")
    arrays, metadata = safetensors_file.read(path)
    try:
        if TREE not in metadata:
            raise ValueError("the file has only arrays, so it was not written by save_training; use load")
        tree = _tree(metadata.pop(TREE), arrays)
        if missing := parts.keys() - tree.keys():
            raise ValueError(f"the file has no part {', '.join(sorted(missing))}; it has {', '.join(tree)}")
    except ValueError as error:
        raise ValueError(f"load_training: {path}: {error}") from None
    _load_all(parts, tree)
    return {name: value for name, value in tree.items() if name not in parts}


def _load_all(parts: dict[str, Any], states: dict[str, Any]) -> None:
    """Load every part's state; if one part fails, restore the old state of all parts."""
    before = {name: copy.deepcopy(part.state_dict()) for name, part in parts.items() if hasattr(part, "state_dict")}
    begun = []
    try:
        for name, part in parts.items():
            begun.append(name)
            part.load_state_dict(states[name])
    except BaseException:
        for name in begun:
            if name in before:
                parts[name].load_state_dict(before[name])
        raise


def _state_of(part: Any) -> Any:
    return part.state_dict() if hasattr(part, "state_dict") else part


def _array_of(value: Any) -> Array | None:
    """Return an array, a Tensor or a NumPy scalar as a NumPy array; return None for other values."""
    if isinstance(value, Tensor):
        value = value.array
    if isinstance(value, np.generic):
        return np.asarray(value)
    return devices.to_device(value, "cpu") if select.is_array(value) else None


def _write_tree(operation: str, path: FilePath, parts: Mapping[Any, Any]) -> None:
    """Write the parts as one file: arrays under dotted names, everything else as JSON."""
    arrays: dict[str, Array] = {}
    try:
        tree: Any = {name: _pack(_state_of(part), str(name), arrays, MAX_DEPTH) for name, part in parts.items()}
        if not all(isinstance(name, str) for name in tree) or tree.keys() == {ITEMS}:
            _check_keys("the state", tree)
            tree = {ITEMS: [[_pack(name, "a key", arrays, MAX_DEPTH), part] for name, part in tree.items()]}
    except (TypeError, ValueError) as error:
        raise type(error)(f"{operation}: {error}") from None
    safetensors_file.write(arrays, path, {TREE: json.dumps(tree, separators=(",", ":"))})


# In the JSON text objects, lists, texts, numbers, true, false and null mean themselves. Other values are objects with
# one of these keys:
#     $tensor, $array, $scalar: name     the entry of that name, as a Tensor, an array or a NumPy scalar
#     $tuple: [...]                      a tuple
#     $items: [[key, value], ...]        a dict with keys that are not texts, or are texts that start with $
#     $float: "nan", "inf" or "-inf"


def _pack(value: Any, name: str, arrays: dict[str, Array], depth: int) -> Any:
    """Return `value` in a form for JSON, and put its arrays into `arrays` under dotted names."""
    if depth == 0:
        raise ValueError(f"{name} is nested more than {MAX_DEPTH} deep, or contains itself")
    if value is None or isinstance(value, bool) or type(value) in (int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    array = _array_of(value)
    if array is not None:
        entry = name
        while entry in arrays:  # {"a.b": x, "a": {"b": y}}
            entry += "'"
        arrays[entry] = array
        tag = "$tensor" if isinstance(value, Tensor) else "$array" if select.is_array(value) else "$scalar"
        return {tag: entry}
    if isinstance(value, (list, tuple)):
        items = [_pack(item, f"{name}.{i}", arrays, depth - 1) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, Mapping):
        _check_keys(name, value)
        packed = {key: _pack(item, f"{name}.{key}", arrays, depth - 1) for key, item in value.items()}
        if all(isinstance(key, str) and not key.startswith("$") for key in packed):
            return packed
        return {ITEMS: [[_pack(key, name, arrays, depth), item] for key, item in packed.items()]}
    raise TypeError(f"{name} is a {type(value).__name__}; expected an object with state_dict(), "
                    "or dicts, lists, tuples, numbers, texts, arrays and Tensors")  # fmt: skip


def _tree(text: str, arrays: dict[str, Array]) -> dict[Any, Any]:
    """Return a dict from name to part of the parts that `_write_tree` wrote; an array may not be used twice."""
    try:
        packed = json.loads(text)
    except RecursionError:
        raise ValueError(f"the training state is nested more than {MAX_DEPTH} deep") from None
    if not isinstance(packed, dict):
        raise ValueError("the training state is not an object of parts")
    left = dict(arrays)
    if packed.keys() == {ITEMS}:
        found: dict[Any, Any] = _unpack(packed, left, MAX_DEPTH + 2)
        return found
    for name, value in packed.items():
        packed[name] = _unpack(value, left, MAX_DEPTH + 1)
    return packed


def _check_keys(name: str, nest: Mapping[Any, Any]) -> None:
    for key in nest:
        if key is not None and type(key) not in (str, int, float, bool):
            raise TypeError(f"{name} has the key {key!r}; expected str, int, float or bool")


def _unpack(value: Any, arrays: dict[str, Array], depth: int) -> Any:
    """Invert `_pack`. Lists and dicts are changed in place, because a copy would double the memory."""
    if depth == 0:
        raise ValueError(f"the training state is nested more than {MAX_DEPTH} deep")
    if isinstance(value, list):
        for i, item in enumerate(value):
            value[i] = _unpack(item, arrays, depth - 1)
        return value
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    if len(value) != 1 or not tag.startswith("$"):
        for key, item in value.items():
            value[key] = _unpack(item, arrays, depth - 1)
        return value
    content = value[tag]
    if tag in ("$tensor", "$array", "$scalar") and isinstance(content, str) and content in arrays:
        array = arrays.pop(content)
        if tag == "$scalar" and array.ndim:
            raise ValueError(f"the training state uses entry {content[:60]!r}, of shape {array.shape}, as a number")
        return Tensor(array) if tag == "$tensor" else array if tag == "$array" else array[()]
    if tag == "$tuple" and isinstance(content, list):
        return tuple(_unpack(content, arrays, depth - 1))
    if tag == "$float" and content in ("nan", "inf", "-inf"):
        return float(content)
    if tag == ITEMS and isinstance(content, list) and all(map(_is_pair, content)):
        keys = [_unpack(key, arrays, 2) for key, _ in content]
        if all(map(_is_key, keys)):
            return {key: _unpack(item, arrays, depth - 1) for key, (_, item) in zip(keys, content, strict=True)}
    raise ValueError(f"the training state holds {safetensors_file.short({tag: content})}, which has no meaning here, "
                     "or names an entry that is missing or used twice")  # fmt: skip


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2


def _is_key(value: Any) -> bool:
    """Return True if a dict may have this key; integers beyond 61 bits share hashes, and many such keys take hours."""
    return value is None or isinstance(value, (str, float)) or (isinstance(value, int) and abs(value) < (1 << 61) - 1)
