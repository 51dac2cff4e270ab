"""A name that goes warns one release before, at the line of the user's, and is gone when it was said to be."""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import minorm as mn
from minorm.support import deprecation
from minorm.support.deprecation import Going, deprecated, renamed, version
from tests import public_names

CHANGELOG = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")


def overdue(going: list[Going], now: str) -> list[str]:
    """Return the names that should be gone by this version."""
    return [name for name, _, _, gone in going if version(now) >= version(gone)]


def test_what_goes_is_not_overdue_and_stands_in_the_changelog() -> None:
    pytest.importorskip("onnx", reason="minorm.onnx is among what may have such names")
    public_names.public()  # imports all that may have some
    assert not overdue(deprecation.GOING, mn.__version__)
    for going in deprecation.GOING:
        assert going.name.rpartition(".")[2] in CHANGELOG.partition("### Deprecated\n")[2], going


@pytest.fixture(autouse=True)
def going() -> Iterator[list[Going]]:
    """Give the list of names that go; remove a test's additions afterwards."""
    before = list(deprecation.GOING)
    yield deprecation.GOING
    deprecation.GOING[:] = before


def test_a_function_that_goes_warns_at_the_callers_line_and_works(going: list[Going]) -> None:
    @deprecated("F.new", since="0.2", gone="0.3")
    def old(x: int, y: int = 1) -> int:
        """x + y"""
        return x + y

    with pytest.warns(
        DeprecationWarning, match=r"old is deprecated since minorm 0\.2 and will be removed in 0\.3; use F\.new"
    ) as w:
        assert old(2, y=3) == 5
    assert w[0].filename == __file__
    assert old.__doc__ == "x + y"
    assert not overdue(going, "0.2.9")
    assert overdue(going, "0.3.0") == [going[-1].name]


def test_a_name_of_a_package_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    package = types.ModuleType("minorm.toy")
    package.new = object()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "minorm.toy", package)

    def get(name: str) -> int:
        if name == "later":
            return 3
        raise AttributeError(name)

    package.__getattr__ = renamed(  # type: ignore[method-assign]
        "minorm.toy", {"old": "new"}, since="0.2", gone="0.3", get=get
    )
    with pytest.warns(DeprecationWarning, match=r"minorm\.toy\.old is .*; use minorm\.toy\.new") as w:
        from minorm.toy import old  # type: ignore[import-not-found]
    assert {caught.filename for caught in w} == {__file__}
    assert old is package.new
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert package.later == 3
        assert package.new is old


def test_other_names_of_such_a_package_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minorm.toy", types.ModuleType("minorm.toy"))
    find = renamed("minorm.toy", {"old": "new"}, since="0.2", gone="0.3")
    with pytest.raises(AttributeError, match=r"module 'minorm\.toy' has no attribute 'other'"):
        find("other")


@pytest.mark.parametrize("gone", ["0.2", "0.2.5", "0.1"])
def test_a_name_does_not_go_without_a_release_that_warns(gone: str) -> None:
    with pytest.raises(ValueError, match="expected at least one release that warns"):
        deprecated("F.new", since="0.2", gone=gone)(lambda: None)


def test_releases_are_in_order() -> None:
    assert version("0.9") < version("0.10.1") < version("1.0")
