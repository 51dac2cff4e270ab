"""Counts the work of each thread of a kernel: OpenMP's (thread_work, lab 7) and CUDA's (cuda_work.h, lab 8)."""
