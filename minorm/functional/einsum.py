"""einsum: products and sums written with letters. Every step is a matrix product, a sum or a change of axes.

"bij,bjk->bik" is a matrix product for each b; "ii->" is a trace; "...ij->...ji" swaps the last two axes of any tensor.
Two tensors are combined in a stack of matrix products. Letters in both tensors and in the result index the stack.
Letters in both tensors but not in the result are summed over. Letters in only one of the tensors index the rows or the
columns. More than two tensors are combined one after the other, from the left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from string import ascii_letters
from typing import Any

from minorm.functional.arguments import floats
from minorm.graph import trace
from minorm.ops.shape import Diagonal
from minorm.support.argument_errors import not_a_tensor
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

Weigh = Callable[[tuple[int, ...], int, Any], None]


@documented(
    {},
    equation='"ij,jk->ik": a letter for each axis of each tensor and, after an arrow, a letter for each axis of the '
    "result. Without an arrow, the result has the letters that occur once, in alphabetical order. "
    '"..." stands for axes that broadcast; without an arrow they come first in the result',
    tensors="one Tensor for each term of the equation, all of one type, or a list of them; integers work too",
    weigh="a function that is called before each product with the product's shape, the length of the sum, and the "
    "type; it may raise an error",
)
@trace.operation
def einsum(equation: str, *tensors: Any, weigh: Weigh | None = None) -> Tensor:
    """Multiply the tensors, and sum over the letters that are missing from the result.

    An axis of length 1 broadcasts to a longer axis of the same letter. Raises ValueError if the equation does not fit
    the tensors.

    Example:
        >>> a = mn.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> mn.einsum("ij,j->i", a, mn.tensor([10.0, 1.0]))
        tensor([12., 34.])
        >>> mn.einsum("ii->", a)  # the trace
        tensor(5.)

    Its ONNX operator is Einsum (opset 12).
    """
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise not_a_tensor("einsum", f"tensor {i}", tensor)
    if any(t.dtype != tensors[0].dtype for t in tensors):
        floats("einsum", (), **{f"tensor {i}": t for i, t in enumerate(tensors)})
    terms, result = parse(equation, [t.shape for t in tensors])
    done, letters = _single(tensors[0], terms[0], set(result).union(*terms[1:]))
    for i in range(1, len(tensors)):
        later = set(result).union(*terms[i + 1 :])
        right, other = _single(tensors[i], terms[i], later | set(letters))
        done, letters = _pair(done, letters, right, other, later, weigh)
    done, letters = _single(done, letters, set(result))
    return done.permute([letters.index(letter) for letter in result])


def parse(equation: str, shapes: list[tuple[int, ...]]) -> tuple[list[str], str]:
    """Return the letters of each tensor and of the result. Each "..." is replaced by letters that the equation does not
    use.
    """
    text = "".join(equation.split())
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise ValueError(f"einsum: equation {equation!r} names {len(terms)} tensors; got {len(shapes)}")
    for term in (*terms, right):
        rest = term.replace("...", "", 1)
        if not all(letter in ascii_letters for letter in rest):
            raise ValueError(f"einsum: equation {equation!r} has {term!r}; expected letters, and one '...' at most")
    counts = [len(shape) - len(term.replace("...", "")) for term, shape in zip(terms, shapes, strict=True)]
    for i, (term, count) in enumerate(zip(terms, counts, strict=True)):
        if count < 0 or (count and "..." not in term):
            raise ValueError(
                f"einsum: {term!r} of equation {equation!r} does not fit tensor {i} of shape {shapes[i]}; expected one "
                "letter for each axis"
            )
    unused = [letter for letter in ascii_letters if letter not in text]
    most = max(counts)
    if most > len(unused):
        raise ValueError(f"einsum: equation {equation!r} and {most} axes for '...' need more than 52 letters")
    wide = "".join(unused[:most])
    full = [t.replace("...", wide[most - n :]) for t, n in zip(terms, counts, strict=True)]
    if not arrow:
        once = sorted(letter for letter in set(left) if letter in ascii_letters and left.count(letter) == 1)
        result = wide + "".join(once)
    else:
        result = right.replace("...", wide)
    known = set("".join(full))
    if len(set(result)) != len(result) or not set(result) <= known:
        raise ValueError(
            f"einsum: the result of equation {equation!r} is {right!r}; expected only letters of the tensors, and "
            "each letter once"
        )
    _lengths(equation, full, shapes)
    return full, result


def _lengths(equation: str, terms: list[str], shapes: list[tuple[int, ...]]) -> None:
    lengths: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        own: dict[str, int] = {}
        for letter, n in zip(term, shape, strict=True):
            if own.setdefault(letter, n) != n or (n != 1 and lengths.setdefault(letter, n) != n):
                given = " and ".join(map(str, shapes))
                raise ValueError(
                    f"einsum: a letter of equation {equation!r} stands for lengths {lengths.get(letter, own[letter])} "
                    f"and {n}; "
                    f"shapes are {given}"
                )


def _single(x: Tensor, letters: str, kept: set[str]) -> tuple[Tensor, str]:
    """Sum x over the letters that are not in `kept`. If a letter is repeated, first take the diagonal, so that each
    letter has a single axis. Return the result and the letters of its axes.
    """
    if len(set(letters)) < len(letters):
        x, letters = Diagonal.apply(x, letters=letters), "".join(dict.fromkeys(letters))
    gone = tuple(i for i, letter in enumerate(letters) if letter not in kept)
    if gone:
        x = x.sum(gone).to(x.dtype)
    return x, "".join(letter for letter in letters if letter in kept)


def _pair(a: Tensor, left: str, b: Tensor, right: str, later: set[str], weigh: Weigh | None) -> tuple[Tensor, str]:
    """Combine two tensors in a stack of matrix products. `later` is the set of letters that later steps or the result
    need.
    """
    shapes = dict(zip(left, a.shape, strict=True)), dict(zip(right, b.shape, strict=True))
    lengths = {**shapes[1], **{c: n if n != 1 else shapes[1].get(c, n) for c, n in shapes[0].items()}}
    # An axis of length 1 beside a longer one is dropped: its tensor is constant along it.
    a, left = _without(a, left, {c for c in left if shapes[0][c] != lengths[c]})
    b, right = _without(b, right, {c for c in right if shapes[1][c] != lengths[c]})
    a, left = _single(a, left, later | set(right))
    b, right = _single(b, right, later | set(left))
    stack = [c for c in left if c in right and c in later]
    summed = [c for c in left if c in right and c not in later]
    rows, columns = [c for c in left if c not in right], [c for c in right if c not in left]
    count = {name: math.prod(lengths[c] for c in part) for name, part in
             (("stack", stack), ("summed", summed), ("rows", rows), ("columns", columns))}  # fmt: skip
    if weigh is not None:
        weigh((count["stack"], count["rows"], count["columns"]), count["summed"], a.dtype)
    x = a.permute([left.index(c) for c in (*stack, *rows, *summed)])
    y = b.permute([right.index(c) for c in (*stack, *summed, *columns)])
    product = x.reshape(count["stack"], count["rows"], count["summed"]) @ y.reshape(
        count["stack"], count["summed"], count["columns"]
    )
    letters = "".join((*stack, *rows, *columns))
    return product.reshape(tuple(lengths[c] for c in letters)), letters


def _without(x: Tensor, letters: str, gone: set[str]) -> tuple[Tensor, str]:
    """Remove the axes `gone`, which have length 1, from x. Return the result and the letters of its axes."""
    kept = [i for i, c in enumerate(letters) if c not in gone]
    return (x.reshape(tuple(x.shape[i] for i in kept)) if gone else x), "".join(letters[i] for i in kept)
