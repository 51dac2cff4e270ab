"""Collation: a batch has the form of a sample, as PyTorch's default_collate makes it; what cannot be is named."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from minorm import nn
from minorm.data import ArrayDataset, DataLoader, Subset, default_collate
from minorm.devices import dtypes
from minorm.tensor.tensor import Tensor


class Box(NamedTuple):
    corner: Any
    size: Any


class Record(UserDict):
    """A mapping of the user's."""


def array(i: int, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(i).integers(0, 9, shape).astype(dtype)


def texts(i: int) -> str:
    return f"sample {i}"


FORMS: dict[str, Any] = {
    "array": lambda i: array(i, 3, 4),
    "tuple": lambda i: (array(i, 3), i),
    "list": lambda i: [array(i, 3), i],
    "dict": lambda i: {"image": array(i, 3), "label": i, "name": texts(i)},
    "named tuple": lambda i: Box(array(i, 2), np.float64(i)),
    "dict in dict": lambda i: {"a": {"b": {"c": array(i, 2, 2, dtype=np.int32)}}, "d": i},
    "tuples in lists in dicts": lambda i: {"boxes": [(i, i + 1), (array(i, 2), [i])], "box": Box(i, (i, texts(i)))},
    "integers": lambda i: i,
    "floats": lambda i: i / 4,
    "integers, then floats": lambda i: (i / 4 if i else 0, 1),
    "bools": lambda i: i % 2 == 0,
    "scalars of NumPy": lambda i: (np.float32(i), np.int16(i), np.bool_(i % 2), np.float64(i)),
    "arrays without axes": np.array,
    "empty arrays": lambda i: array(i, 0, 3),
    "every integer type": lambda i: tuple(array(i, 2, dtype=t) for t in "bhilBHI"),
    "half floats": lambda i: array(i, 2, dtype=np.float16),
    "texts": texts,
    "bytes": lambda i: texts(i).encode(),
    "texts of NumPy": lambda i: {"name": np.str_(texts(i))},
    "ordered dict": lambda i: OrderedDict(b=i, a=texts(i)),
    "default dict": lambda i: defaultdict(list, b=i, a=array(i, 2)),
    "dict of the user's": lambda i: Record(b=i),
    "dict that cannot be changed": lambda i: MappingProxyType({"b": i}),
    "keys that are no texts": lambda i: {0: i, None: array(i, 1), (1, 2): i},
    "an empty dict": lambda i: {},
    "an empty tuple": lambda i: (i, ()),
    "long lists": lambda i: [i] * 100,
}


def plain(batch: Any) -> Any:
    """Convert a batch of either library to arrays with their types, in containers by name; tuples and lists are
    alike."""
    if hasattr(batch, "numpy"):
        x = np.asarray(batch.numpy())
        return str(x.dtype), x.tolist()
    if hasattr(batch, "keys"):
        return type(batch).__name__, [(key, plain(value)) for key, value in batch.items()]
    if isinstance(batch, (tuple, list)):
        return type(batch).__name__ if hasattr(batch, "_fields") else "", [plain(part) for part in batch]
    return batch


def as_single(batch: Any) -> Any:
    """Its float64 as float32, where a sample held Python's floats."""
    if isinstance(batch, tuple) and batch[0] == "float64":
        return "float32", batch[1]
    if isinstance(batch, (tuple, list)):
        return type(batch)(as_single(part) for part in batch)
    return batch


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [1, 4])
def test_a_batch_is_pytorchs(form: str, count: int) -> None:
    torch_data = pytest.importorskip("torch.utils.data")
    samples = [FORMS[form](i) for i in range(count)]
    theirs, ours = plain(torch_data.default_collate(samples)), plain(default_collate(samples))
    if "floats" in form and form != "half floats":  # the one type that differs: Python's floats are float32 here
        theirs = as_single(theirs)
    assert ours == theirs
    batches = list(DataLoader(samples, count))
    assert plain(batches[0]) == ours


def test_tensors_and_pytorchs_tensors_are_stacked() -> None:
    samples = [{"x": Tensor(array(i, 2, 3)), "y": nn.Parameter(array(i, 2))} for i in range(3)]
    batch = default_collate(samples)
    assert np.array_equal(batch["x"].numpy(), np.stack([array(i, 2, 3) for i in range(3)]))
    assert batch["y"].shape == (3, 2)
    torch = pytest.importorskip("torch")
    for make in (torch.tensor, lambda x: torch.tensor(x, requires_grad=True)):
        images, labels = default_collate([(make(array(i, 2, 3)), i) for i in range(3)])
        assert type(images) is Tensor
        assert np.array_equal(images.numpy(), batch["x"].numpy())
        assert labels.tolist() == [0, 1, 2]


