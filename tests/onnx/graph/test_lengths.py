from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from minorm.onnx.graph.lengths import listed, settle

IMAGE = {"x": ("n", 3, "h", "w"), "ids": ("n", "?"), "any": None}


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ({}, [("n", 3, "h", "w"), ("n", "?"), None]),
        ({"h": 48}, [("n", 3, 48, "w"), ("n", "?"), None]),
        ({"h": (48,), "n": np.int64(2)}, [(2, 3, 48, "w"), (2, "?"), None]),
        ({"x": (1, 3, 8, 9)}, [(1, 3, 8, 9), (1, "?"), None]),
        ({"x": (1, 3, 8, 9), "h": 8}, [(1, 3, 8, 9), (1, "?"), None]),
        ({"x": [1, 3, 8, 9], "ids": [2, 5], "any": ()}, [(1, 3, 8, 9), (2, 5), ()]),
    ],
)
def test_lengths_go_to_every_axis_of_their_name(shapes: Any, expected: Any) -> None:
    assert list(settle(IMAGE, shapes).values()) == expected


def test_an_input_comes_before_an_axis_of_its_name() -> None:
    assert settle({"n": ("n",), "y": ("n", 2)}, {"n": 5}) == {"n": (5,), "y": (5, 2)}


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"q": 3}, r"there is no input and no free axis 'q'; the model has x \(n, 3, h, w\), ids \(n, \?\), any"),
        ({"?": 3}, r"there is no input and no free axis '\?'"),
        ({"x": (1, 3, 8)}, r"shapes\['x'\] has 3 axes; the file says 4: x \(n, 3, h, w\)"),
        ({"x": (1, 4, 8, 8)}, r"shapes: axis 1 of 'x' has length 4; the file says 3"),
        ({"x": (1, 3, 8, 8), "h": 9}, r"shapes: axis 2 of 'x' has length 8, but the axis name 'h' has length 9"),
        ({"h": (8, 9)}, r"shapes\['h'\] has 2 lengths; expected one length, because 'h' is an axis"),
        ({"h": -1}, r"shapes\['h'\] is -1; expected one or more lengths, each an int of at least 0"),
        ({"h": True}, r"shapes\['h'\] is True; expected one or more lengths"),
        ({"x": (1, 3, 8, 8.5)}, r"shapes\['x'\] is \(1, 3, 8, 8.5\); expected one or more lengths"),
        ({"x": "1,3,8,8"}, r"shapes\['x'\] is '1,3,8,8'; expected one or more lengths"),
        ({"x": None}, r"shapes\['x'\] is None; expected one or more lengths"),
    ],
)
def test_what_does_not_fit_is_named(shapes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        settle(IMAGE, shapes)


def test_inputs_in_words() -> None:
    assert listed(IMAGE) == "x (n, 3, h, w), ids (n, ?), any"
