"""Differentiable operations. Each operation is one Function, whose backward is directly below its forward."""
