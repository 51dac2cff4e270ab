"""Layers and losses. Names, arguments, initialisation and state_dict keys are PyTorch's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minorm.nn import init, utils
from minorm.nn.container import ModuleDict, ModuleList, Sequential
from minorm.nn.layers.activation import (
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
from minorm.nn.layers.convolution import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from minorm.nn.layers.dropout import Dropout
from minorm.nn.layers.linear import Flatten, Identity, Linear, Unflatten
from minorm.nn.layers.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
)
from minorm.nn.losses.loss import BCEWithLogitsLoss, CrossEntropyLoss, L1Loss, MSELoss, NLLLoss, SmoothL1Loss
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
from minorm.support import lazy

# Names that are loaded on first use, by the module that defines them.
LATER = {
    "functional": "",
    "modules": "",
    "parallel": "",
    "layers.lazy_layers": (
        "LazyLinear LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d "
        "LazyConvTranspose3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyInstanceNorm1d "
        "LazyInstanceNorm2d LazyInstanceNorm3d"
    ),
    "summarizing": "summary",
    "layers.attention": "MultiheadAttention",
    "layers.channel_dropout": "Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout",
    "layers.distances": "CosineSimilarity PairwiseDistance",
    "losses.imbalanced": "DiceLoss FocalLoss",
    "losses.likelihoods": "BCELoss CTCLoss GaussianNLLLoss HuberLoss KLDivLoss PoissonNLLLoss",
    "layers.lookup": "Bilinear Embedding EmbeddingBag",
    "losses.margins": (
        "CosineEmbeddingLoss HingeEmbeddingLoss MarginRankingLoss MultiLabelMarginLoss MultiLabelSoftMarginLoss "
        "MultiMarginLoss SoftMarginLoss TripletMarginLoss TripletMarginWithDistanceLoss"
    ),
    "norm.accumulation": "accumulate_stats",
    "norm.filter_response": "FilterResponseNorm2d TLU",
    "norm.frozen": "FrozenBatchNorm2d",
    "norm.ghost": "GhostBatchNorm",
    "norm.renorm": "BatchRenorm1d BatchRenorm2d BatchRenorm3d",
    "norm.response": "CrossMapLRN2d",
    "layers.padding": (
        "ConstantPad1d ConstantPad2d ConstantPad3d ZeroPad1d ZeroPad2d ZeroPad3d ReflectionPad1d ReflectionPad2d "
        "ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d CircularPad1d CircularPad2d CircularPad3d"
    ),
    "parameter_containers": "ParameterDict ParameterList",
    "layers.piecewise": "Hardshrink Hardtanh PReLU RReLU Softshrink Threshold",
    "layers.rearranging": (
        "ChannelShuffle Fold PixelShuffle PixelUnshuffle Unfold Upsample UpsamplingBilinear2d UpsamplingNearest2d"
    ),
    "recurrent.recurrent": "GRU LSTM RNN RNNBase",
    "recurrent.recurrent_cells": "GRUCell LSTMCell RNNCell RNNCellBase",
    "layers.smooth": "CELU GLU LogSigmoid Mish SELU Softmax2d Softmin Softsign Tanhshrink",
    "layers.stochastic_depth": "StochasticDepth",
    "layers.transformer": (
        "Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer"
    ),
    "layers.volumes": (
        "AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d LPPool1d LPPool2d LPPool3d "
        "MaxUnpool1d MaxUnpool2d MaxUnpool3d"
    ),
}
__getattr__, __dir__ = lazy.names(__name__, LATER)

if TYPE_CHECKING:
    from minorm.nn import functional, parallel
    from minorm.nn.layers.attention import MultiheadAttention
    from minorm.nn.layers.channel_dropout import AlphaDropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout
    from minorm.nn.layers.distances import CosineSimilarity, PairwiseDistance
    from minorm.nn.layers.lazy_layers import (
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
    from minorm.nn.layers.lookup import Bilinear, Embedding, EmbeddingBag
    from minorm.nn.layers.padding import (
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
    from minorm.nn.layers.piecewise import Hardshrink, Hardtanh, PReLU, RReLU, Softshrink, Threshold
    from minorm.nn.layers.rearranging import (
        ChannelShuffle,
        Fold,
        PixelShuffle,
        PixelUnshuffle,
        Unfold,
        Upsample,
        UpsamplingBilinear2d,
        UpsamplingNearest2d,
    )
    from minorm.nn.layers.smooth import CELU, GLU, SELU, LogSigmoid, Mish, Softmax2d, Softmin, Softsign, Tanhshrink
    from minorm.nn.layers.stochastic_depth import StochasticDepth
    from minorm.nn.layers.transformer import (
        Transformer,
        TransformerDecoder,
        TransformerDecoderLayer,
        TransformerEncoder,
        TransformerEncoderLayer,
    )
    from minorm.nn.layers.volumes import (
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
    from minorm.nn.losses.imbalanced import DiceLoss, FocalLoss
    from minorm.nn.losses.likelihoods import BCELoss, CTCLoss, GaussianNLLLoss, HuberLoss, KLDivLoss, PoissonNLLLoss
    from minorm.nn.losses.margins import (
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
    from minorm.nn.parameter_containers import ParameterDict, ParameterList
    from minorm.nn.recurrent.recurrent import GRU, LSTM, RNN, RNNBase
    from minorm.nn.recurrent.recurrent_cells import GRUCell, LSTMCell, RNNCell, RNNCellBase
    from minorm.nn.summarizing import summary
