"""Stacks of decoder layers: against PyTorch's. tests/pytorch/test_samples.py has the layers themselves."""

from __future__ import annotations

from typing import Any

import pytest

import minorm as mn

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from tests.pytorch.twins.samples import compare, leaves, numbers, ours  # noqa: E402


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("final", [False, True])
def test_decoder(norm_first: bool, batch_first: bool, final: bool) -> None:
    def built(library: Any) -> Any:
        layer = library.nn.TransformerDecoderLayer(
            8, 2, 16, 0.0, batch_first=batch_first, norm_first=norm_first, activation="gelu"
        )
        return library.nn.TransformerDecoder(layer, 3, library.nn.LayerNorm(8) if final else None).double()

    theirs, layer = built(torch), built(mn)
    assert list(layer.state_dict()) == list(theirs.state_dict())
    layer.load_state_dict(theirs.state_dict())
    arguments = leaves([numbers(3, 5, 8), numbers(*((3, 4) if batch_first else (4, 5)), 8, seed=1)])
    if not batch_first:
        arguments[0] = leaves(numbers(6, 5, 8))
    length = arguments[0].shape[1 if batch_first else 0]
    mine = ours(arguments)
    ahead = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
    expected = theirs(*arguments, tgt_mask=ahead)
    found = layer(*mine, tgt_mask=ours(ahead))
    sides = (mine, list(layer.parameters())), (arguments, list(theirs.parameters()))
    compare(found, expected, sides, "decoder", rtol=1e-8)
