"""Embedding and EmbeddingBag, which look up learned rows of a table, and Bilinear, a product of two inputs."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from minorm.functional import lookup as F
from minorm.functional.argument_texts import PLACE
from minorm.functional.linear import bilinear
from minorm.nn import init
from minorm.nn.attributes import MadeBy
from minorm.nn.module import Module
from minorm.nn.parameter import Parameter, check_sizes, uninitialized
from minorm.support.documented import arguments_of, documented
from minorm.tensor.tensor import Tensor

LAYER = {
    **PLACE,
    "num_embeddings": "the number of rows of the table: the words of a vocabulary",
    "embedding_dim": "the length of a row",
    "_weight": "the initial table, (num_embeddings, embedding_dim); None draws it. See `from_pretrained`",
    "_freeze": "True excludes the table from training",
}


class _Table(Module):
    _made_by: ClassVar[MadeBy] = {
        "num_embeddings": lambda table: table.weight.shape[0],
        "embedding_dim": lambda table: table.weight.shape[1],
    }
    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    weight: Parameter

    def _fill(self, padding_idx: int | None, weight: Tensor | None, dtype: Any, device: Any) -> None:
        check_sizes(type(self).__name__, num_embeddings=self.num_embeddings, embedding_dim=self.embedding_dim)
        shape = self.num_embeddings, self.embedding_dim
        self.padding_idx = padding_idx
        if weight is None:
            self.weight = uninitialized(shape, dtype, device)
            self.reset_parameters()
        elif weight.shape != shape:
            raise ValueError(f"{type(self).__name__}: weight has shape {weight.shape}; expected {shape}")
        else:
            self.weight = weight if isinstance(weight, Parameter) else Parameter(weight)

    def _as_setting(self, name: str, value: Any) -> Any:
        if name != "padding_idx" or value is None:
            return value
        rows = self.num_embeddings
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise TypeError(f"{type(self).__name__}: padding_idx is {value!r}; expected an int or None")
        if not -rows <= value < rows:
            raise ValueError(
                f"{type(self).__name__}: padding_idx is {value}; expected the number of one of the {rows} rows of "
                "weight"
            )
        return value % rows

    def reset_parameters(self) -> None:
        """Draw the rows again from the standard normal distribution; fill row padding_idx with zeros."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            self.weight.detach()[self.padding_idx] = 0.0

    def _shown(self, *names: str) -> str:
        """Return the sizes, and the arguments in `names` that differ from the defaults, as text for `repr`."""
        usual = {"padding_idx": None, "max_norm": None, "norm_type": 2, "scale_grad_by_freq": False, "sparse": False}
        given = {name: getattr(self, name) for name in names}
        return ", ".join(
            [f"{self.num_embeddings}, {self.embedding_dim}"]
            + [f"{name}={value!r}" for name, value in given.items() if name not in usual or value != usual[name]]
        )


def _table_shape(layer: type, embeddings: Any) -> tuple[int, int]:
    """Return the shape of a table; raise ValueError unless it has two axes."""
    if getattr(embeddings, "ndim", None) != 2:
        came = getattr(embeddings, "shape", type(embeddings).__name__)
        raise ValueError(f"{layer.__name__}.from_pretrained: embeddings is {came}; expected a Tensor of two axes, "
                         "(num_embeddings, embedding_dim)")  # fmt: skip
    rows, columns = embeddings.shape
    return rows, columns


