"""Changes in place, as twins: one program runs on minorm and on PyTorch. Values, gradients, aliases and errors agree.

A program gets the library, a leaf that requires grad and a tensor that does not, both float64 of shape (3, 4), and
returns what is to be compared; the gradient is that of the sum of squares of the first of them.
"""

from __future__ import annotations

import copy
import gc
import itertools
import operator
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minorm as mn
import minorm.functional as F
from minorm import nn
from minorm.graph.graph import Version
from minorm.ops.reduction import LogSumExp, Prod

SHAPE = (3, 4)
PROGRAMS: dict[str, Callable[[Any, Any, Any], Any]] = {}


def program(function: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    PROGRAMS[function.__name__] = function
    return function


@program
def a_shortcut(lib: Any, w: Any, c: Any) -> Any:
    out = w * c
    same = out
    out += w
    assert out is same
    return out


@program
def every_operator(lib: Any, w: Any, c: Any) -> Any:
    h = w * w + 1
    h += c
    h -= 0.5 * w
    h *= w * w + 2
    h /= c * c + 1
    h **= 2
    h %= 1.7
    return h


@program
def every_method(lib: Any, w: Any, c: Any) -> Any:
    h = w * 1
    h.add_(c, alpha=0.5).sub_(w, alpha=3).mul_(w).div_(c * c + 1).clamp_(-0.4, 0.3)
    return h


@program
def the_exponent_and_the_base(lib: Any, w: Any, c: Any) -> Any:
    h = w * w + 1
    h **= w
    return h


@program
def the_divisor(lib: Any, w: Any, c: Any) -> Any:
    h = w * 3
    h /= w * w + 1
    return h


@program
def the_modulus(lib: Any, w: Any, c: Any) -> Any:
    h = w * 3
    h %= w * w + 0.3
    return h


@program
def numbers_and_broadcasting(lib: Any, w: Any, c: Any) -> Any:
    h = w * 1
    h += w[0]
    h *= c[:, :1]
    h -= w.sum()
    return h


@program
def a_buffer_joins_the_graph(lib: Any, w: Any, c: Any) -> Any:
    out = lib.zeros(3, 4, dtype=lib.float64)
    view = out[1:]
    other = out.reshape(12)
    out += w
    assert out.requires_grad
    assert view.requires_grad
    return view * 2, other, out


@program
def a_buffer_joins_by_a_view(lib: Any, w: Any, c: Any) -> Any:
    out = lib.zeros(3, 4, dtype=lib.float64)
    view = out[1]
    view += w[0]
    assert out.requires_grad
    return out, view


@program
def rows_are_filled_in(lib: Any, w: Any, c: Any) -> Any:
    out = lib.zeros(3, 4, dtype=lib.float64)
    for i in range(3):
        out[i] = w[i] * w[2 - i]
    return out


@program
def an_element(lib: Any, w: Any, c: Any) -> Any:
    h = w * 1
    h[0] += 1
    h[1, 2] *= 3
    h[:, -1] -= w[:, 0]
    h[..., 1:3] /= 2
    return h


@program
def an_element_alone_is_a_view(lib: Any, w: Any, c: Any) -> Any:
    h = (w * 2).reshape(12)
    v = h[3]
    v += 5
    return h, v


@program
def chosen_positions(lib: Any, w: Any, c: Any) -> Any:
    h = w * 2
    h[h > 0] = 0.5
    h[lib.tensor([0, 2])] *= w[1:]
    h[lib.tensor([0, 2]), lib.tensor([1, 1])] = w[0, 0]
    return h


@program
def overwritten(lib: Any, w: Any, c: Any) -> Any:
    h = w * 2
    before = h + 1
    h.copy_(w[0] * c)
    g = w * 3
    g.zero_()
    k = w * 4
    k.fill_(2.5)
    return before + g + k + h, h, g, k


@program
def a_view_of_a_view(lib: Any, w: Any, c: Any) -> Any:
    h = w * 1
    v = h.permute(1, 0)
    u = v[1:3].unsqueeze(0)
    u *= w[:, 0]
    v += 1
    return h * u.sum() + v.sum(), h, v, u


@program
def siblings(lib: Any, w: Any, c: Any) -> Any:
    h = w * 1
    a, b = h[:2], h[1:]
    a *= 2
    b *= 3
    return a.sum() * b, h, a, b


@program
def what_was_computed_before_stays(lib: Any, w: Any, c: Any) -> Any:
    h = w * 2
    before = h + c
    h += before
    h += h[0].sum()
    return h + before, h, before


@program
def residual_of_itself(lib: Any, w: Any, c: Any) -> Any:
    x = w * 1
    for _ in range(3):
        x += (x * 0.5).exp()
    return x


@program
def twice_the_same(lib: Any, w: Any, c: Any) -> Any:
    x = w * 1
    x += x
    return x


@program
def without_recording(lib: Any, w: Any, c: Any) -> Any:
    alias, view = w, w[0]
    with lib.no_grad():
        w -= 0.1 * c
        w[1] *= 2
        w[2].zero_()
    assert w is alias
    assert w.is_leaf
    return w * 2, w, view, alias


@program
def through_a_detached_alias(lib: Any, w: Any, c: Any) -> Any:
    h = w + 1
    d = h.detach()
    d += 5
    d[0] = 7
    assert not d.requires_grad
    return h, d


@program
def reshape_of_a_transposed_tensor_is_a_copy(lib: Any, w: Any, c: Any) -> Any:
    h = w * 2
    flat = h.permute(1, 0).reshape(12)
    flat += 1
    flat[0] = w[1, 1]
    return h, flat


@program
def pieces(lib: Any, w: Any, c: Any) -> Any:
    h = w * 2
    first = h[:, 0:2]
    first.clamp_(-1, 1)
    h.add_(c)
    return first, h


@program
def constants(lib: Any, w: Any, c: Any) -> Any:
    t = c
    u, v = c[0], c.reshape(4, 3)
    t += 1
    v *= 2
    u /= 3
    return t * w, c, u, v


@program
def a_stale_value(lib: Any, w: Any, c: Any) -> Any:
    h = w * 1
    y = h * h
    h += 1
    return y


@program
def a_stale_value_by_a_view(lib: Any, w: Any, c: Any) -> Any:
    h = w * 1
    y = h.exp()
    z = y * 1
    y[0] = 3
    return z


@program
def a_leaf(lib: Any, w: Any, c: Any) -> Any:
    w += 1
    return w


@program
def a_part_of_a_leaf(lib: Any, w: Any, c: Any) -> Any:
    w[0] = 1.0
    return w


@program
def a_view_of_a_leaf(lib: Any, w: Any, c: Any) -> Any:
    v = w[0]
    v += 1
    return w


@program
def a_view_made_without_recording(lib: Any, w: Any, c: Any) -> Any:
    h = w * 1
    with lib.no_grad():
        v = h[0]
    v += w[0]
    return h


@program
def growing(lib: Any, w: Any, c: Any) -> Any:
    h = w[0] * 1
    h += w
    return h


@program
def expanded(lib: Any, w: Any, c: Any) -> Any:
    h = (w[:, :1] * 1).expand(3, 4)
    h += 1
    return h


def numbers(tensor: Any) -> np.ndarray:
    return np.array(tensor.detach().numpy())


def run(lib: Any, function: Callable[..., Any]) -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(5)
    w = lib.tensor(rng.standard_normal(SHAPE), requires_grad=True)
    c = lib.tensor(rng.standard_normal(SHAPE))
    results = function(lib, w, c)
    results = results if isinstance(results, tuple) else (results,)
    (results[0] * results[0]).sum().backward()
    return [numbers(r) for r in results], numbers(w.grad)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_twins_agree(name: str) -> None:
    torch = pytest.importorskip("torch")
    try:
        values, grad = run(torch, PROGRAMS[name])
    except RuntimeError:
        with pytest.raises((RuntimeError, ValueError)):
            run(mn, PROGRAMS[name])
        return
    ours, our_grad = run(mn, PROGRAMS[name])
    for a, b in zip(ours, values, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(our_grad, grad, rtol=1e-11, atol=1e-11)


# Programs at random. PyTorch's word is final where it computes; where it refuses (a view that overlaps what it is
# added to, say) the step is left out of both.

VIEWS: list[Callable[[Any], Any]] = [
    lambda t: t[0],
    lambda t: t[1:],
    lambda t: t[..., ::2],
    lambda t: t.permute(*reversed(range(t.ndim))),
    lambda t: t.unsqueeze(0),
    lambda t: t.reshape(-1),
    lambda t: t.detach(),
]
OPERATORS = [operator.iadd, operator.isub, operator.imul, operator.itruediv]


def step(tensors: list[Any], kind: int, i: int, j: int, k: int, lib: Any) -> None:
    """Run one statement, chosen by the numbers, on the tensors so far."""
    x, y = tensors[i % len(tensors)], tensors[j % len(tensors)]
    if kind == 0:
        tensors.append(VIEWS[k % len(VIEWS)](x))
    elif kind == 1:
        tensors.append(x * y.sum() + 0.5 if k % 2 else x * 1.5)
    elif kind == 2:
        OPERATORS[k % 3](x, y.sum() * 0.1 + 1.5)
    elif kind == 3:
        OPERATORS[k % 4](x, 1.25)
    elif kind == 4:
        OPERATORS[k % 3](x, y if y is tensors[1] else y * 1)  # PyTorch reads x[0] in x += x[0] after it has changed
    elif kind == 5:
        x[..., k % 2 :] = y.sum() * 0.01 if j % 2 else 0.75
    elif kind == 6:
        with lib.no_grad():
            OPERATORS[k % 3](x, 0.9)


@given(
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 7), st.integers(0, 7), st.integers(0, 13)), max_size=12),
)
@settings(max_examples=300)
def test_random_programs(recorded: bool, statements: list[tuple[int, int, int, int]]) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    start = rng.standard_normal(SHAPE)
    leaves = [lib.tensor(start, requires_grad=True) for lib in (mn, torch)]
    sides = [[w * 1 if recorded else w.detach() * 1, w] for w in leaves]
    done = []
    for statement in statements:
        try:
            step(sides[1], *statement, torch)
        except (RuntimeError, IndexError):
            continue
        done.append(statement)
        step(sides[0], *statement, mn)
    for ours, theirs in zip(*sides, strict=True):
        np.testing.assert_allclose(numbers(ours), numbers(theirs), rtol=1e-9, err_msg=str(done))
        assert ours.requires_grad == theirs.requires_grad, done
    losses = [sum(((k + 1) * t).sum() for k, t in enumerate(side)) for side in sides]
    try:
        losses[1].backward()
    except RuntimeError:
        return  # ours may know better: it keeps copies of what it overwrites
    losses[0].backward()
    np.testing.assert_allclose(
        numbers(leaves[0].grad), numbers(leaves[1].grad), rtol=1e-8, atol=1e-8, err_msg=str(done)
    )


