"""Checkpoints: state dicts and whole training states come back with the same bits; nothing is pickled."""

from __future__ import annotations

import copy
import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import minorm as mn
from minorm import data as data_module
from minorm import nn, optim
from minorm.devices import dtypes
from minorm.serialization import safetensors_file
from minorm.serialization.checkpoint import (
    MAX_DEPTH,
    TREE,
    load,
    load_arrays,
    load_metadata,
    load_training,
    save,
    save_training,
)
from minorm.tensor.tensor import Tensor
from tests.interrupts import at_every_line


def same(a: Any, b: Any) -> bool:
    """Are the two equal in structure, types and bits?"""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return same(a.array, b.array)
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return (
            list(a) == list(b)
            and all(same(x, y) for x, y in zip(a, b, strict=True))
            and all(same(a[k], b[k]) for k in a)
        )
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return bool(a == b)


def there_and_back(path: Path, value: Any) -> Any:
    save_training(path, part=value)
    return load_training(path)["part"]


# save and load


def test_tensors_arrays_and_scalars(tmp_path: Path) -> None:
    state = {
        "weight": Tensor(np.arange(6, dtype=np.float32).reshape(2, 3), requires_grad=True),
        "half": Tensor(np.array([1.5, -2.0]).astype(dtypes.bfloat16)),
        "num_batches_tracked": np.array(12345678901),
        "scale": np.float64(0.1),
        "transposed": np.arange(6.0).reshape(2, 3).T,
    }
    save(state, tmp_path / "model.safetensors", metadata={"epoch": "3"})
    back = load(tmp_path / "model.safetensors")
    assert list(back) == list(state)
    assert all(type(value) is Tensor and not value.requires_grad and value.creator is None for value in back.values())
    assert same(back["weight"].array, state["weight"].array)
    assert back["half"].dtype == dtypes.bfloat16
    assert back["half"].array.astype(float).tolist() == [1.5, -2.0]
    assert back["num_batches_tracked"].array == 12345678901
    assert back["scale"].array == 0.1
    assert np.array_equal(back["transposed"].array, state["transposed"])
    assert load_metadata(tmp_path / "model.safetensors") == {"epoch": "3"}
    arrays = load_arrays(str(tmp_path / "model.safetensors"))
    assert all(same(arrays[name], back[name].array) for name in back)


def test_a_result_inside_a_graph_is_saved_as_its_values(tmp_path: Path) -> None:
    x = Tensor(np.ones(3, np.float32), requires_grad=True)
    save({"y": x * 2.0}, tmp_path / "f")
    assert load(tmp_path / "f")["y"].tolist() == [2, 2, 2]


def test_loaded_arrays_can_be_changed_and_are_not_shared(tmp_path: Path) -> None:
    array = np.zeros(3)
    save({"a": array, "tied": array}, tmp_path / "f")
    back = load(tmp_path / "f")
    back["a"].array[0] = 1
    assert back["tied"].tolist() == [0, 0, 0]
    assert array[0] == 0


@pytest.mark.parametrize("value", [{1}, len, b"bytes"], ids=repr)
def test_save_takes_arrays_and_plain_containers_only(tmp_path: Path, value: Any) -> None:
    with pytest.raises(TypeError, match=r"save: 'x' is a \w+; expected a Tensor or an array.*save_training"):
        save({"x": value}, tmp_path / "f")
    with pytest.raises(TypeError, match=r"save: state_dict is a Linear; .*; pass its state_dict\(\)"):
        save(mn.nn.Linear(2, 2), tmp_path / "f")  # type: ignore[arg-type]
    assert not (tmp_path / "f").exists()


# Training state


def test_a_generator_goes_on_where_it_was(tmp_path: Path) -> None:
    for kind in (np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64):
        generator = np.random.Generator(kind(7))
        generator.random(dtype=np.float32)  # leaves half of a 64-bit draw waiting
        state = there_and_back(tmp_path / "f", generator.bit_generator.state)
        expected = generator.random(100)
        other = np.random.Generator(kind(0))
        other.bit_generator.state = state
        assert np.array_equal(other.random(100), expected)


def test_pytorchs_optimizer_state(tmp_path: Path) -> None:
    state = {
        "state": {0: {"step": 12, "exp_avg": np.full(3, 0.1, np.float32)}, 10: {"step": 3, "exp_avg": np.zeros(())}},
        "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "nesterov": False, "params": [0, 10], "name": None}],
    }
    assert same(there_and_back(tmp_path / "f", state), state)
    assert set(load_arrays(tmp_path / "f")) == {"part.state.0.exp_avg", "part.state.10.exp_avg"}


