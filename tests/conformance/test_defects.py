"""Known defects are told where they are, and only there."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")

from minorm.conformance.cases import all_cases
from minorm.conformance.defects import KNOWN, explanation
from minorm.conformance.runtimes import RUNTIMES

CASES = {(c.operator, c.opset, c.name): c for c in all_cases()}


@pytest.mark.parametrize(
    ("runtime", "key", "said", "words"),
    [
        ("onnxruntime", ("BatchNormalization", 9, "training, the batch's statistics"), "saved_var is off", "1 / std"),
        (
            "onnxruntime",
            ("BatchNormalization", 15, "training, y alone is fetched"),
            "it overwrote its inputs 3",
            "caller's",
        ),
        ("onnxruntime", ("BatchNormalization", 15, "training, a fresh layer, y alone is fetched"), "y is", "merges"),
        ("onnxruntime", ("MeanVarianceNormalization", 13, "one element"), "y holds NaN", "1e-9"),
        ("onnxruntime", ("GroupNormalization", 21, "offset 3e+03"), "y is off", "E[x^2]"),
        ("reference", ("BatchNormalization", 9, "inference, float32"), "y is off", "blend"),
        ("reference", ("LRN", 13, "size 3"), "y is off", "samples"),
        ("reference", ("LpNormalization", 22, "p = 1"), "y is off", "|x|"),
        ("reference", ("LayerNormalization", 17, "float16, offset 1e+02"), "y is off", "16 bits"),
        ("torch", ("InstanceNormalization", 22, "values 1e20"), "y is off", "overflow"),
        ("torch", ("LpNormalization", 22, "p = 2, values 1e-25"), "y is off", "1e-12"),
        ("torch", ("LRN", 13, "size 3"), "y is off", ""),
        ("onnxruntime", ("BatchNormalization", 15, "inference, float32"), "y is off", ""),
        ("minorm", ("LRN", 13, "size 3"), "y is off", ""),
    ],
)
def test_what_explains_it(runtime: str, key: tuple[str, int, str], said: str, words: str) -> None:
    defect = explanation(runtime, CASES[key], said)
    assert (defect is not None) == bool(words)
    assert defect is None or words in defect.text


def test_every_defect_can_be_asked_about_every_case_of_its_operators() -> None:
    for defect in KNOWN:
        for case in all_cases():
            if case.operator in defect.operators:
                assert defect.matches(case) in (True, False), (defect.text, case)


def test_every_defect_fits_a_case_of_the_grid() -> None:
    for defect in KNOWN:
        assert set(defect.runtimes) <= set(RUNTIMES) - {"minorm"}
        for operator in defect.operators:
            assert any(c.operator == operator and defect.matches(c) for c in all_cases()), (defect.text, operator)
