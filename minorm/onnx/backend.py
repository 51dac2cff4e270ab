"""Implement the interface of `onnx.backend.base`, which conformance suites use to run a model.

    import minorm.onnx.backend as backend

    outputs = backend.prepare(model).run([array, ...])

In ONNX, the results of a run depend only on its inputs. So the running statistics that a training graph updates are
outputs here, and each run begins with the running statistics in the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep

from minorm import cuda
from minorm.graph.grad_mode import no_grad
from minorm.onnx.graph import versions
from minorm.onnx.graph.storage import narrow
from minorm.onnx.loading.graph_inputs import Input
from minorm.onnx.loading.graph_module import GraphModule
from minorm.onnx.loading.load import load, load_whole
from minorm.tensor.tensor import Tensor


class Prepared(BackendRep):  # type: ignore[misc]  # the package has no type hints
    """A loaded model that takes and returns arrays."""

    def __init__(self, module: GraphModule, device: str = "cpu") -> None:
        self.module = module.to(device)
        self.device = device

    def run(self, inputs: Any, **options: Any) -> tuple[Any, ...]:  # noqa: ARG002  the interface's
        """Run the model on arrays, and return the outputs as arrays.

        inputs    a list of arrays in the order of the graph's inputs, a dict of arrays by name, or one array
        """
        if isinstance(inputs, Mapping):
            inputs = [inputs[name] for name in self.module.input_names]
        elif isinstance(inputs, np.ndarray):
            inputs = [inputs]
        before = [(buffer, buffer.clone()) for buffer in self.module.buffers()]
        try:
            with no_grad():
                tensors = [self._given(value, entry) for value, entry in zip(inputs, self.module.inputs, strict=True)]
                results = self.module(*tensors)
            results = results if isinstance(results, tuple) else (results,)
            return tuple(map(_arrays, results))
        finally:
            for buffer, contents in before:
                buffer.copy_(contents)

    def _given(self, value: Any, entry: Input) -> Any:
        """Convert an input to the form that the graph expects."""
        if value is None and entry.optional:
            return None
        if entry.form == "sequence":
            return [_tensor(x, entry.dtype).to(self.device) for x in value]
        return _tensor(value, entry.dtype).to(self.device)


def _arrays(result: Any) -> Any:
    """Convert a Tensor to an array, and a sequence to a list of arrays; None (a missing optional value) stays None."""
    if isinstance(result, list):
        return [_arrays(x) for x in result]
    return None if result is None else np.array(result.cpu().array)


def _tensor(value: Any, dtype: Any) -> Tensor:
    """Make a Tensor. An array keeps its type; a number or a list gets `dtype`, which the graph declares."""
    return narrow.tensor(np.asarray(value) if hasattr(value, "dtype") else np.asarray(value, dtype))


class MinormBackend(Backend):  # type: ignore[misc]
    """Runs ONNX models with `minorm.onnx.load`, on the CPU or a GPU ("CUDA" or "CUDA:1")."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **options: Any) -> Prepared:
        """Load a model to run it many times; the options are those of `load`."""
        if not cls.supports_device(device):
            raise ValueError(f"prepare: device is {device!r}; minorm computes on 'CPU' here{_or_cuda()}")
        module = load(model, **options) if "outputs" in options else load_whole(model, **options)
        return Prepared(module, device.lower().removesuffix(":"))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
        """Run a model once and return its outputs."""
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: Any,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, Sequence[int]]] | None = None,  # noqa: ARG003  the interface's
        **options: Any,
    ) -> tuple[Any, ...]:
        """Run one node and return its outputs.

        outputs_info    (dtype, shape) of each output; this argument is not used

        The option `opset_version` chooses the operator's version; the default is the newest version.
        """
        opset = options.pop("opset_version", min(versions.NEWEST, onnx.defs.onnx_opset_version()))
        arrays = [np.asarray(array) for array in (inputs.values() if isinstance(inputs, Mapping) else inputs)]
        names = [name for name in node.input if name]
        if len(arrays) < len(names):  # a name that appears twice gets one array
            names = list(dict.fromkeys(names))
        feeds = dict(zip(names, arrays, strict=True))
        graph = helper.make_graph(
            [node],
            "node",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                for name, array in feeds.items()
            ],
            [helper.make_empty_tensor_value_info(name) for name in node.output if name],
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(node.domain, opset)],
            ir_version=versions.ir_version(opset),
        )
        return cls.run_model(model, feeds, device, **options)

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **options: Any) -> bool:
        """Return whether `prepare` accepts the model."""
        try:
            cls.prepare(model, device, **options)
        except ValueError:
            return False
        return True

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return True for "CPU", and for "CUDA" if there is a GPU."""
        kind = device.partition(":")[0]
        return kind == "CPU" or (kind == "CUDA" and cuda.is_available())


def _or_cuda() -> str:
    return " and on 'CUDA'" if cuda.is_available() else ""


prepare = MinormBackend.prepare
run_model = MinormBackend.run_model
run_node = MinormBackend.run_node
supports_device = MinormBackend.supports_device
is_compatible = MinormBackend.is_compatible