def test_state_of_a_real_torch_optimizer(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([weight])
    (weight * 2).sum().backward()
    optimizer.step()
    theirs = optimizer.state_dict()
    theirs["state"] = {i: {k: v.numpy() for k, v in entry.items()} for i, entry in theirs["state"].items()}
    assert same(there_and_back(tmp_path / "f", theirs), theirs)


SPECIAL = [
    None,
    True,
    False,
    0,
    -1,
    1 << 200,
    -(1 << 128),
    0.1,
    -0.0,
    5e-324,
    1.7976931348623157e308,
    math.nan,
    math.inf,
    -math.inf,
    "",
    "text \u20ac \n \0 \ud800",
    [],
    (),
    {},
    [[]],
    ((),),
    {"": 1},
    {"$array": "x"},
    {"$items": []},
    {"$x": 1, "y": 2},
    {1: "a", "1": "b"},
    {1.5: 0, None: 1, False: 2, math.inf: 3},
    {"a.b": np.ones(1), "a": {"b": np.zeros(1)}},
    np.float32(0.1),
    np.int8(-3),
    np.bool_(True),
    dtypes.bfloat16.type(1.5),
    np.array(3),
    np.zeros((0, 3)),
    Tensor(np.arange(4)),
    {"deep": [{"x": (np.ones(2), {"y": [Tensor(np.zeros(1))]})}]},
]


@pytest.mark.parametrize("value", SPECIAL, ids=lambda value: repr(value)[:30].encode("ascii", "replace").decode())
def test_special_values(tmp_path: Path, value: Any) -> None:
    assert same(there_and_back(tmp_path / "f", value), value)


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5)
leaves = plain | hnp.arrays(
    st.sampled_from(["f4", "f8", "i8", "u1", "?"]), hnp.array_shapes(min_dims=0, max_dims=2, max_side=3)
)
keys = st.text(max_size=3) | st.integers(-3, 3) | st.sampled_from(["$array", "$items", "a.b", "a", "b"])
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=trees)
def test_any_nest_comes_back(tmp_path: Path, tree: Any) -> None:
    assert same(there_and_back(tmp_path / "f", tree), tree)


