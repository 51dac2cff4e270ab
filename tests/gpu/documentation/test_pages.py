"""Every program of docs/ runs on a GPU, from start to end, and prints there what its page shows.

Its tensors and layers are on the double's GPU (on_gpu.py). So nothing in minorm calls NumPy on a tensor of a GPU, and
no function is missing there. The tutorials and the README's program run too. Most of this is slow: QUICK names the
pages of the usual run.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import on_gpu
import pytest

import minorm as mn
import minorm.functional as F
from minorm import data, nn, optim
from tests.project.test_documents import IMPORTS

pages = pytest.importorskip("tests.project.test_pages")
_as_found = pages._as_found  # an empty folder, and every setting back as it was

DOCS = pages.DOCS
DEVICE = re.compile(r",?\s*device='cuda:0'")

# Words of the block that is left out, by page, with the reason.
LEFT_OUT = {
    "guide/tensors.md": "mn.from_numpy(array)",  # a tensor shares the memory of NumPy's array
}
# These would train for minutes, because the double takes a second for a step. Each gets this many images to train with
# and to test with. That changes the figures, so only words, whole numbers, True and False are compared.
FEWER = {
    "guide/quantization.md": (256, 256),
    "how-to/follow-a-run-with-callbacks.md": (256, 256),
    "tutorials/01-digits-from-nothing-to-onnx.md": (64, 64),
    "tutorials/03-which-normalization-at-batch-2.md": (32, 359),
    "tutorials/04-fine-tune-an-onnx-model.md": (64, 32),
    "tutorials/05-segmentation.md": (16, 16),
    "tutorials/07-from-training-to-int8.md": (128, 64),
}
NO_PROGRAMS = {
    "browser.md",  # installs packages in Pyodide, which has no GPU
    "course/nbgrader.md",  # settings of nbgrader
    "gpu-kernels.md",  # a test of the reader's function
    "own-images.md",  # reads a folder of pictures on the CPU
}  # fmt: skip
QUICK = {
    "guide/autograd.md", "guide/layers.md", "guide/tensors.md", "how-to/export-with-free-height-and-width.md",
    "how-to/find-why-a-loss-is-nan.md", "how-to/freeze-batchnorm.md", "how-to/normalize-padded-sequences.md",
    "how-to/run-in-onnxruntime.md",
}  # fmt: skip
SLOW = (pytest.mark.slow, pytest.mark.timeout(1200))


def relative(path: Path) -> str:
    """The page's name in the lists above."""
    return path.relative_to(DOCS).as_posix()


def blocks(path: Path) -> list[Any]:
    """The blocks of a page, or the cells of a tutorial."""
    return pages.cells(path) if path in pages.TUTORIALS else pages.blocks(path.read_text(encoding="utf-8"))


def left_out(block: Any, page: str) -> bool:
    return page in LEFT_OUT and LEFT_OUT[page] in block.text


