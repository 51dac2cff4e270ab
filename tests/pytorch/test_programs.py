"""Ordinary programs run after the one word `torch` is replaced by `minorm`, and their losses are PyTorch's.

Each file of tests/pytorch/programs is a PyTorch program: `models()` makes its networks, `train(**models)` takes ten
steps or more and returns its losses. It is run as it stands, and again with the word exchanged, from the same weights;
what is random comes from NumPy. In float64 the two agree to 1e-6.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn

torch = pytest.importorskip("torch")

PROGRAMS = sorted(Path(__file__).with_name("programs").glob("*.py"))


def program(path: Path, library: str) -> Any:
    """The program with `library` where it says torch."""
    module = types.ModuleType(f"{path.stem} in {library}")
    text = re.sub(r"\btorch\b", library, path.read_text(encoding="utf-8"))
    exec(compile(text, f"{path}, with {library}", "exec"), vars(module))
    return module


@pytest.fixture(autouse=True)
def in_float64() -> Iterator[None]:
    threads = torch.get_num_threads()
    before = torch.get_default_dtype(), mn.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    mn.set_default_dtype(mn.float64)
    yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(before[0])
    mn.set_default_dtype(before[1])


def weights(theirs: Any) -> dict[str, Any]:
    return {name: mn.tensor(value.numpy().copy()) for name, value in theirs.state_dict().items()}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_losses_are_pytorchs(path: Path) -> None:
    theirs, ours = program(path, "torch"), program(path, "minorm")
    torch.manual_seed(0)
    their_models, our_models = theirs.models(), ours.models()
    for name, model in our_models.items():
        assert list(model.state_dict()) == list(their_models[name].state_dict())
        model.load_state_dict(weights(their_models[name]))
    expected = theirs.train(**their_models)
    found = ours.train(**our_models)
    assert len(expected) >= 10
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert max(expected[:10]) - min(expected[:10]) > 1e-3, "nothing was learned"


def test_there_are_programs_of_each_kind() -> None:
    assert {"mnist", "resnet", "dcgan", "vae", "siamese", "unet"} <= {path.stem for path in PROGRAMS}
