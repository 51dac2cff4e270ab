"""Tensors on a GPU: there, back, and never by halves on two devices."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn

pytestmark = pytest.mark.usefixtures("cuda")


def host(tensor: Any) -> np.ndarray:
    return tensor.detach().cpu().numpy()


# Tensors


@pytest.mark.parametrize("dtype", [mn.float32, mn.float64, mn.float16, mn.bfloat16, mn.int64, mn.uint8, mn.bool])
def test_there_and_back_keeps_the_bits(dtype: Any, cuda: Any) -> None:
    x = mn.tensor(np.random.default_rng(0).integers(0, 2, (3, 4)), dtype)
    y = x.to("cuda")
    assert (y.device, y.is_cuda, y.dtype, y.shape) == ("cuda:0", True, dtype, (3, 4))
    assert isinstance(y.data, cuda.ndarray)
    assert cuda.transfers.to_device == 1
    back = y.cpu()
    assert (back.device, back.is_cuda) == ("cpu", False)
    np.testing.assert_array_equal(back.numpy(), x.numpy())
    assert cuda.transfers.to_host == 1


def test_where_nothing_changes_the_tensor_is_itself() -> None:
    x = mn.ones(2).cuda()
    for same in (x.to("cuda"), x.to("cuda:0"), x.cuda(), x.cuda(0), x.to(x), x.to(device="cuda", dtype=mn.float32)):
        assert same is x
    assert x.cuda(1).device == "cuda:1"
    assert x.to("cuda:1", mn.float64).dtype == mn.float64


def test_the_current_device_is_what_cuda_means() -> None:
    assert mn.cuda.device_count() == 2
    mn.cuda.set_device(1)
    assert mn.cuda.current_device() == 1
    x = mn.ones(2).to("cuda")
    assert x.device == "cuda:1"
    assert (x + x).device == "cuda:1"
    mn.cuda.set_device("cuda:0")
    assert (x * 2).device == "cuda:1"  # what is made beside an array is made on its device


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(RuntimeError, match=r"device: 'cuda:2' is not there; this machine has 2"):
        mn.ones(2).to("cuda:2")


def test_gradients_follow_a_tensor_to_its_device() -> None:
    x = mn.ones(3, requires_grad=True)
    (x.to("cuda") * 2).sum().backward()
    assert x.grad.device == "cpu"
    np.testing.assert_array_equal(x.grad.numpy(), [2, 2, 2])
    y = mn.ones(3, device="cuda", requires_grad=True)
    (y.to("cuda:1") * 3).to(mn.float64).cpu().sum().backward()
    assert y.grad.device == "cuda:0"
    np.testing.assert_array_equal(host(y.grad), [3, 3, 3])


def test_numpy_is_refused_with_the_way_out(cuda: Any) -> None:
    x = mn.ones(3, device="cuda")
    for convert in (x.numpy, lambda: np.asarray(x)):
        with pytest.raises(TypeError, match=r"the tensor is on 'cuda:0'.*use x.cpu\(\).numpy\(\)"):
            convert()
    before = cuda.transfers.to_host
    assert (x[0].item(), float(x[1]), x.tolist(), bool(x.sum() > 2)) == (1.0, 1.0, [1, 1, 1], True)
    assert cuda.transfers.to_host == before + 4
    assert repr(x) == "tensor([1., 1., 1.], device='cuda:0')"


def test_around_an_array_of_cupy_without_a_copy(cuda: Any) -> None:
    array = cuda.ones((2, 3), np.float32)
    for x in (mn.Tensor(array), mn.as_tensor(array), nn.Parameter(array)):
        assert x.data is array
    copied = mn.tensor(array)
    assert (copied.device, copied.data is array) == ("cuda:0", False)
    assert mn.tensor(array, mn.float64, "cpu").device == "cpu"


@pytest.mark.parametrize(
    "make",
    [
        lambda device: mn.tensor([1.0, 2.0], device=device),
        lambda device: mn.zeros(2, 3, device=device),
        lambda device: mn.ones((2, 3), dtype=mn.bfloat16, device=device),
        lambda device: mn.full((2,), 3.0, device=device),
        lambda device: mn.arange(5, device=device),
        lambda device: mn.arange(0, 1, 0.25, device=device),
        lambda device: mn.linspace(0, 1, 5, device=device),
        lambda device: mn.eye(3, device=device),
        lambda device: mn.randn(2, 3, device=device),
        lambda device: mn.rand(2, 3, dtype=mn.float64, device=device),
        lambda device: mn.randint(0, 9, (4,), device=device),
        lambda device: mn.randperm(7, device=device),
        lambda device: mn.zeros_like(mn.ones(2), device=device),
        lambda device: mn.ones_like(mn.ones(2, device=device)),
        lambda device: mn.full_like(mn.ones(2, device=device), 7),
    ],
)
def test_creation(make: Callable[[str], mn.Tensor]) -> None:
    mn.manual_seed(3)
    expected = make("cpu")
    mn.manual_seed(3)
    x = make("cuda:1")
    assert (x.device, x.dtype, x.shape) == ("cuda:1", expected.dtype, expected.shape)
    np.testing.assert_array_equal(host(x), expected.numpy())


def test_changes_in_place() -> None:
    x = mn.zeros(2, 3, device="cuda")
    x.fill_(2).add_(1).mul_(x)
    x[0] = [1, 2, 3]
    x[1, 1:] = mn.tensor([7.0, 8.0]).cuda()
    np.testing.assert_array_equal(host(x), [[1, 2, 3], [9, 7, 8]])
    x.copy_(mn.ones(3))  # from another device, as in PyTorch
    np.testing.assert_array_equal(host(x), np.ones((2, 3)))
    y = mn.zeros(3).copy_(x[0])
    assert y.device == "cpu"
    for change in (lambda: x.add_(y), lambda: y.add_(x[0]), lambda: x.__setitem__(0, y), lambda: y.mul_(x[0])):
        with pytest.raises(RuntimeError, match=r"expected one device; use value.to\('c"):
            change()


def test_scalars_are_made_on_the_device(cuda: Any) -> None:
    x = mn.ones(3, device="cuda", requires_grad=True)
    cuda.transfers.clear()
    (2 / ((x * 2 + 1) ** 2 - np.float32(0.5))).sum().backward()
    assert (cuda.transfers.to_device, cuda.transfers.to_host) == (0, 0)


# Mixing devices


def pair(*shapes: tuple[int, ...]) -> list[mn.Tensor]:
    """Tensors in turn on the GPU and on the CPU."""
    return [mn.rand(*shape, device=("cuda", "cpu")[i % 2]) for i, shape in enumerate(shapes)]


MIXED: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "matmul": lambda x, y: x @ y,
    "cat": lambda x, y: mn.cat([x, y]),
    "where": lambda x, y: mn.where(x > 0, x, y),
    "maximum": mn.maximum,
    "compare": lambda x, y: x < y,
    "gather": lambda x, y: x.gather(0, y.long()),
    "linear": F.linear,
    "mse_loss": F.mse_loss,
    "cross_entropy": lambda x, y: F.cross_entropy(x, y[0].long()),
    "nll_loss": lambda x, y: F.nll_loss(x, y[0].long()),
    "binary_cross_entropy_with_logits": F.binary_cross_entropy_with_logits,
    "layer_norm": lambda x, y: F.layer_norm(x, 4, y[0]),
    "batch_norm": lambda x, y: F.batch_norm(x, y[0], y[1] + 1, training=True),
    "batch_norm in evaluation": lambda x, y: F.batch_norm(x, y[0], y[1] + 1),
    "group_norm": lambda x, y: F.group_norm(x, 2, y[0], y[1]),
    "conv1d": lambda x, y: F.conv1d(x.reshape(1, 4, 4), y.reshape(4, 4, 1)),
    "conv_transpose1d": lambda x, y: F.conv_transpose1d(x.reshape(1, 4, 4), y.reshape(4, 4, 1)),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("swapped", [False, True])
def test_mixing_devices_is_one_clear_error(name: str, swapped: bool) -> None:
    x, y = pair((4, 4), (4, 4))
    if swapped:
        x, y = y, x
    operation = re.split("[_ ]", name)[0]
    with pytest.raises(RuntimeError, match=rf"(?i)^{operation}\w*: .* is on c.* is on c.*; expected one device"):
        MIXED[name](x, y)


def test_mixing_says_which_argument_is_where() -> None:
    x, weight, bias = mn.ones(2, 3, device="cuda"), mn.ones(5, 3, device="cuda"), mn.ones(5)
    with pytest.raises(RuntimeError) as error:
        F.linear(x, weight, bias)
    assert str(error.value) == (
        "linear: x is on cuda:0, weight is on cuda:0, bias is on cpu; expected one device; move them with .to(device)"
    )
    with pytest.raises(RuntimeError, match=r"x is on cuda:0, weight is on cuda:1"):
        F.linear(x, weight.to("cuda:1"))
    with pytest.raises(
        RuntimeError, match=r"add: operands are on cuda:0 and cpu.*minorm.tensor\(array, device='cuda:0'"
    ):
        x + np.ones((2, 3), np.float32)
    with pytest.raises(RuntimeError, match=r"index: x is on cpu, the index on cuda:0; .*use index.to\('cpu'\)"):
        mn.ones(4)[mn.arange(2, device="cuda")]
    with pytest.raises(RuntimeError, match=r"backward: gradient is on cpu, the tensor on cuda:0"):
        (weight.requires_grad_() * 2).backward(mn.ones(5, 3))


# Other libraries, memory


def test_dlpack_out_and_in(cuda: Any) -> None:
    x = mn.randn(2, 3).to("cuda")
    assert x.__dlpack_device__() == (2, 0)
    y = mn.from_dlpack(x)
    assert y.device == "cuda:0"
    assert y.data.data.ptr == x.data.data.ptr
    assert cuda.transfers.streams == [1]  # the consumer names its stream, and CuPy makes it wait
    cuda.transfers.clear()
    assert mn.from_dlpack(x.data[::-1].copy()).shape == (2, 3)
    with pytest.raises(BufferError, match="requires grad"):
        x.requires_grad_().__dlpack__()
    assert cuda.transfers.to_host == 0


def test_memory_statistics(cuda: Any) -> None:
    before = mn.cuda.memory_allocated()
    x = mn.zeros(1000, 1000, device="cuda")
    assert mn.cuda.memory_allocated() - before == 4_000_000
    stats = mn.cuda.memory_stats()
    assert stats["reserved_bytes.all.current"] >= stats["allocated_bytes.all.current"] == mn.cuda.memory_allocated(0)
    del x
    mn.cuda.empty_cache()
    assert mn.cuda.memory_reserved() == mn.cuda.memory_allocated("cuda:0")
    free, total = mn.cuda.mem_get_info()
    assert 0 < free < total
    mn.cuda.synchronize()
    with pytest.raises(ValueError, match="'cpu' is no GPU"):
        mn.cuda.memory_stats("cpu")


def test_what_is_there_is_told() -> None:
    assert mn.cuda.is_available()
    assert mn.cuda.get_device_name() == "NVIDIA Double"
    facts = mn.show_config("dicts")
    assert facts is not None
    assert facts["cuda"] == "NVIDIA Double, NVIDIA Double; CuPy 14.2.0 for CUDA 12.9, driver for 12.8"


def test_a_label_that_is_no_class_makes_the_loss_nan(cuda: Any) -> None:
    """On the CPU it is a ValueError; to raise one here the host would have to wait."""
    x = mn.randn(4, 3, device="cuda", requires_grad=True)
    weight = mn.ones(3, device="cuda")
    labels = {bad: mn.tensor([0, 2, bad, -100], device="cuda") for bad in (3, -1, 1)}
    cuda.transfers.clear()
    losses = {
        bad: (F.cross_entropy(x, t), F.cross_entropy(x, t, weight), F.nll_loss(x, t), F.nll_loss(x, t, weight))
        for bad, t in labels.items()
    }
    for several in losses.values():
        for loss in several:
            loss.backward()
    assert cuda.transfers.to_host == 0
    for bad, several in losses.items():
        assert [np.isnan(loss.item()) for loss in several] == [bad != 1] * 4
