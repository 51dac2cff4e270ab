"""Patterns of the cases that onnx.reference computes wrongly or refuses, each with the reason."""

from __future__ import annotations

from collections.abc import Mapping

IN_16_BITS = "it computes in float16 throughout"
REFERENCE: Mapping[str, str] = {  # onnx.reference of onnx 1.23
    "test_batchnorm_training_mode_opset[79]_*": "the versions before 14 have no running statistics among their outputs",
    "test_batchnorm_training_mode_*float16*": f"{IN_16_BITS}, and gives running statistics in the type of x",
    "test_instancenorm_float16": IN_16_BITS,
    "test_layer_normalization_float16*": f"{IN_16_BITS}, and gives Mean and InvStdDev in it",
    "test_rms_normalization_float16_values_300": f"{IN_16_BITS}, where squares overflow; stash_type asks for float32",
    "test_group_normalization_offset_*": "the operator's function body computes E[x^2] - E[x]^2",
    "test_group_normalization_float16_stash_float": "the same, at an offset of 100",
    "test_mvn_offset_1000*": "the operator's function body computes E[x^2] - E[x]^2",
    "test_l1normalization_[!o]*": "it adds x and not the absolute value of x",
    "test_l1normalization_opset1": "it adds x and not the absolute value of x",
    "test_lrn_*": "it takes the window of a channel from as many samples as there are channels",
}
