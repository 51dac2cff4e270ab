"""Counts each thread's work while kernels run: of OpenMP (thread_work, lab 7) and of CUDA (cuda_work.h, lab 8)."""
