"""The judge sees every call of a library, however it comes about; NumPy and Python's modules do not count as one."""

from __future__ import annotations

import statistics
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from minorm.labs.calling import borrowed, submission

X = np.arange(6.0).reshape(2, 3)


def of_student(text: str) -> Any:
    """The function f of a submission."""
    module, notes = submission.load(text, "mine.py")
    assert isinstance(module, ModuleType)
    assert not notes
    return module.f


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    return (x - x.mean()) / np.sqrt(np.var(x))\n",
        "def g(x):\n    return x\ndef f(x):\n    return [g(v) for v in np.linalg.qr(x)]\n",
        "import statistics, math\ndef f(x):\n    return math.sqrt(statistics.fmean(x.ravel()))\n",
    ],
)
def test_arithmetic_is_the_students_own(text: str) -> None:
    assert borrowed.packages(of_student("import numpy as np\n" + text), X) == []


@pytest.mark.parametrize(
    "text",
    [
        "import minorm as mn\ndef f(x):\n    return mn.tensor(x).mean()\n",
        "import minorm as mn\ndef f(x):\n    return mn.nn.LayerNorm(3)(mn.tensor(x)).numpy()\n",
        "from minorm.labs import museum\ndef f(x):\n    return museum.exhibit('H')(x)\n",
        "def f(x):\n    from minorm import functional, tensor\n    return functional.normalize(tensor(x))\n",
    ],
)
def test_a_library_is_named(text: str) -> None:
    assert set(borrowed.packages(of_student(text), X)) - {"minorm_ext"} == {"minorm"}


def test_torch_is_named() -> None:
    pytest.importorskip("torch")
    said = "import torch\ndef f(x):\n    return torch.tensor(x).mean().numpy()\n"
    assert borrowed.packages(of_student(said), X) == ["torch"]


def test_the_profiler_is_put_back() -> None:
    before = sys.getprofile()
    with pytest.raises(statistics.StatisticsError):
        borrowed.packages(statistics.fmean, [])
    assert sys.getprofile() is before


def test_the_packages_of_a_modules_function() -> None:
    text = "import numpy as np\nfrom minorm import nn, tensor\ndef f(x, *, library):\n"
    module, _ = submission.load(text + "    return nn.ReLU()(tensor(x)) if library else np.abs(x)\n", "mine.py")
    assert borrowed.packages_of(module, "f", [X], {"library": False}) == []
    assert "minorm" in borrowed.packages_of(module, "f", [X], {"library": True})
