from __future__ import annotations

import pytest

from minorm.cli.options import shape_option


def test_shapes_of_inputs_and_lengths_of_axes() -> None:
    assert shape_option.parse(["x=1,3, 8,8", "h=48", "a=b=2", "s="]) == {
        "x": (1, 3, 8, 8),
        "h": (48,),
        "a=b": (2,),
        "s": (),
    }


@pytest.mark.parametrize("wrong", ["x", "=3", "x=a", "x=1,,2", "x=-1", "x=1.5", "x=\u0663"])
def test_what_cannot_be_read_is_named(wrong: str) -> None:
    with pytest.raises(ValueError, match=f"--shape {wrong}: expected INPUT=N,N, .* or AXIS=N"):
        shape_option.parse([wrong])


def test_a_name_stands_there_once() -> None:
    with pytest.raises(ValueError, match="--shape h=4: 'h' has a shape already"):
        shape_option.parse(["h=3", "h=4"])
