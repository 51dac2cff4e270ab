"""The examples of every public name run on a GPU: all that works on the CPU works there.

Where an example makes a Tensor or a layer, it is made on the double's GPU (on_gpu.py). The output is that of the CPU,
but for the device. So nothing calls NumPy on a tensor of a GPU by accident, and no function is missing there.
"""

from __future__ import annotations

import doctest
import inspect
import re
from typing import Any

import numpy as np
import pytest
from on_gpu import OnGpu

import minorm as mn
import minorm.functional as F
from minorm import nn
from tests import public_names

NUMBER = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")
# Names whose examples use the CPU alone or take NumPy's arrays.
NUMPYS = {
    "minorm.Tensor.accumulate", "minorm.Tensor.from_array", "minorm.distributed.Group",
    "minorm.from_dlpack", "minorm.from_numpy", "minorm.testing.gradcheck", "minorm.testing.gradgradcheck",
    "minorm.data.transforms.ToImage", "minorm.data.transforms.ToTensor",
}  # fmt: skip
CPUS = {  # an autocast, and a mask, of the CPU
    "minorm.amp.autocast", "minorm.amp.is_autocast_enabled", "minorm.autocast", "minorm.is_autocast_enabled",
    "minorm.nn.Transformer",
}  # fmt: skip
FILES = {"minorm.data.load_fashion_mnist"}
REFUSED = "is on cuda:0; expected a Tensor on the CPU, where batches are|images are on cuda:0, and transforms compute"


class Shown(doctest.OutputChecker):
    """Texts are equal but for the device and the last digits."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        want, got = (re.sub(r",?\s*device='cuda:0'", "", text) for text in (want, got))
        if "".join(NUMBER.sub("#", want).split()) != "".join(NUMBER.sub("#", got).split()):
            return False
        numbers = [[float(number) for number in NUMBER.findall(text)] for text in (want, got)]
        return np.allclose(*numbers, rtol=1e-2, atol=1e-3)


def examples() -> dict[str, str]:
    """The docstrings with examples, by public name. minorm.cuda shows that a GPU is not there."""
    found = {}
    for name in public_names.public():
        thing: Any = mn
        for part in name.split(".")[1:]:
            thing = getattr(thing, part)
        text = inspect.getdoc(thing) or ""
        if ">>>" in text and "cuda.is_available()" not in text and not name.startswith("minorm.utils."):
            found[name] = text
    return found


EXAMPLES = examples()


def run(name: str) -> str:
    """Run a name's examples; return the differences from the expected output."""
    names: dict[str, Any] = {"mn": OnGpu(mn), "nn": OnGpu(nn), "F": F, "np": np}
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], names, name, None, None)
    shown: list[str] = []
    mn.manual_seed(0)
    doctest.DocTestRunner(checker=Shown(), verbose=False).run(test, out=shown.append)
    return "".join(shown)


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - NUMPYS - CPUS - FILES))
def test_examples_run_on_a_gpu(name: str) -> None:
    wrong = run(name)
    if name.startswith(("minorm.data.", "minorm.training.Run")) and re.search(REFUSED, wrong):
        return  # the loader and transforms stay on the CPU, and say so
    assert not wrong, wrong


def test_the_exceptions_are_names() -> None:
    assert EXAMPLES.keys() >= NUMPYS | CPUS | FILES
    assert len(EXAMPLES) > 600
