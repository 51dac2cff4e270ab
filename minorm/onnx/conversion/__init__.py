"""A model at another opset."""
