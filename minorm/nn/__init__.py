"""Layers and losses. Names, arguments, initialisation and state_dict keys are PyTorch's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minorm import lazy
from minorm.nn import init, utils
from minorm.nn.activation import (
    ELU,
    GELU,
    Hardsigmoid,
    Hardswish,
    LeakyReLU,
    LogSoftmax,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from minorm.nn.container import ModuleDict, ModuleList, Sequential
from minorm.nn.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from minorm.nn.dropout import Dropout
from minorm.nn.linear import Flatten, Identity, Linear, Unflatten
from minorm.nn.loss import (
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
)
from minorm.nn.module import Module
from minorm.nn.norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    LocalResponseNorm,
    MeanVarianceNorm,
    Normalization,
    RMSNorm,
    SyncBatchNorm,
)
from minorm.nn.parameter import Buffer, Parameter
from minorm.nn.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
)

# What is loaded when it is asked for, by the module that has it.
LATER = {
    "functional": "",
    "modules": "",
    "parallel": "",
    "lazy_layers": (
        "LazyLinear LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d "
        "LazyConvTranspose3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyInstanceNorm1d "
        "LazyInstanceNorm2d LazyInstanceNorm3d"
    ),
    "summarizing": "summary",
    "attention": "MultiheadAttention",
    "channel_dropout": "Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout",
    "distances": "CosineSimilarity PairwiseDistance",
    "likelihoods": "BCELoss CTCLoss GaussianNLLLoss HuberLoss KLDivLoss PoissonNLLLoss",
    "lookup": "Bilinear Embedding EmbeddingBag",
    "margins": (
        "CosineEmbeddingLoss HingeEmbeddingLoss MarginRankingLoss MultiLabelMarginLoss MultiLabelSoftMarginLoss "
        "MultiMarginLoss SoftMarginLoss TripletMarginLoss TripletMarginWithDistanceLoss"
    ),
    "norm.accumulation": "accumulate_stats",
    "norm.filter_response": "FilterResponseNorm2d TLU",
    "norm.frozen": "FrozenBatchNorm2d",
    "norm.ghost": "GhostBatchNorm",
    "norm.renorm": "BatchRenorm1d BatchRenorm2d BatchRenorm3d",
    "norm.response": "CrossMapLRN2d",
    "padding": (
        "ConstantPad1d ConstantPad2d ConstantPad3d ZeroPad1d ZeroPad2d ZeroPad3d ReflectionPad1d ReflectionPad2d "
        "ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d CircularPad1d CircularPad2d CircularPad3d"
    ),
    "parameter_containers": "ParameterDict ParameterList",
    "piecewise": "Hardshrink Hardtanh PReLU RReLU Softshrink Threshold",
    "rearranging": (
        "ChannelShuffle Fold PixelShuffle PixelUnshuffle Unfold Upsample UpsamplingBilinear2d UpsamplingNearest2d"
    ),
    "recurrent": "GRU LSTM RNN RNNBase",
    "recurrent_cells": "GRUCell LSTMCell RNNCell RNNCellBase",
    "smooth": "CELU GLU LogSigmoid Mish SELU Softmax2d Softmin Softsign Tanhshrink",
    "transformer": (
        "Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer"
    ),
    "volumes": (
        "AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d LPPool1d LPPool2d LPPool3d "
        "MaxUnpool1d MaxUnpool2d MaxUnpool3d"
    ),
}
__getattr__, __dir__ = lazy.names(__name__, LATER)

if TYPE_CHECKING:
    from minorm.nn import functional, parallel
    from minorm.nn.attention import MultiheadAttention
    from minorm.nn.channel_dropout import AlphaDropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout
    from minorm.nn.distances import CosineSimilarity, PairwiseDistance
    from minorm.nn.lazy_layers import (
        LazyBatchNorm1d,
        LazyBatchNorm2d,
        LazyBatchNorm3d,
        LazyConv1d,
        LazyConv2d,
        LazyConv3d,
        LazyConvTranspose1d,
        LazyConvTranspose2d,
        LazyConvTranspose3d,
        LazyInstanceNorm1d,
        LazyInstanceNorm2d,
        LazyInstanceNorm3d,
        LazyLinear,
    )
    from minorm.nn.likelihoods import BCELoss, CTCLoss, GaussianNLLLoss, HuberLoss, KLDivLoss, PoissonNLLLoss
    from minorm.nn.lookup import Bilinear, Embedding, EmbeddingBag
    from minorm.nn.margins import (
        CosineEmbeddingLoss,
        HingeEmbeddingLoss,
        MarginRankingLoss,
        MultiLabelMarginLoss,
        MultiLabelSoftMarginLoss,
        MultiMarginLoss,
        SoftMarginLoss,
        TripletMarginLoss,
        TripletMarginWithDistanceLoss,
    )
    from minorm.nn.norm.accumulation import accumulate_stats
    from minorm.nn.norm.filter_response import TLU, FilterResponseNorm2d
    from minorm.nn.norm.frozen import FrozenBatchNorm2d
    from minorm.nn.norm.ghost import GhostBatchNorm
    from minorm.nn.norm.renorm import BatchRenorm1d, BatchRenorm2d, BatchRenorm3d
    from minorm.nn.norm.response import CrossMapLRN2d
    from minorm.nn.padding import (
        CircularPad1d,
        CircularPad2d,
        CircularPad3d,
        ConstantPad1d,
        ConstantPad2d,
        ConstantPad3d,
        ReflectionPad1d,
        ReflectionPad2d,
        ReflectionPad3d,
        ReplicationPad1d,
        ReplicationPad2d,
        ReplicationPad3d,
        ZeroPad1d,
        ZeroPad2d,
        ZeroPad3d,
    )
    from minorm.nn.parameter_containers import ParameterDict, ParameterList
    from minorm.nn.piecewise import Hardshrink, Hardtanh, PReLU, RReLU, Softshrink, Threshold
    from minorm.nn.rearranging import (
        ChannelShuffle,
        Fold,
        PixelShuffle,
        PixelUnshuffle,
        Unfold,
        Upsample,
        UpsamplingBilinear2d,
        UpsamplingNearest2d,
    )
    from minorm.nn.recurrent import GRU, LSTM, RNN, RNNBase
    from minorm.nn.recurrent_cells import GRUCell, LSTMCell, RNNCell, RNNCellBase
    from minorm.nn.smooth import CELU, GLU, SELU, LogSigmoid, Mish, Softmax2d, Softmin, Softsign, Tanhshrink
    from minorm.nn.summarizing import summary
    from minorm.nn.transformer import (
        Transformer,
        TransformerDecoder,
        TransformerDecoderLayer,
        TransformerEncoder,
        TransformerEncoderLayer,
    )
    from minorm.nn.volumes import (
        AdaptiveAvgPool3d,
        AdaptiveMaxPool1d,
        AdaptiveMaxPool2d,
        AdaptiveMaxPool3d,
        LPPool1d,
        LPPool2d,
        LPPool3d,
        MaxUnpool1d,
        MaxUnpool2d,
        MaxUnpool3d,
    )
