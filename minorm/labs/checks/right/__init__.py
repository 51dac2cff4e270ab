"""Right functions that are more than a line, for LAB.provide: Cython and CUDA as text, and what runs on models.

Nobody's process can read these files (see sealed/walls.py); of what `Sent` wraps the judge sends one function.
"""
