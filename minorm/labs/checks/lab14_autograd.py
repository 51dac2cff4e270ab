"""Lab 14: checks gradients against complex steps, the order of the backward pass, and training of a network."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.labs.calling.objects import Callback
from minorm.labs.checks.complex_step import PATHS, Program, gradients, slopes, through, value_of, xhat_of
from minorm.labs.checks.mistakes import lab14_autograd as mistakes
from minorm.labs.checks.right import lab14_autograd as right
from minorm.labs.comparing import close, equal, numbers, parts, true
from minorm.labs.lab import Lab

LAB = Lab(
    14,
    "lab14_autograd",
    "Autograd",
    "What does loss.backward() do, and where do the three terms of a normalization's gradient come from?",
    minutes=90,
    needs=(1,),
)
ROUGH = {"rtol": 1e-5, "atol": 1e-7}
FAR = 1e6


def _positive(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.uniform(0.5, 2, shape)


# 14.1


def _unbroadcast(student: Any, rng: np.random.Generator, cases: Any) -> None:
    for before, shape in cases:
        dy = rng.standard_normal(before)
        names = "abcdefgh"[: len(before)]
        lined = (1,) * (len(before) - len(shape)) + shape
        left = "".join(name for name, one, all_ in zip(names, lined, before, strict=True) if one == all_)
        expected = np.einsum(f"{names}->{left}", dy).reshape(shape)
        close(student.unbroadcast(dy, shape), expected, f"unbroadcast(dy, {shape}), dy of shape {before}")


@LAB.check("14.1", "rows, columns and single numbers", visible=True)
def unbroadcast(student: Any, rng: np.random.Generator) -> None:
    _unbroadcast(student, rng, [((3, 4), (4,)), ((3, 4), (3, 1)), ((3, 4), (1, 4)), ((3, 4), ()), ((3, 4), (3, 4))])


@LAB.check("14.1", "new axes and lengths of 1 at once")
def unbroadcast_odd(student: Any, rng: np.random.Generator) -> None:
    cases = [((2, 3, 4), (3, 1)), ((2, 3, 4), (1, 1)), ((2, 1, 5), (1, 5)), ((4, 2, 3, 5), (1, 3, 1)), ((3, 3), (3,))]
    _unbroadcast(student, rng, cases)


# 14.2


def _step(student: Any, rng: np.random.Generator, name: str, arrays: list[Any], *settings: Any) -> None:
    program = [(name, tuple(range(len(arrays))), *settings)]
    expected = value_of(program, arrays)
    dy = rng.standard_normal(expected.shape)
    shapes = " and ".join(str(array.shape) for array in arrays)
    what = f"{name}{tuple(settings) if settings else ''} of shape {shapes}"
    got = parts(student.one_step(name, arrays, dy, *settings), 1 + len(arrays), f"value and gradients of {what}")
    close(got[0], expected, what)
    for letter, mine, gradient in zip("ab", got[1:], gradients(program, arrays, dy), strict=False):
        close(mine, gradient, f"d{letter} of {what}")


@LAB.check("14.2", "values and gradients of five operations", points=2, visible=True)
def operations(student: Any, rng: np.random.Generator) -> None:
    for name in ("sub", "mul"):
        _step(student, rng, name, list(rng.standard_normal((2, 3, 4))))
        _step(student, rng, name, [rng.standard_normal((3, 4)), rng.standard_normal((3, 1))])
    for p in (2, -0.5, 3):
        _step(student, rng, "power", [_positive(rng, (2, 3))], p)
    for name in ("sum_over", "mean_over"):
        for axes in ((1,), (0, 1)):
            _step(student, rng, name, [rng.standard_normal((3, 4))], axes)


@LAB.check("14.2", "other shapes, axes and powers", points=2)
def operations_odd(student: Any, rng: np.random.Generator) -> None:
    for name in ("sub", "mul"):
        for shapes in (((4,), (2, 3, 4)), ((2, 1, 4), (3, 1)), ((), (2, 2)), ((1, 3), (2, 1))):
            _step(student, rng, name, [rng.standard_normal(shape) for shape in shapes])
    for p in (2, 3):
        _step(student, rng, "power", [-_positive(rng, (3, 2))], p)
    _step(student, rng, "power", [_positive(rng, (5,))], 0.5)
    _step(student, rng, "power", [_positive(rng, ())], -1.5)
    for name in ("sum_over", "mean_over"):
        for shape, axes in (((2, 3, 4), (0, 2)), ((2, 3, 1), (2,)), ((5,), (0,)), ((2, 3, 4, 2), (1, 3))):
            _step(student, rng, name, [rng.standard_normal(shape) + 100], axes)


# 14.3


def _ordered(student: Any, graph: dict[str, list[str]], root: str) -> None:
    what = f"the order of {graph}" if len(graph) < 8 else f"the order of a graph of {len(graph)} Vars"
    got = student.order_of(graph, root)
    true(isinstance(got, (list, tuple)), what, "a list", type(got).__name__)
    needed, waiting = set(), [root]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += graph[name]
    said = f"{list(got)}"[:300]
    true(len(got) == len(needed) and set(got) == needed, what, f"each of {sorted(needed)} once", said)
    place = {name: i for i, name in enumerate(got)}
    for name in got:
        for one in graph[name]:
            true(place[name] < place[one], what, f"{name} before {one}, its input", said)


def _random_graph(rng: np.random.Generator, count: int) -> dict[str, list[str]]:
    graph: dict[str, list[str]] = {}
    for i in range(count):
        graph[f"v{i}"] = [f"v{one}" for one in rng.integers(0, i, int(rng.integers(1, 3)))] if i else []
    return graph


@LAB.check("14.3", "the order of a graph", points=2, visible=True)
def order(student: Any, rng: np.random.Generator) -> None:
    _ordered(student, {"x": [], "b": ["x", "x"], "c": ["b", "b"], "y": ["c", "x"]}, "y")
    _ordered(student, {"x": [], "m": ["x"], "c": ["x", "m"], "v": ["c", "c"], "r": ["v"], "y": ["c", "r"]}, "y")
    _ordered(student, {"x": [], "a": ["x"], "b": ["x"], "unused": ["b"], "y": ["a"]}, "y")
    _ordered(student, {"x": []}, "x")
    for _ in range(3):
        _ordered(student, _random_graph(rng, 12), "v11")


def _walk(student: Any, rng: np.random.Generator, program: Program, arrays: list[Any], what: str) -> None:
    expected = value_of(program, [array.astype(complex) for array in arrays]).real
    dy = rng.standard_normal(expected.shape)
    got = parts(student.gradients(program, arrays, dy), 1 + len(arrays), f"value and gradients of {what}")
    close(got[0], expected, f"value of {what}", rtol=1e-8)
    for i, (mine, gradient) in enumerate(zip(got[1:], gradients(program, arrays, dy), strict=True)):
        close(mine, gradient, f"gradient of array {i} in {what}", rtol=1e-8, atol=1e-9)


TWICE: dict[str, Program] = {
    "x * x": [("mul", (0, 0))],
    "x + x + x": [("add", (0, 0)), ("add", (1, 0))],
    "(x + z) * x + z, z = x * x": [("mul", (0, 0)), ("add", (0, 1)), ("mul", (2, 0)), ("add", (3, 1))],
    "c * x, c = b * b, b = x * x": [("mul", (0, 0)), ("mul", (1, 1)), ("mul", (2, 0))],
    "x - mean(x)": [("mean_over", (0,), (1,)), ("sub", (0, 1))],
}


@LAB.check("14.3", "gradients are added where a Var is used twice", visible=True)
def added(student: Any, rng: np.random.Generator) -> None:
    for what, program in TWICE.items():
        _walk(student, rng, program, [rng.standard_normal((2, 3))], what)


@LAB.check("14.3", "detach lets no gradient through", visible=True)
def detached(student: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3))
    _walk(student, rng, [("detach", (0,)), ("mul", (1, 0))], [x], "detach(x) * x")
    program: Program = [("mul", (0, 0)), ("detach", (1,)), ("mul", (2, 1)), ("mul", (3, 0))]
    _walk(student, rng, program, [x], "detach(z) * z * x, z = x * x")


@LAB.check("14.3", "random programs", points=2)
def random_programs(student: Any, rng: np.random.Generator) -> None:
    for _ in range(6):
        arrays = [_positive(rng, shape) for shape in ((2, 3), (3,), (2, 1))]
        program: Program = []
        for name in rng.permutation(["add", "sub", "mul", "power", "sum_over", "mean_over", "detach"] * 2):
            last = 2 + len(program)
            other, leaf = int(rng.integers(max(0, last - 3), last + 1)), int(rng.integers(3))
            if name in ("add", "sub"):
                program.append((str(name), (other, last) if rng.random() < 0.5 else (last, other)))
            elif name == "mul":
                program.append(("mul", (last, leaf)))
            elif name == "power":
                program += [("power", (leaf,), float(rng.choice([-0.5, 2, 3]))), ("sub", (last, last + 1))]
            elif name == "detach":
                program += [("detach", (last,)), ("add", (last, last + 1))]
            else:
                program += [(str(name), (other,), (0,)), ("sub", (last + 1, last))]
        program.append(("mul", (0, 2 + len(program))))
        _walk(student, rng, program, arrays, f"the program {program}")


class Probes:
    """The judge's operations.

    Operation number n computes y = a + n, and its gradient is 2.5 dy + n. `asked` lists all calls of `back`.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[int, Any]] = []
        self.serving = {"forward": self.forward, "back": self.back}

    def forward(self, number: int, value: Any) -> Any:
        """Return value + number, the result of the operation with this number."""
        return np.asarray(value, np.float64) + number

    def back(self, number: int, dy: Any) -> Any:
        """Return 2.5 dy + number.

        This does not follow from the values, so only a student's backward pass can find the gradients.
        """
        self.asked.append((number, np.array(dy, np.float64)))
        return self.slope(number, dy)

    @staticmethod
    def slope(number: int, dy: Any) -> Any:
        """Return the same gradient as `back`, without recording that it was asked for."""
        return 2.5 * np.asarray(dy, np.float64) + number

    def drive(self, student: Any, name: str, **options: Any) -> Any:
        """Call a function of minorm.labs.beside that can call `forward` and `back` of this object."""
        options |= {"forward": Callback("forward"), "back": Callback("back")}
        return student.ask({"do": "drive", "name": name, "options": options}, self.serving)


