"""The examples of every public name, and programs of pages, run on a GPU: all that works on the CPU works there.

Where an example makes a Tensor or a layer, it is made on the double's GPU (on_gpu.py). The output is that of the CPU,
but for the device. So nothing calls NumPy on a tensor of a GPU by accident, and no function is missing there.
"""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import on_gpu
import pytest
from on_gpu import OnGpu

import minorm as mn
import minorm.functional as F
from minorm import data, nn, optim
from tests import public_names

NUMBER = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")
# Names whose examples use the CPU alone or take NumPy's arrays.
NUMPYS = {
    "minorm.Tensor.accumulate", "minorm.Tensor.from_array", "minorm.distributed.Group",
    "minorm.from_dlpack", "minorm.from_numpy", "minorm.testing.gradcheck", "minorm.data.transforms.ToImage",
    "minorm.data.transforms.ToTensor",
}  # fmt: skip
CPUS = {"minorm.amp.autocast", "minorm.autocast", "minorm.nn.Transformer"}  # a type, and a mask, of the CPU
CLASSES = {"minorm.nn.RNNBase", "minorm.nn.RNNCellBase", "minorm.nn.SyncBatchNorm"}  # of which more than calls is shown
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
@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - NUMPYS - CPUS - CLASSES - FILES))
def test_examples_run_on_a_gpu(name: str) -> None:
    wrong = run(name)
    if name.startswith(("minorm.data.", "minorm.training.Run")) and re.search(REFUSED, wrong):
        return  # the loader and transforms stay on the CPU, and say so
    assert not wrong, wrong


def test_the_exceptions_are_names() -> None:
    assert EXAMPLES.keys() >= NUMPYS | CPUS | CLASSES | FILES
    assert len(EXAMPLES) > 600


# Pages: with what stands in a block for which an array of NumPy, or a CPU, is the point
PAGES = {
    "guide/autograd.md": (),
    "guide/layers.md": (),
    "guide/second-gradients.md": (),
    "guide/tensors.md": ("mn.from_numpy(array)",),
    "how-to/export-with-free-height-and-width.md": (),
    "how-to/find-why-a-loss-is-nan.md": (),
    "how-to/freeze-batchnorm.md": (),
    "how-to/normalize-padded-sequences.md": (),
    "how-to/run-in-onnxruntime.md": (),
    "how-to/train-with-small-batches.md": (),
    "how-to/use-another-opset.md": (),
    "how-to/write-a-layer.md": ("gradcheck(layer, np.",),
}
DOCS = Path(__file__).parents[2] / "docs"
DEVICE = re.compile(r",?\s*device='cuda:0'")


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("name", PAGES)
def test_programs_of_pages_run_on_a_gpu(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They print there what the page shows."""
    pages = pytest.importorskip("tests.project.test_pages")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(pages.registry.__dict__, "WRITERS", dict(pages.registry.WRITERS))  # a page adds one
    mn.manual_seed(987654321)
    found, names = pages.blocks((DOCS / name).read_text(encoding="utf-8")), on_gpu.names()
    left_out = 0
    for block, below in zip(found, [*found[1:], pages.Block("", "", 0)], strict=True):
        if block.kind != "python":
            continue
        if any(words in block.text for words in PAGES[name]):
            left_out += 1
            continue
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            exec(on_gpu.program("\n" * block.line + block.text, name), names)
        printed = DEVICE.sub("", shown.getvalue())
        assert pages.same(printed, below.text if below.kind == "text" else ""), f"{name}:{block.line} prints\n{printed}"
    assert left_out == len(PAGES[name])


@pytest.mark.usefixtures("cuda")
def test_the_steps_of_the_page_on_gpus_run_as_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its programs take a model, a loader and the like from the reader. Each trains; the graphs do so too."""
    text = (DOCS / "gpu.md").read_text(encoding="utf-8")
    programs = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(programs) == 4
    rng = np.random.default_rng(0)
    pairs = data.ArrayDataset(rng.standard_normal((16, 6)).astype(np.float32), rng.integers(0, 3, 16))
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.01)
    names: dict[str, Any] = {
        "mn": mn, "F": F, "model": model, "loader": data.DataLoader(pairs, 4), "optimizer": optimizer,
        "scheduler": optim.lr_scheduler.StepLR(optimizer, 100),
    }  # fmt: skip
    monkeypatch.setattr("warnings.warn", lambda *args, **_: pytest.fail(str(args[0])))  # that a step is not captured
    for number, program in enumerate(programs[:3]):  # the last one needs PyTorch on a GPU: test_exchange.py
        before = model[0].weight.detach().cpu().numpy().copy()
        if number == 2:  # "by hand": the step reads and writes fixed memory
            names["images"], names["labels"] = (part.to("cuda") for part in next(iter(names["loader"])))

            def step() -> None:
                optimizer.zero_grad()
                names["loss"] = F.cross_entropy(model(names["images"]), names["labels"])
                names["loss"].backward()
                optimizer.step()

            names["step"] = step
        exec(program, names)
        assert model[0].weight.device == "cuda:0"
        assert np.isfinite(names["loss"].item())
        assert (model[0].weight.detach().cpu().numpy() != before).any(), program