@documented(LAYER | arguments_of(F.embedding))
class Embedding(_Table):
    """y = weight[input]: looks up a learned row for each word of a vocabulary.

    input holds integers of any shape (*); y is (*, embedding_dim). weight (num_embeddings, embedding_dim) is learned
    and starts from the standard normal distribution. A call raises IndexError if a number in input is not the index of
    a row, and TypeError if input does not hold integers.

    Example:
        >>> layer = nn.Embedding(10, 3)
        >>> layer(mn.tensor([[1, 2, 2], [4, 0, 9]])).shape
        (2, 3, 3)
        >>> layer.weight.shape
        (10, 3)

    Written to ONNX as Gather (opset 13).
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self._fill(padding_idx, _weight, dtype, device)
        self.weight.requires_grad = not _freeze

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None,
                        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                        sparse: bool = False) -> Embedding:  # fmt: skip
        """Make an Embedding whose table is `embeddings`. The table is trained only if freeze=False."""
        rows, columns = _table_shape(cls, embeddings)
        return cls(rows, columns, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings, freeze)

    def forward(self, input: Tensor) -> Tensor:
        """Map integers (*) to (*, embedding_dim)."""
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        """Return the sizes, and the options that differ from the defaults, as text for `repr`."""
        return self._shown("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")


@documented(LAYER | arguments_of(F.embedding_bag))
class EmbeddingBag(_Table):
    """y[b] = sum, mean or max of weight[i] over all numbers i in bag b. A bag can hold the words of a text.

    The call is layer(input, offsets, per_sample_weights). input holds integers, either (bags, n) or (total) with all
    bags one after the other. In the second case offsets holds the position in input at which each bag begins.
    per_sample_weights holds a factor for each number, and is only for mode "sum". y is (bags, embedding_dim), with
    zeros for an empty bag. weight (num_embeddings, embedding_dim) is learned and starts from the standard normal
    distribution. A call raises IndexError if a number in input is not the index of a row, and ValueError unless offsets
    begins with 0, never falls and ends within input.

    Example:
        >>> layer = nn.EmbeddingBag(10, 3)
        >>> layer(mn.tensor([1, 2, 2, 4]), mn.tensor([0, 3])).shape  # bags of three and of one
        (2, 3)

    Written to ONNX as Gather (opset 13) and ReduceSum (opset 13).
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.mode, self.sparse, self.include_last_offset = mode, sparse, include_last_offset
        self._fill(padding_idx, _weight, dtype, device)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None,
                        norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean",
                        sparse: bool = False, include_last_offset: bool = False,
                        padding_idx: int | None = None) -> EmbeddingBag:  # fmt: skip
        """Make an EmbeddingBag whose table is `embeddings`. The table is trained only if freeze=False."""
        rows, columns = _table_shape(cls, embeddings)
        bag = cls(rows, columns, max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings,
                  include_last_offset, padding_idx)  # fmt: skip
        bag.weight.requires_grad = not freeze
        return bag

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """Map integers (bags, n), or integers (total) with offsets, to (bags, embedding_dim)."""
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse,
            per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the sizes, the mode, and the options that differ from the defaults, as text for `repr`."""
        return self._shown("max_norm", "norm_type", "scale_grad_by_freq", "mode", "padding_idx")


@documented(
    PLACE,
    in1_features="the length of the last axis of input1",
    in2_features="the length of the last axis of input2",
    out_features="the length of the last axis of y",
    bias="False leaves the bias out",
)
class Bilinear(Module):
    """y[..., o] = input1[..., :] @ weight[o] @ input2[..., :] + bias[o]: weighted products of all pairs of features.

    layer(input1, input2) takes input1 (..., in1_features) and input2 (..., in2_features); y is (..., out_features).
    weight (out_features, in1_features, in2_features) and bias (out_features) are learned. Their starting values are
    uniform between -b and b, with b = 1 / sqrt(in1_features). A call raises ValueError if the shapes do not fit
    together.

    Example:
        >>> nn.Bilinear(3, 4, 2)(mn.randn(8, 3), mn.randn(8, 4)).shape
        (8, 2)

    Written to ONNX as MatMul (opset 13), Mul (opset 14), ReduceSum (opset 13) and Add (opset 14).
    """

    _made_by: ClassVar[MadeBy] = {
        "in1_features": lambda layer: layer.weight.shape[1],
        "in2_features": lambda layer: layer.weight.shape[2],
        "out_features": lambda layer: layer.weight.shape[0],
    }

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        check_sizes("Bilinear", in1_features=in1_features, in2_features=in2_features, out_features=out_features)
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = uninitialized((out_features, in1_features, in2_features), dtype, device)
        self.register_parameter("bias", uninitialized((out_features,), dtype, device) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias again."""
        bound = self.in1_features**-0.5
        for parameter in self.parameters(recurse=False):
            init.uniform_(parameter, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """See `F.bilinear`."""
        return bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return in1_features, in2_features, out_features and bias as text for `repr`."""
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
