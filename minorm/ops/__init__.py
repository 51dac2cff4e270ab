"""Differentiable operations, one Function each: forward, and backward directly below it."""
