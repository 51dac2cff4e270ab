"""The backward walk: order, accumulation, depth, freeing, versions, modes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn
from minorm.autograd import Function


def leaf(*values: float) -> mn.Tensor:
    return mn.tensor(list(values), requires_grad=True)


def test_a_diamond_adds_both_paths() -> None:
    x = leaf(3.0)
    a, b = x * 2.0, x * x
    (a * b).sum().backward()  # 2x * x^2 -> 6 x^2
    assert x.grad.item() == 54.0


def test_a_tensor_used_many_times_accumulates() -> None:
    x = leaf(1.0, 2.0)
    (x + x + x + x * x).sum().backward()
    np.testing.assert_array_equal(x.grad.array, [5.0, 7.0])


def test_two_backwards_add_up_in_grad() -> None:
    x = leaf(1.0)
    for _ in range(3):
        (x * 2.0).backward()
    assert x.grad.item() == 6.0


def test_a_chain_of_20000_operations_works_and_is_freed() -> None:
    x = leaf(1.0)
    y = x
    for _ in range(20_000):
        y = y + 1.0
    y.backward()
    assert x.grad.item() == 1.0
    del y
    y = x
    for _ in range(20_000):
        y = y * 1.0
    del y  # an unwalked chain is freed without recursion too


def test_a_result_that_nobody_needs_is_gone_before_its_gradient_is_passed_on() -> None:
    gone = []

    class Twice(Function):
        def forward(self, x: np.ndarray) -> np.ndarray:
            y = x * 2
            self.result = weakref.ref(y)
            return y

        def backward(self, dy: np.ndarray) -> np.ndarray:
            gone.append(self.result() is None)
            return dy * 2

    y = Twice.apply(Twice.apply(Twice.apply(leaf(1.0))))
    y.backward()
    assert gone == [False, True, True]  # y is still held here


def test_leaves_never_share_gradient_memory() -> None:
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (a + b).sum().backward()
    a.grad.mul_(10.0)
    np.testing.assert_array_equal(b.grad.array, [1.0, 1.0])


def test_the_gradient_given_is_not_kept() -> None:
    x = leaf(1.0, 2.0)
    weights = np.ones(2, np.float32)
    x.backward(weights)
    x.grad.mul_(5.0)
    np.testing.assert_array_equal(weights, [1.0, 1.0])


def test_a_second_backward_names_the_operation_and_the_way_out() -> None:
    y = leaf(1.0) * 2.0
    y.backward()
    with pytest.raises(RuntimeError, match=r"graph of Mul was freed.*retain_graph=True"):
        y.backward()


def test_retain_graph_walks_twice() -> None:
    x = leaf(2.0)
    y = x * x
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.item() == 8.0


def test_backward_frees_what_forward_kept() -> None:
    class Keep(Function):
        def forward(self, x):
            self.extra = Big()
            Keep.seen = weakref.ref(self.extra)
            return x.copy()

        def backward(self, dy):
            return dy

    class Big:
        pass

    y = Keep.apply(leaf(1.0))
    assert Keep.seen() is not None
    y.backward()
    gc.collect()
    assert Keep.seen() is None


def test_an_in_place_change_of_a_kept_input_is_an_error() -> None:
    x = leaf(1.0, 2.0)
    h = x * 1.0
    y = h * h
    h.detach()[0] = 9.0
    with pytest.raises(
        RuntimeError, match=r"backward of Mul: an input it needs was changed in place.*version 1, expected 0"
    ):
        y.sum().backward()


def test_an_in_place_change_of_a_kept_output_is_an_error() -> None:
    x = leaf(1.0)
    y = x.exp()
    z = y * 2.0
    with mn.no_grad():
        y.mul_(3.0)
    with pytest.raises(RuntimeError, match="backward of Exp: an output it needs was changed in place"):
        z.backward()


def test_an_in_place_change_that_backward_does_not_need_is_fine() -> None:
    x = leaf(1.0)
    h = x * 1.0
    y = h + 1.0
    h.detach().fill_(7.0)
    y.backward()
    assert x.grad.item() == 1.0


def test_a_view_shares_the_version() -> None:
    x = leaf(1.0, 2.0, 3.0, 4.0)
    h = x * 1.0
    y = h * h
    h.detach().reshape(2, 2)[0, 0] = 5.0
    with pytest.raises(RuntimeError, match="changed in place"):
        y.sum().backward()


def test_in_place_on_a_tensor_in_the_graph_is_refused() -> None:
    x = leaf(1.0)
    with pytest.raises(RuntimeError, match=r"fill_: the tensor is a leaf that requires grad.*no_grad"):
        x.fill_(2.0)
    with mn.no_grad():
        x.fill_(2.0)
    assert x.item() == 2.0


def test_no_grad_leaves_no_graph_and_nests() -> None:
    x = leaf(1.0)
    with mn.no_grad():
        assert not (x * 2.0).requires_grad
        with mn.enable_grad():
            assert (x * 2.0).requires_grad
        assert not mn.is_grad_enabled()
    assert (x * 2.0).requires_grad


def test_no_grad_is_a_decorator_and_ends_with_an_error() -> None:
    @mn.no_grad()
    def evaluate(x):
        raise KeyError("stop")

    with pytest.raises(KeyError):
        evaluate(leaf(1.0))
    assert mn.is_grad_enabled()


def test_the_mode_belongs_to_its_thread() -> None:
    seen = []
    with mn.no_grad():
        thread = threading.Thread(target=lambda: seen.append(mn.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_retain_grad_of_an_intermediate() -> None:
    x = leaf(3.0)
    h = x * 2.0
    h.retain_grad()
    (h * h).backward()
    assert h.grad.item() == 12.0
    assert x.grad.item() == 24.0


@pytest.mark.parametrize("dtype", [mn.float32, mn.float64, mn.float16])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("layer", ["conv", "norm", "relu", "pool", "linear"])
def test_a_sum_that_the_second_backward_adds_has_the_bits_of_an_addition(layer: str, times: int, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x, w = (mn.tensor(rng.standard_normal(shape)).to(dtype) for shape in [(2, 3, 4, 4), (3, 3, 3, 3)])
    v = mn.tensor(rng.standard_normal((4, 4))).to(dtype)
    functions = {
        "conv": lambda x: mn.functional.conv2d(x, w, padding=1),
        "norm": lambda x: mn.functional.batch_norm(x, None, None, training=True),
        "relu": mn.functional.relu,
        "pool": lambda x: mn.functional.max_pool2d(x, 3, 1, 1),
        "linear": lambda x: mn.functional.linear(x, v),
    }
    function = functions[layer]
    dy = mn.tensor(rng.standard_normal((2, 3, 4, 4))).to(dtype)
    (alone,) = mn.autograd.grad(function(x.requires_grad_()), x, dy)
    other = mn.zeros(2, 3, 4, 4, dtype=dtype, requires_grad=True)
    y = function(x) + (x + other)  # the addition sends its gradient, dy itself, first
    before = dy.numpy().copy()
    for _ in range(times):
        x.grad = other.grad = None
        y.backward(dy, retain_graph=True)
        assert x.grad.numpy().tobytes() == (alone + dy).numpy().tobytes()
        assert other.grad.numpy().tobytes() == dy.numpy().tobytes() == before.tobytes()


def test_what_a_function_keeps_as_total_is_its_own() -> None:
    class Scaled(Function):
        def forward(self, x: Any) -> Any:
            self.total = x.sum()
            return x * self.total

        def backward(self, dy: Any) -> Any:
            return dy * self.total

    x = leaf(1.0, 2.0)
    y = Scaled.apply(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [6.0, 6.0]


def test_several_outputs_get_their_own_gradients() -> None:
    class Both(Function):
        def forward(self, x):
            return x * 2, x * 3

        def backward(self, first, second):
            zero = np.zeros(1, np.float32)
            return 2 * (zero if first is None else first) + 3 * (zero if second is None else second)

    x = leaf(1.0)
    two, three = Both.apply(x)
    three.backward()
    assert x.grad.item() == 3.0
    x.grad = None
    two, three = Both.apply(x)
    (two + three).backward()
    assert x.grad.item() == 5.0


def test_a_wrong_gradient_shape_names_the_operation() -> None:
    class Wrong(Function):
        def forward(self, x):
            return x * 2

        def backward(self, dy):
            return dy.reshape(1, -1)

    with pytest.raises(
        RuntimeError, match=r"backward of Wrong: the gradient of an input is float32\(1, 2\); expected float32\(2,\)"
    ):
        Wrong.apply(leaf(1.0, 2.0)).sum().backward()


def test_float16_gradients_keep_their_type() -> None:
    for dtype in (mn.float16, mn.bfloat16, mn.float32, mn.float64):
        x = mn.tensor([1.0, 2.0], dtype=dtype, requires_grad=True)
        (x * 2.0 + 1.0).sum().backward()
        assert x.grad.dtype == dtype
        np.testing.assert_array_equal(x.grad.array.astype(np.float32), [2.0, 2.0])


def test_a_gradient_in_another_memory_order_is_kept_as_it_is() -> None:
    x = mn.from_numpy(np.ones((2, 4, 4, 3), np.float32).transpose(0, 3, 1, 2)).requires_grad_()
    mn.functional.batch_norm(x, None, None, training=True).sum().backward()
    assert x.grad.array.strides == x.array.strides


# Threads


def lost_in(rounds: int, size: int) -> int:
    """In how many rounds is something missing, of the gradients that eight threads add to four shared leaves?"""
    lost = 0
    together = threading.Barrier(8)

    def walk(leaves: list[mn.Tensor], weight: float) -> None:
        total = leaves[0] + leaves[1] + leaves[2] + leaves[3]
        together.wait()
        (total * weight).sum().backward()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as threads:
            for _ in range(rounds):
                leaves = [mn.zeros(size).requires_grad_() for _ in range(4)]
                list(threads.map(walk, [leaves] * 8, [float(1 << i) for i in range(8)]))
                lost += any((x.grad.numpy() != 255).any() for x in leaves)
    finally:
        sys.setswitchinterval(interval)
    return lost


@pytest.mark.parametrize("size", [10, 20000])
@pytest.mark.parametrize("rounds", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_threads_that_share_leaves_lose_no_gradient(rounds: int, size: int) -> None:
    assert lost_in(rounds, size) == 0


def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between reading a gradient and writing the sum, every thread gets its turn."""
    at_once = mn.Tensor.accumulate

    def accumulate(*arguments: Any) -> Any:
        time.sleep(0.005)
        return at_once(*arguments)

    monkeypatch.setattr(mn.Tensor, "accumulate", staticmethod(accumulate))