def _expected(links: list[Any], shape: tuple[int, ...]) -> tuple[dict[int, Any], Any]:
    """Return the dy that each operation must get, and the gradient of the single input array."""
    grads = [np.zeros(shape) for _ in range(1 + len(links))]
    grads[-1] = np.ones(shape)
    told = {}
    for number in reversed(range(len(links))):
        link, dy = links[number], grads[1 + number]
        if isinstance(link, int):
            told[number] = dy
            grads[link] = grads[link] + Probes.slope(number, dy)
        else:
            for one in link:
                grads[one] = grads[one] + dy
    return told, grads[0]


@LAB.check("14.3", "each Var passes its gradient on once, when all of it has come", points=2)
def once(student: Any, rng: np.random.Generator) -> None:
    for links in (
        [0, 0, (1, 2), 3, 4, (4, 5)],
        [0, 1, (2, 0), (3, 1), 4, (5, 2)],
        [(0, 0), 1, (1, 2), 3, (4, 4), (5, 0)],
    ):
        probes, x = Probes(), rng.standard_normal((2, 2))
        (got,) = parts(probes.drive(student, "probed", arrays=[x], links=links), 1, "the gradients")
        told, expected = _expected(links, x.shape)
        calls = sorted(number for number, _ in probes.asked)
        equal(calls, sorted(told), "operations whose back was called, by number, in a graph of sums and operations")
        for number, dy in probes.asked:
            close(dy, told[number], "dy that an operation's back was given, in a graph of sums and operations")
        close(got, expected, "the gradient of x, in a graph of sums and operations")


