"""All families: importing their files enters them."""

from tests.onnx.strangers import attention, classification, generation, recurrence, segmentation, tables  # noqa: F401
from tests.onnx.strangers.network import FAMILIES

__all__ = ["FAMILIES"]
