"""Tensor: construction, types, operators with scalars and arrays, exports to NumPy and DLPack, repr."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn


def test_python_floats_become_float32_and_arrays_keep_their_type() -> None:
    assert mn.tensor([1.0, 2.0]).dtype == mn.float32
    assert mn.tensor([1, 2]).dtype == mn.int64
    assert mn.tensor([True]).dtype == mn.bool
    assert mn.tensor(np.ones(2)).dtype == mn.float64
    assert mn.tensor(np.float64(2.0)).dtype == mn.float64
    assert mn.tensor([1.0], dtype=mn.bfloat16).dtype == mn.bfloat16


def test_tensor_copies_and_from_numpy_shares() -> None:
    array = np.zeros(3, np.float32)
    copied, shared = mn.tensor(array), mn.from_numpy(array)
    array[0] = 1
    assert copied[0].item() == 0
    assert shared[0].item() == 1


def test_unsupported_types_are_named() -> None:
    with pytest.raises(TypeError, match=r"tensor: dtype complex128 is not supported; expected one of bfloat16, bool"):
        mn.tensor(np.zeros(2, np.complex128))
    with pytest.raises(TypeError, match=r"tensor: 'gpu' is no dtype; expected one of .*; a device is 'cpu'"):
        mn.ones(2).to("gpu")
    with pytest.raises(TypeError, match="from_numpy: byte order is '>'"):
        mn.from_numpy(np.zeros(2, ">f4"))
    with pytest.raises(TypeError, match=r"Tensor: only floats can require grad; dtype is int64"):
        mn.tensor([1], requires_grad=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_scalars_take_the_tensors_float_type(dtype: str) -> None:
    x = mn.ones(2, dtype=dtype)
    for result in (
        x + 1,
        1 + x,
        x * 2.5,
        2.5 * x,
        x - np.float64(1),
        np.float64(1) - x,
        x / 3,
        3 / x,
        x**2,
        2**x,
        x + np.int64(3),
    ):
        assert result.dtype == x.dtype, result


def test_integers_promote_to_the_float_on_either_side() -> None:
    x, n = mn.ones(2), mn.tensor([1, 2])
    assert (x + n).dtype == (n + x).dtype == mn.float32
    assert (n + n).dtype == mn.int64
    assert (n / n).dtype == mn.float32
    assert (n + 0.5).dtype == mn.float32


def test_arrays_on_either_side_give_tensors() -> None:
    x, a = mn.ones(2, 3), np.arange(3, dtype=np.float32)
    for result in (x + a, a + x, a * x, a - x, x / (a + 1)):
        assert isinstance(result, mn.Tensor)
        assert result.shape == (2, 3)
    np.testing.assert_array_equal((a - x).array[0], a - 1)


def test_two_float_types_raise_naming_both() -> None:
    with pytest.raises(TypeError, match=r"add: operands are float32 and float64; expected one float type"):
        mn.ones(2) + mn.ones(2, dtype=mn.float64)
    with pytest.raises(TypeError, match=r"matmul: operands are float16 and float32"):
        mn.ones(2, 2, dtype=mn.float16) @ mn.ones(2, 2)


def test_shapes_that_do_not_broadcast_are_named() -> None:
    with pytest.raises(ValueError, match=r"mul: shapes \(2, 3\) and \(4,\) do not broadcast"):
        mn.ones(2, 3) * mn.ones(4)
    with pytest.raises(ValueError, match=r"matmul: a is \(2, 3\), b is \(2, 3\)"):
        mn.ones(2, 3) @ mn.ones(2, 3)


def test_an_operand_of_another_kind_is_named() -> None:
    with pytest.raises(TypeError, match="add: operand is str; expected a Tensor, an array or a number"):
        mn.ones(2) + "three"


def test_numpy_and_asarray_work_though_grad_is_required() -> None:
    x = mn.ones(2, requires_grad=True)
    assert x.numpy() is x.array
    assert np.asarray(x) is x.array
    assert np.asarray(x, np.float64).dtype == np.float64
    assert np.array(x, copy=True) is not x.array


def test_dlpack_to_numpy_shares_and_a_negative_stride_is_copied() -> None:
    x = mn.tensor([1.0, 2.0, 3.0])
    np.from_dlpack(x)[0] = 9  # type: ignore[index]
    assert x[0].item() == 9
    back = mn.from_numpy(x.array[::-1])
    np.testing.assert_array_equal(np.from_dlpack(back), [3, 2, 9])


def test_dlpack_refuses_what_it_cannot_carry() -> None:
    with pytest.raises(BufferError, match=r"requires grad.*x.detach\(\)"):
        np.from_dlpack(mn.ones(2, requires_grad=True))
    with pytest.raises(BufferError, match=r"bfloat16.*x.to\(minorm.float32\)"):
        mn.ones(2, dtype=mn.bfloat16).__dlpack__()


def test_dlpack_with_torch_both_ways() -> None:
    torch = pytest.importorskip("torch")
    x = mn.tensor([[1.0, 2.0], [3.0, 4.0]])
    theirs = torch.from_dlpack(x)
    theirs[0, 0] = 7
    assert x[0, 0].item() == 7
    assert torch.from_dlpack(mn.from_numpy(x.array[::-1])).tolist() == x.array[::-1].tolist()
    assert mn.from_dlpack(torch.ones(3)).shape == (3,)


def test_format_is_a_numbers_where_there_is_one() -> None:
    assert f"{mn.tensor(2.0 / 3.0):.3f}" == "0.667"
    assert f"{mn.tensor(7)}" == "7"
    assert f"{mn.tensor([1.0, 2.5])}" == "tensor([1. , 2.5])"
    with pytest.raises(TypeError, match=r"^format: '\.3f' is for a number, shape is \(1,\); expected a 0-d tensor$"):
        f"{mn.tensor([1.0]):.3f}"


def test_clone_keeps_the_order_in_memory_and_contiguous_does_not() -> None:
    x = mn.tensor(np.arange(24.0).reshape(1, 2, 3, 4)).permute(0, 3, 1, 2)
    assert x.clone().array.strides == x.array.strides
    assert not np.shares_memory(x.clone().array, x.array)
    assert x.contiguous().array.flags.c_contiguous
    assert x[:, ::-1, ::2].clone().array.strides[1] == x.array.itemsize  # gaps and negative steps go
    np.testing.assert_array_equal(x[:, ::-1, ::2].clone().array, x.array[:, ::-1, ::2])


def test_repr_shows_values_type_and_origin() -> None:
    assert repr(mn.tensor([1.0, 2.5])) == "tensor([1. , 2.5])"
    assert (
        repr(mn.tensor([1.0], dtype=mn.float64, requires_grad=True))
        == "tensor([1.], dtype=float64, requires_grad=True)"
    )
    assert repr(mn.tensor([1.0], requires_grad=True) * 2) == "tensor([2.], creator=Mul)"
    assert "..." in repr(mn.zeros(1000))


def test_item_bool_float_len_index() -> None:
    assert mn.tensor(2.5).item() == 2.5
    assert float(mn.tensor([2.5])) == 2.5
    assert [10, 20, 30][mn.tensor(1)] == 20
    assert len(mn.zeros(4, 2)) == 4
    with pytest.raises(ValueError, match=r"item: only a tensor of one element has an item; shape is \(2,\)"):
        mn.zeros(2).item()
    with pytest.raises(ValueError, match="truth of 2 elements is ambiguous"):
        bool(mn.zeros(2))
    with pytest.raises(TypeError, match="a 0-d tensor has no length"):
        len(mn.tensor(1.0))
    with pytest.raises(TypeError, match="a float32 tensor cannot be an index"):
        [1, 2][mn.tensor(1.0)]


def test_backward_argument_errors() -> None:
    x = mn.ones(2, requires_grad=True)
    with pytest.raises(
        RuntimeError, match=r"backward: gradient is needed for a tensor that is not a scalar; shape is \(2,\)"
    ):
        (x * 2).backward()
    with pytest.raises(
        ValueError, match=r"backward: gradient is float32 of shape \(3,\); expected float32 of shape \(2,\)"
    ):
        (x * 2).backward(np.ones(3))
    with pytest.raises(RuntimeError, match="backward: the tensor does not require grad"):
        mn.ones(1).backward()


def test_detach_shares_memory_and_leaves_the_graph() -> None:
    x = mn.ones(2, requires_grad=True)
    y = (x * 2).detach()
    assert not y.requires_grad
    assert y.creator is None
    d = x.detach()
    d[0] = 5.0
    assert x[0].item() == 5.0


def test_requires_grad_of_a_result_cannot_be_changed() -> None:
    y = mn.ones(2, requires_grad=True) * 2
    for change in (lambda: y.requires_grad_(False), lambda: setattr(y, "requires_grad", False)):
        with pytest.raises(RuntimeError, match="only a leaf's flag can be changed"):
            change()
    x = mn.ones(2)
    for wrong, error in ((1, "requires_grad is 1; expected a bool"), ("yes", "expected a bool")):
        with pytest.raises(TypeError, match=error):
            x.requires_grad = wrong
    with pytest.raises(TypeError, match="only floats can require grad; dtype is int64"):
        mn.arange(2).requires_grad = True
    x.requires_grad = True
    (x * y).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_to_changes_type() -> None:
    x = mn.ones(2, requires_grad=True)
    assert x.to(mn.float32) is x
    y = x.to(mn.float64)
    y.sum().backward()
    assert x.grad.dtype == mn.float32


@pytest.mark.skipif(mn.cuda.is_available(), reason="there is a GPU")
def test_to_says_what_a_gpu_needs() -> None:
    for move in (lambda: mn.ones(2).to("cuda"), mn.ones(2).cuda, lambda: mn.zeros(2, device="cuda")):
        with pytest.raises(RuntimeError, match=r"^cuda: .*(minorm\[cuda|driver)"):
            move()


def test_in_place_methods_outside_the_graph() -> None:
    x = mn.zeros(3)
    x.fill_(2.0).mul_(3.0).add_(1.0, alpha=2.0)
    x[1] = mn.tensor(-1.0)
    x.copy_(x.array[::-1].copy())
    np.testing.assert_array_equal(x.array, [8, -1, 8])
    assert x.version.count == 5


def test_data_is_a_tensor_of_the_same_memory_outside_the_graph() -> None:
    w = nn.Linear(3, 2).weight
    assert type(w.data) is mn.Tensor
    assert w.data.array is w.array
    assert w.data.version is w.version
    assert (w.data.requires_grad, w.data.is_leaf) == (False, True)
    assert not (w.data * 2).requires_grad
    y = w * 2
    assert y.data.is_leaf
    assert y.requires_grad
    memory = w.array
    w.data[0, 0] = 5
    w.data.fill_(3)
    w.data -= 2 * mn.ones(2, 3)
    assert w.array is memory
    assert w.requires_grad
    assert w.tolist() == [[1] * 3] * 2


def test_data_takes_a_tensor_and_shares_its_memory() -> None:
    w, other = nn.Linear(3, 2).weight, mn.zeros(2, 3, requires_grad=True)
    shared, view = w.detach(), w[0]
    w.data = other
    assert w.array is other.array
    assert w.version is other.version
    assert w.requires_grad
    with mn.no_grad():
        other += 1
    assert w.tolist() == [[1] * 3] * 2
    assert view.tolist() == shared[0].tolist() != w[0].tolist()
    y = (w * w).sum()
    with mn.no_grad():
        other += 1
    with pytest.raises(RuntimeError, match=r"^backward of Mul: an input it needs was changed in place"):
        y.backward()


def test_data_takes_an_array_of_its_shape_and_type() -> None:
    w = nn.Linear(3, 2).weight
    shared, array = w.detach(), np.full((2, 3), 7, np.float32)
    view = w[0]
    w.data = array
    assert w.array is array
    assert (w + 1).tolist() == [[8] * 3] * 2
    with mn.no_grad():
        w += 1
    assert array[0, 0] == 8
    assert shared.tolist() != w.tolist()
    assert view.tolist() == shared[0].tolist()
    for wrong in (mn.zeros(2), [[0.0]], np.zeros((2, 3)), np.zeros(3, np.float32), np.zeros((2, 3), ">f4")):
        with pytest.raises((TypeError, ValueError), match=r"^x.data = value: .*expected"):
            w.data = wrong
        assert w.array is array


@pytest.mark.parametrize("change", [lambda p: p.data.mul_(3), lambda p: setattr(p, "data", p.data * 3)])
def test_data_of_a_leaf_changes_as_in_pytorch(change: Callable[[Any], Any]) -> None:
    torch, found = pytest.importorskip("torch"), []
    for library in (mn, torch):
        p = library.tensor([1.0, 2.0], requires_grad=True)
        for _ in range(3):
            (p * p).sum().backward()
            p.data -= 0.25 * p.grad
            change(p)
            p.grad = None
        found.append((p.tolist(), p.requires_grad, p.is_leaf, p.data.requires_grad))
    assert found[0] == found[1]


def test_a_change_through_data_before_backward_is_an_error_where_pytorch_sees_none() -> None:
    torch = pytest.importorskip("torch")
    for library in (mn, torch):
        p = library.tensor([1.0, 2.0], requires_grad=True)
        y = (p * p).sum()
        p.data.fill_(5)
        if library is torch:
            y.backward()  # with what is there now, and not with what y was computed from
            assert p.grad.tolist() == [10, 10]
        else:
            with pytest.raises(RuntimeError, match=r"^backward of Mul: an input it needs was changed in place"):
                y.backward()


def test_a_pickle_from_when_data_was_the_array() -> None:
    class Old:
        def __reduce__(self) -> Any:
            slots = {"creator": None, "data": np.arange(3.0), "grad": None, "output_index": 0, "requires_grad": True}
            return mn.Tensor.__new__, (mn.Tensor,), (None, slots)

    x = pickle.loads(pickle.dumps(Old()))
    assert x.array.tolist() == [0, 1, 2]
    (x * x).sum().backward()
    assert x.grad.tolist() == [0, 2, 4]
    x.data -= x.grad
    assert pickle.loads(pickle.dumps(x)).tolist() == copy.deepcopy(x).tolist() == [0, -1, -2]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_hooks_are_not_copied(copied: Any) -> None:
    """As in PyTorch; a hook may be a lambda, which pickle refuses."""
    x = mn.ones(2, requires_grad=True)
    x.register_hook(lambda g: g * 10)
    other = copied(x)
    for tensor in (x, other):
        (tensor * 2).sum().backward()
    assert x.grad is not None
    assert (x.grad.tolist(), other.grad.tolist()) == ([20, 20], [2, 2])


def test_a_new_array_leaves_the_graph_of_the_old_one_alone() -> None:
    w = mn.tensor([1.0, 2.0], requires_grad=True)
    y = (w * w).sum()
    w.data = np.array([5, 5], np.float32)
    y.backward()
    assert w.grad.tolist() == [2, 4]


def test_modules_change_type_with_what_shares_nothing() -> None:
    layer = nn.Linear(2, 2).half()
    assert layer.weight.dtype == mn.float16
    assert layer.double().weight.array.dtype == np.float64


def test_tensors_hash_by_identity() -> None:
    x, y = mn.ones(2), mn.ones(2)
    assert len({x, y, x}) == 2
    assert copy.copy(x).shape == (2,)


def test_iteration_and_unpacking() -> None:
    a, b = mn.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert a.tolist() == [1, 2]
    assert b.tolist() == [3, 4]
    with pytest.raises(TypeError, match="0-d tensor cannot be iterated"):
        iter(mn.tensor(1.0))


def test_integers_and_bools_carry_no_gradient() -> None:
    x = mn.tensor([1.5, 2.5], requires_grad=True)
    for dtype in (mn.int64, mn.uint8, mn.bool):
        assert not x.to(dtype).requires_grad
    assert x.double().requires_grad


@pytest.mark.parametrize("name", ["__torch_function__", "__torch_dispatch__"])
def test_a_subclass_with_a_function_that_would_not_be_called_is_an_error(name: str) -> None:
    with pytest.raises(TypeError, match=f"Mine: {name} would not be called"):
        type("Mine", (mn.Tensor,), {name: classmethod(lambda cls: None)})
    assert issubclass(type("Mine", (mn.Tensor,), {}), mn.Tensor)


@pytest.mark.parametrize(
    "arguments",
    [
        ("cpu", "float64", True),
        ("cpu", "float32", False, True),
        ("cpu", "float32", True, False),
        ("float64", True),
        ("float32", True, True),
        ("float32", False, False),
        ("other", True),
        ("other", False, True),
        (None, "float64", True),
        (None,),
    ],
)
def test_flags_by_their_places(arguments: tuple[Any, ...]) -> None:
    """non_blocking and copy stand last, as in PyTorch."""
    torch = pytest.importorskip("torch")
    answers = []
    for library in (mn, torch):
        x, other = library.ones(2), library.zeros(1, dtype=library.float64)
        names = {"float32": library.float32, "float64": library.float64, "other": other}
        y = x.to(*[names.get(a, a) if isinstance(a, str) else a for a in arguments])
        answers.append((str(y.dtype).removeprefix("torch."), y is x, y.tolist()))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("arguments", [(True,), (mn.float64, True, True, True), (mn.float64, True, "cpu")])
def test_flags_out_of_place(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(
        TypeError, match=r"to: the arguments are .*; expected a device, a type or a Tensor, then bools for"
    ):
        mn.ones(2).to(*arguments)
