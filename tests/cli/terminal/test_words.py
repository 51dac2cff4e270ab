from __future__ import annotations

import pytest

from minorm.cli.terminal import words


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.00 k"),
        (12_345, "12.3 k"),
        (236_027_904, "236 M"),
        (4_089_184_256, "4.09 G"),
        (999_999, "1000 k"),
    ],
)
def test_three_digits_and_a_unit(number: int, text: str) -> None:
    assert words.short(number) == text


def test_what_bfloat16_gains_on_this_processor() -> None:
    assert words.gain_of_bfloat16("amx").endswith(
        "half as much memory as in float32, and matrix products run on the processor's matrix tiles"
    )
    assert "no matrix tiles (level v3), so a step is no faster than in float32" in words.gain_of_bfloat16("v3")


def test_shapes_and_operators() -> None:
    assert words.shapes({"x": (1, 3, 8), "n": ()}) == "x 1x3x8, n number"
    assert words.counted({"Conv": 1, "Relu": 2}) == "Conv, Relu 2"
    assert words.counted({"A": 1, "B": 5, "C": 2, "D": 1}, 2) == "B 5, C 2, ..."


def test_nodes_are_listed_up_to_three() -> None:
    assert words.listed(["a"]) == "node a"
    assert words.listed(list("abcde")) == "nodes a, b, c and 2 more"
    assert words.quoted(list("abcde")) == "'a', 'b', 'c' and 2 more"
    assert words.bare("layer1/bn/BatchNormalization", "BatchNormalization") == "layer1/bn"
