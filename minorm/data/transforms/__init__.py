"""Transforms of images, with torchvision's names: `transform(images, generator) -> images` on a whole batch at once.

images     an array N x C x H x W, which is never changed in place; or one image C x H x W, or a Tensor
generator  the np.random.Generator for all random choices, which are drawn anew for each image. Generators in the same
           state give the same batch. If `generator` is missing, the generator that `manual_seed` sets is used

A DataLoader calls its `transform` with both arguments; a dataset may call a transform with an image only. Any function
of images is a transform. It gets the generator if it has an argument `generator`, or a second argument without a
default.
"""

from __future__ import annotations

from minorm.data.transforms.auto_augment import RandAugment, TrivialAugmentWide
from minorm.data.transforms.blurring import GaussianBlur
from minorm.data.transforms.color import ColorJitter, Grayscale, Normalize, RandomGrayscale
from minorm.data.transforms.compose import Compose, Lambda, RandomApply, RandomChoice
from minorm.data.transforms.converting import ToDtype, ToImage, ToTensor
from minorm.data.transforms.erasing import RandomErasing
from minorm.data.transforms.geometry import CenterCrop, Pad, RandomCrop, RandomHorizontalFlip, RandomVerticalFlip
from minorm.data.transforms.perspective import RandomPerspective
from minorm.data.transforms.resized_crops import InterpolationMode, RandomResizedCrop, Resize
from minorm.data.transforms.transform import ImageTransform, Transform
from minorm.data.transforms.warping import RandomAffine, RandomRotation

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "GaussianBlur",
    "Grayscale",
    "ImageTransform",
    "InterpolationMode",
    "Lambda",
    "Normalize",
    "Pad",
    "RandAugment",
    "RandomAffine",
    "RandomApply",
    "RandomChoice",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomPerspective",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomVerticalFlip",
    "Resize",
    "ToDtype",
    "ToImage",
    "ToTensor",
    "Transform",
    "TrivialAugmentWide",
]