def test_a_slow_addition_loses_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    slowly(monkeypatch)
    assert lost_in(2, 10) == 0


def test_a_retained_gradient_is_whole_too(monkeypatch: pytest.MonkeyPatch) -> None:
    slowly(monkeypatch)
    x = leaf(1.0, 2.0)
    middle = x * 3.0
    middle.retain_grad()
    y = (middle * middle).sum()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: y.backward(retain_graph=True), range(8)))
    np.testing.assert_array_equal(middle.grad.array, [8 * 6.0, 8 * 12.0])
    np.testing.assert_array_equal(x.grad.array, [8 * 18.0, 8 * 36.0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("forks", [25, pytest.param(500, marks=pytest.mark.slow)])
def test_a_fork_beside_threads_that_add_gradients(forks: int) -> None:
    """The lock that guards additions is held nearly always: large gradients are added again and again."""
    program = f"""
        import os, signal, threading, warnings
        import minorm as mn

        warnings.simplefilter("ignore")  # newer Pythons warn of a fork beside threads: that is the point here
        mn.set_num_threads(1)
        large = [mn.zeros(1 << 20).requires_grad_() for _ in range(4)]

        def add():
            while True:
                sum(x.sum() for x in large).backward()

        for _ in range(2):
            threading.Thread(target=add, daemon=True).start()
        failed = False
        for _ in range({forks}):
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                x = mn.ones(3, requires_grad=True)
                (x * 2.0).sum().backward()
                os._exit(0 if x.grad.tolist() == [2.0] * 3 else 1)
            failed = os.waitpid(child, 0)[1] != 0
            if failed:
                break
        print("failed:", failed, flush=True)
        os._exit(0)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=280, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(mn.__file__).parents[1])},
    )  # fmt: skip
    assert result.stdout == "failed: False\n", result.stderr


def test_a_gradient_is_added_in_the_memory_that_is_there() -> None:
    """As PyTorch: one buffer may hold all gradients, for clipping or for averaging."""
    w, v = leaf(1.0, 2.0), leaf(3.0)
    flat = mn.zeros(4)
    w.grad, v.grad = flat[1:3], flat[3:]
    held = w.grad
    (w * w).sum().backward()
    ((w + v) * 10.0).sum().backward()
    assert flat.tolist() == [0.0, 2.0 + 10, 4.0 + 10, 20.0]
    assert w.grad is held
    nn.utils.clip_grad_norm_([w, v], 1.0)
    np.testing.assert_allclose(np.linalg.norm(flat.numpy()), 1.0, rtol=1e-5)
    step = held * held.detach().requires_grad_()  # needs the gradient as it is now
    w.sum().backward()
    with pytest.raises(RuntimeError, match="changed in place"):
        step.sum().backward()


def test_an_expanded_gradient_is_replaced() -> None:
    w = leaf(1.0, 2.0)
    w.grad = mn.ones(1).expand(2)
    (w * w).sum().backward()
    assert w.grad.tolist() == [3.0, 5.0]


def test_a_function_that_is_static_by_half_says_how_one_is_written() -> None:
    with pytest.raises(TypeError, match=r"Half: backward is a static method and forward is not; .*forward\(ctx"):

        class Half(Function):
            def forward(self, x: Any) -> Any:
                return x / 2

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                return gradient / 2