def test_the_forms_of_a_batch() -> None:
    assert type(default_collate([(1, 2)])) is tuple  # PyTorch's is a list
    assert type(default_collate([[1, 2]])) is list
    batch = default_collate([Box(i, (i, {"name": "a"})) for i in range(2)])
    assert type(batch) is Box
    assert batch.corner.tolist() == [0, 1]
    assert batch.size[1] == {"name": ["a", "a"]}
    assert default_collate([0.1]).dtype == dtypes.float32
    assert default_collate([np.array([1], ">i4")]).dtype == dtypes.int32
    assert default_collate([Tensor(np.ones(2, dtypes.bfloat16))] * 2).dtype == dtypes.bfloat16


SHAPE, TYPE, KEYS = (
    f"within one batch; expected the same {what} in every sample" for what in ("shape", "type", "keys")
)
ANYTHING = "expected an array, a Tensor, a number, a text, or a dict, a tuple or a list with such elements"
WRONG: list[tuple[list[Any], type[Exception], str]] = [
    (
        [{"image": np.ones((3, 8, 8))}, {"image": np.ones((3, 9, 8))}],
        ValueError,
        f"'image' of the sample has shapes [(3, 8, 8), (3, 9, 8)] {SHAPE}",
    ),
    (
        [{"a": {"b": (1, np.ones(2))}}, {"a": {"b": (1, np.ones(3))}}],
        ValueError,
        f"part 1 of 'b' of 'a' of the sample has shapes [(2,), (3,)] {SHAPE}",
    ),
    ([{"a": 1, "b": 2}, {"a": 1}], ValueError, f"the sample has the keys ['a', 'b'] and ['a'] {KEYS}"),
    ([{"a": 1}, (1,)], TypeError, f"the sample is dict and tuple {TYPE}"),
    ([{"a": "x"}, {"a": 1}], TypeError, f"'a' of the sample is str and int {TYPE}"),
    (
        [{"a": (1, 2)}, {"a": (1, 2, 3)}],
        ValueError,
        "'a' of the samples of a batch have [2, 3] parts; expected the same number in each",
    ),
    ([{"a": 1, "mask": None}], TypeError, f"'mask' of the sample is NoneType; {ANYTHING}"),
    ([(1, np.array(["a"]))], TypeError, f"part 1 of the sample is an array of <U1; {ANYTHING}"),
    ([(1, np.array([1, None]))], TypeError, f"part 1 of the sample is an array of object; {ANYTHING}"),
    ([(1, {2, 3})], TypeError, f"part 1 of the sample is set; {ANYTHING}"),
    ([1, {"a": 1}], TypeError, f"the sample is dict; {ANYTHING}"),
    ([1j], TypeError, f"the sample is complex; {ANYTHING}"),
    ([], ValueError, "there are no samples to collate; expected at least one"),
]


@pytest.mark.parametrize(("samples", "error", "message"), WRONG, ids=range(len(WRONG)))
def test_what_cannot_be_collated_is_named(samples: list[Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        default_collate(samples)
    assert str(caught.value) == f"DataLoader: {message}"
    if samples:
        with pytest.raises(error) as caught:
            list(DataLoader(samples, len(samples)))
        assert str(caught.value) == f"DataLoader: {message}"


def test_datasets_that_read_batches_may_give_any_form() -> None:
    class Whole:
        def __len__(self) -> int:
            return 6

        def __getitem__(self, i: int) -> Any:
            raise AssertionError("batch is faster")

        def batch(self, indices: Any) -> Any:
            return {"x": array(0, 6, 2)[indices], "y": indices.tolist(), "names": [texts(i) for i in indices]}

    batch = next(iter(DataLoader(Whole(), 4)))
    assert type(batch["x"]) is Tensor
    assert batch["y"].tolist() == [0, 1, 2, 3]
    assert batch["names"][3] == "sample 3"
    samples = [{"x": array(i, 2), "name": texts(i)} for i in range(5)]
    assert Subset(samples, [4, 2])[:]["name"] == ["sample 4", "sample 2"]
    assert next(iter(DataLoader(Subset(samples, [4, 2]), 2)))["x"].tolist() == [
        array(4, 2).tolist(),
        array(2, 2).tolist(),
    ]


def test_a_transform_takes_the_first_part_and_no_dict() -> None:
    def minus(x: Any, generator: Any) -> Any:
        return -x

    for form in (lambda i: (array(i, 2), i), lambda i: [array(i, 2), i], lambda i: Box(array(i, 2), i)):
        samples = [form(i) for i in range(3)]
        first = next(iter(DataLoader(samples, 3, transform=minus)))
        assert type(first) is type(samples[0])
        assert np.array_equal(first[0].numpy(), -np.stack([array(i, 2) for i in range(3)]))
        assert first[1].tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match=r"transform changes the first array .* dicts with the keys \['x'\]"):
        next(iter(DataLoader([{"x": array(0, 2)}], 1, transform=minus)))


def test_arrays_are_read_without_a_loop_over_samples() -> None:
    dataset = ArrayDataset(array(0, 9, 2), np.arange(9))
    own = {"__getitem__": lambda self, i: pytest.fail("one at a time"), "batch": ArrayDataset.batch}
    dataset.__class__ = type("Watched", (ArrayDataset,), own)
    assert [labels.tolist() for _, labels in DataLoader(dataset, 4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
