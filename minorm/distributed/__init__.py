"""Spreads a training run over processes; any number of processes gives the same bits. See docs/distributed.md.

    dist.run(train)              train(group) on every rank; mpiexec -n 4 python program.py
    dist.simulate(4, train)      train(group) on four ranks in one process, without MPI
    dist.DistributedDataParallel(model, group)

mpiexec starts *processes*. A *rank* is one of `group.size` equal parts of the work, with its own model; a process runs
one rank or several. The number of ranks determines the bits; the number of processes affects only the time.
"""

from minorm.diagnosis.finite import NonFiniteLoss
from minorm.distributed.data_parallel import DistributedDataParallel
from minorm.distributed.job import run
from minorm.distributed.meeting import RankError
from minorm.distributed.process_group import Group
from minorm.distributed.simulation import simulate

__all__ = ["DistributedDataParallel", "Group", "NonFiniteLoss", "RankError", "run", "simulate"]
