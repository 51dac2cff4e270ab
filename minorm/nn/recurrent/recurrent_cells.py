"""RNNCell, LSTMCell and GRUCell: each computes one step of a recurrent layer in recurrent.py."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from minorm.functional import recurrent as F
from minorm.nn import init
from minorm.nn.attributes import MadeBy
from minorm.nn.module import Module
from minorm.nn.parameter import check_sizes, uninitialized
from minorm.nn.recurrent.recurrent import ARGUMENTS, KINDS, RELU, parts
from minorm.support.argument_errors import not_a_tensor
from minorm.support.documented import documented
from minorm.tensor.combining import cat
from minorm.tensor.tensor import Tensor


@documented(ARGUMENTS)
class RNNCellBase(Module):
    """h' = f(x, h): the base of RNNCell, GRUCell and LSTMCell, which compute one step. A subclass defines f.

    Example:
        >>> isinstance(nn.GRUCell(3, 5), nn.RNNCellBase)
        True
    """

    gates: ClassVar[int] = 1
    _made_by: ClassVar[MadeBy] = {
        "input_size": lambda cell: cell.weight_ih.shape[1],
        "hidden_size": lambda cell: cell.weight_hh.shape[1],
        "bias": lambda cell: cell.bias_ih is not None,
    }

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
        """Draw all weights again."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """Return the state after the step. input is (batch, in) or (in). hx is the state before the step; None means
        zeros.
        """
        if not isinstance(input, Tensor):
            raise not_a_tensor(type(self).__name__, "input", input)
        if input.ndim not in (1, 2) or input.shape[-1] != self.input_size:
            raise ValueError(f"{type(self).__name__}: input has shape {input.shape}; expected (batch, in) or (in), "
                             f"with {self.input_size} features")  # fmt: skip
        x = input.reshape(1, -1, self.input_size)
        states = [state.reshape(1, -1, self.hidden_size) for state in parts(hx)]
        weights = [w.unsqueeze(0) for w in (self.weight_ih, self.weight_hh)]
        bias = cat([self.bias_ih, self.bias_hh]).unsqueeze(0) if self.bias else None
        last = self._step(x, states, *weights, bias)
        found = tuple(state.squeeze(0) if input.ndim == 2 else state.reshape(self.hidden_size) for state in last)
        return found if len(found) > 1 else found[0]

    def _step(self, x: Tensor, states: list[Tensor], *weights: Any) -> tuple[Tensor, ...]:
        """cell(input, hx) returns the state after the step. input is (batch, I) or (I), with I = input_size. hx is the
        state before the step: {hx}, {each}(batch, H) or (H), with H = hidden_size. If hx is None, the state is zeros.
        The result has hx's shape. The parameters are weight_ih ({gates}H, I), weight_hh ({gates}H, H), and bias_ih and
        bias_hh ({gates}H){rows}. The starting values are uniform between -b and b, with b = 1 / sqrt(H). A call raises
        ValueError if the shapes do not fit together.

        Example:
            >>> cell = nn.{name}(3, 5)
            >>> {hx} = cell(mn.randn(4, 3))
            >>> {hx} = cell(mn.randn(4, 3), {hx})  # the second step
            >>> h.shape
            (4, 5)

        Written to ONNX as {operator} (opset 22); {source}.
        """
        raise NotImplementedError(f"{type(self).__name__} has no _step")

    def extra_repr(self) -> str:
        """Return the sizes as text for `repr`."""
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else f", bias={self.bias}")


@documented(ARGUMENTS, base=RNNCellBase._step, words=KINDS["RNN"] | {"operator": "RNN"})
class RNNCell(RNNCellBase):
    """h' = tanh(weight_ih @ x + bias_ih + weight_hh @ h + bias_hh), or relu instead of tanh: one step of an RNN."""

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
        """Return the sizes, and the options that differ from the defaults, as text for `repr`."""
        return super().extra_repr() + ("" if self.nonlinearity == "tanh" else f", nonlinearity={self.nonlinearity}")


@documented(ARGUMENTS, base=RNNCellBase._step, words=KINDS["GRU"] | {"operator": "GRU"})
class GRUCell(RNNCellBase):
    """h' = (1 - z) * n + z * h: one step of a GRU. The candidate n and the gates r and z are the same as in GRU."""

    gates = 3

    def _step(self, x: Tensor, states: list[Tensor], *weights: Any) -> tuple[Tensor, ...]:
        return F.gru(x, states[0] if states else None, *weights)[1:]


@documented(ARGUMENTS, base=RNNCellBase._step, words=KINDS["LSTM"] | {"operator": "LSTM"})
class LSTMCell(RNNCellBase):
    """c' = f * c + i * g, h' = o * tanh(c'): one step of an LSTM. The gates i, f, o and the candidate g are the same as
    in LSTM.
    """

    gates = 4

    def _step(self, x: Tensor, states: list[Tensor], *weights: Any) -> tuple[Tensor, ...]:
        return F.lstm(x, (states[0], states[1]) if states else None, *weights)[1:]