# Types

INTEGERS_AND_BOOLS = ["bool", "uint8", "int8", "int32", "int64"]


@pytest.mark.parametrize("name", ["iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "iand", "ior", "ixor"])
@pytest.mark.parametrize("dtype", [*INTEGERS_AND_BOOLS, "float32"])
@pytest.mark.parametrize("other", [*INTEGERS_AND_BOOLS, "float32", "float", "int"])
def test_the_type_stays_or_it_is_an_error(name: str, dtype: str, other: str) -> None:
    torch = pytest.importorskip("torch")
    if name == "isub" and other == "bool":
        pytest.skip("PyTorch refuses to subtract a bool tensor, in place or not; NumPy and minorm do not")

    def outcome(lib: Any) -> np.ndarray:
        x = lib.tensor(np.array([7, 1, 2, 90]).astype(dtype))
        alias = x[1:]
        y = {"float": 1.5, "int": 3}.get(other)
        y = lib.tensor(np.array([1, 2, 3, 4]).astype(other)) if y is None else y
        getattr(operator, name)(x, y)
        assert x.dtype == getattr(lib, dtype)
        np.testing.assert_array_equal(x.numpy()[1:], alias.numpy())
        return x.numpy()

    try:
        expected = outcome(torch)
    except (RuntimeError, NotImplementedError):
        with pytest.raises(TypeError):
            outcome(mn)
        return
    np.testing.assert_allclose(outcome(mn), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "pow", "mod", "floordiv"])
@pytest.mark.parametrize("number", [True, False])
def test_the_bits_are_those_of_the_ordinary_operator(
    dtype: str, name: str, number: bool, rng: np.random.Generator
) -> None:
    x = mn.tensor(rng.uniform(0.1, 3, (5, 333))).to(getattr(mn, dtype))
    y = 1.7 if number else mn.tensor(rng.uniform(0.1, 3, (5, 333))).to(x.dtype)
    expected = getattr(operator, name)(x, y)
    recorded = x.clone().requires_grad_() * 1
    getattr(operator, f"i{name}")(x, y)
    assert x.array.tobytes() == expected.array.tobytes()
    if name != "floordiv":
        getattr(operator, f"i{name}")(recorded, y)
        assert recorded.array.tobytes() == expected.array.tobytes()


@pytest.mark.parametrize("name", ["floordiv", "mod", "and_", "or_", "xor"])
def test_the_new_operators_are_pytorchs(name: str, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    a, b = rng.integers(-9, 9, 40), rng.integers(1, 9, 40) * rng.choice([-1, 1], 40)
    f = getattr(operator, name)
    np.testing.assert_array_equal(f(mn.tensor(a), mn.tensor(b)).array, f(torch.tensor(a), torch.tensor(b)).numpy())
    np.testing.assert_array_equal(f(mn.tensor(a), 3).array, f(torch.tensor(a), 3).numpy())
    np.testing.assert_array_equal(f(3, mn.tensor(b)).array, f(3, torch.tensor(b)).numpy())
    if name in ("floordiv", "mod"):
        np.testing.assert_array_equal(
            f(mn.tensor(a / 3), mn.tensor(b / 5)).array, f(torch.tensor(a / 3), torch.tensor(b / 5)).numpy()
        )
    else:
        np.testing.assert_array_equal((~mn.tensor(a)).array, (~torch.tensor(a)).numpy())
        np.testing.assert_array_equal((~mn.tensor(a > 0)).array, (~torch.tensor(a > 0)).numpy())


# The graph


def test_gradient_descent_by_hand_moves_the_parameters() -> None:
    layer = nn.Linear(3, 2)
    weight, before = layer.weight, layer.weight.array.copy()
    layer(mn.ones(4, 3)).sum().backward()
    with mn.no_grad():
        for p in layer.parameters():
            p -= 0.1 * p.grad
    assert layer.weight is weight
    np.testing.assert_allclose(weight.array, before - 0.1 * 4, rtol=1e-6)


def test_a_moving_average_of_weights() -> None:
    model, average = nn.Linear(2, 2), nn.Linear(2, 2)
    expected = 0.9 * average.weight.array + 0.1 * model.weight.array
    with mn.no_grad():
        for a, p in zip(average.parameters(), model.parameters(), strict=True):
            a *= 0.9
            a += 0.1 * p
    np.testing.assert_allclose(average.weight.array, expected, rtol=1e-6)


def test_retain_grad_is_of_the_last_value() -> None:
    w = mn.ones(2, requires_grad=True)
    h = w * 1
    h.retain_grad()
    h *= 3
    (h * 2).sum().backward()
    assert h.grad.tolist() == [2, 2]
    assert w.grad.tolist() == [6, 6]


def test_the_graph_is_gone_with_its_last_tensor() -> None:
    """No cycle of references: nothing waits for the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        x = mn.ones(2, requires_grad=True) * 1
        view = x[0]
        x += x * 2
        x[1] += 1
        view += x[1]
        watched = [weakref.ref(t) for t in (x, view)] + [weakref.ref(x.creator)]
        del x, view
        assert [w() for w in watched] == [None, None, None]
    finally:
        gc.enable()


def test_views_that_are_gone_are_forgotten() -> None:
    x = mn.zeros(1000)
    for i in range(1000):
        x[i]
    assert len(vars(x.version)["views"]) < 40


def test_a_deep_copy_shares_nothing() -> None:
    x = mn.zeros(4)
    pair = [x, x[:2]]
    other, view = copy.deepcopy(pair)
    w = mn.ones(4, requires_grad=True)
    other += w
    assert not view.requires_grad
    view += w[:2] * 2
    assert (other.tolist(), view.tolist(), x.tolist()) == ([1, 1, 1, 1], [2, 2], [0, 0, 0, 0])
    assert pickle.loads(pickle.dumps(pair))[1].tolist() == [0, 0]
    assert copy.copy(Version()).count == 0


def test_a_parameter_around_a_tensor_counts_with_it() -> None:
    t = mn.ones(2)
    p = nn.Parameter(t)
    y = (p * p).sum()
    t += 1
    assert p.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="changed in place"):
        y.backward()


def test_an_index_may_change_after_it_was_used() -> None:
    w = mn.ones(3, requires_grad=True)
    where = mn.tensor([0, 1])
    y = (w * 2)[where].sum()
    h = w * 1
    h[where] = 0.0
    where += 1
    (y + h.sum()).backward()
    assert w.grad.tolist() == [2, 2, 1]


def test_a_value_with_more_axes_than_its_place() -> None:
    w = mn.ones(1, 1, 2, requires_grad=True)
    h = mn.zeros(3, 2)
    h[0] = w * 3
    h.sum().backward()
    assert w.grad.tolist() == [[[3, 3]]]


def test_the_order_in_memory_does_not_matter(rng: np.random.Generator) -> None:
    """A view of a tensor in channels-last memory, which is none of a row-major one, gets its gradient."""
    array = rng.standard_normal((2, 4, 5, 3)).transpose(0, 3, 1, 2)
    w = mn.from_numpy(array).requires_grad_()
    h = w * 1
    if h.array.strides != array.strides:
        h = mn.from_numpy(np.empty_like(array)).copy_(w)
    v = h.permute(0, 2, 3, 1).reshape(8, 15)
    v[1:3] *= 2
    (h * h).sum().backward()
    scale = np.ones((8, 15))
    scale[1:3] = 4
    expected = 2 * array * scale.reshape(2, 4, 5, 3).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(w.grad.array, expected, rtol=1e-12)


def test_read_only_memory_is_refused() -> None:
    array = np.ones(2, np.float32)
    array.flags.writeable = False
    x = mn.from_numpy(array)
    for change in (lambda: operator.iadd(x, 1), x.zero_, lambda: operator.setitem(x, 0, 1)):
        with pytest.raises(RuntimeError, match="holds a read-only array"):
            change()


def test_a_change_that_fails_changes_nothing() -> None:
    w = mn.ones(3, requires_grad=True)
    h = w * 1
    creator = h.creator
    for change, error in (
        (lambda: operator.iadd(h, mn.ones(2)), ValueError),
        (lambda: operator.iadd(h, mn.ones(3, dtype=mn.float64)), TypeError),
        (lambda: operator.iadd(h, "1"), TypeError),
        (lambda: operator.ifloordiv(h, 2), RuntimeError),
        (lambda: operator.setitem(h, 5, 1), IndexError),
        (lambda: operator.setitem(h, slice(2), w), ValueError),
        (h.clip_, ValueError),
    ):
        with pytest.raises(error):
            change()
        assert h.creator is creator
        assert h.version.count == 0
        assert h.tolist() == [1, 1, 1]


# Every function of the library: a value that backward needs and that was changed is an error, or was not needed.


def _stale_cases() -> list[Any]:
    x4, x2 = (2, 4, 6, 6), (5, 4)
    return [
        ("batch_norm", lambda h: F.batch_norm(h, None, None, training=True), x4),
        ("group_norm", lambda h: F.group_norm(h, 2), x4),
        ("layer_norm", lambda h: F.layer_norm(h, (6, 6)), x4),
        ("rms_norm", lambda h: F.rms_norm(h, (6,)), x4),
        ("instance_norm", F.instance_norm, x4),
        ("local_response_norm", lambda h: F.local_response_norm(h, 3), x4),
        ("normalize", F.normalize, x4),
        ("conv2d", lambda h: F.conv2d(h, h[:1, :, :3, :3] * 1), x4),
        ("max_pool2d", lambda h: F.max_pool2d(h, 2), x4),
        ("avg_pool2d", lambda h: F.avg_pool2d(h, 2), x4),
        ("linear", lambda h: F.linear(h, h), x2),
        ("matmul", lambda h: h @ h.T, x2),
        ("softmax", lambda h: F.softmax(h, 1), x2),
        ("log_softmax", lambda h: F.log_softmax(h, 1), x2),
        ("cross_entropy", lambda h: F.cross_entropy(h, mn.tensor([0, 1, 2, 3, 0])), x2),
        ("mse_loss", lambda h: F.mse_loss(h, h * 0), x2),
        ("bce", lambda h: F.binary_cross_entropy_with_logits(h, h * 0), x2),
        *[(name, lambda h, name=name: getattr(F, name)(h), x2)
          for name in ("relu", "relu6", "leaky_relu", "elu", "gelu", "silu", "sigmoid", "tanh", "hardswish")],
        *[(name, lambda h, name=name: getattr(h, name)(), x2)
          for name in ("exp", "log", "sqrt", "sin", "cos", "abs", "std", "amax", "max")],
        ("logsumexp", lambda h: LogSumExp.apply(h, axes=(1,), keepdims=False), x2),
        ("logsumexp, keepdims", lambda h: LogSumExp.apply(h, axes=(1,), keepdims=True), x2),
        ("prod", lambda h: Prod.apply(h, axes=(1,), keepdims=True), x2),
        ("amax, keepdims", lambda h: h.amax(1, keepdim=True), x2),
        ("prod of itself", lambda h: h * h, x2),
        ("pow", lambda h: h**h, x2),
        ("where", lambda h: mn.where(h > 1, h, h * 2), x2),
        ("gather", lambda h: h.gather(0, mn.tensor(np.zeros((2, 4), int))), x2),
        ("cat", lambda h: mn.cat([h, h]), x2),
    ]  # fmt: skip


@pytest.mark.parametrize("which", ["input", "output"])
@pytest.mark.parametrize(("name", "function", "shape"), _stale_cases(), ids=[c[0] for c in _stale_cases()])
def test_no_function_differentiates_at_values_that_are_gone(
    name: str, function: Callable[[Any], Any], shape: tuple[int, ...], which: str, rng: np.random.Generator
) -> None:
    start = rng.uniform(0.5, 2, shape)

    def gradient(change: bool) -> np.ndarray:
        w = mn.tensor(start, requires_grad=True)
        h = w * 1
        y = function(h)
        weights = np.random.default_rng(1).standard_normal(y.shape)
        z = y * 1
        if change:
            with mn.no_grad():
                (h if which == "input" else y).mul_(-3.0)
        z.backward(mn.tensor(weights))
        return np.array(w.grad.array)

    expected = gradient(False)
    try:
        found = gradient(True)
    except RuntimeError as error:
        if "changed in place" not in str(error):
            raise
    else:
        np.testing.assert_array_equal(found, expected)


def test_changes_in_every_order() -> None:
    """Base, view and alias change in every order; finite differences judge."""
    start = np.array([0.3, -0.7, 1.1, 0.4])

    def loss(values: np.ndarray, order: tuple[int, ...]) -> tuple[mn.Tensor, mn.Tensor]:
        w = mn.tensor(values, requires_grad=True)
        h = w * w
        v, u = h[1:3], h.reshape(2, 2)
        changes = [
            lambda: operator.imul(h, w),
            lambda: operator.iadd(v, w[:2]),
            lambda: operator.setitem(u, 0, w[2] * w[3]),
            lambda: operator.imul(h[3], h[0] * 1),
        ]
        for i in order:
            changes[i]()
        return (h * h).sum() + (v * 3).sum() + (u[1] * u[0]).sum(), w

    for order in itertools.permutations(range(4)):
        total, w = loss(start, order)
        total.backward()
        for i in range(4):
            moved = np.eye(4)[i] * 1e-6
            slope = (loss(start + moved, order)[0].item() - loss(start - moved, order)[0].item()) / 2e-6
            np.testing.assert_allclose(w.grad.array[i], slope, rtol=1e-6, atol=1e-7, err_msg=str(order))