@LAB.check("14.3", "forty doublings in a row", seconds=12)  # all gone where the walk takes every path
def doublings(student: Any, rng: np.random.Generator) -> None:
    program: Program = [("add", (i, i)) for i in range(40)]
    x, dy = rng.standard_normal((2, 3))
    got = parts(student.gradients(program, [x], dy), 2, "value and gradient of forty doublings")
    close(got[1], dy * 2.0**40, "the gradient of x before forty doublings")


LAB.provide("14.1", unbroadcast=right.unbroadcast)
LAB.provide("14.2", **right.OPERATIONS)
LAB.provide("14.3", **right.WALK)


# 14.4


def _through(
    student: Any, rng: np.random.Generator, shape: Any, axes: Any, eps: float, paths: Any, offset: float = 0
) -> None:
    x, g = rng.standard_normal((2, *shape))
    x = (x + offset) - offset
    what = f"x of shape {shape}{f' near {offset:,.0f}' if offset else ''}, axes {axes}, eps={eps:g}"
    xhat, dx = parts(student.through(x + offset, g, axes, eps, paths), 2, f"xhat and the gradient, {what}")
    bounds = {"rtol": 1e-7, "atol": 1e-8}
    close(xhat, xhat_of(x, eps, axes), f"xhat, {what}, whatever the paths", **bounds)
    expected = through(x, g, eps, axes, paths)
    close(dx, expected, f"the gradient through {' and '.join(paths) or 'no path'}, {what}", **bounds)


