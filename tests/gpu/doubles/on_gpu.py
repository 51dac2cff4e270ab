"""minorm as a user writes it who wants everything on a GPU: what a program makes, it makes there.

Tensors, layers and models that are made by the names of these modules are on the GPU, and so are the batches of a
DataLoader, the model of a Run, a loaded ONNX file, and the inputs of `gradcheck`. An `autocast` of the CPU is one of
the GPU. `program` changes two things of a program's text: its imports, and each `x.numpy()`, which becomes
`x.numpy(force=True)`, a copy on the CPU. Nothing changes inside minorm: a call of NumPy there meets an array of the
GPU.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

import minorm as mn
from minorm import data, models, nn, quantization, testing, training
from minorm.data.loader import DataLoader

MADE = {
    "tensor", "zeros", "ones", "rand", "randn", "arange", "full", "eye", "linspace", "empty", "randint", "randperm",
    "normal", "as_tensor", "from_numpy",
}  # fmt: skip
LAYERS = (nn, quantization, models)  # the modules that have some
WRAPPED = {module.__name__ for module in (mn, *LAYERS, data, testing, training)}
WRAPPED |= {"minorm.onnx"}  # it is imported where a program does so, for it needs onnx


class OnGpu:
    """A module of ours whose functions and layers make what they make on a GPU."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return there(self._module, name)


class Made:
    """A class of ours whose objects are made on a GPU. It can still be derived from, and asked for with isinstance."""

    def __init__(self, kind: type, make: Callable[..., Any]) -> None:
        self._kind, self._make = kind, make

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._make(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kind, name)

    def __mro_entries__(self, _: Any) -> tuple[type]:
        return (self._kind,)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self._kind)


class Batches(DataLoader):
    """A DataLoader whose batches are on a GPU."""

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            yield tuple(part.to("cuda") for part in batch) if isinstance(batch, tuple) else batch.to("cuda")


def there(module: Any, name: str) -> Any:
    """Return what a program gets under this name of a module."""
    found = getattr(module, name)
    if isinstance(found, ModuleType):
        return OnGpu(found) if found.__name__ in WRAPPED else found
    if inspect.isclass(found) and issubclass(found, DataLoader):
        return Batches
    if found is training.Run:
        return Made(found, lambda *args, **options: found(*args, **{"device": "cuda"} | options))
    if inspect.isclass(found) and issubclass(found, nn.Module) and found is not nn.Module and module in LAYERS:
        return Made(found, lambda *args, **options: found(*args, **options).to("cuda"))
    if found in (testing.gradcheck, testing.gradgradcheck):
        return lambda function, *inputs, **options: found(function, *[_leaf(x) for x in inputs], **options)
    if found is mn.autocast:
        return Made(found, lambda device_type, *args, **options: found("cuda", *args, **options))
    if inspect.isfunction(found) and (module is models or (module.__name__, name) == ("minorm.onnx", "load")):
        return lambda *args, **options: _moved(found(*args, **options))
    return _made_there(found) if module is mn and name in MADE else found


def _moved(value: Any) -> Any:
    """Return a model of ours on the GPU, and anything else as it is: models also make PyTorch's, and states."""
    return value.to("cuda") if isinstance(value, nn.Module) else value


def _leaf(value: Any) -> Any:
    """Return an array of NumPy as a Tensor whose gradient is checked, as on the CPU, and anything else as it is."""
    return mn.tensor(value, device="cuda", requires_grad=True) if isinstance(value, np.ndarray) else value


def _made_there(function: Callable[..., Any]) -> Callable[..., Any]:
    takes_device = "device" in inspect.signature(function).parameters

    def make(*args: Any, **options: Any) -> Any:
        return function(*args, **({"device": "cuda"} if takes_device else {}) | options).to("cuda")

    return make


class _Changes(ast.NodeTransformer):
    """Lets imports of minorm bring what makes things on a GPU, and `numpy()` copy from there."""

    def visit_Import(self, node: ast.Import) -> Any:
        bound = [
            alias.asname or "minorm"  # `import minorm.onnx` binds minorm
            for alias in node.names
            if alias.name in WRAPPED or (alias.name.startswith("minorm.") and not alias.asname)
        ]
        return [node, *_statements("\n".join(f"{name} = __there__({name})" for name in bound), node)]

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "numpy" and not (node.args or node.keywords):
            node.keywords = [ast.keyword("force", ast.Constant(True))]
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        if node.level or node.module not in WRAPPED:
            return node
        named = [(alias.name, alias.asname or alias.name) for alias in node.names]
        lines = "\n".join(f"{given} = __named__({node.module!r}, {name!r})" for name, given in named)
        return [node, *_statements(lines, node)]


def _statements(text: str, like: ast.stmt) -> list[ast.stmt]:
    found = ast.parse(text).body
    for statement in found:
        for part in ast.walk(statement):
            ast.copy_location(part, like)
    return found


def program(text: str, file: str) -> Any:
    """Compile a program whose names of minorm make things on a GPU. Run it with `names()`."""
    return compile(ast.fix_missing_locations(_Changes().visit(ast.parse(text, file))), file, "exec")


def names() -> dict[str, Any]:
    """Return the names that a changed program needs."""
    import sys

    def named(module: str, name: str) -> Any:
        return there(sys.modules[module], name)

    return {"__name__": "__main__", "__there__": OnGpu, "__named__": named}
