"""How tensors are printed, and the settings for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import minorm as mn


@pytest.fixture(autouse=True)
def default() -> Iterator[None]:
    yield
    mn.set_printoptions(profile="default")


def test_precision_threshold_and_edgeitems() -> None:
    x = mn.tensor([1 / 3, 2 / 3])
    mn.set_printoptions(precision=2)
    assert repr(x) == "tensor([0.33, 0.67])"
    mn.set_printoptions(threshold=5, edgeitems=1)
    assert repr(mn.arange(9)) == "tensor([0, ..., 8])"
    mn.set_printoptions(profile="full")
    assert "..." not in repr(mn.arange(1000))


def test_sci_mode_false_writes_no_exponent() -> None:
    x = mn.tensor([1e-8, 1.0])
    assert "e-08" in repr(x)
    mn.set_printoptions(sci_mode=False)
    assert "e" not in repr(x).removeprefix("tensor")
    with pytest.raises(ValueError, match="profile is 'long'; expected one of default, short, full"):
        mn.set_printoptions(profile="long")


def test_a_number_takes_a_format() -> None:
    assert f"{mn.tensor(1 / 3):.3f}" == "0.333"
