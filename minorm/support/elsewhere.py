"""Advice for names that users look for, but that minorm does not have: says what to write instead.

An AttributeError for such a name ends with the advice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_READ = "minorm.data.{}(folder) reads the files of the data set, which are not downloaded"
_LOOP = "write the training loop, or take minorm.training.train_epoch(model, loader, loss_function, optimizer)"

_TRANSFORMS = (
    "CenterCrop ColorJitter GaussianBlur Grayscale ImageTransform InterpolationMode Lambda Pad RandAugment "
    "RandomAffine RandomApply RandomChoice RandomErasing RandomGrayscale RandomPerspective RandomResizedCrop "
    "RandomRotation RandomVerticalFlip Resize ToDtype ToImage ToTensor Transform TrivialAugmentWide"
)

# Advice by the module or class in which a user looks for the name; there is no advice for other modules.
_ADVICE: dict[str, dict[str, str]] = {
    "Module": {
        "fit": _LOOP,
        "compile": "nothing is compiled; name the loss and the optimizer in the training loop",
        "predict": "call the model, after model.eval() and within minorm.no_grad(): model(x)",
        "evaluate": "take minorm.training.evaluate(model, loader, loss_function)",
        "summary": "write minorm.nn.summary(model, (1, 3, 32, 32)), with the shape of the input",
        "device": "write next(model.parameters()).device",
        "dtype": "write next(model.parameters()).dtype",
        "save": "write minorm.save(model.state_dict(), path)",
        "load": "write model.load_state_dict(minorm.load(path))",
        "numel": "write sum(p.numel() for p in model.parameters())",
    },
    "minorm": {
        "datasets": "minorm.data has what torchvision.datasets has here",
        "transforms": "write minorm.data.transforms",
        "jit": "there is no compiled form; minorm.onnx.export writes the model for other runtimes",
        "fx": "there is no graph to rewrite; minorm.onnx.export writes one",
        "hub": "nothing is downloaded; minorm.onnx.load and minorm.load read files that are there",
        "linalg": "use NumPy's, on x.numpy()",
        "fft": "use NumPy's, on x.numpy()",
        "summary": "write minorm.nn.summary(model, (1, 3, 32, 32)), with the shape of the input",
        "set_default_tensor_type": "write minorm.set_default_dtype, and device= or .to(device)",
        "version": "write minorm.__version__",
    },
    "minorm.data": {
        "MNIST": _READ.format("load_mnist"),
        "FashionMNIST": _READ.format("load_fashion_mnist"),
        "CIFAR10": _READ.format("load_cifar10"),
        "datasets": "minorm.data has what torchvision.datasets has here",
        **{name: f"write minorm.data.transforms.{name}" for name in _TRANSFORMS.split()},
    },
    "minorm.nn": {
        "DataParallel": "processes train together through minorm.distributed.DistributedDataParallel",
    },
    "minorm.cuda": {
        "amp": "write minorm.amp.GradScaler and minorm.autocast",
    },
}


def advice(place: str, name: str) -> str:
    """Return a text `; write ...` for the end of an AttributeError; "" if there is no advice."""
    words = _ADVICE.get(place, {}).get(name)
    return f"; {words}" if words else ""


def absent(package: str) -> Callable[[str], Any]:
    """Return a `__getattr__` (PEP 562) that raises AttributeError with advice, for a package without lazy imports."""

    def get(name: str) -> Any:
        raise AttributeError(f"module {package!r} has no attribute {name!r}{advice(package, name)}", name=name)

    return get
