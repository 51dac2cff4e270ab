"""The work of each thread, counted while kernels run: of OpenMP (thread_work, lab 7), of CUDA (cuda_work.h, lab 8)."""
