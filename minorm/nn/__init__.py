"""Layers and losses. Names, arguments, initialisation and state_dict keys are PyTorch's."""

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
)
from minorm.nn.parameter import Parameter
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
