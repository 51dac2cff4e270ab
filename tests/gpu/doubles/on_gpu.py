"""minorm as a user writes it who wants everything on a GPU: what a program makes, it makes there.

Tensors, layers and models that are made by the names of these modules are on the GPU, and so are the batches of a
DataLoader and the model of a Run. `program` changes a program's imports, and nothing else of its text.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import minorm as mn
from minorm import data, models, nn, quantization, training
from minorm.data.loader import DataLoader

MADE = {
    "tensor", "zeros", "ones", "rand", "randn", "arange", "full", "eye", "linspace", "empty", "randint", "randperm",
    "normal", "as_tensor",
}  # fmt: skip
LAYERS = (nn, quantization)  # the modules that have some


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
        return OnGpu(found) if found in (*LAYERS, models, data, training) else found
    if inspect.isclass(found) and issubclass(found, DataLoader):
        return Batches
    if found is training.Run:
        return Made(found, lambda *args, **options: found(*args, **{"device": "cuda"} | options))
    if inspect.isclass(found) and issubclass(found, nn.Module) and found is not nn.Module and module in LAYERS:
        return Made(found, lambda *args, **options: found(*args, **options).to("cuda"))
    if module is models and callable(found):
        return lambda *args, **options: found(*args, **options).to("cuda")
    return _made_there(found) if module is mn and name in MADE else found


def _made_there(function: Callable[..., Any]) -> Callable[..., Any]:
    takes_device = "device" in inspect.signature(function).parameters

    def make(*args: Any, **options: Any) -> Any:
        return function(*args, **({"device": "cuda"} if takes_device else {}) | options).to("cuda")

    return make


class _Imports(ast.NodeTransformer):
    """Lets imports of minorm bring what makes things on a GPU."""

    def visit_Import(self, node: ast.Import) -> Any:
        wrapped = [alias for alias in node.names if alias.name == "minorm"]
        if not wrapped:
            return node
        name = wrapped[0].asname or "minorm"
        return [node, *_statements(f"{name} = __there__({name})", node)]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        if node.level or node.module not in ("minorm", "minorm.data", "minorm.models", "minorm.nn", "minorm.training"):
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
    return compile(ast.fix_missing_locations(_Imports().visit(ast.parse(text, file))), file, "exec")


def names() -> dict[str, Any]:
    """Return the names that a changed program needs."""
    import sys

    def named(module: str, name: str) -> Any:
        return there(sys.modules[module], name)

    return {"__name__": "__main__", "__there__": OnGpu, "__named__": named}
