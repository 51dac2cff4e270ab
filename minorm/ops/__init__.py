"""Differentiable operations. Each is one Function, with backward directly below forward."""
