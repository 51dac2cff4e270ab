"""Holds right functions of several lines, for LAB.provide: Cython and CUDA as text, and functions on models.

No student's process can read these files (see sealed/walls.py); `Sent` makes the judge send a single function.
"""
