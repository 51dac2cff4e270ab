"""einsum against NumPy's, and finite differences."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minorm as mn
from minorm.functional.einsum import einsum
from minorm.testing import gradcheck

CASES = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("bij,bjk->bik", (3, 2, 3), (3, 3, 2)),
    ("bhqd,bhkd->bhqk", (2, 2, 3, 2), (2, 2, 4, 2)),
    ("ii->", (3, 3)),
    ("ii->i", (3, 3)),
    ("iji->ji", (3, 2, 3)),
    ("...ii->...i", (2, 3, 3)),
    ("...ij->...ji", (2, 4, 3)),
    ("ij,j", (2, 3), (3,)),
    ("Ab,bA", (2, 3), (3, 2)),
    ("i,j", (3,), (4,)),
    ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 2)),
    ("i,i,i->", (1,), (1,), (4,)),
    ("ij,ij->ij", (1, 3), (4, 3)),
    ("ij,ij->j", (1, 3), (4, 3)),
    ("...a,...a->...", (2, 1, 3), (4, 3)),
    ("a...b,b...->a...", (2, 5, 3), (3, 5)),
    ("ii,ij->j", (3, 3), (3, 2)),
    ("aab,b->ab", (2, 2, 3), (3,)),
    ("ijk,k->", (2, 3, 4), (4,)),
    ("ik,kj->ij", (2, 0), (0, 2)),
    ("->", ()),
    (",->", (), ()),
    ("...,...", (2, 3), (3,)),
    (" i j , j k -> i k ", (2, 3), (3, 4)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_values_and_gradients(rng: np.random.Generator, case: Any) -> None:
    equation, *shapes = case
    arrays = [rng.normal(size=shape) for shape in shapes]
    want = np.einsum(equation.replace(" ", ""), *arrays)
    y = einsum(equation, *map(mn.tensor, arrays))
    assert y.shape == want.shape
    np.testing.assert_allclose(y.array, want, rtol=1e-13, atol=1e-13)
    gradcheck(lambda *tensors: einsum(equation, *tensors), *arrays)


@given(st.data())
def test_any_equation(data: Any) -> None:
    """Up to three terms of up to four letters, some of length 1, the result any of them."""
    lengths = {letter: data.draw(st.integers(1, 3)) for letter in "abcd"}
    terms = [data.draw(st.text("abcd", max_size=4)) for _ in range(data.draw(st.integers(1, 3)))]
    result = "".join(data.draw(st.permutations(sorted(set("".join(terms))))))[: data.draw(st.integers(0, 4))]
    stretched = [{c: 1 if data.draw(st.booleans()) else n for c, n in lengths.items()} for _ in terms]
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=[own[c] for c in term]) for term, own in zip(terms, stretched, strict=True)]
    equation = f"{','.join(terms)}->{result}"
    want = np.einsum(equation, *arrays)
    np.testing.assert_allclose(einsum(equation, *map(mn.tensor, arrays)).array, want, rtol=1e-12, atol=1e-12)


def test_integers_stay_what_they_are() -> None:
    a, b = np.arange(6, dtype=np.int32).reshape(2, 3), np.arange(3, dtype=np.int32)
    y = einsum("ij,j->", mn.tensor(a), mn.tensor(b))
    assert (y.dtype, y.item()) == (np.int32, int((a @ b).sum()))


def test_a_product_is_weighed_before_it_is_computed() -> None:
    seen = []
    einsum("ij,jk,kl->il", *(mn.ones(n, n + 1) for n in (2, 3, 4)), weigh=lambda *told: seen.append(told))
    assert [(shape, summed) for shape, summed, _ in seen] == [((1, 2, 4), 3), ((1, 2, 5), 4)]


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        ("ij->i", [(2, 3), (3,)], "einsum: equation 'ij->i' names 1 tensors; got 2"),
        ("ij", [(2,)], "einsum: 'ij' of equation 'ij' does not fit tensor 0 of shape (2,);"),
        ("i...", [()], "einsum: 'i...' of equation 'i...' does not fit tensor 0 of shape ()"),
        ("i", [(2, 3)], "einsum: 'i' of equation 'i' does not fit tensor 0 of shape (2, 3)"),
        ("i?", [(2, 3)], "einsum: equation 'i?' has 'i?'; expected letters, and one '...' at most"),
        ("......", [(2, 3)], "has '......'; expected letters, and one '...' at most"),
        ("i->->i", [(2,)], "has '->i'; expected letters"),
        ("i->j", [(2,)], "einsum: the result of equation 'i->j' is 'j'; expected only letters of the tensors"),
        ("i->ii", [(2,)], "is 'ii'; expected only letters of the tensors, and each letter once"),
        ("ij,jk", [(2, 3), (4, 5)], "einsum: a letter of equation 'ij,jk' stands for lengths 3 and 4; shapes are"),
        ("ii", [(1, 3)], "einsum: a letter of equation 'ii' stands for lengths 1 and 3; shapes are (1, 3)"),
    ],
)  # fmt: skip
def test_mistakes(equation: str, shapes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        einsum(equation, *(mn.ones(*shape) if shape else mn.tensor(1.0) for shape in shapes))


def test_types_must_agree() -> None:
    with pytest.raises(TypeError, match="einsum: tensor 1 is float64, tensor 0 is float32; expected one float type"):
        einsum("i,i", mn.ones(2), mn.ones(2).double())


@pytest.mark.parametrize("sequence", [list, tuple])
def test_tensors_in_a_list(rng: np.random.Generator, sequence: Any) -> None:
    a, b = (mn.Tensor(rng.standard_normal(shape), requires_grad=True) for shape in ((2, 3), (3, 4)))
    y = mn.einsum("ij,jk->ik", sequence([a, b]))
    np.testing.assert_allclose(y.numpy(), np.einsum("ij,jk->ik", a.array, b.array), rtol=1e-12)
    y.sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), np.broadcast_to(b.array.sum(1), (2, 3)), rtol=1e-12)
    assert mn.einsum("ii->", [mn.eye(3)]).item() == 3


def test_what_is_no_tensor_is_named() -> None:
    with pytest.raises(TypeError, match="einsum: tensor 1 is int; expected a Tensor"):
        mn.einsum("i,i->", [mn.ones(2), 3])
    with pytest.raises(ValueError, match="names 1 tensors; got 0"):
        mn.einsum("i", [])
