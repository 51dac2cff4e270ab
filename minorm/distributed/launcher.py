"""Reads from the environment how many processes the launcher started, and the number of this process.

The mpiexec of MPICH and Intel MPI sets PMI_SIZE and PMI_RANK. The mpiexec of Open MPI sets OMPI_COMM_WORLD_SIZE and
OMPI_COMM_WORLD_RANK. `srun --mpi=pmix` sets PMIX_RANK, and SLURM sets the number of tasks. If PMIX_RANK is missing, the
number of tasks is ignored, because the program does not run as one of these tasks.
"""

from __future__ import annotations

import os

VARIABLES = (
    ("PMI_SIZE", "PMI_RANK"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("SLURM_NTASKS", "PMIX_RANK"),
)


def launched() -> tuple[int, int]:
    """Return (this process's number, the number of processes), or (0, 1) if there is no launcher."""
    for size, rank in VARIABLES:
        numbers = os.environ.get(rank, ""), os.environ.get(size, "")
        if all(number.isdecimal() for number in numbers):
            return int(numbers[0]), int(numbers[1])
    return 0, 1
