"""RNN, LSTM and GRU with PyTorch's names and weights. The layers call minorm.functional.recurrent."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from minorm.functional import recurrent as F
from minorm.functional.argument_texts import PLACE
from minorm.functional.dropout import check_probability, dropout
from minorm.nn import init
from minorm.nn.attributes import MadeBy
from minorm.nn.module import Module
from minorm.nn.parameter import Parameter, check_sizes, uninitialized
from minorm.nn.utils.rnn import PackedSequence, pack_padded, padded
from minorm.support.argument_errors import kind_of, not_a_tensor
from minorm.support.documented import documented
from minorm.tensor.combining import cat, stack
from minorm.tensor.tensor import Tensor

RELU = F.Gate("Relu")
ARGUMENTS = {
    **PLACE,
    "input_size": "the number of features of each step of the input",
    "hidden_size": "the number of features of the state",
    "num_layers": "the number of stacked layers; each layer reads the output of the layer before",
    "nonlinearity": '"tanh" or "relu"',
    "bias": "False leaves all biases out",
    "batch_first": (
        "True takes and returns (batch, steps, features) instead of (steps, batch, features); states keep their shape"
    ),
    "dropout": "the probability of a 0 in the output of each layer except the last, in training; 0 to 1",
    "bidirectional": "True also reads each sequence from its end, with separate weights, and joins the features",
    "proj_size": "0, since neither ONNX nor minorm has projections; put a Linear behind the layer",
}
# The words that differ in the docstrings of the three layers, and of their cells
KINDS = {
    "RNN": {"hx": "h", "last": "h_n", "each": "", "gates": "", "rows": "", "source": "Elman 1990"},
    "GRU": {
        "hx": "h",
        "last": "h_n",
        "each": "",
        "gates": "3 * ",
        "rows": ", with rows for r, z and n in this order",
        "source": "Cho et al. 2014, arXiv:1406.1078",
    },
    "LSTM": {
        "hx": "(h, c)",
        "last": "(h_n, c_n)",
        "each": "each ",
        "gates": "4 * ",
        "rows": ", with rows for i, f, g and o in this order",
        "source": "Hochreiter and Schmidhuber 1997",
    },
}


@documented(ARGUMENTS)
class RNNBase(Module):
    """h' = f(x, h): the base of RNN, GRU and LSTM. Each step changes the state h, and a subclass defines f.

    Example:
        >>> isinstance(nn.GRU(3, 5), nn.RNNBase)
        True
    """

    gates: ClassVar[int] = 1
    _count: ClassVar[int] = 1  # the number of states
    mode: str = "RNN"
    _made_by: ClassVar[MadeBy] = {
        "input_size": lambda layer: layer.weight_ih_l0.shape[1],
        "hidden_size": lambda layer: layer.weight_hh_l0.shape[1],
        "num_layers": lambda layer: sum(f"weight_ih_l{i}" in vars(layer) for i in range(len(vars(layer)))),
        "bias": lambda layer: "bias_ih_l0" in vars(layer),
        "bidirectional": lambda layer: "weight_ih_l0_reverse" in vars(layer),
    }

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
            raise NotImplementedError(
                f"{name}: proj_size is {proj_size}; expected 0, because neither ONNX nor minorm has projections; put "
                "an nn.Linear behind the layer"
            )
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
        """Draw all weights again."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Do nothing: the weights already have the order that the kernels take."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters as a list of lists, with an inner list for each layer and direction."""
        names = ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if self.bias else ()))
        ends = [end for layer in range(self.num_layers) for end in self._ends(layer)]
        return [[getattr(self, f"{name}_{end}") for name in names] for end in ends]

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Return (output, h_n), or (output, (h_n, c_n)) for an LSTM."""
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
        states = [state.unsqueeze(1) if single else state for state in self._first(hx)]
        y, last = self._run(x, states, None)
        if single:
            return y.squeeze(1), self._joined([state.squeeze(1) for state in last])
        return y.transpose(0, 1) if self.batch_first else y, self._joined(last)

    def _packed(self, packed: PackedSequence, hx: Any) -> Any:
        x, lengths = padded(packed)
        order, back = packed.sorted_indices, packed.unsorted_indices
        states = [state if order is None else state[:, order] for state in self._first(hx)]
        y, last = self._run(x, states, lengths)
        last = [state if back is None else state[:, back] for state in last]
        return PackedSequence(pack_padded(y, packed.batch_sizes), *packed[1:]), self._joined(last)

    def _first(self, hx: Any) -> list[Tensor]:
        """Return the states before the first step as a list. Raise TypeError for a wrong number of states."""
        states = parts(hx)
        if len(states) not in (0, self._count):
            expected = "a Tensor, h_0" if self._count == 1 else "a pair of Tensors, (h_0, c_0)"
            raise TypeError(f"{type(self).__name__}: hx is {kind_of(hx)}; expected {expected}")
        return states

    def _run(self, x: Tensor, states: list[Tensor], lengths: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """Run all layers on x (steps, batch, in)."""
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
        """layer(input, hx) returns (output, {last}). I is input_size, H is hidden_size, and D is 2 if bidirectional,
        else 1:

            input    (steps, batch, I), or (steps, I), or a PackedSequence; see batch_first
            hx       {hx}, {each}(num_layers * D, batch, H): the state before the first step; None means zeros
            output   the h of the last layer after each step: (steps, batch, D * H), or in the form of input

        {last} is the state after the last step and has hx's shape. The parameters of each layer k are weight_ih_lk
        ({gates}H, I), weight_hh_lk ({gates}H, H), and bias_ih_lk and bias_hh_lk ({gates}H){rows}. From the second layer
        on, weight_ih_lk is ({gates}H, D * H). The names for the reverse direction end in _reverse. The starting values
        are uniform between -b and b, with b = 1 / sqrt(H). A call raises ValueError if the shapes do not fit together.

        Example:
            >>> layer = nn.{name}(3, 5, num_layers=2)
            >>> output, {last} = layer(mn.randn(7, 4, 3))  # 7 steps of 4 sequences
            >>> output.shape, h_n.shape
            ((7, 4, 5), (2, 4, 5))

        Written to ONNX as {name} (opset 22); {source}.
        """
        raise NotImplementedError(f"{type(self).__name__} has no _layer")

    def _joined(self, states: list[Tensor]) -> Any:
        return states[0]

    def extra_repr(self) -> str:
        """Return the sizes, and the options that differ from the defaults, as text for `repr`."""
        text = f"{self.input_size}, {self.hidden_size}"
        usual = (("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0.0), ("bidirectional", False))
        return text + "".join(f", {n}={getattr(self, n)}" for n, value in usual if getattr(self, n) != value)


@documented(ARGUMENTS, base=RNNBase._layer, words=KINDS["RNN"])
class RNN(RNNBase):
    """h' = tanh(weight_ih @ x + bias_ih + weight_hh @ h + bias_hh) at each step, or relu instead of tanh."""

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


@documented(ARGUMENTS, base=RNNBase._layer, words=KINDS["GRU"])
class GRU(RNNBase):
    """h' = (1 - z) * n + z * h at each step, with a candidate n and gates r and z between 0 and 1:

        r, z = sigmoid(W x + b + R h + b')        n = tanh(W x + b + r * (R h + b'))

    W, b, R, b' are weight_ih, bias_ih, weight_hh, bias_hh.
    """

    gates = 3
    mode = "GRU"

    def _layer(self, x: Tensor, states: list[Tensor], *weights: Any, **options: Any) -> tuple[Tensor, ...]:
        return F.gru(x, states[0] if states else None, *weights, **options)


@documented(ARGUMENTS, base=RNNBase._layer, words=KINDS["LSTM"])
class LSTM(RNNBase):
    """c' = f * c + i * g, h' = o * tanh(c') at each step, with a candidate g and gates i, f and o between 0 and 1:

        i, f, o = sigmoid(W x + b + R h + b')        g = tanh(W x + b + R h + b')

    W, b, R, b' are weight_ih, bias_ih, weight_hh, bias_hh.
    """

    gates = 4
    _count = 2
    mode = "LSTM"

    def _layer(self, x: Tensor, states: list[Tensor], *weights: Any, **options: Any) -> tuple[Tensor, ...]:
        return F.lstm(x, (states[0], states[1]) if states else None, *weights, **options)

    def _joined(self, states: list[Tensor]) -> Any:
        return tuple(states)


def parts(hx: Any) -> list[Tensor]:
    """Return the states before the first step as a list. The list is empty if hx is None, which means zeros."""
    return [] if hx is None else [hx] if isinstance(hx, Tensor) else list(hx)