class Counter:
    """An object with a state."""

    def __init__(self, start: int) -> None:
        self.weight = np.full(3, start, np.float32)

    def state_dict(self) -> dict[str, Any]:
        return {"weight": Tensor(self.weight), "steps": int(self.weight[0])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weight[:] = state["weight"].array
        assert state["steps"] == int(self.weight[0])


def test_objects_give_and_take_their_state_and_the_rest_comes_back(tmp_path: Path) -> None:
    save_training(tmp_path / "f", model=Counter(3), optimizer=Counter(4), epoch=7, path=[0.5])
    model = Counter(0)
    rest = load_training(tmp_path / "f", model=model)
    assert model.weight.tolist() == [3, 3, 3]
    assert list(rest) == ["optimizer", "epoch", "path"]
    assert rest["optimizer"]["steps"] == 4
    assert rest["epoch"] == 7
    assert rest["path"] == [0.5]


def test_the_file_is_plain_safetensors(tmp_path: Path) -> None:
    save_training(tmp_path / "f", model={"conv.weight": np.ones((2, 3))}, epoch=1)
    assert safetensors.numpy.load_file(tmp_path / "f")["model.conv.weight"].shape == (2, 3)
    assert json.loads(load_metadata(tmp_path / "f")[TREE]) == {
        "model": {"conv.weight": {"$array": "model.conv.weight"}},
        "epoch": 1,
    }


def test_a_missing_part_changes_nothing(tmp_path: Path) -> None:
    save_training(tmp_path / "f", model=Counter(3), epoch=7)
    model = Counter(0)
    with pytest.raises(ValueError, match=r"load_training: .*: the file has no part scheduler; it has model, epoch"):
        load_training(tmp_path / "f", model=model, scheduler=Counter(0))
    assert model.weight.tolist() == [0, 0, 0]


def test_what_cannot_be_kept_says_where_it_is(tmp_path: Path) -> None:
    for value, message in [
        ({"a": [1, {2}]}, r"save_training: part\.a\.1 is a set; expected an object with state_dict\(\)"),
        ({"a": {"b": object()}}, r"save_training: part\.a\.b is a object"),
        ({(1, 2): 3}, r"save_training: part has the key \(1, 2\); expected str, int"),
        ({"a": np.array("x")}, r"entry 'part\.a' has dtype <U1"),
        (len, r"part is a builtin_function_or_method"),
    ]:
        with pytest.raises(TypeError, match=message):
            save_training(tmp_path / "f", part=value)
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match=rf"nested more than {MAX_DEPTH} deep, or contains itself"):
        save_training(tmp_path / "f", part=loop)
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (None, r"has only arrays, so it was not written by save_training; use load"),
        ("[1]", r"the training state is not an object of parts"),
        ("{", r"load_training: "),
        ('{"a":' + "[" * 100_000, r"load_training: "),
        ('{"a":' + "[" * 80 + "]" * 80 + "}", r"nested more than 50 deep"),
        (
            '{"a": {"$array": "missing"}}',
            r"\{'\$array': 'missing'\}, which has no meaning here, or names an entry that is missing",
        ),
        ('{"a": {"$array": 3}}', r"no meaning here"),
        ('{"a": {"$pickle": "x"}}', r"no meaning here"),
        ('{"a": {"$float": "1"}}', r"no meaning here"),
        ('{"a": {"$items": [[1]]}}', r"no meaning here"),
        ('{"a": {"$items": [[{"$tuple": []}, 1]]}}', r"no meaning here"),
        ('{"a": {"$items": [[[], 1]]}}', r"no meaning here"),
    ],
)
def test_a_wrong_training_state_is_an_error(tmp_path: Path, tree: str | None, message: str) -> None:
    safetensors_file.write({"x": np.zeros(2)}, tmp_path / "f", {} if tree is None else {TREE: tree})
    with pytest.raises(ValueError, match=message) as caught:
        load_training(tmp_path / "f")
    assert str(caught.value).startswith(f"load_training: {tmp_path / 'f'}: ")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_broken_bytes_of_a_training_state(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "f"
    save_training(path, a={1: (np.ones(2), [0.5, math.inf])}, b={"x": np.float32(3)})
    content = bytearray(path.read_bytes())
    for at in data.draw(st.lists(st.integers(8, len(content) - 1), min_size=1, max_size=3)):
        content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with suppress(ValueError):
        load_training(path)


@pytest.mark.parametrize("place", [None, "cpu", mn.device("cpu"), lambda storage, location: storage, {"cuda:0": "cpu"}])
def test_map_location_in_all_of_pytorchs_forms(place: Any, tmp_path: Path) -> None:
    mn.save({"net": {"w": mn.ones(2)}, "epoch": 3}, tmp_path / "run.pth")
    found = mn.load(tmp_path / "run.pth", map_location=place)
    assert found["net"]["w"].device == "cpu"
    assert found["net"]["w"].tolist() == [1, 1]
    assert found["epoch"] == 3
    with pytest.raises(ValueError, match="load: map_location is 'tpu'; expected 'cpu', 'cuda' or"):
        mn.load(tmp_path / "run.pth", map_location="tpu")


class Part:
    """A part that keeps a number; it stores a number below 0 before it refuses it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def state_dict(self) -> dict[str, int]:
        return {"number": self.number}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.number = state["number"]
        if self.number < 0:
            raise ValueError("a number below 0")


def run_of(seed: int, number: int = 0) -> dict[str, Any]:
    """Return all parts of a training run, after a step."""
    mn.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = optim.Adam(model.parameters(), lr=0.1 * (seed + 1))
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1 + seed)
    average = optim.swa_utils.AveragedModel(model)
    scaler = mn.amp.GradScaler("cpu", init_scale=2.0 ** (seed + 1))
    loader = data_module.DataLoader(data_module.TensorDataset(mn.randn(8, 3)), batch_size=2, shuffle=True, seed=seed)
    batches = iter(loader)
    for _ in range(1 + seed):
        model(next(batches)[0]).sum().backward()
    optimizer.step()
    scheduler.step()
    average.update_parameters(model)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "average": average}
    return {**parts, "scaler": scaler, "loader": loader, "part": Part(number)}


def facts(parts: dict[str, Any]) -> dict[str, str]:
    """Return the state of every part as text."""
    return {name: json.dumps(part.state_dict(), default=lambda a: a.tolist()) for name, part in parts.items()}


@pytest.mark.parametrize("broken", ["optimizer", "scheduler", "average", "scaler", "loader", "part"])
def test_a_part_that_is_refused_leaves_all_as_they_were(tmp_path: Path, broken: str) -> None:
    saved = {name: part.state_dict() for name, part in run_of(1).items()}
    wrong = {"optimizer": {"state": {0: {"step": -1}}, "param_groups": []}, "part": {"number": -1}}
    save_training(tmp_path / "f", **{**saved, broken: wrong.get(broken, {"nothing": 1})})
    parts = run_of(0)
    before = facts(parts)
    with pytest.raises((ValueError, RuntimeError)):
        load_training(tmp_path / "f", **parts)
    assert facts(parts) == before
    save_training(tmp_path / "f", **saved)
    load_training(tmp_path / "f", **parts)
    assert facts(parts) == facts(run_of(1))


def test_a_part_without_load_state_dict(tmp_path: Path) -> None:
    save_training(tmp_path / "f", part=Part(3), epoch=4)
    part = Part(1)
    with pytest.raises(TypeError, match="load_training: epoch is 4; expected an object with load_state_dict"):
        load_training(tmp_path / "f", part=part, epoch=4)
    assert part.number == 1


@pytest.mark.parametrize("name", ["optimizer", "scheduler", "scaler", "loader"])
def test_ctrl_c_at_any_line_of_a_parts_load_state_dict(name: str) -> None:
    """The part, and the optimizer below a schedule, are as they were, or as the state has them."""
    saved = run_of(1)[name].state_dict()

    def load(parts: dict[str, Any]) -> None:
        parts[name].load_state_dict(copy.deepcopy(saved))

    def both(parts: dict[str, Any]) -> dict[str, str]:
        return facts({part: parts[part] for part in (name, "optimizer")})

    loaded = run_of(0)
    old = both(loaded)
    load(loaded)
    new = both(loaded)  # nothing stops this one
    assert new != old
    for parts in at_every_line(load, "optim", "states.py", "amp", "data/loader.py", make=lambda: run_of(0)):
        assert both(parts) in (old, new)


@pytest.mark.slow
def test_ctrl_c_at_any_line_of_load_training(tmp_path: Path) -> None:
    save_training(tmp_path / "f", **run_of(1))
    old, new = facts(run_of(0)), facts(run_of(1))
    files = "checkpoint.py", "optim", "states.py", "amp", "data/loader.py", "nn/state_dicts.py"
    for parts in at_every_line(lambda parts: load_training(tmp_path / "f", **parts), *files, make=lambda: run_of(0)):
        assert facts(parts) in (old, new)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ('{"a": [{"$tensor": "x"}, {"$tensor": "x"}]}', "missing or used twice"),
        ('{"a": {"$scalar": "x"}}', r"uses entry 'x', of shape \(2,\), as a number"),
        ('{"a": {"$items": [[2305843009213693951, 1]]}}', "no meaning here"),
        ('{"a": ' + "[" * 5000 + "]" * 5000 + "}", "nested more than 50 deep"),
        ("[]", "not an object of parts"),
    ],
)
def test_what_a_tree_may_not_hold(tmp_path: Path, tree: str, message: str) -> None:
    safetensors_file.write({"x": np.zeros(2)}, tmp_path / "f", {TREE: tree})
    for reader in (mn.load, load_training):
        with pytest.raises(ValueError, match=message):
            reader(tmp_path / "f")


@pytest.mark.parametrize(
    "nest",
    [
        {1: {"weight": Tensor(np.ones(2))}, 2: {"weight": Tensor(np.zeros(2))}},
        {1: Tensor(np.ones(2)), "1": Tensor(np.zeros(3)), None: 4, 2.5: [1], False: "x"},
        {"$items": [1, 2]},
        {"$items": {"a": 1}, 3: {}},
    ],
    ids=str,
)
def test_keys_that_are_no_texts_come_back(nest: dict[Any, Any], tmp_path: Path) -> None:
    save(nest, tmp_path / "state.safetensors")
    assert same(load(tmp_path / "state.safetensors"), nest)


def test_a_key_that_cannot_be_saved_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    for nest, key in (({(1, 2): Tensor(np.ones(2))}, r"\(1, 2\)"), ({"a": {b"k": 1}}, "b'k'")):
        with pytest.raises(TypeError, match=f"save: .*has the key {key}; expected str, int, float or bool"):
            save(nest, path)
    with pytest.raises(TypeError, match="save: the key 1 is a int; expected texts as keys if metadata is given"):
        save({1: Tensor(np.ones(2))}, path, {"by": "me"})
    assert not path.exists()
