"""List the current public names with their arguments and defaults, a line each: `python -m tests.public_names`.

tests/public_names.txt has the earlier names; tests/test_public_api.py compares. This program adds new names to the
file, shows changes, and takes nothing out: take removed names out by hand (CONTRIBUTING.md, "Change a public name").
"""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

FILE = Path(__file__).with_suffix(".txt")
PACKAGES = """
    minorm minorm.accelerator minorm.amp minorm.autograd minorm.autograd.function minorm.autograd.functional
    minorm.backends minorm.cuda minorm.data minorm.data.transforms
    minorm.diagnosis minorm.distributed minorm.distributions minorm.functional minorm.models
    minorm.nn minorm.nn.init minorm.nn.parallel minorm.nn.utils
    minorm.nn.utils.parametrizations minorm.nn.utils.rnn minorm.onnx minorm.optim minorm.optim.lr_scheduler
    minorm.profiler minorm.quantization minorm.testing minorm.training minorm.utils minorm.utils.checkpoint
    minorm.utils.data
""".split()  # noqa: SIM905  a list that fits on the screen
CLASSES = ("minorm.Tensor", "minorm.Generator", "minorm.nn.Module", "minorm.optim.Optimizer")  # whose methods count
HOMES = {  # where a package has its names from, if not from below it
    "minorm.accelerator": "minorm",
    "minorm.autograd": "minorm.graph",
    "minorm.autograd.function": "minorm.graph",
    "minorm.autograd.functional": "minorm.autograd",
    "minorm.cuda": "minorm",
    "minorm.optim.lr_scheduler": "minorm.optim",
    "minorm.utils.data": "minorm.data",
}
# A package shows what is defined below it, and of what it has from elsewhere:
ELSEWHERE = """
    minorm.autograd.Function minorm.autograd.enable_grad minorm.autograd.inference_mode minorm.autograd.is_grad_enabled
    minorm.autograd.no_grad minorm.autograd.set_grad_enabled
    minorm.distributed.NonFiniteLoss minorm.training.NonFiniteLoss
""".split()  # noqa: SIM905
OURS = """
    minorm.accelerator.device minorm.accelerator.documented minorm.cuda.documented
    minorm.optim.lr_scheduler.Optimizer minorm.optim.lr_scheduler.schedule
    minorm.optim.lr_scheduler.set_momentum minorm.optim.lr_scheduler.set_rate
    minorm.nn.init.default_ minorm.nn.init.fans minorm.nn.utils.parametrizations.Parametrization
    minorm.nn.utils.parametrizations.Root minorm.nn.utils.rnn.pack_padded minorm.nn.utils.rnn.padded
""".split()  # noqa: SIM905  defined there for other modules of minorm, and documented nowhere


def public() -> dict[str, str]:
    """By full name the arguments as in `(x, dim=1, *, out=None)`; an empty text for what is not called."""
    found: dict[str, str] = {}
    for package in PACKAGES:
        module = import_module(package)
        for name in dir(module):
            value = getattr(module, name)
            if not name.startswith("_") and _is_public(module, name, value):
                found[f"{package}.{name}"] = arguments(value)
    for path in CLASSES:
        package, _, name = path.rpartition(".")
        cls = getattr(import_module(package), name)
        found |= {f"{path}.{method}": arguments(getattr(cls, method)) for method in dir(cls) if method[0] != "_"}
    return found


def _is_public(module: ModuleType, name: str, value: Any) -> bool:
    """Functions and classes that are defined there; of the package `minorm`, whose dir() is clean, everything."""
    package, path = module.__name__, f"{module.__name__}.{name}"
    if package == "minorm" or path in ELSEWHERE:
        return True
    home = getattr(value, "__module__", None) or ""
    below = f"{home}.".startswith(f"{HOMES.get(package, package)}.")
    return callable(value) and below and path not in OURS


def arguments(value: Any) -> str:
    """The signature without types; NumPy's classes have one in some versions and none in others."""
    if not callable(value) or not (getattr(value, "__module__", None) or "").startswith("minorm"):
        return ""
    try:
        signature = inspect.signature(value)
    except ValueError:  # of a class in C
        return ""
    shown = [p.replace(annotation=p.empty, default=_default(p.default)) for p in signature.parameters.values()]
    return str(signature.replace(parameters=shown, return_annotation=signature.empty))


class _Shown(str):
    """A default, printed as it is written."""

    __slots__ = ()
    __repr__ = str.__str__


def _default(value: Any) -> Any:
    """Return a default whose repr is the same in every process."""
    if value is inspect.Parameter.empty:
        return value
    text = repr(value)
    return _Shown(getattr(value, "__name__", "...") if " at 0x" in text or text.startswith("<") else text)


def listed() -> dict[str, str]:
    """The file: by full name the arguments."""
    lines = FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else []
    return {name: bracket + rest for name, bracket, rest in (line.partition("(") for line in lines)}


def write() -> None:
    """Add to the file what is new and what changed; say so."""
    was, now = listed(), public()
    for name in sorted(was.keys() | now.keys()):
        if name not in now:
            print(f"missing: {name}{was[name]}")
        elif was.get(name) != now[name]:
            print(f"{'changed' if name in was else 'new'}: {name}{now[name]}")
    together = was | now
    FILE.write_text("".join(f"{name}{together[name]}\n" for name in sorted(together)), encoding="utf-8")


if __name__ == "__main__":
    write()
