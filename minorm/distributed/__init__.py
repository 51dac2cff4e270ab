"""Distributes a training run over processes. The result has the same bits for any number of processes.

See docs/distributed.md.

    dist.run(train)              calls train(group) on every rank; start it with mpiexec -n 4 python program.py
    dist.simulate(4, train)      calls train(group) on four ranks in one process, without MPI
    dist.DistributedDataParallel(model, group)

mpiexec starts *processes*. A *rank* is one of `group.size` equal parts of the work, with its own copy of the model. A
process runs one rank or several ranks. The number of ranks determines the bits of the results; the number of processes
only affects the time.
"""

from minorm.diagnosis.finite import NonFiniteLoss
from minorm.distributed.data_parallel import DistributedDataParallel
from minorm.distributed.job import run
from minorm.distributed.meeting import RankError
from minorm.distributed.process_group import Group
from minorm.distributed.simulation import simulate

__all__ = ["DistributedDataParallel", "Group", "NonFiniteLoss", "RankError", "run", "simulate"]
