"""Run cases on onnx2torch, which turns a file into a PyTorch module; the module runs in the mode of the file."""

from __future__ import annotations

import sys
import types
from typing import Any

from minorm.conformance import formula, torch_calls
from minorm.conformance.adapters.files import as_file
from minorm.conformance.case import Case


def answer(case: Case) -> list[Any]:
    """Run the case on onnx2torch; return the outputs that the case asks for."""
    import torch

    module, x = _converted(case)
    with torch.no_grad():
        results = module(torch_calls.to_tensor(x))
    return [torch_calls.to_array(y) for y in ([results] if isinstance(results, torch.Tensor) else results)]


def gradients(case: Case) -> list[Any]:
    """Return the gradients of x and of the module's parameters."""
    import torch

    module, x = _converted(case)
    given = torch_calls.to_tensor(x).requires_grad_()
    parameters = {name.rpartition(".")[2]: tensor for name, tensor in module.named_parameters()}
    asked = [given, *(parameters[name] for _, name in zip(case.wanted[1:], ("weight", "bias"), strict=False))]
    found = torch.autograd.grad(module(given), asked, torch_calls.to_tensor(case.beside))
    return [torch_calls.to_array(gradient) for gradient in found]


def _converted(case: Case) -> tuple[Any, Any]:
    proto, x = as_file(case)
    module = _package().convert(proto)
    return module.train(case.operator == "BatchNormalization" and formula.trains_batch_norm(case)), x


def _package() -> Any:
    """Import onnx2torch.

    If torchvision is missing, a stand-in takes its place, because only rules for boxes need torchvision.
    """
    try:
        import torchvision.ops  # noqa: F401
    except (ImportError, RuntimeError):  # RuntimeError if it was built for another PyTorch
        ops = types.ModuleType("torchvision.ops")
        ops.roi_align = None  # type: ignore[attr-defined]
        sys.modules["torchvision"], sys.modules["torchvision.ops"] = types.ModuleType("torchvision"), ops
    import onnx2torch

    return onnx2torch
