"""Convert a model to another opset."""