@LAB.check("14.4", "one path at a time", points=2, visible=True)
def one_path(student: Any, rng: np.random.Generator) -> None:
    for path in PATHS:
        _through(student, rng, (3, 4), (1,), 0.1, (path,))
    _through(student, rng, (3, 4), (1,), 0.1, PATHS)


@LAB.check("14.4", "two paths, other axes, large means")
def two_paths(student: Any, rng: np.random.Generator) -> None:
    for paths in (PATHS[:2], PATHS[1:], PATHS[::2], ()):
        _through(student, rng, (3, 2, 4), (0, 2), 1e-3, paths)
    for path in PATHS:
        _through(student, rng, (5, 3), (0,), 0.3, (path,), FAR)
        _through(student, rng, (2, 1, 3, 2), (1, 2, 3), 0.3, (path,))


# 14.5


@LAB.check("14.5", "a formula for each path", points=2, visible=True)
def formulas(student: Any, rng: np.random.Generator) -> None:
    for shape, axes, eps in (((3, 4), (1,), 1e-3), ((3, 2, 4), (0, 2), 0.1)):
        x, g = rng.standard_normal((2, *shape))
        xhat = xhat_of(x, eps, axes)
        rstd = (x.var(axis=axes, keepdims=True) + eps) ** -0.5
        got = parts(student.three_terms(g, xhat, rstd, axes), 3, "three_terms")
        for path, mine in zip(PATHS, got, strict=True):
            expected = through(x, g, eps, axes, (path,))
            close(mine, expected, f"the term of the {path} path, shape {shape}, axes {axes}", rtol=1e-8, atol=1e-9)


@LAB.check("14.5", "the formulas for any xhat and rstd")
def formulas_alone(student: Any, rng: np.random.Generator) -> None:
    """Check three_terms on random xhat and rstd.

    They belong to no x, so only the formulas can give the right answer.
    """
    g, xhat = rng.standard_normal((2, 3, 2, 5)) + 1
    rstd = _positive(rng, (1, 2, 1))
    got = parts(student.three_terms(g, xhat, rstd, (0, 2)), 3, "three_terms")
    shared, along = np.ones((3, 2, 5)) / 15, "ncl,ncl->c"
    mean_g, mean_gx = np.einsum(along, g, shared)[:, None], np.einsum(along, g * xhat, shared)[:, None]
    terms = (g * rstd, -(mean_g * rstd) * np.ones(g.shape), -(mean_gx * xhat) * rstd)
    for path, mine, term in zip(PATHS, got, terms, strict=True):
        close(mine, term, f"the term of the {path} path, xhat and rstd of random numbers")


