"""PyTorch's places: modules, settings and classes that programs import before they compute anything."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import minorm as mn


def test_modules_are_reached_by_name_and_by_import(monkeypatch: pytest.MonkeyPatch) -> None:
    import minorm.nn.functional as F
    import minorm.utils.data

    assert F.relu is mn.functional.relu is mn.nn.functional.relu
    assert minorm.utils.data.DataLoader is mn.data.DataLoader is mn.utils.data.DataLoader
    monkeypatch.setattr(mn.backends.cudnn, "benchmark", True)
    assert mn.backends.cudnn.is_available() == mn.cuda.is_available()
    assert not mn.backends.mps.is_available()
    with pytest.raises(AttributeError, match="module 'minorm' has no attribute 'nothing'"):
        _ = mn.nothing


def test_import_leaves_out_what_nobody_asked_for() -> None:
    code = "import sys, minorm as mn; late = [n for n in ('data', 'onnx', 'utils', 'training', 'backends') if "
    code += "f'minorm.{n}' in sys.modules]; assert not late, late; mn.data.DataLoader; mn.einsum"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_dir_shows_public_names_alone() -> None:
    shown = set(dir(mn))
    assert {"Tensor", "topk", "einsum", "nn", "data", "onnx", "device", "float32", "long"} <= shown
    assert not shown & {"minorm", "importlib", "tensor_file", "atomic", "creation", "shapes", "TYPE_CHECKING", "Any"}
    assert all(hasattr(mn, name) for name in shown - {"onnx"})


def test_a_device_is_a_text_with_parts() -> None:
    assert mn.device("cuda", 1) == mn.device("cuda:1") == mn.device(1) == "cuda:1"
    assert (mn.device("cuda:1").type, mn.device("cuda:1").index) == ("cuda", 1)
    assert (mn.device("cpu").type, mn.device("cpu").index) == ("cpu", None)
    x = mn.ones(2, device=mn.device("cpu"))
    assert x.device == mn.device("cpu")
    assert x.device.type == "cpu"
    assert x.is_cpu
    assert x.get_device() == -1
    assert x.to(mn.device("cpu"), non_blocking=True) is x
    with pytest.raises(ValueError, match="expected 'cpu', 'cuda' or 'cuda:0'"):
        mn.device("tpu")


def test_types_sizes_and_orders_in_memory() -> None:
    assert (mn.half, mn.float, mn.double, mn.int, mn.long) == (mn.float16, mn.float32, mn.float64, mn.int32, mn.int64)
    assert isinstance(mn.ones(1).dtype, mn.dtype)
    assert mn.Size([2, 3]) == mn.ones(2, 3).shape
    assert mn.Size([2, 3]).numel() == 6
    x = mn.randn(2, 3, 4, 5)
    y = x.to(memory_format=mn.channels_last)
    np.testing.assert_array_equal(x.numpy(), y.numpy())
    assert y.permute(0, 2, 3, 1).is_contiguous()
    assert not y.is_contiguous()
    assert y.contiguous().is_contiguous()
    assert x.to(mn.float32, copy=True) is not x


def test_the_default_type_is_that_of_numbers_and_of_new_layers() -> None:
    try:
        mn.set_default_dtype(mn.float64)
        assert mn.get_default_dtype() == mn.float64
        made = mn.tensor([1.5]), mn.zeros(1), mn.randn(1), mn.linspace(0, 1, 2), mn.arange(0, 1, 0.5), mn.eye(2)
        assert {x.dtype for x in made} == {mn.float64}
        model = mn.nn.Sequential(mn.nn.Linear(2, 3), mn.nn.BatchNorm1d(3))
        assert {v.dtype for v in model.state_dict().values()} == {mn.float64, mn.int64}
        assert (mn.arange(3) / 2).dtype == mn.float64
    finally:
        mn.set_default_dtype(mn.float32)
    with pytest.raises(TypeError, match="set_default_dtype: d is int64; expected a float type"):
        mn.set_default_dtype(mn.int64)


def test_idioms_with_data() -> None:
    w = mn.nn.Parameter(mn.zeros(2, 3))
    w.data.fill_(2)
    mn.nn.init.ones_(w.data)
    w.data = w.data * 3
    w.data -= 1
    assert w.tolist() == [[2.0] * 3] * 2
    assert w.requires_grad


def test_what_a_tensor_says_of_itself() -> None:
    x = mn.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    assert 3.0 in x
    assert 5.0 not in x
    assert x.element_size() == 4
    assert x.nelement() == x.numel() == mn.numel(x) == 4
    assert x.nbytes == 16
    assert x.is_floating_point()
    assert mn.is_floating_point(x)
    assert not x.is_complex()
    assert x.is_signed()
    assert mn.is_tensor(x)
    assert not mn.is_tensor(x.numpy())
    assert x.grad_fn is None
    assert type((x * 2).grad_fn).__name__ == "Mul"
    assert x.stride() == (2, 1)
    assert x.t().stride(0) == 1
    assert x.equal(x.clone())
    assert mn.equal(x, x)
    assert not x.equal(x + 1)
    assert x.is_same_size(x + 1)
    assert x.type_as(mn.arange(2)).dtype == mn.int64
    assert x.type() == "float32"
    new = x.new_zeros(2), x.new_ones((2,)), x.new_tensor([1, 2]), x.new_full((2,), 7), x.new_empty(2)
    assert {y.dtype for y in new} == {mn.float32}
    assert {y.shape for y in new} == {(2,)}
    y = (x * 2).relu()
    assert not mn.detach(y).requires_grad
    assert not y.detach_().requires_grad
    assert y.is_leaf


def test_a_function_names_a_first_argument_that_is_no_tensor() -> None:
    with pytest.raises(TypeError, match="topk: x is ndarray; expected a Tensor"):
        mn.topk(np.ones(3), 2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="topk: there is no argument 'largst'; did you mean 'largest'"):
        mn.topk(mn.ones(3), 2, largst=True)  # type: ignore[call-arg]
    assert mn.softmax(input=mn.zeros(2), dim=0).tolist() == [0.5, 0.5]  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mn.ones(3).topk(4), "topk: k=4; expected 0 to 3"),
        (lambda: mn.ones(3).masked_fill(mn.ones(3), 0), "masked_fill: mask is float32; expected bool"),
        (lambda: mn.ones(2, 3).mm(mn.ones(3)), "mm: x is (2, 3), y is (3,); expected 2 axes"),
        (lambda: mn.ones(3).scatter(0, mn.tensor([5]), 1.0), "scatter: index holds 5; expected -3 to 2"),
        (lambda: mn.ones(2, 6).unflatten(1, (4, -1)), "unflatten: sizes (4, -1)"),
        (lambda: mn.ones(3).norm("nuc"), "norm: p is 'nuc'"),
        (lambda: mn.ones(2, 2, 2).t(), "t: x has shape (2, 2, 2); expected at most 2 axes"),
        (lambda: mn.ones(3).bincount(), "bincount: x is float32"),
        (lambda: mn.tensor([1, 2]).bincount(mn.ones(3)), "bincount: weights has shape (3,), x (2,); expected equal"),
        (lambda: mn.ones(3).narrow(0, 2, 2), "narrow: start=2, length=2"),
        (lambda: mn.arange(3).exp_(), "exp_: the result is float32, x is int64"),
        (lambda: mn.ones(3).cumsum(1), "cumsum: dim=1 is out of range"),
    ],
)
def test_errors_say_what_came_and_what_is_expected(call: object, message: str) -> None:
    with pytest.raises((ValueError, TypeError, IndexError)) as caught:
        call()  # type: ignore[operator]
    assert str(caught.value).startswith(message)


def test_the_older_place_of_amp() -> None:
    from minorm.cuda.amp import GradScaler, autocast

    assert GradScaler is mn.amp.GradScaler
    with autocast(dtype=mn.bfloat16):
        assert mn.is_autocast_enabled("cuda")
        assert mn.get_autocast_dtype("cuda") == mn.bfloat16
    with autocast(enabled=False):
        assert not mn.is_autocast_enabled("cuda")


def test_switches_change_nothing() -> None:
    import minorm.backends.cudnn as cudnn

    cudnn.deterministic = True
    mn.use_deterministic_algorithms(True, warn_only=True)
    mn.set_float32_matmul_precision("highest")
    model = mn.nn.Linear(2, 2)
    assert mn.compile(model) is model
    assert mn.compile(mode="max-autotune")(model) is model
    assert not mn.backends.mkldnn.is_available()


def test_seeds_and_words_of_the_gpu() -> None:
    if not mn.cuda.is_available():
        mn.manual_seed(3)
        mn.cuda.manual_seed_all(5)
        first = mn.rand(2).tolist()
        mn.manual_seed(3)
        assert mn.rand(2).tolist() == first
    assert mn.accelerator.is_available() == mn.cuda.is_available()
    assert mn.accelerator.device_count() == mn.cuda.device_count()
    expected = mn.device("cuda") if mn.cuda.is_available() else None
    assert mn.accelerator.current_accelerator() == expected


def test_older_constructors() -> None:
    assert mn.LongTensor([3, 1]).dtype == mn.int64
    assert mn.FloatTensor(2, 3).shape == (2, 3)
    assert mn.ByteTensor().shape == (0,)
    assert mn.BoolTensor(np.ones(2)).tolist() == [True, True]
    assert mn.Tensor([1, 2.5]).dtype == mn.get_default_dtype()
    assert mn.ones(2).type(mn.LongTensor).dtype == mn.int64
    x = mn.ones(2, requires_grad=True)
    y = mn.autograd.Variable(x * 2)
    assert not y.requires_grad
    assert y.creator is None
    assert mn.autograd.Variable(x, requires_grad=True).requires_grad


def test_numbers_and_limits() -> None:
    assert (mn.inf, mn.pi) == (float("inf"), np.pi)
    assert mn.nan != mn.nan
    assert mn.finfo(mn.float16).max == 65504
    assert mn.iinfo(mn.int8).min == -128


def test_nn_parallel_says_where_to_go() -> None:
    with pytest.raises(AttributeError, match=r"minorm\.nn\.parallel.*'DataParallel'; processes .* minorm\.distributed"):
        _ = mn.nn.parallel.DataParallel


def test_cdist_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 3, 4)), rng.standard_normal((5, 4))
    y[0] = x[0, 0]
    for p in (2.0, 1.0, 3.0, float("inf")):
        a, b = mn.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        found, expected = mn.cdist(a, mn.tensor(y), p), torch.cdist(b, torch.tensor(y), p)
        np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-7)
        found.sum().backward()
        expected.sum().backward()
        np.testing.assert_allclose(a.grad.numpy()[1], b.grad.numpy()[1], rtol=1e-9)
    with pytest.raises(ValueError, match=r"cdist: x1 has shape \(4,\)"):
        mn.cdist(mn.ones(4), mn.ones(2, 4))


def test_layers_are_in_nn_modules_too() -> None:
    from minorm.nn.modules import Module, PixelShuffle

    assert Module is mn.nn.Module
    assert PixelShuffle is mn.nn.PixelShuffle
    assert mn.nn.modules.Linear is mn.nn.Linear
