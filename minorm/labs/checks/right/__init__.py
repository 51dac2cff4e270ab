"""Holds right functions of several lines, for LAB.provide: Cython and CUDA as text, and functions on models.

No student's process can read these files (see sealed/walls.py). If a function is wrapped in `Sent`, the judge sends the
source of this function alone.
"""
