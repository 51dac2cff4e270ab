"""Networks for images: small networks, and networks with torchvision's keys, which can load torchvision's weights.

minorm contains no weights: docs/how-to/get-pretrained-weights.md says where to get them.
"""

from minorm.models.by_name import BY_NAME, SMALLEST, build
from minorm.models.convnext import convnext_tiny
from minorm.models.efficientnet import efficientnet_b0
from minorm.models.mobilenet import mobilenet_v2
from minorm.models.resnet import resnet18, resnet34, resnet50
from minorm.models.small import digits_cnn, lenet, norms_cnn, resnet20
from minorm.models.vision_transformer import VisionTransformer, interpolate_embeddings, vit_tiny

__all__ = [
    "BY_NAME",
    "SMALLEST",
    "VisionTransformer",
    "build",
    "convnext_tiny",
    "digits_cnn",
    "efficientnet_b0",
    "interpolate_embeddings",
    "lenet",
    "mobilenet_v2",
    "norms_cnn",
    "resnet18",
    "resnet20",
    "resnet34",
    "resnet50",
    "vit_tiny",
]
