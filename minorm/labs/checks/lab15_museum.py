"""Lab 15: checks cases that show each fault, tests that find only one cause, and functions without the fault."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minorm.labs import museum
from minorm.labs.calling.objects import Callback
from minorm.labs.calling.student import Failure
from minorm.labs.checks.mistakes import lab15_museum as mistakes
from minorm.labs.checks.own_arithmetic import own_answer
from minorm.labs.checks.planted import lab15_museum as planted
from minorm.labs.comparing import Wrong, close, numbers, parts, true
from minorm.labs.lab import Lab

LAB = Lab(
    15,
    "lab15_museum",
    "Museum of real bugs",
    "Eight faults of normalization that shipped: how are they shown, shrunk, explained, mended, and kept away?",
    minutes=120,
    needs=(1, 3, 4),
)
SHOWN, AGREES = 1e-2, 1e-3
SAME = 1e-7  # two x this close count as the same
WILD = 6  # elements of x in a reproduction
FEWEST = {"A": 1, "B": 1, "C": 1, "D": 2, "E": 2, "F": 2, "G": 2, "H": 1}
LONGEST = 6  # characters of a number in a bug report
FUNCTIONS = ("batch_norm", "group_norm", "layer_norm", "lp_norm")


def _case_that_shows(letter: str, case: Any, what: str) -> dict[str, Any]:
    """Return the case if the exhibit gives a wrong result and a right program, in the same types, gives a right one.

    Otherwise raise Wrong.
    """
    function = museum.PLAQUES[letter].function
    try:
        case = museum.checked(function, case)
    except ValueError as error:
        raise Wrong(what, "a case that fits the function", str(error)) from None
    with np.errstate(all="ignore"):
        fair = museum.distance(planted.RIGHT_TOO[function](**case), museum.right(function, case))
        off = museum.off(letter, case)
    true(
        fair <= AGREES,
        what,
        "numbers on which a right program gives the right answer",
        f"a right program is off by {fair:.3g} as well",
    )
    true(off > SHOWN, what, f"exhibit {letter} is off by more than {SHOWN:g}", f"{off:.3g}")
    return case


# 15.1 and 15.2


def _reproduced(student: Any, rng: np.random.Generator, letters: str) -> None:
    for letter in letters:
        seen: list[Any] = []
        for seed in map(int, rng.choice(10_000, 3, replace=False)):
            what = f'reproduce("{letter}", {seed})'
            x = _case_that_shows(letter, student.reproduce(letter, seed), what)["x"]
            true(x.size >= WILD, what, f"at least {WILD} elements of x", str(x.size))
            again = any(museum.distance(x, other) <= SAME for other in seen)
            true(not again, what, "another x for each seed", "the x of another seed")
            seen.append(x)


@LAB.check("15.1", "batch_norm and group_norm: A to E", visible=True)
def reproduced_first(student: Any, rng: np.random.Generator) -> None:
    _reproduced(student, rng, "ABCDE")


@LAB.check("15.1", "layer_norm and lp_norm: F to H", visible=True)
def reproduced_second(student: Any, rng: np.random.Generator) -> None:
    _reproduced(student, rng, "FGH")


def _short_numbers(x: Any, what: str) -> None:
    long = [value for value in x.astype(np.float64).ravel() if len(f"{value:g}") > LONGEST]
    rounded = [value for value in x.ravel() if x.dtype.type(f"{value:g}") != value]
    true(not long + rounded, what, f"numbers of at most {LONGEST} characters", f"{[*long, *rounded][:1]}")


def _smallest(student: Any, letters: str) -> None:
    for letter in letters:
        what = f'smallest("{letter}")'
        x = _case_that_shows(letter, student.smallest(letter), what)["x"]
        fewest = FEWEST[letter]
        true(x.size <= fewest, what, f"at most {fewest} element{'s' * (fewest > 1)} of x", str(x.size))
        _short_numbers(x, what)


@LAB.check("15.2", "A, B, C and D", visible=True)
def smallest_first(student: Any, rng: np.random.Generator) -> None:
    _smallest(student, "ABCD")


@LAB.check("15.2", "E, F, G and H")
def smallest_second(student: Any, rng: np.random.Generator) -> None:
    _smallest(student, "EFGH")


# 15.3


def _fails(student: Any, letter: str, implementation: Callable[..., Any]) -> str:
    """Run the student's test for an exhibit on this implementation.

    Return the test's message if it failed, otherwise an empty text.
    """
    try:
        student.call(f"cause_{letter}", (Callback("norm"),), {}, {"norm": implementation})
    except Failure as failure:
        if failure.status != "error" or failure.kind != "AssertionError":
            raise
        return str(failure) or "AssertionError"
    return ""


def _cause(student: Any, rng: np.random.Generator, letter: str) -> None:
    room = museum.PLAQUES[letter].function
    others = [other for other, plaque in museum.PLAQUES.items() if plaque.function == room and other != letter]
    passes = {"a right program": planted.RIGHT[room], "another right program": planted.RIGHT_TOO[room]}
    passes |= {f"exhibit {other}, whose cause is another": museum.exhibit(other) for other in others}
    passes |= {f"a neighbour whose cause is another ({said})": f for said, f in planted.NEIGHBOURS[room].items()}
    siblings = sorted(planted.SIBLINGS[letter])
    chosen = [siblings[i] for i in rng.choice(len(siblings), 2, replace=False)]
    fails = {f"exhibit {letter}": museum.exhibit(letter)}
    fails |= {f"a sibling of exhibit {letter} ({said})": planted.SIBLINGS[letter][said] for said in chosen}
    order = [*passes, *fails]
    random.SystemRandom().shuffle(order)  # so that a test that counts learns nothing
    for name in order:
        said = _fails(student, letter, museum.quiet(({**passes, **fails})[name]))
        if name in passes:
            true(not said, f"cause_{letter} on {name}", "no assertion fails", said)
        else:
            true(said, f"cause_{letter} on {name}", "a failed assertion", "none")


for _letter in museum.PLAQUES:

    @LAB.check("15.3", f"the cause of {_letter}, and no other", visible=True)
    def cause(student: Any, rng: np.random.Generator, letter: str = _letter) -> None:
        _cause(student, rng, letter)


# 15.4


def _batch_case(rng: np.random.Generator, shape: Sequence[int], offset: float = 0.0, kind: Any = np.float64) -> Any:
    channels = shape[1]
    s, b, mean = rng.standard_normal((3, channels)).astype(kind)
    var = rng.uniform(1, 3, channels).astype(kind)
    x = (rng.standard_normal(shape) * 2 + offset).astype(kind)
    return {"x": x, "s": s, "b": b, "running_mean": mean, "running_var": var}


def _group_case(
    rng: np.random.Generator, shape: Sequence[int], groups: int, each: bool, offset: float = 0.0, kind: Any = np.float64
) -> Any:
    s, b = rng.standard_normal((2, groups if each else shape[1])).astype(kind)
    return {"x": (rng.standard_normal(shape) + offset).astype(kind), "s": s, "b": b, "num_groups": groups}


def _layer_case(
    rng: np.random.Generator, shape: Sequence[int], axis: int, size: float = 1.0, kind: Any = np.float64
) -> Any:
    x = (rng.standard_normal(shape) * size).astype(kind)
    s, b = rng.standard_normal((2, *shape[axis % len(shape) :])).astype(kind)
    return {"x": x, "s": s, "b": b, "axis": axis}


_BOUNDS = {np.float64: 1e-9, np.float32: 2e-5, np.float16: 4e-3}


def _mended(student: Any, function: str, case: dict[str, Any]) -> None:
    """Check that the function computes without other packages, and check the shape, type and numbers of its results."""
    x = case["x"]
    rest = ", ".join(f"{name}={value:g}" for name, value in case.items() if not isinstance(value, np.ndarray))
    what = f"{function}, x of shape {x.shape}, {x.dtype}" + (f", {rest}" if rest else "")
    right = museum.right(function, case)
    got = own_answer(student, function, **case)
    names = ("y", "running_mean", "running_var") if function == "batch_norm" else ("y",)
    if len(names) == 1:
        got, right = (got,), (right,)
    for name, mine, theirs in zip(names, parts(got, len(names), what), right, strict=True):
        kind = x.dtype if name == "y" else case[name].dtype
        bound = _BOUNDS[kind.type]
        numbers(mine, what, f"an array of shape {theirs.shape}")
        close(mine, theirs, f"{name} of {what}", rtol=bound, atol=bound, dtype=kind)


@LAB.check("15.4", "batch_norm and group_norm", points=2, visible=True)
def mended_first(student: Any, rng: np.random.Generator) -> None:
    for shape in ((4, 3), (3, 2, 5), (1, 4)):
        _mended(student, "batch_norm", {**_batch_case(rng, shape), "momentum": 0.7, "eps": 1e-3})
    for each in (False, True):
        _mended(student, "group_norm", _group_case(rng, (2, 6, 3), 2, each))
    _mended(student, "group_norm", _group_case(rng, (2, 4, 9), 2, False, 1e4, np.float32))


@LAB.check("15.4", "layer_norm and lp_norm", points=2, visible=True)
def mended_second(student: Any, rng: np.random.Generator) -> None:
    for axis in (-1, 1, 0):
        _mended(student, "layer_norm", _layer_case(rng, (3, 4, 5), axis))
    _mended(student, "layer_norm", _layer_case(rng, (3, 7), -1, 1e20, np.float32))
    x = rng.uniform(200, 900, (3, 8)).astype(np.float16)
    for p in (1, 2):
        _mended(student, "lp_norm", {"x": x, "p": p, "axis": -1})
        _mended(student, "lp_norm", {"x": rng.standard_normal((3, 4, 2)), "p": p, "axis": 1})


@LAB.check("15.4", "odd shapes, offsets and types: batch_norm and group_norm")
def mended_third(student: Any, rng: np.random.Generator) -> None:
    batches: list[tuple[tuple[int, ...], float, Any]] = [
        ((2, 1, 3, 1, 2), 1e6, np.float64),
        ((1, 3), 5.0, np.float32),
        ((5, 2, 1), 0, np.float16),
    ]
    for shape, offset, kind in batches:
        _mended(student, "batch_norm", {**_batch_case(rng, shape, offset, kind), "momentum": 0.0})
    _mended(student, "batch_norm", {**_batch_case(rng, (7, 2, 3), 3e4, np.float32), "momentum": 1.0, "eps": 0.5})
    grouped: list[tuple[tuple[int, ...], int, bool, float, Any]] = [
        ((1, 6), 3, True, 1e6, np.float64),
        ((3, 4, 1, 5), 4, True, 0, np.float32),
        ((2, 6, 2, 2, 2), 1, True, 3e4, np.float32),
        ((2, 8, 3), 2, False, 0, np.float16),
    ]
    for shape, groups, each, offset, kind in grouped:
        _mended(student, "group_norm", {**_group_case(rng, shape, groups, each, offset, kind), "eps": 1e-2})


@LAB.check("15.4", "odd shapes, sizes and types: layer_norm and lp_norm")
def mended_fourth(student: Any, rng: np.random.Generator) -> None:
    shapes: list[tuple[tuple[int, ...], int, float, Any]] = [
        ((5,), 0, 1.0, np.float64),
        ((2, 3, 4, 2), -2, 1e19, np.float32),
        ((1, 4, 3), 0, 1e-3, np.float32),
        ((3, 1), -1, 1.0, np.float32),
        ((4, 6), -2, 300.0, np.float16),
    ]
    for shape, axis, size, kind in shapes:
        _mended(student, "layer_norm", {**_layer_case(rng, shape, axis, size, kind), "eps": 1e-4})
    for p in (1, 2):
        x = rng.standard_normal((4, 3, 5)).astype(np.float32)
        x[1] = 0
        _mended(student, "lp_norm", {"x": x * np.float32(1e20), "p": p, "axis": -1})
        _mended(student, "lp_norm", {"x": x, "p": p, "axis": 0})
        _mended(student, "lp_norm", {"x": np.full(40, 3000, np.float16), "p": p, "axis": 0})


# 15.5


def _functions_with(**changed: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {name: museum.quiet(function) for name, function in {**planted.RIGHT, **changed}.items()}


LAB.mutants(
    "15.5",
    _functions_with(),
    {
        "y with a blended variance": _functions_with(batch_norm=planted.SIBLINGS["A"]["y with a blended variance"]),
        "the running variance's momentum reversed": _functions_with(
            batch_norm=planted.SIBLINGS["B"]["the running variance's momentum reversed"]
        ),
        "squares, a negative variance taken for 0": _functions_with(
            group_norm=planted.SIBLINGS["D"]["squares, a negative variance taken for 0"]
        ),
        "scales of groups tiled": _functions_with(group_norm=planted.SIBLINGS["E"]["scales of groups tiled"]),
        "the first row of the scale": _functions_with(layer_norm=planted.SIBLINGS["F"]["the first row of the scale"]),
        "squares in 16 bits": _functions_with(lp_norm=planted.SIBLINGS["H"]["squares in 16 bits"]),
    },
    visible=True,
)
LAB.recognizer = mistakes.RECOGNIZER
