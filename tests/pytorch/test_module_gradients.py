"""Second gradients of all layers that both libraries have, for inputs and parameters, on PyTorch's own samples
(ModuleInfo), in float64.
"""

from __future__ import annotations

from typing import Any

import pytest

import minorm as mn

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's samples import it; it comes with the extra dev")

from torch.testing._internal.common_modules import module_db  # noqa: E402  it is not there without PyTorch

from tests.pytorch import test_samples  # noqa: E402  it imports PyTorch's tests
from tests.pytorch.twins import second_gradients  # noqa: E402

MODULES = {info.module_cls.__name__: info for info in module_db if hasattr(mn.nn, info.module_cls.__name__)}
LEAST = 110  # of them are compared
FEW = 2  # samples of a layer in each mode


def arguments(called: Any) -> tuple[Any, list[Any], dict[str, Any]]:
    """The first one, the others, and those by name; input=x comes first, as our layers call it x."""
    if list(called.kwargs) == ["input"]:
        return called.kwargs["input"], [], {}
    return called.args[0], list(called.args[1:]), called.kwargs


def setting_of(name: str, sample: Any, training: bool) -> second_gradients.Setting:
    """Return the layer in both libraries, the arguments of its call, and its parameters as leaves."""
    args, options = sample.constructor_input.args, dict(sample.constructor_input.kwargs)
    options.pop("device", None)
    theirs = MODULES[name].module_cls(*args, **options).double().train(training)
    mine = getattr(mn.nn, name)(*test_samples.built(args), **test_samples.built(options)).double().train(training)
    first, rest, by_name = arguments(sample.forward_input)
    if name in test_samples.PLAIN_TARGETS:
        rest = [target.detach() for target in rest]
    setting = second_gradients.Setting(theirs, mine, (first, rest, by_name))
    if name.startswith("Lazy"):  # the first call tells it its parameters
        setting.called(theirs, setting.given)
        setting.called(mine, setting.ours)
    setting.add_parameters(theirs, mine)
    return setting


def differences(name: str, most: int) -> list[str]:
    wrong: list[str] = []
    count = 0
    for training in test_samples.modes(MODULES[name]):
        samples = list(test_samples.layer_samples(name, MODULES[name], training))
        for sample in samples[:: -(-len(samples) // most)]:
            more, texts = second_gradients.differences(setting_of(name, sample, training), f"nn.{name}")
            wrong, count = wrong + texts, count + more
    assert count, f"nn.{name}: nothing was compared"
    return wrong


def test_nearly_all_layers_of_pytorch_are_here() -> None:
    assert len(MODULES) >= LEAST


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODULES)
def test_second_gradients_are_pytorchs(name: str) -> None:
    assert not differences(name, FEW)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODULES)
def test_second_gradients_are_pytorchs_on_all_samples(name: str) -> None:
    assert not differences(name, test_samples.MOST)
