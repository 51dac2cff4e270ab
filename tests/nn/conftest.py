"""The twin test: a PyTorch layer with the same weights gives the same output and the same gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import minorm as mn


@pytest.fixture
def twins() -> Callable[..., None]:
    """twins(ours, theirs, *arrays): load theirs into ours, run both, compare the output, dx and every dw."""
    torch = pytest.importorskip("torch")

    def check(ours, theirs, *arrays, rtol=1e-9, atol=1e-11) -> None:
        ours.double()
        theirs.double()
        ours.load_state_dict(theirs.state_dict())
        assert repr(ours) == repr(theirs)
        inputs = [mn.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
        their_inputs = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
        y, expected = ours(*inputs), theirs(*their_inputs)
        assert y.shape == tuple(expected.shape)
        np.testing.assert_allclose(y.array, expected.detach().numpy(), rtol=rtol, atol=atol)
        gradient = np.asarray(np.random.default_rng(7).standard_normal(y.shape))
        y.backward(gradient)
        expected.backward(torch.tensor(gradient))
        for mine, other in zip(inputs, their_inputs, strict=True):
            if mine.requires_grad and other.grad is not None:
                np.testing.assert_allclose(mine.grad.array, other.grad.numpy(), rtol=rtol, atol=atol)
        theirs_by_name = dict(theirs.named_parameters())
        for name, parameter in ours.named_parameters():
            np.testing.assert_allclose(parameter.grad.array, theirs_by_name[name].grad.numpy(), rtol=rtol, atol=atol)
        theirs.load_state_dict({k: torch.from_numpy(v.numpy()) for k, v in ours.state_dict().items()})

    return check
