"""Tensors on a GPU: made there, brought there and back, changed there. Two devices at once: test_mixing.py."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import devices

pytestmark = pytest.mark.usefixtures("cuda")


def host(tensor: Any) -> np.ndarray:
    return tensor.detach().cpu().numpy()


@pytest.mark.parametrize("dtype", [mn.float32, mn.float64, mn.float16, mn.bfloat16, mn.int64, mn.uint8, mn.bool])
def test_there_and_back_keeps_the_bits(dtype: Any, cuda: Any) -> None:
    x = mn.tensor(np.random.default_rng(0).integers(0, 2, (3, 4)), dtype)
    y = x.to("cuda")
    assert (y.device, y.is_cuda, y.dtype, y.shape) == ("cuda:0", True, dtype, (3, 4))
    assert isinstance(y.array, cuda.ndarray)
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


def test_counts_and_bounds_are_taken_there() -> None:
    x = mn.tensor([3, 0, 3, 1])
    weights = mn.tensor([0.5, 1.0, 2.0, 4.0])
    for given in ((), (weights,)):
        found = x.to("cuda").bincount(*(w.to("cuda") for w in given), minlength=6)
        assert found.is_cuda
        assert host(found).tolist() == x.bincount(*given, minlength=6).tolist()
    assert host(weights.to("cuda").histc(4)).tolist() == weights.histc(4).tolist()


def test_a_copy_between_gpus_keeps_the_order_of_both_streams(cuda: Any) -> None:
    here, there = mn.cuda.Stream("cuda:0"), mn.cuda.Stream("cuda:1")
    with here:
        x = mn.ones(3, device="cuda:0")
        with there:
            cuda.transfers.clear()
            with mn.cuda.stream(here):
                y = x.to("cuda:1")
    assert y.device == "cuda:1"
    assert cuda.transfers.waits == [  # (who waits, for whom)
        (there.cuda_stream, here.cuda_stream), (here.cuda_stream, there.cuda_stream),
    ]  # fmt: skip
    assert cuda.transfers.places == [(1, 0), (0, 1)]
    assert cuda.transfers.to_host == 0


def test_an_array_comes_to_the_cpu_on_a_stream_of_its_own_gpu(cuda: Any) -> None:
    x = mn.ones(3, device="cuda:1")
    with mn.cuda.Stream("cuda:0"):
        with pytest.raises(RuntimeError, match="a stream of another device"):
            x.array.get()  # as CuPy would do it
        assert x.cpu().tolist() == x.tolist() == [1, 1, 1]
        assert x.sum().item() == 3
        assert x[0]


def test_a_constant_is_copied_once_and_a_graph_keeps_it(cuda: Any) -> None:
    devices._kept.cache_clear()
    like = mn.ones(3, device="cuda:1").array
    with like.device:
        first = devices.constant_of(np.arange(5), like)
        cuda.transfers.clear()
        assert devices.constant_of(np.arange(5), like) is first
        assert (cuda.transfers.to_device, cuda.transfers.waits) == (0, [])
        with mn.cuda.stream(mn.cuda.Stream("cuda:1")):
            assert devices.constant_of(np.arange(5), like) is first
            assert len(cuda.transfers.waits) == 1, "the copy went on another stream"
            graph = mn.cuda.CUDAGraph()
            with mn.cuda.graph(graph):
                mn.Tensor(devices.constant_of(np.arange(5), like)) + 1
        kept = weakref.ref(first)
        del first
        devices._kept.cache_clear()
        gc.collect()
        assert kept() is not None, "a replay reads it"
    assert devices.constant_of(np.arange(4), np.ones(1)).tolist() == [0, 1, 2, 3]
    large = np.zeros(devices.KEPT_BYTES + 1, np.uint8)
    assert devices.constant_of(large, like) is not devices.constant_of(large, like)
    assert devices.constant_of(np.zeros((0, 2), mn.bfloat16), like).shape == (0, 2)


def test_attention_does_not_ask_whether_every_row_sees_something(cuda: Any) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, 3, 4)).astype(np.float32) for _ in range(3)]
    masks = [np.array([[True, False, True], [True, True, False], [False, True, True]]), np.eye(3, dtype=bool)]
    masks[1][2] = False  # the last one sees nothing
    found: dict[str, list[Any]] = {}
    for device in ("cpu", "cuda"):
        q, k, v = (mn.tensor(array).to(device) for array in arrays)
        given = [mn.tensor(mask).to(device) for mask in masks]
        cuda.transfers.clear()
        results = [F.scaled_dot_product_attention(q, k, v, mask) for mask in given]
        results.append(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        assert cuda.transfers.to_host == 0
        found[device] = [result.cpu().numpy() for result in results]
    for gpu, cpu in zip(found["cuda"], found["cpu"], strict=True):
        np.testing.assert_allclose(gpu, cpu, rtol=1e-5, atol=1e-6)
