"""RNN, LSTM, GRU: layers with PyTorch's names and weights over minorm.functional.recurrent, where the formulas stand.

    input    (steps, batch, in), (batch, steps, in) with batch_first, (steps, in), or a PackedSequence
    output   the same with directions * hidden features: the last layer's state after each step
    h_n, c_n (num_layers * directions, batch, hidden): the last states, whatever batch_first says

For layer k and, with a suffix _reverse, for the other direction: weight_ih_lk (gates * hidden, in), weight_hh_lk (gates
* hidden, hidden), bias_ih_lk and bias_hh_lk (gates * hidden). All start uniform on +-1 / sqrt(hidden).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from minorm.functional import recurrent as F
from minorm.functional.dropout import check_probability, dropout
from minorm.joining import cat, stack
from minorm.mistakes import not_a_tensor
from minorm.nn import init
from minorm.nn.module import Module
from minorm.nn.parameter import Parameter, check_sizes, uninitialized
from minorm.nn.utils.rnn import PackedSequence, pack_padded, padded
from minorm.tensor import Tensor

RELU = F.Gate("Relu")


class RNNBase(Module):
    """What the three share: a subclass says how many gates it has, and runs one layer in `_layer`."""

    gates: ClassVar[int] = 1
    mode: str = "RNN"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        check_sizes(name, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        check_probability(name, dropout)
        if proj_size:
            raise NotImplementedError(f"{name}: proj_size is {proj_size}; ONNX has no projection, nor has minorm; "
                                      "expected 0; put an nn.Linear behind the layer")  # fmt: skip
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        rows = self.gates * hidden_size
        for layer in range(num_layers):
            width = input_size if layer == 0 else hidden_size * (2 if bidirectional else 1)
            for end in self._ends(layer):
                setattr(self, f"weight_ih_{end}", uninitialized((rows, width), dtype, device))
                setattr(self, f"weight_hh_{end}", uninitialized((rows, hidden_size), dtype, device))
                if bias:
                    setattr(self, f"bias_ih_{end}", uninitialized((rows,), dtype, device))
                    setattr(self, f"bias_hh_{end}", uninitialized((rows,), dtype, device))
        self.reset_parameters()

    def _ends(self, layer: int) -> list[str]:
        return [f"l{layer}", f"l{layer}_reverse"] if self.bidirectional else [f"l{layer}"]

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing: the weights lie as the kernels take them."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters, a list for each layer and direction."""
        names = ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if self.bias else ()))
        ends = [end for layer in range(self.num_layers) for end in self._ends(layer)]
        return [[getattr(self, f"{name}_{end}") for name in names] for end in ends]

    def forward(self, input: Any, hx: Any = None) -> Any:
        """(output, h_n), of an LSTM (output, (h_n, c_n))"""
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        if not isinstance(input, Tensor):
            raise not_a_tensor(type(self).__name__, "input", input)
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            order = "(batch, steps, in)" if self.batch_first else "(steps, batch, in)"
            raise ValueError(f"{type(self).__name__}: input has shape {input.shape}; expected {order} or (steps, in), "
                             f"with {self.input_size} features")  # fmt: skip
        single = input.ndim == 2
        x = input.unsqueeze(1) if single else input.transpose(0, 1) if self.batch_first else input
        states = [state.unsqueeze(1) if single else state for state in _parts(hx)]
        y, last = self._run(x, states, None)
        if single:
            return y.squeeze(1), self._joined([state.squeeze(1) for state in last])
        return y.transpose(0, 1) if self.batch_first else y, self._joined(last)

    def _packed(self, packed: PackedSequence, hx: Any) -> Any:
        x, lengths = padded(packed)
        order, back = packed.sorted_indices, packed.unsorted_indices
        states = [state if order is None else state[:, order] for state in _parts(hx)]
        y, last = self._run(x, states, lengths)
        last = [state if back is None else state[:, back] for state in last]
        return PackedSequence(pack_padded(y, packed.batch_sizes), *packed[1:]), self._joined(last)

    def _run(self, x: Tensor, states: list[Tensor], lengths: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """All layers, of x (steps, batch, in)."""
        directions = 2 if self.bidirectional else 1
        found = []
        for layer in range(self.num_layers):
            own = [state[layer * directions : (layer + 1) * directions] for state in states]
            weights = [stack([getattr(self, f"{name}_{end}") for end in self._ends(layer)])
                       for name in ("weight_ih", "weight_hh")]  # fmt: skip
            bias = None
            if self.bias:
                ends = self._ends(layer)
                bias = stack([cat([getattr(self, f"bias_ih_{e}"), getattr(self, f"bias_hh_{e}")]) for e in ends])
            direction = "bidirectional" if self.bidirectional else "forward"
            y, *last = self._layer(x, own, *weights, bias, direction=direction, lengths=lengths)
            found.append(last)
            x = y.transpose(1, 2).reshape(y.shape[0], y.shape[2], directions * self.hidden_size)
            if self.dropout and layer < self.num_layers - 1:
                x = dropout(x, self.dropout, self.training and not self.frozen)
        return x, [cat(parts) for parts in zip(*found, strict=True)]

    def _layer(self, x: Tensor, states: list[Tensor], *weights: Any, **options: Any) -> tuple[Tensor, ...]:
        raise NotImplementedError(f"{type(self).__name__} has no _layer")

    def _joined(self, states: list[Tensor]) -> Any:
        return states[0]

    def extra_repr(self) -> str:
        """The sizes, and what is not usual."""
        text = f"{self.input_size}, {self.hidden_size}"
        usual = (("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0.0), ("bidirectional", False))
        return text + "".join(f", {n}={getattr(self, n)}" for n, value in usual if getattr(self, n) != value)


class RNN(RNNBase):
    """h' = tanh(W x + b + R h + b), or relu, step by step; see the module for shapes and weights."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        self_options = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0)
        super().__init__(*self_options, device=device, dtype=dtype)
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNN: nonlinearity is {nonlinearity!r}; expected 'tanh' or 'relu'")
        self.nonlinearity = nonlinearity
        self.mode = f"RNN_{nonlinearity.upper()}"

    def _layer(self, x: Tensor, states: list[Tensor], *weights: Any, **options: Any) -> tuple[Tensor, ...]:
        relu = [(RELU,)] * len(weights[0]) if self.nonlinearity == "relu" else None
        return F.rnn(x, states[0] if states else None, *weights, activations=relu, **options)


class GRU(RNNBase):
    """r, z = sigmoid(W x + b + R h + b); n = tanh(W x + b + r * (R h + b)); h' = (1 - z) n + z h."""

    gates = 3
    mode = "GRU"

    def _layer(self, x: Tensor, states: list[Tensor], *weights: Any, **options: Any) -> tuple[Tensor, ...]:
        return F.gru(x, states[0] if states else None, *weights, **options)


class LSTM(RNNBase):
    """i, f, o = sigmoid(W x + b + R h + b); g = tanh(...); c' = f c + i g; h' = o tanh(c'). hx is (h, c)."""

    gates = 4
    mode = "LSTM"

    def _layer(self, x: Tensor, states: list[Tensor], *weights: Any, **options: Any) -> tuple[Tensor, ...]:
        return F.lstm(x, (states[0], states[1]) if states else None, *weights, **options)

    def _joined(self, states: list[Tensor]) -> Any:
        return tuple(states)


class RNNCellBase(Module):
    """One step of a recurrent layer: weight_ih, weight_hh, bias_ih, bias_hh as for the layer, without a suffix."""

    gates: ClassVar[int] = 1

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        check_sizes(type(self).__name__, input_size=input_size, hidden_size=hidden_size)
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = self.gates * hidden_size
        self.weight_ih = uninitialized((rows, input_size), dtype, device)
        self.weight_hh = uninitialized((rows, hidden_size), dtype, device)
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, uninitialized((rows,), dtype, device) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """(batch, in) or (in), and the state before, zeros if None -> the state after"""
        if not isinstance(input, Tensor):
            raise not_a_tensor(type(self).__name__, "input", input)
        if input.ndim not in (1, 2) or input.shape[-1] != self.input_size:
            raise ValueError(f"{type(self).__name__}: input has shape {input.shape}; expected (batch, in) or (in), "
                             f"with {self.input_size} features")  # fmt: skip
        x = input.reshape(1, -1, self.input_size)
        states = [state.reshape(1, -1, self.hidden_size) for state in _parts(hx)]
        weights = [w.unsqueeze(0) for w in (self.weight_ih, self.weight_hh)]
        bias = cat([self.bias_ih, self.bias_hh]).unsqueeze(0) if self.bias else None
        last = self._step(x, states, *weights, bias)
        found = tuple(state.squeeze(0) if input.ndim == 2 else state.reshape(self.hidden_size) for state in last)
        return found if len(found) > 1 else found[0]

    def _step(self, x: Tensor, states: list[Tensor], *weights: Any) -> tuple[Tensor, ...]:
        raise NotImplementedError(f"{type(self).__name__} has no _step")

    def extra_repr(self) -> str:
        """The sizes."""
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else f", bias={self.bias}")


class RNNCell(RNNCellBase):
    """h' = tanh(W x + b + R h + b), or relu."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNNCell: nonlinearity is {nonlinearity!r}; expected 'tanh' or 'relu'")
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def _step(self, x: Tensor, states: list[Tensor], *weights: Any) -> tuple[Tensor, ...]:
        relu = [(RELU,)] if self.nonlinearity == "relu" else None
        return F.rnn(x, states[0] if states else None, *weights, activations=relu)[1:]

    def extra_repr(self) -> str:
        """The sizes, and what is not usual."""
        return super().extra_repr() + ("" if self.nonlinearity == "tanh" else f", nonlinearity={self.nonlinearity}")


class GRUCell(RNNCellBase):
    """One step of `GRU`."""

    gates = 3

    def _step(self, x: Tensor, states: list[Tensor], *weights: Any) -> tuple[Tensor, ...]:
        return F.gru(x, states[0] if states else None, *weights)[1:]


class LSTMCell(RNNCellBase):
    """One step of `LSTM`: hx and the result are pairs (h, c)."""

    gates = 4

    def _step(self, x: Tensor, states: list[Tensor], *weights: Any) -> tuple[Tensor, ...]:
        return F.lstm(x, (states[0], states[1]) if states else None, *weights)[1:]


def _parts(hx: Any) -> list[Tensor]:
    """The states before the first step; none for zeros."""
    return [] if hx is None else [hx] if isinstance(hx, Tensor) else list(hx)
