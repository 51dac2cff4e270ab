"""Differentiable operations, one Function each, with backward directly below forward."""
