"""Functions in PyTorch's form: what they may do in forward and backward, each case run in both libraries.

A case gives numbers, shapes and flags, or raises; then both do.
"""

from __future__ import annotations

import gc
import importlib
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.autograd import Function

torch = pytest.importorskip("torch")
CASES: dict[str, Callable[[Any], Any]] = {}
WORDS: dict[str, str] = {}  # what our error says, where both raise


class Library:
    """One of the two libraries, and short names for what the cases need of it."""

    def __init__(self, library: Any) -> None:
        self.library, self.grad = library, library.autograd.grad
        self.once = importlib.import_module(f"{library.__name__}.autograd.function").once_differentiable

    def made(self, forward: Callable[..., Any], backward: Callable[..., Any], **more: Any) -> Any:
        """Return `apply` of a new Function with these methods."""
        methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        return type("Made", (self.library.autograd.Function,), {**methods, **more}).apply

    def leaf(self, *numbers: float) -> Any:
        return self.library.tensor(list(numbers), requires_grad=True)

    def ones(self, *shape: int) -> Any:
        return self.library.ones(*shape)


def case(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    CASES[run.__name__] = run
    return run


def raises(words: str) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    def note(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        WORDS[run.__name__] = words
        return case(run)

    return note


def shown(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [shown(v) for v in value]
    return value.tolist() if hasattr(value, "tolist") else value


def outcome(name: str, library: Any) -> Any:
    try:
        return shown(CASES[name](Library(library)))
    except (RuntimeError, TypeError, NotImplementedError) as error:
        return error


# Gradients that backward gives


def double(ctx: Any, x: Any) -> Any:
    return x * 2


def passing(ctx: Any, dy: Any, *rest: Any) -> Any:
    return dy


@case
def no_gradient_is_none_and_not_zeros(of: Any) -> Any:
    call, x = of.made(double, lambda ctx, dy: None), of.leaf(1.0)
    call(x**2).backward()
    found = x.grad, of.grad(call(x), x, allow_unused=True)
    return found, of.grad(call(x**2), x, create_graph=True, allow_unused=True)


@case
def none_for_arguments_that_are_not_there(of: Any) -> Any:
    x = of.leaf(1.0)
    of.made(double, lambda ctx, dy: (dy, None, None))(x).backward()
    return x.grad


@raises("Made.backward: gradient 1 is a Tensor, but argument 1 of forward is not; expected None")
def a_gradient_for_a_number(of: Any) -> Any:
    of.made(lambda ctx, x, k: x * k, lambda ctx, dy: (dy, dy))(of.leaf(1.0), 3).backward()


@case
def a_gradient_for_what_needs_none(of: Any) -> Any:
    x, y = of.leaf(1.0), of.ones(1)
    of.made(lambda ctx, x, y: x * y, lambda ctx, dy: (dy, dy))(x, y).backward()
    return x.grad, y.grad


@raises(r"backward of Made: the gradient of an input is float32\(10,\); expected float32\(2,\)")
def a_gradient_of_another_shape(of: Any) -> Any:
    of.made(double, lambda ctx, dy: of.ones(10))(of.leaf(1.0, 2.0)).sum().backward()


@raises(r"backward of Made: the gradient of an input is float32\(\); expected float32\(2,\)")
def a_gradient_of_fewer_axes(of: Any) -> Any:
    of.made(double, lambda ctx, dy: of.ones())(of.leaf(1.0, 2.0)).sum().backward()


@case
def a_gradient_that_was_broadcast_is_summed(of: Any) -> Any:
    x, scale = of.leaf(1.0, 2.0), of.leaf(3.0)

    def forward(ctx: Any, x: Any, scale: Any) -> Any:
        ctx.save_for_backward(x, scale)
        return x * scale

    def backward(ctx: Any, dy: Any) -> Any:
        x, scale = ctx.saved_tensors
        return dy * scale, dy * x

    call = of.made(forward, backward)
    call(x, scale).sum().backward()
    (g,) = of.grad((call(x, scale) ** 2).sum(), scale, create_graph=True)
    return x.grad, scale.grad, g, of.grad(g.sum(), (x, scale))


@case
def a_gradient_of_another_type_is_converted(of: Any) -> Any:
    x = of.leaf(1.0, 2.0)
    of.made(double, lambda ctx, dy: dy.double() * 0.1)(x).sum().backward()
    return str(x.grad.dtype)[-7:], x.grad


# What forward returns


@case
def an_input(of: Any) -> Any:
    call, x = of.made(lambda ctx, x: x, lambda ctx, dy: dy * 2), of.leaf(3.0)
    y = call(x)
    (y * call(x * 1) * x).backward()
    return x.grad, y is x


@case
def an_input_that_needs_no_gradient(of: Any) -> Any:
    x, y = of.leaf(3.0), of.ones(1)
    a, b = of.made(lambda ctx, x, y: (x, y), lambda ctx, da, db: (da * 2, db))(x, y)
    return a.requires_grad, b.requires_grad, y.requires_grad, b is y


@case
def a_view_of_an_input(of: Any) -> Any:
    x = of.ones(1, 2).requires_grad_()
    of.made(lambda ctx, x: x.view(-1), lambda ctx, dy: dy.reshape(1, 2))(x).sum().backward()
    return x.grad


@raises("x is a view of a tensor that requires grad, and was made inside")
def a_view_of_an_input_that_is_changed_in_place(of: Any) -> Any:
    y = of.made(lambda ctx, x: x.view(-1), lambda ctx, dy: dy.reshape(1, 2))(of.ones(1, 2).requires_grad_() * 1)
    y.mul_(3.0)


@raises("x is a view of a tensor that requires grad, and was made inside")
def an_input_as_it_is_that_is_changed_in_place(of: Any) -> Any:
    z = of.leaf(1.0) * 1
    of.made(lambda ctx, x: x, passing)(z).mul_(3.0)


@case
def one_tensor_twice(of: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        y = x * 2
        return y, y

    x = of.leaf(1.0)
    call = of.made(forward, lambda ctx, da, db: da * 2 + db * 20)
    a, b = call(x)
    return a is b, of.grad(a + 3 * b, x), of.grad(call(x)[0], x)


@case
def several_tensors_walked_at_once(of: Any) -> Any:
    x = of.leaf(1.0)
    a, b = of.made(lambda ctx, x: (x * 2, x * 3), lambda ctx, da, db: da * 2 + db * 3)(x)
    a.retain_grad()
    (a + b * b).backward()
    return a.grad, x.grad


@case
def what_is_no_tensor(of: Any) -> Any:
    seen: list[Any] = []

    def backward(ctx: Any, *gradients: Any) -> Any:
        seen.append(shown(gradients))
        return gradients[1] * 2

    x = of.leaf(1.0)
    results = of.made(lambda ctx, x: (None, x * 2, "text", 3), backward)(x)
    results[1].backward()
    return results, seen, x.grad


@case
def integers(of: Any) -> Any:
    x = of.leaf(1.5)
    a, places = of.made(lambda ctx, x: (x * 2, x.long()), lambda ctx, da, _: da * 2)(x)
    a.backward()
    return places.requires_grad, places, x.grad


@case
def what_was_taken_out_of_the_graph(of: Any) -> Any:
    x = of.leaf(1.0)
    y = of.made(lambda ctx, x: x.detach(), lambda ctx, dy: dy * 7)(x)
    y.backward()
    return y.requires_grad, x.grad


# mark_dirty


def changed(ctx: Any, x: Any, *others: Any) -> Any:
    x.mul_(3.0)
    ctx.mark_dirty(x)
    return x


def of_changed(ctx: Any, dy: Any) -> Any:
    return dy * 3


@case
def an_input_changed_in_place(of: Any) -> Any:
    x = of.leaf(2.0)
    z = x * 1
    y = of.made(changed, of_changed)(z)
    (y * z).backward()
    return y is z, y, x.grad


@case
def a_part_changed_in_place(of: Any) -> Any:
    x = of.leaf(1.0, 2.0)
    z = x * 1
    of.made(changed, of_changed)(z[:1])
    (z * z).sum().backward()
    return z, x.grad


@case
def a_whole_changed_in_place_under_a_view(of: Any) -> Any:
    x = of.leaf(1.0, 2.0)
    z = x * 1
    view = z[:1]
    of.made(changed, of_changed)(z)
    view.sum().backward()
    return view, x.grad


@case
def what_needed_no_gradient_changed_in_place(of: Any) -> Any:
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        x.add_(y)
        ctx.mark_dirty(x)
        return x

    x, y = of.ones(1), of.leaf(2.0)
    z = of.made(forward, lambda ctx, dy: (dy, dy * 5))(x, y)
    z.backward()
    return z is x, x.requires_grad, y.grad


@case
def a_changed_input_is_differentiated_twice(of: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        x.exp_()
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    x = of.leaf(0.5)
    (g,) = of.grad(of.made(forward, lambda ctx, dy: dy * ctx.saved_tensors[0])(x * x), x, create_graph=True)
    return round(g.item(), 4), round(of.grad(g, x)[0].item(), 4)


@raises("Made.apply: the tensor is a leaf that requires grad")
def a_leaf_changed_in_place(of: Any) -> Any:
    of.made(changed, of_changed)(of.leaf(1.0))


@raises("Made.apply: the tensor is a view of a leaf that requires grad")
def a_part_of_a_leaf_changed_in_place(of: Any) -> Any:
    of.made(changed, of_changed)(of.leaf(1.0, 2.0)[:1])


@raises("Mul: an input it needs was changed in place")
def what_was_kept_before_changed_in_place(of: Any) -> Any:
    z = of.leaf(2.0) * 1
    y = z * z
    of.made(changed, of_changed)(z)
    y.backward()


@raises("Made.apply: mark_dirty was given an input that forward does not return")
def a_changed_input_that_is_not_returned(of: Any) -> Any:
    of.made(lambda ctx, x: changed(ctx, x) * 2, of_changed)(of.leaf(1.0) * 1)


# mark_non_differentiable and set_materialize_grads


def with_mask(ctx: Any, x: Any) -> Any:
    mask = x > 0
    ctx.mark_non_differentiable(mask)
    return x * 2, mask


@case
def a_mask(of: Any) -> Any:
    return [y.requires_grad for y in of.made(with_mask, passing)(of.leaf(1.0))]


@case
def floats_without_a_gradient(of: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        y = x * 2
        ctx.mark_non_differentiable(y)
        return x * 3, y

    seen: list[Any] = []
    a, b = of.made(forward, lambda ctx, da, db: (seen.append(shown(db)), da)[1])(of.leaf(1.0))
    a.backward()
    return a.requires_grad, b.requires_grad, seen


@case
def an_input_returned_without_a_gradient(of: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_non_differentiable(x)
        return x

    x = of.leaf(1.0)
    y = of.made(forward, passing)(x)
    return y.requires_grad, x.requires_grad, y is x


@case
def absent_gradients_are_zeros(of: Any) -> Any:
    seen: list[Any] = []
    of.made(lambda ctx, x: (x * 2, x * 3), lambda ctx, *dy: (seen.append(shown(dy)), dy[0])[1])(of.leaf(1.0))[
        1
    ].backward()
    return seen


@case
def absent_gradients_are_none_where_asked(of: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(False)
        return with_mask(ctx, x)

    seen: list[Any] = []
    of.made(forward, lambda ctx, *dy: (seen.append(shown(dy)), dy[0])[1])(of.leaf(1.0))[0].backward()
    return seen


# What is saved


def saving(*places: int) -> Callable[..., Any]:
    """forward of x * x that saves x (0), the result (1) or another tensor (2)."""

    def forward(ctx: Any, x: Any) -> Any:
        y = x * x
        ctx.save_for_backward(*[(x, y, x * 5)[i] for i in places])
        return y

    return forward


def of_square(ctx: Any, dy: Any) -> Any:
    return dy * 2 * ctx.saved_tensors[0]


@case
def none_among_what_is_saved(of: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(None, x, None)
        return x * x

    seen: list[Any] = []

    def backward(ctx: Any, dy: Any) -> Any:
        before, x, after = ctx.saved_tensors
        seen.append((before, after))
        return dy * 2 * x

    x = of.leaf(3.0)
    of.made(forward, backward)(x).backward()
    return seen, x.grad


@case
def the_last_of_two_calls_saves(of: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.save_for_backward(x, x)
        return x * x

    x = of.leaf(1.0)
    of.made(forward, lambda ctx, dy: dy * len(ctx.saved_tensors))(x).backward()
    return x.grad


@case
def an_input_is_given_back_itself(of: Any) -> Any:
    x, seen = of.leaf(2.0), []
    of.made(saving(0), lambda ctx, dy: (seen.append(ctx.saved_tensors[0] is x), dy)[1])(x).backward()
    return seen


@raises("Made: an output it needs was changed in place")
def a_saved_output_changed_in_place(of: Any) -> Any:
    y = of.made(saving(1), of_square)(of.leaf(1.0))
    y.add_(1.0)
    y.backward()


@raises("Made: an input it needs was changed in place")
def a_saved_input_changed_in_place(of: Any) -> Any:
    z = of.leaf(1.0) * 1
    y = of.made(saving(0), of_square)(z)
    z.add_(1.0)
    y.backward()


@case
def an_output_that_is_not_saved_changed_in_place(of: Any) -> Any:
    x = of.leaf(1.0)
    y = of.made(saving(2), of_square)(x)
    y.add_(1.0)
    y.backward()
    return x.grad


@raises("the graph of Made was freed")
def a_walk_after_the_graph_was_freed(of: Any) -> Any:
    y = of.made(saving(0), of_square)(of.leaf(1.0))
    y.backward()
    y.backward()


@raises("saved_tensors: the Tensors were freed by an earlier backward")
def a_look_at_what_was_freed(of: Any) -> Any:
    kept: list[Any] = []

    def forward(ctx: Any, x: Any) -> Any:
        kept.append(ctx)
        return saving(0)(ctx, x)

    y = of.made(forward, of_square)(of.leaf(1.0))
    assert kept[0].saved_tensors
    y.backward()
    return kept[0].saved_tensors


@case
def a_second_and_a_third_derivative(of: Any) -> Any:
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x * y * y

    def backward(ctx: Any, dy: Any) -> Any:
        x, y = ctx.saved_tensors
        return dy * y * y, dy * 2 * x * y

    x, call = of.leaf(2.0), of.made(forward, backward)
    (first,) = of.grad(call(x, x) + call(x, x) * call(x, x * x), x, create_graph=True)
    (second,) = of.grad(first, x, create_graph=True)
    return first, second, of.grad(second, x)


@case
def an_output_is_gone_with_its_last_name(of: Any) -> Any:
    y = of.made(saving(0, 1), of_square)(of.leaf(1.0) * 1)
    there = weakref.ref(y)
    del y
    gc.collect()
    return there() is None


# needs_input_grad, modes, walks inside walks


@case
def what_needs_a_gradient(of: Any) -> Any:
    seen: list[Any] = []

    def forward(ctx: Any, x: Any, k: Any, y: Any) -> Any:
        seen.append(ctx.needs_input_grad)
        return x * k * y

    call = of.made(forward, lambda ctx, dy: (seen.append(ctx.needs_input_grad), (dy, None, None))[1])
    call(of.leaf(1.0), 2, of.ones(1)).backward()
    with of.library.no_grad():
        y = call(of.leaf(1.0), 2, of.ones(1))
    return seen, y.requires_grad


@case
def the_mode_in_forward_and_backward(of: Any) -> Any:
    seen: list[Any] = []
    enabled = of.library.is_grad_enabled

    def forward(ctx: Any, x: Any) -> Any:
        seen.append((enabled(), x.requires_grad))
        return x * 2

    def backward(ctx: Any, dy: Any) -> Any:
        seen.append((enabled(), dy.requires_grad))
        return dy * 2

    x = of.leaf(1.0)
    for rule in (backward, of.once(backward)):
        call = of.made(forward, rule)
        call(x).backward()
        seen.append(of.grad(call(x) ** 2, x, create_graph=True)[0].requires_grad)
    return seen


@case
def a_walk_inside_of_backward(of: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        with of.library.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = (ctx.x**3).sum()
        return ctx.y.detach()

    def backward(ctx: Any, dy: Any) -> Any:
        ctx.y.backward()
        return ctx.x.grad * dy

    x = of.leaf(1.0, 3.0)
    (of.made(forward, backward)(x * 2) * 2).backward()
    return x.grad


@case
def an_exception_in_backward_comes_out_and_leaves_all_as_it_was(of: Any) -> Any:
    class Own(Exception):
        pass

    def backward(ctx: Any, dy: Any) -> Any:
        raise Own("not today")

    x = of.leaf(1.0)
    try:
        (of.made(double, backward)(x) + x).sum().backward()
    except Own as error:
        return str(error), of.library.is_grad_enabled(), (x * 2).requires_grad


@case
def an_exception_in_forward_leaves_the_mode(of: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        raise KeyError("here")

    try:
        of.made(forward, passing)(of.leaf(1.0))
    except KeyError as error:
        return str(error), of.library.is_grad_enabled()


@case
def a_long_chain(of: Any) -> Any:
    x, call = of.leaf(1.0), of.made(lambda ctx, x: x * 1, passing)
    y = x
    for _ in range(2000):
        y = call(y)
    y.backward()
    return x.grad


@case
def a_hook_on_the_result(of: Any) -> Any:
    x = of.leaf(1.0)
    y = of.made(double, lambda ctx, dy: dy * 2)(x)
    y.register_hook(lambda dy: dy * 10)
    y.backward()
    return x.grad


# The form of the class and of its arguments


@case
def setup_context_gets_defaults_and_names(of: Any) -> Any:
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.factor, ctx.count = inputs[1], len(inputs)

    call = of.made(
        lambda x, factor=3: x * factor,
        lambda ctx, dy: (dy * ctx.factor, *[None] * (ctx.count - 1)),
        setup_context=staticmethod(setup_context),
    )
    x = of.leaf(1.0)
    return [of.grad(y, x) for y in (call(x), call(x, 2), call(x, factor=5), call(x=x))]


@case
def setup_context_of_several_results(of: Any) -> Any:
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs, *output)
        ctx.mark_non_differentiable(output[1])

    def backward(ctx: Any, da: Any, _: Any) -> Any:
        x, y, *_results = ctx.saved_tensors
        return da * y, da * x

    x, y = of.leaf(2.0), of.leaf(3.0)
    a, b = of.made(lambda x, y: (x * y, x + y), backward, setup_context=staticmethod(setup_context))(x, y)
    a.backward()
    return x.grad, y.grad, b.requires_grad


@case
def what_vmap_and_forward_mode_need_is_let_be(of: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_forward(x)
        return x * 2

    x = of.leaf(1.0)
    more = {"generate_vmap_rule": False, "jvp": staticmethod(lambda ctx, t: t * 2)}
    of.made(forward, lambda ctx, dy: dy * 2, **more)(x).backward()
    return x.grad


@case
def backward_may_be_called_vjp(of: Any) -> Any:
    base = of.library.autograd.Function
    kind = type("Made", (base,), {"forward": staticmethod(double), "vjp": staticmethod(lambda ctx, dy: dy * 2)})
    x = of.leaf(1.0)
    kind.apply(x).backward()
    return x.grad


@case
def class_methods(of: Any) -> Any:
    class Made(of.library.autograd.Function):  # type: ignore[misc, name-defined]
        @classmethod
        def forward(cls, ctx: Any, x: Any) -> Any:
            return x * 2

        @classmethod
        def backward(cls, ctx: Any, dy: Any) -> Any:
            return dy * 2

    x = of.leaf(1.0)
    Made.apply(x).backward()
    return x.grad


@case
def a_base_class_with_backward_alone(of: Any) -> Any:
    class Base(of.library.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return dy * 2

    class Made(Base):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

    class Larger(Made):
        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return Made.backward(ctx, dy) * 5

    x = of.leaf(1.0)
    return of.grad(Made.apply(x), x), of.grad(Larger.apply(x), x)


@raises("Made has no forward")
def no_forward(of: Any) -> Any:
    type("Made", (of.library.autograd.Function,), {"backward": staticmethod(passing)}).apply(of.leaf(1.0))


@raises("Made has no backward; expected a static backward")
def no_backward(of: Any) -> Any:
    type("Made", (of.library.autograd.Function,), {"forward": staticmethod(double)}).apply(of.leaf(1.0)).backward()


@raises("Made: an instance was called, as in early versions of PyTorch; expected Made.apply")
def an_instance_is_called(of: Any) -> Any:
    type("Made", (of.library.autograd.Function,), {"forward": staticmethod(double)})()(of.leaf(1.0))


@case
def numbers_alone(of: Any) -> Any:
    return of.made(lambda ctx, a, b: a + b, passing)(1, 2)


@case
def tensors_in_a_list_are_not_followed(of: Any) -> Any:
    return of.made(lambda ctx, xs: xs[0] * 2, passing)([of.leaf(1.0)]).requires_grad


@case
def nothing_for_an_argument(of: Any) -> Any:
    x = of.leaf(1.0)
    of.made(lambda ctx, x, y: x if y is None else x + y, lambda ctx, dy: (dy, None))(x, None).backward()
    return x.grad


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_as_in_pytorch(name: str) -> None:
    expected, found = outcome(name, torch), outcome(name, mn)
    if name in WORDS:
        assert isinstance(expected, Exception)
        with pytest.raises(type(found), match=WORDS[name]):
            raise found
    elif isinstance(found, Exception):
        raise found
    else:
        assert found == expected


def test_a_change_in_place_of_a_result_is_not_lost_on_its_input(rng: np.random.Generator) -> None:
    """Inside no_grad() the change is not recorded, and so it is allowed."""

    class Same(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return dy

    x = mn.tensor(rng.standard_normal(3), requires_grad=True)
    z = x * 1
    y = Same.apply(z)
    with mn.no_grad():
        y.mul_(2.0)
    np.testing.assert_array_equal(z.numpy(), 2 * x.numpy())
    np.testing.assert_array_equal(y.numpy(), z.numpy())


class HalfSquare(Function):
    """The sum of x^2 / 2 on arrays; its gradient is x itself."""

    def forward(self, x: Any) -> Any:
        self.x = x
        return np.asarray((x * x / 2).sum())

    def backward(self, dy: Any) -> Any:
        return self.x

    def gradient(self, dy: Any) -> Any:
        return self.input(0, self.x, dy)


class StaticHalfSquare(Function):
    """The same in PyTorch's form."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return (x * x / 2).sum()

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return ctx.saved_tensors[0]


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("function", [HalfSquare, StaticHalfSquare])
def test_a_gradient_that_a_function_keeps_is_not_changed_through_grad(function: Any, create_graph: bool) -> None:
    x = mn.tensor([1.0, 2.0], requires_grad=True)
    function.apply(x).backward(create_graph=create_graph)
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 2.0]
    x.grad.data.mul_(10)
    assert x.tolist() == [1.0, 2.0]
    zero = mn.zeros(2, requires_grad=True)
    y = function.apply(x + zero)  # Add hands on what it gets
    (dx,) = mn.autograd.grad(y, zero, retain_graph=True, create_graph=create_graph)
    dx.data.mul_(10)
    assert mn.autograd.grad(y, zero)[0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_constant_that_backward_returns_stays_as_it_is(create_graph: bool) -> None:
    constant = mn.tensor([3.0, 4.0])

    class Weighted(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return (x * constant).sum()

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return constant

    for _ in range(2):
        x = mn.ones(2, requires_grad=True)
        Weighted.apply(x).backward(create_graph=create_graph)
        assert x.grad is not None
        x.grad.data.mul_(10)
        assert x.grad.tolist() == [30.0, 40.0]
    assert constant.tolist() == [3.0, 4.0]