def fewer_images(monkeypatch: pytest.MonkeyPatch, train: int, test: int) -> None:
    """Let split_digits give so many images in its two parts, and other sets of a page have the first `train` images."""
    split, arrays, subset = data.split_digits, data.ArrayDataset, data.Subset

    def fewer(*args: Any, **options: Any) -> Any:
        return tuple(arrays(*part[:count]) for part, count in zip(split(*args, **options), (train, test), strict=True))

    monkeypatch.setattr(data, "split_digits", fewer)
    monkeypatch.setattr(data, "ArrayDataset", lambda *parts: arrays(*[part[:train] for part in parts]))
    monkeypatch.setattr(data, "Subset", lambda whole, places: subset(whole, places[:train]))


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize(
    "path",
    [path if relative(path) in QUICK else pytest.param(path, marks=SLOW) for path in pages.PROGRAMS],
    ids=relative,
)
def test_programs_print_on_a_gpu_what_stands_below_them(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, page = path.read_text(encoding="utf-8"), relative(path)
    if "import torch\n" in text:
        pytest.importorskip("torch")
    if page in FEWER:
        fewer_images(monkeypatch, *FEWER[page])
    found, names = blocks(path), on_gpu.names()
    for block, below in zip(found, [*found[1:], pages.Block("", "", 0)], strict=True):
        if block.kind == "python" and not left_out(block, page):
            printed = DEVICE.sub("", pages.run(block, path, names, on_gpu.program))
            shown = below.text if below.kind == "text" else ""
            if page in FEWER:
                printed, shown = (pages.NUMBER.sub("0.0", text) for text in (printed, shown))
            assert pages.same(printed, shown), f"{page}:{block.line} prints\n{printed}\nand shows\n{shown}"


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("path", [pytest.param(path, marks=SLOW) for path in pages.TUTORIALS], ids=relative)
def test_tutorials_run_on_a_gpu(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They draw their pictures. Their pages do not say what they print."""
    from matplotlib import pyplot as plt

    page, names = relative(path), on_gpu.names()
    if page in FEWER:
        fewer_images(monkeypatch, *FEWER[page])
    for cell in blocks(path):
        if not left_out(cell, page):
            pages.run(cell, path, names, on_gpu.program)
    assert plt.get_fignums()
    plt.close("all")


@pytest.mark.slow
@pytest.mark.usefixtures("cuda")
def test_the_readmes_program_trains_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    path = pages.ROOT / "README.md"
    (program,) = (block for block in blocks(path) if block.kind == "python")
    fewer_images(monkeypatch, 256, 64)
    names = on_gpu.names()
    printed = pages.run(program, path, names, on_gpu.program)
    assert float(printed.removeprefix("accuracy ")) > 0.8  # a tenth is a guess
    assert names["model"][0].weight.device == "cuda:0"


def program_of(page: str) -> Any:
    """The first program of a page."""
    return next(block for block in blocks(DOCS / page) if block.kind == "python")


@pytest.mark.slow
@pytest.mark.usefixtures("cuda")
def test_the_padded_encoder_gives_a_sequence_the_same_result_alone() -> None:
    """But for rounding: cuBLAS chooses another order of sums for another size."""
    names = on_gpu.names()
    exec(on_gpu.program(IMPORTS, "the page's imports"), names)
    assert float(pages.run(program_of("masked.md"), DOCS / "masked.md", names, on_gpu.program)) < 1e-6
    assert names["model"].norm1.weight.device == "cuda:0"


@pytest.mark.slow
@pytest.mark.usefixtures("cuda")
def test_the_distributed_program_trains_on_two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    fewer_images(monkeypatch, 256, 1)
    block, names = program_of("distributed.md"), on_gpu.names()
    block = block._replace(text=block.text.replace("dist.run(train)", "dist.run(train, ranks=2)"))
    printed = pages.run(block, DOCS / "distributed.md", names, on_gpu.program)
    assert 1 < float(printed.removeprefix("loss ")) < 5  # of a first step; ln(10) of a guess


@pytest.mark.usefixtures("cuda")
def test_lines_about_a_readers_model_run_on_a_gpu() -> None:
    """doctor.md diagnoses a model that the reader has, and onnx.md trains a file on, in float32 and bfloat16."""
    rng = np.random.default_rng(0)
    pairs = data.ArrayDataset(rng.standard_normal((16, 6)).astype(np.float32), rng.integers(0, 3, 16))
    model = nn.Sequential()
    for name, layer in {"layer1": nn.Linear(6, 8), "layer4": nn.BatchNorm1d(8), "fc": nn.Linear(8, 3)}.items():
        model.add_module(name, layer)
    x = mn.randn(4, 6)
    mn.onnx.export(model, x, "resnet50.onnx")
    names = on_gpu.names() | {"model": model.to("cuda"), "loader": on_gpu.Batches(pairs, 4), "x": x.to("cuda")}
    exec(on_gpu.program("import minorm, minorm.onnx, minorm as mn\nfrom minorm import optim", "imports"), names)
    for page, count in (("doctor.md", 1), ("onnx.md", 2)):
        programs = [block for block in blocks(DOCS / page) if block.kind == "python"]
        assert len(programs) == count
        for block in programs:
            pages.run(block, DOCS / page, names, on_gpu.program)
    assert (names["y"].device, names["y"].dtype) == ("cuda:0", mn.bfloat16)


def test_no_page_with_a_program_is_forgotten() -> None:
    run_above = {*map(relative, pages.PROGRAMS), "distributed.md", "doctor.md", "gpu.md", "masked.md", "onnx.md"}
    found = {relative(path) for path in pages.ALL if DOCS in path.parents and "```python\n" in path.read_text("utf-8")}
    assert found == run_above | NO_PROGRAMS


@pytest.mark.parametrize("page", LEFT_OUT)
def test_what_is_left_out_is_one_block(page: str) -> None:
    assert sum(left_out(block, page) for block in blocks(DOCS / page)) == 1


def test_the_lists_are_of_pages_with_programs() -> None:
    assert {*map(relative, [*pages.PROGRAMS, *pages.TUTORIALS])} >= {*LEFT_OUT, *FEWER, *QUICK}
    assert not FEWER.keys() & QUICK


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
