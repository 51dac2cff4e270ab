"""A seed leads to a variant, the variant to a code, and the code back; consecutive variants differ."""

from __future__ import annotations

import pytest

from minorm.labs.varied.choices import PLAIN, Variants, kinds, numbers

V = Variants(
    "lab99_example",
    eps=numbers("eps", ("1e-5", "1e-4", "1e-3", "1e-2"), "eps={}"),
    first=numbers("how many", ("4", "3", "5"), "the first {word}", "x[:{}]"),
    layout=kinds("the axes", {"NC": ("(N, C)",), "CN": ("(C, N)",), "C": ("(C)",)}),
    bugs=kinds("", {("a", "b"): (), ("a", "c"): (), ("b", "c"): ()}),
)


def values(seed: str | int) -> dict[str, object]:
    variant = V.of(seed)
    return {name: V.value(name, variant) for name in V.rows}


def test_years_that_follow_each_other_differ_in_everything_and_from_the_plain_lab() -> None:
    for year in range(2020, 2060):
        here, following = values(year), values(year + 1)
        assert all(here[name] != following[name] for name in V.rows), year
        assert all(here[name] != V.value(name, PLAIN) for name in V.rows), year


def test_a_code_leads_back_and_says_nothing_of_other_years() -> None:
    found = {V.of(year).code for year in range(2000, 2100)}
    assert len(found) == 6, "years repeat where all rows do: 3 and 2 values take turns"
    for year in [*range(2020, 2030), "spring", "2027b"]:
        variant = V.of(year)
        assert V.read(variant.code) == variant
        assert str(year) not in variant.code
    assert V.of(2027) == V.of("2027") == V.of(" 2027 ")
    assert V.of("plain") == V.read("") == PLAIN


def test_a_code_that_is_not_one() -> None:
    code = V.of(2027).code
    slips = [code[:-1], code + "2", code.lower(), "ZZZZZZ", "!", code[0] + ("2" if code[1] != "2" else "3") + code[2:]]
    for slip in slips:
        with pytest.raises(ValueError, match="lab99_example has no variant"):
            V.read(slip)
    with pytest.raises(ValueError, match="has no variant"):
        Variants().read(code)
    with pytest.raises(ValueError, match="the seed of a variant is empty"):
        V.of(" ")


def test_attributes_are_the_values_of_the_variant_in_use() -> None:
    assert (V.eps, V.first, V.layout) == (1e-5, 4, "NC")
    variant = V.of(2027)
    with V.using(variant):
        assert V.eps == V.value("eps", variant) != 1e-5
        assert isinstance(V.first, int)
        with V.using(PLAIN):
            assert V.eps == 1e-5
        with pytest.raises(AttributeError, match="lab99_example have no 'momentum'"):
            V.momentum  # noqa: B018
    assert V.eps == 1e-5


def test_a_lab_without_a_table_has_one_variant() -> None:
    assert not Variants()
    assert Variants().of(2027) == PLAIN


def test_texts_that_do_not_fit_their_values() -> None:
    with pytest.raises(ValueError, match="layout has 2 values; expected the same number of texts in each row"):
        Variants("lab99_example", layout=kinds("the axes", {"NC": ("(N, C)", "N"), "CN": ("(C, N)",)}))