@LAB.check("14.5", "central differences", visible=True)
def central(student: Any, rng: np.random.Generator) -> None:
    _differences(student, rng, (2, 3), (1,), 0.1, 0.25)
    _differences(student, rng, (3, 2, 2), (0, 2), 1e-2, 0.5)
    x, g = rng.standard_normal((2, 3, 4))
    expected = through(x, g, 1e-3, (1,))
    close(student.slopes(x, g, (1,), 1e-3), expected, "slopes, h=1e-5, beside the exact gradient", **ROUGH)


def _differences(student: Any, rng: np.random.Generator, shape: Any, axes: Any, eps: float, h: float) -> None:
    """Check `slopes` with a step so large that only a finite difference gives the expected number."""
    x, g = rng.standard_normal((2, *shape))
    moves = h * np.eye(x.size).reshape(x.size, *shape)
    right, left = (np.array([(g * xhat_of(x + end, eps, axes)).sum() for end in ends]) for ends in (moves, -moves))
    expected = ((right - left) / (2 * h)).reshape(shape)
    close(student.slopes(x, g, axes, eps, h), expected, f"slopes, x of shape {shape}, axes {axes}, h={h}")


# 14.6


def _start(rng: np.random.Generator, inputs: int, width: int) -> list[Any]:
    shapes = ((inputs, width), (1, width), (1, width), (width, 1), (1, 1))
    return [rng.standard_normal(shape) for shape in shapes]


def _output(x: Any, w1: Any, s: Any, b: Any, w2: Any, c: Any) -> Any:
    a = xhat_of(x @ w1, 1e-5, (0,)) * s + b
    return (a * (a.real > 0)) @ w2 + c


def _trained(x: Any, target: Any, parameters: list[Any], steps: int, rate: float) -> tuple[Any, list[Any]]:
    """Train the network by gradient descent, with gradients by complex steps.

    Return the losses and the trained parameters.
    """

    def loss(*parameters: Any) -> Any:
        return ((_output(x, *parameters) - target) ** 2).mean()

    losses = []
    for _ in range(steps):
        losses.append(loss(*parameters))
        pairs = zip(parameters, slopes(loss, *parameters), strict=True)
        parameters = [value - rate * gradient for value, gradient in pairs]
    return np.array(losses), parameters


@LAB.check("14.6", "the losses of some steps, and what was learned", points=2, visible=True)
def trains(student: Any, rng: np.random.Generator) -> None:
    for count, inputs, width, steps, rate in ((12, 2, 4, 5, 0.1), (7, 3, 2, 3, 0.03)):
        x = rng.standard_normal((count, inputs))
        target = np.where(rng.random((count, 1)) < 0.5, 1.0, -1.0)
        start = _start(rng, inputs, width)
        losses, learned = _trained(x, target, start, steps, rate)
        got = parts(student.train(x, target, start, steps, rate), 2, "train")
        close(got[0], losses, f"the losses of {steps} steps", rtol=1e-7)
        for name, mine, value in zip(("w1", "s", "b", "w2", "c"), parts(got[1], 5, "parameters"), learned, strict=True):
            close(mine, value, f"{name} after {steps} steps", rtol=1e-6, atol=1e-8)


@LAB.check("14.6", "gradients come to every parameter through your graph")
def graph_of_network(student: Any, rng: np.random.Generator) -> None:
    x, start = rng.standard_normal((9, 3)), _start(rng, 3, 4)
    probes = Probes()
    used = [value + number for number, value in enumerate(start)]
    dy = rng.standard_normal((9, 1))
    output = probes.drive(student, "network", x=x, parameters=start, dy=dy)
    close(output, _output(x, *used), "the output of your network", rtol=1e-8)
    told = {number: numbers(grad, "a gradient", "an array") for number, grad in probes.asked}
    equal(sorted(number for number, _ in probes.asked), [0, 1, 2, 3, 4], "parameters that get a gradient, by number")
    expected = slopes(lambda *moved: (dy * _output(x, *moved)).sum(), *used)
    for number, name in enumerate(("w1", "s", "b", "w2", "c")):
        close(told[number], expected[number], f"the gradient of {name}", rtol=1e-7, atol=1e-8)


LAB.recognizer = mistakes.RECOGNIZER
