"""Functions in PyTorch's form, each written once and run in both libraries."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.autograd import Function, grad
from minorm.autograd.function import once_differentiable

LIBRARIES = [mn, pytest.importorskip("torch")]


def functions(library: Any) -> dict[str, Any]:
    """The same classes on either library."""
    base = library.autograd.Function

    class Cube(base):  # type: ignore[misc, valid-type]
        @staticmethod
        def forward(ctx: Any, x: Any, factor: float) -> Any:
            ctx.save_for_backward(x)
            ctx.factor = factor
            return x * x * x * factor

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            (x,) = ctx.saved_tensors
            return dy * 3 * x * x * ctx.factor, None

    class Exp(base):  # type: ignore[misc, valid-type]
        """A Function that saves its output."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            (y,) = ctx.saved_tensors
            return dy * y

    class Product(base):  # type: ignore[misc, valid-type]
        """A Function with setup_context that computes gradients only for the inputs that need them."""

        @staticmethod
        def forward(a: Any, b: Any) -> Any:
            return a * b

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx.shape = output.shape

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            a, b = ctx.saved_tensors
            return dy * b if ctx.needs_input_grad[0] else None, dy * a if ctx.needs_input_grad[1] else None

    class SortedWithPlaces(base):  # type: ignore[misc, valid-type]
        """Several outputs, one of them not differentiable."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            values, places = x.sort(0)
            ctx.mark_non_differentiable(places)
            ctx.save_for_backward(places)
            return values, places

        @staticmethod
        def backward(ctx: Any, dvalues: Any, _: Any) -> Any:
            (places,) = ctx.saved_tensors
            return dvalues[places.argsort(0)]

    class TwoResults(base):  # type: ignore[misc, valid-type]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, da: Any, db: Any) -> Any:
            return da * 2 + db * 3  # zeros where a gradient is missing

    class InPlace(base):  # type: ignore[misc, valid-type]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x.mul_(2.0)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return dy * 2

    class StraightThrough(base):  # type: ignore[misc, valid-type]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.round()

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return dy

    class Reversed(base):  # type: ignore[misc, valid-type]
        """The identity; backward negates the gradient."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.view_as(x) if library is not mn else x

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return -dy

    return {
        "cube": lambda x: Cube.apply(x, 0.5),
        "exp": Exp.apply,
        "product": lambda x: Product.apply(x, x * x),
        "product with a constant": lambda x: Product.apply(x.detach(), x),
        "sorted": lambda x: SortedWithPlaces.apply(x * x * x)[0],
        "one of two results": lambda x: TwoResults.apply(x * x)[1],
        "in place": lambda x: InPlace.apply(x * x) * x,
        "straight through": lambda x: StraightThrough.apply(x) * x,
        "reversed": lambda x: Reversed.apply(x * x) * x,
    }


def derivatives(library: Any, name: str, numbers: Any) -> list[Any]:
    """Return the value and repeated gradients of sum(y^2), as arrays."""
    x = library.tensor(numbers, requires_grad=True)
    y = functions(library)[name](x)
    found, value = [y.detach().numpy()], (y * y).sum()
    for _ in range(3):
        (g,) = library.autograd.grad(value, x, create_graph=True)
        found.append(g.detach().numpy())
        value = (g * g).sum()
    x = library.tensor(numbers, requires_grad=True)
    (functions(library)[name](x) ** 2).sum().backward()
    return [*found, x.grad.numpy()]


@pytest.mark.parametrize("name", functions(mn))
def test_as_in_pytorch(name: str, rng: np.random.Generator) -> None:
    numbers = rng.standard_normal(4)
    for found, expected in zip(*(derivatives(library, name, numbers) for library in LIBRARIES), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


class Square(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, note: Any = None) -> Any:
        ctx.save_for_backward(x, None)
        ctx.note = note
        return x * x

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        x, nothing = ctx.saved_tensors
        assert nothing is None
        return dy * 2 * x, None


def leaf(*numbers: float) -> Any:
    return mn.tensor(list(numbers), requires_grad=True)


def test_forward_records_nothing_and_the_graph_names_the_function() -> None:
    y = Square.apply(leaf(3.0), "a note")
    assert type(y.creator).__name__ == "Square"
    assert "creator=Square" in repr(y)
    assert not Square.apply(mn.ones(1), None).requires_grad
    with mn.no_grad():
        assert not Square.apply(leaf(3.0), None).requires_grad


def test_a_saved_tensor_that_was_changed_in_place_is_an_error() -> None:
    x = leaf(3.0)
    y = x * 1
    z = Square.apply(y, None)
    y.add_(1)
    with pytest.raises(RuntimeError, match="Square: an input it needs was changed in place"):
        z.backward()


def test_a_call_is_freed_with_its_graph() -> None:
    class Twice(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return dy * 2

    gc.disable()
    try:
        y = Twice.apply(leaf(1.0) * 1)
        node = weakref.ref(y.creator)
        del y
        assert node() is None  # without the collector of cycles
    finally:
        gc.enable()
    y = Twice.apply(leaf(1.0))
    y.backward()
    with pytest.raises(RuntimeError, match="freed"):
        y.backward()


def test_once_differentiable() -> None:
    class Cube(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, dy: Any) -> Any:
            (x,) = ctx.saved_tensors
            return mn.tensor(3 * dy.numpy() * x.numpy() ** 2)

    x = leaf(2.0)
    (g,) = grad(Cube.apply(x).sum(), x, create_graph=True)
    assert g.tolist() == [12.0]
    with pytest.raises(RuntimeError, match="Cube: backward is marked once_differentiable"):
        grad(g.sum(), x)
    with pytest.raises(RuntimeError, match="Cube: backward is marked once_differentiable"):
        grad(g.sum(), x, create_graph=True)
    Cube.apply(x).sum().backward()
    assert x.grad.tolist() == [12.0]


def test_gradients_of_absent_results_are_none_where_they_are_not_to_be_made() -> None:
    seen: list[Any] = []

    class Two(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, da: Any, db: Any) -> Any:
            seen.append((da, db))
            return db * 3

    Two.apply(leaf(1.0))[1].backward()
    assert seen[0][0] is None


class Bare(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1


class Short(Bare):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        return x * y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return dy


class OfArrays(Bare):
    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return dy.numpy()


class SavesNumbers(Bare):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x, 3)
        return x * 1


class ChangesLeaf(Bare):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x.add_(1.0)
        ctx.mark_dirty(x)
        return x


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: Bare.apply(leaf(1.0)).backward(), NotImplementedError, "Bare has no backward"),
        (lambda: Short.apply(leaf(1.0), leaf(1.0)).backward(), RuntimeError, "Short.backward: returned 1 gradients"),
        (lambda: OfArrays.apply(leaf(1.0)).backward(), TypeError, "OfArrays.backward: gradient 0 is"),
        (lambda: SavesNumbers.apply(leaf(1.0)), TypeError, "save_for_backward: argument 1 is"),
        (lambda: ChangesLeaf.apply(leaf(1.0)), RuntimeError, "ChangesLeaf.apply: the tensor is a leaf"),
        (lambda: Square.apply(x=leaf(1.0)), TypeError, "Square.apply: got x by name"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(call: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call()
