"""Cases that are written to disk read back the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

from minorm.conformance import case_files
from minorm.conformance.cases import all_cases


def test_they_come_back_as_they_were(tmp_path: Path) -> None:
    cases = all_cases()[::17]
    case_files.write(cases, str(tmp_path))
    back = case_files.read(str(tmp_path))
    assert len(back) == len(cases)
    for a, b in zip(back, cases, strict=True):
        for field in dataclasses.fields(a):
            one, other = getattr(a, field.name), getattr(b, field.name)
            if field.name not in case_files.ARRAYS:
                assert one == other
        pairs = zip((*a.inputs, a.beside), (*b.inputs, b.beside), strict=True)
        for x, y in pairs:
            assert (x is None) == (y is None)
            assert x is None or (x.dtype == y.dtype and np.array(x).tobytes() == np.array(y).tobytes())


def test_a_folder_without_a_list_has_none(tmp_path: Path) -> None:
    assert case_files.read(str(tmp_path)) == []
