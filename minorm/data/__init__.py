"""Datasets in memory, readers for common files, transforms, and the DataLoader. Nothing here uses a network."""

from __future__ import annotations

from minorm.data.cifar import load_cifar10
from minorm.data.collate import default_collate
from minorm.data.dataset import (
    ArrayDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)
from minorm.data.digits import load_digits, split_digits
from minorm.data.folder import ImageFolder
from minorm.data.folds import k_fold, stratified_k_fold
from minorm.data.idx import load_fashion_mnist, load_mnist, read_idx
from minorm.data.loader import DataLoader
from minorm.data.mixing import CutMix, MixUp
from minorm.data.npz import load_npz
from minorm.data.pictures.decoding import BrokenImage, read_image
from minorm.data.prefetching import prefetch
from minorm.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from minorm.data.splits import load_folder
from minorm.data.transforms import Compose, Normalize, RandomCrop, RandomHorizontalFlip
from minorm.support import elsewhere

__getattr__ = elsewhere.absent(__name__)

__all__ = [
    "ArrayDataset",
    "BatchSampler",
    "BrokenImage",
    "Compose",
    "ConcatDataset",
    "CutMix",
    "DataLoader",
    "Dataset",
    "ImageFolder",
    "IterableDataset",
    "MixUp",
    "Normalize",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "default_collate",
    "k_fold",
    "load_cifar10",
    "load_digits",
    "load_fashion_mnist",
    "load_folder",
    "load_mnist",
    "load_npz",
    "prefetch",
    "random_split",
    "read_idx",
    "read_image",
    "split_digits",
    "stratified_k_fold",
]
