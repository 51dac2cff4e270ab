"""The normalization layers, one file for each family. base.py has the code that the families share."""

from minorm.nn.norm.batch import BatchNorm1d, BatchNorm2d, BatchNorm3d
from minorm.nn.norm.general import MeanVarianceNorm, Normalization
from minorm.nn.norm.group import GroupNorm
from minorm.nn.norm.instance import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from minorm.nn.norm.layer import LayerNorm, RMSNorm
from minorm.nn.norm.response import LocalResponseNorm
from minorm.nn.norm.sync import SyncBatchNorm
