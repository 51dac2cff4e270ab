"""Hooks beside PyTorch's: when they are called, with what, and what they may change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn

torch = pytest.importorskip("torch")


def nets() -> tuple[Any, Any]:
    mine, other = (m.Sequential(m.Linear(3, 4), m.Tanh(), m.Linear(4, 2)) for m in (nn, torch.nn))
    other.double()
    mine.double().load_state_dict(other.state_dict())
    return mine, other


def numbers(value: Any) -> Any:
    return None if value is None else np.asarray(value.detach().numpy())


def test_they_see_and_change_what_pytorchs_do(rng: np.random.Generator) -> None:
    x, results = rng.standard_normal((5, 3)), []
    for net, lib in zip(nets(), (mn, torch), strict=True):
        seen: list[Any] = []
        net[1].register_forward_pre_hook(lambda m, args, seen=seen: seen.append(numbers(args[0])))
        net[1].register_forward_hook(lambda m, args, out: out * 2)
        net[1].register_forward_hook(
            lambda m, args, kwargs, out, seen=seen: seen.append(numbers(out)), with_kwargs=True
        )
        net[1].register_forward_hook(lambda m, args, out, seen=seen: seen.append(numbers(out)), prepend=True)
        net[2].register_full_backward_hook(lambda m, gi, go, seen=seen: seen.extend([numbers(gi[0]), numbers(go[0])]))
        net[0].register_full_backward_hook(lambda m, gi, go, seen=seen: seen.append((gi[0], numbers(go[0]))))
        net[1].register_full_backward_hook(lambda m, gi, go: (gi[0] * 3,))
        y = net(lib.tensor(x))
        (y * y).sum().backward()
        seen += [numbers(p.grad) for p in net.parameters()]
        results.append([part for entry in seen for part in (entry if isinstance(entry, tuple) else (entry,))])
    assert len(results[0]) == len(results[1])
    for mine, other in zip(*results, strict=True):
        assert (mine is None) == (other is None)
        if mine is not None:
            np.testing.assert_allclose(mine, other, rtol=1e-12)


def test_a_handle_removes_its_hook() -> None:
    layer, calls = nn.Identity(), []
    handle = layer.register_forward_hook(lambda *_: calls.append(1))
    with layer.register_forward_pre_hook(lambda *_: calls.append(2)):
        layer(1)
    handle.remove()
    handle.remove()
    layer(1)
    assert calls == [2, 1]
    with pytest.raises(TypeError, match="hook is a int; expected a function"):
        layer.register_forward_hook(3)


def test_extra_state_and_assign() -> None:
    class Counted(nn.Linear):
        count = 3

        def get_extra_state(self) -> Any:
            return {"count": self.count}

        def set_extra_state(self, state: Any) -> None:
            self.count = state["count"]

    model, other = nn.Sequential(Counted(2, 2)), nn.Sequential(Counted(2, 2))
    model[0].count = 7
    state = model.state_dict()
    assert state["0._extra_state"] == {"count": 7}
    assert repr(other.load_state_dict(state)) == "<All keys matched successfully>"
    assert other[0].count == 7
    plain = nn.Linear(2, 2)
    weights = {"weight": mn.ones(2, 2, dtype=mn.float64), "bias": mn.zeros(2, dtype=mn.float64)}
    plain.load_state_dict(weights, assign=True)
    assert plain.weight.dtype == mn.float64
    assert plain.weight.array is weights["weight"].array


def test_a_buffer_registers_itself() -> None:
    layer = nn.Identity()
    layer.kept, layer.local = nn.Buffer(mn.ones(2)), nn.Buffer(mn.ones(2), persistent=False)
    assert list(layer.state_dict()) == ["kept"]
    assert [name for name, _ in layer.named_buffers()] == ["kept", "local"]
