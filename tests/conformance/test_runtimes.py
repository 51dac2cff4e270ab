"""minorm is right in every cell and keeps its digits at every offset; the others behave as known."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from minorm.cli import conform as command
from minorm.conformance import minorm_calls
from minorm.conformance.case import GRADIENTS, Case
from minorm.conformance.cases import all_cases
from minorm.conformance.runtime_calls import Outcome
from minorm.conformance.runtimes import RUNTIMES, onnxruntime, reference
from minorm.conformance.verdict import judge

ASKED = {kind: getattr(minorm_calls, name.partition(":")[2]) for kind, name in RUNTIMES["minorm"].functions.items()}
LEAST = {"float64": 14.5, "float32": 6.5, "float16": 2.4, "bfloat16": 1.8}


@pytest.mark.parametrize("operator", sorted({case.operator for case in all_cases()}))
def test_minorm_is_right_in_every_cell(operator: str) -> None:
    for case in all_cases():
        if case.operator == operator:
            with np.errstate(all="ignore"):
                cell = judge(case, "minorm", Outcome("answered", "", tuple(ASKED[case.kind](case))))
            assert cell.verdict == "right", cell
            assert cell.digits is not None
            cancelled = 0.5 if case.kind == GRADIENTS else 0  # a gradient is a difference of like terms
            assert cell.digits > LEAST[cell.type] - cancelled, cell


def one(operator: str, opset: int, name: str) -> Case:
    return next(c for c in all_cases() if (c.operator, c.opset, c.name) == (operator, opset, name))


def test_onnxruntime_gets_bfloat16_and_everything_else() -> None:
    pytest.importorskip("onnxruntime")
    case = one("LayerNormalization", 17, "float32")
    assert judge(case, "onnxruntime", Outcome("answered", "", tuple(onnxruntime(case)))).verdict == "right"
    halves = one("LayerNormalization", 17, "bfloat16")
    assert judge(halves, "onnxruntime", Outcome("answered", "", tuple(onnxruntime(halves)))).verdict == "right"


def test_the_reference() -> None:
    case = one("LayerNormalization", 17, "mean and 1 / std")
    assert judge(case, "reference", Outcome("answered", "", tuple(reference(case)))).verdict == "right"


def test_the_command_offers_these_runtimes() -> None:
    assert tuple(RUNTIMES) == command.RUNTIMES


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
class TestPyTorch:
    def answer(self, *key: Any) -> Any:
        from minorm.conformance.torch_calls import answer

        return judge(one(*key), "torch", Outcome("answered", "", tuple(answer(one(*key)))))

    @pytest.mark.parametrize(
        "key",
        [
            ("BatchNormalization", 15, "training, float32"),
            ("BatchNormalization", 15, "training, momentum 0"),
            ("BatchNormalization", 15, "training, bfloat16"),
            ("BatchNormalization", 9, "training, the batch's statistics"),
            ("BatchNormalization", 1, "inference, float64"),
            ("InstanceNormalization", 22, "bfloat16"),
            ("GroupNormalization", 21, "float16"),
            ("LayerNormalization", 17, "mean and 1 / std"),
            ("RMSNormalization", 23, "axis 1"),
            ("LpNormalization", 22, "p = 1, axis 1"),
            ("LRN", 13, "size 3"),
            ("LRN", 13, "size 4"),
        ],
        ids=str,
    )
    def test_its_conventions_are_translated(self, key: Any) -> None:
        cell = self.answer(*key)
        assert cell.verdict == "right", cell

    @pytest.mark.parametrize(
        ("key", "words"),
        [
            (("BatchNormalization", 7, "training, spatial 0"), "each position"),
            (("BatchNormalization", 15, "training, rank 1"), "channel axis"),
            (("GroupNormalization", 18, "float32"), "per channel"),
            (("GroupNormalization", 21, "float32, stash float64"), "stash_type"),
            (("LayerNormalization", 17, "scale broadcasts"), "shape of the normalized axes"),
            (("RMSNormalization", 23, "float16 with scale of float32"), "same type"),
            (("MeanVarianceNormalization", 13, "float32"), "PyTorch has no MeanVarianceNormalization"),
        ],
        ids=str,
    )
    def test_what_it_cannot_say_is_refused(self, key: Any, words: str) -> None:
        with pytest.raises(NotImplementedError, match=words):
            self.answer(*key)

    @pytest.mark.slow
    @pytest.mark.skipif(importlib.util.find_spec("onnxscript") is None, reason="onnxscript is not installed")
    def test_its_exporter_loses_training_and_its_old_one_keeps_it(self) -> None:
        """As docs/conformance.md says under "Export and import"."""
        import io

        import onnx
        import torch

        layer, x = torch.nn.BatchNorm2d(3, momentum=0.3).train(), torch.zeros(4, 3, 5, 5)
        new = torch.onnx.export(layer, (x,), dynamo=True).model_proto
        file, mode = io.BytesIO(), torch.onnx.TrainingMode.PRESERVE
        torch.onnx.export(layer, (x,), file, dynamo=False, training=mode, opset_version=17)
        old = onnx.load_from_string(file.getvalue())
        made = []
        for proto in (new, old):
            (node,) = (node for node in proto.graph.node if node.op_type == "BatchNormalization")
            attributes = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
            made.append((attributes.get("training_mode", 0), round(attributes["momentum"], 6), len(node.output)))
            assert len(proto.graph.output) == 1
        assert made == [(0, 0.7, 1), (1, 0.7, 3)]
