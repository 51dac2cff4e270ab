"""The runtimes that can run cases; each has a function from a case to the arrays of the fetched outputs.

An exception means that the runtime refuses the case. The functions are called in another process (runtime_process.py),
and import their packages only there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minorm.conformance.case import CUMULATIVE, GRADIENTS, MASKED, OUTPUTS, Case, model
from minorm.devices.dtypes import bfloat16
from minorm.onnx.checking import sandbox_worker


@dataclass(frozen=True)
class Runtime:
    """Describes a runtime that can run cases.

    answer        the function to call, as "module:function"
    packages      the modules that must be installed; the version of the first is shown
    title         the runtime's name on pages
    extra         True if the runtime is used only if it is installed or the user names it
    environment   environment variables for the runtime's process
    others        (kind of case, "module:function") for each further kind of case, such as "gradients"
    """

    name: str
    answer: str
    packages: tuple[str, ...]
    title: str = ""
    extra: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    others: tuple[tuple[str, str], ...] = ()

    @property
    def functions(self) -> dict[str, str]:
        """Return the function for each kind of case that the runtime can run."""
        return {OUTPUTS: self.answer, **dict(self.others)}


def onnxruntime(case: Case) -> list[Any]:
    """Run a case on onnxruntime's CPU provider.

    onnxruntime gets the arrays themselves, not copies, unless they are bfloat16.
    """
    session = sandbox_worker.start(model(case).SerializeToString())
    feeds = case.feeds()
    if not any(array.dtype == bfloat16 for array in feeds.values()):
        return list(session.run(None, feeds))
    kinds = {n: (a, sandbox_worker.BFLOAT16 if a.dtype == bfloat16 else 0) for n, a in feeds.items()}
    return [array.view(bfloat16) if kind else array for array, kind in sandbox_worker.run(session, kinds)]


def reference(case: Case) -> list[Any]:
    """Run a case on the reference evaluator of the onnx package."""
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(model(case)).run(None, case.feeds()))


ENVIRONMENTS = {"keras": (("KERAS_BACKEND", "jax"),), "tinygrad": (("DEV", "PYTHON"),)}
ADAPTERS = (
    ("openvino", "OpenVINO", ("openvino",)),
    ("opencv", "OpenCV", ("cv2",)),
    ("tract", "tract", ("tract",)),
    ("mnn", "MNN", ("MNN",)),
    ("ncnn", "ncnn", ("ncnn", "pnnx")),
    ("tvm", "TVM", ("tvm",)),
    ("tinygrad", "tinygrad", ("tinygrad",)),
    ("onnx2torch", "onnx2torch", ("torch", "onnx2torch")),
    ("flax", "Flax", ("flax", "jax")),
    ("keras", "Keras", ("keras", "jax")),
    ("mlx", "MLX", ("mlx",)),
    ("paddle", "PaddlePaddle", ("paddle",)),
)
HERE = "minorm.conformance"
OTHERS = {
    "minorm": tuple((kind, f"{HERE}.minorm_calls:{kind}") for kind in (GRADIENTS, MASKED, CUMULATIVE)),
    "torch": tuple((kind, f"{HERE}.torch_calls:{kind}") for kind in (GRADIENTS, CUMULATIVE)),
    "tinygrad": ((GRADIENTS, f"{HERE}.adapters.tinygrad_layers:gradients"),),
    "onnx2torch": ((GRADIENTS, f"{HERE}.adapters.onnx2torch:gradients"),),
    "flax": ((GRADIENTS, f"{HERE}.adapters.layer_gradients:flax"), (MASKED, f"{HERE}.adapters.layer_masks:flax")),
    "keras": ((GRADIENTS, f"{HERE}.adapters.layer_gradients:keras"), (MASKED, f"{HERE}.adapters.layer_masks:keras")),
    "mlx": ((GRADIENTS, f"{HERE}.adapters.layer_gradients:mlx"),),
    "paddle": ((GRADIENTS, f"{HERE}.adapters.layer_gradients:paddle"),),
}


def _adapter(name: str, title: str, packages: tuple[str, ...]) -> Runtime:
    """Describe another runtime for `minorm conform`. It is used only if it is installed or the user names it."""
    answer, others = f"{HERE}.adapters.{name}:answer", OTHERS.get(name, ())
    return Runtime(name, answer, packages, title, True, ENVIRONMENTS.get(name, ()), others)


RUNTIMES = {
    runtime.name: runtime
    for runtime in (
        Runtime("minorm", f"{HERE}.minorm_calls:answer", ("minorm",), "minorm", others=OTHERS["minorm"]),
        Runtime("onnxruntime", f"{__name__}:onnxruntime", ("onnxruntime",), "onnxruntime"),
        Runtime("reference", f"{__name__}:reference", ("onnx",), "onnx's reference"),
        Runtime("torch", f"{HERE}.torch_calls:answer", ("torch",), "PyTorch", others=OTHERS["torch"]),
        *(_adapter(*entry) for entry in ADAPTERS),
    )
}
