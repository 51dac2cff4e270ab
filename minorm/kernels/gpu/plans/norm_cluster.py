"""Launches the kernels of norm_cluster.cu, on devices whose blocks form clusters (compute capability 9.0 and newer).

cluster_plan.py does the arithmetic. norm_forward.py and norm_backward.py ask here first.
"""

from __future__ import annotations

import functools
from typing import Any

import cupy
import numpy as np

from minorm.kernels.gpu.plans import cluster_plan, norm_plan
from minorm.kernels.gpu.plans.norm_arguments import Array, Type, scalars
from minorm.kernels.gpu.plans.structs import Struct
from minorm.kernels.gpu.program import Program
from minorm.normalization.equation import Equation
from minorm.normalization.nest import Nest

cluster_program = Program("norm_cluster.cu")

FIRST = 90  # the first compute capability with clusters


@functools.cache
def available() -> bool:
    """Return True if every GPU of this machine has clusters, and blocks with enough shared memory for the plans."""
    devices = [cupy.cuda.Device(index) for index in range(cupy.cuda.runtime.getDeviceCount())]
    return all(
        int(device.compute_capability) >= FIRST
        and device.attributes["MaxSharedMemoryPerBlockOptin"] > cluster_plan.MOST + (2 << 10)
        for device in devices
    )


def forward_clusters(
    nest: Nest, storage: Type, compute: Type, aligned: bool, residual: bool, in_registers: bool
) -> cluster_plan.Clusters | None:
    if not available():
        return None
    return cluster_plan.forward(
        nest, storage.itemsize, aligned, residual, norm_plan.MOST_THREADS[compute.itemsize], in_registers
    )


def backward_clusters(
    nest: Nest, storage: Type, compute: Type, aligned: bool, relu: bool, in_registers: bool
) -> cluster_plan.Clusters | None:
    if not available():
        return None
    return cluster_plan.backward(
        nest, storage.itemsize, aligned, relu, norm_plan.MOST_THREADS[compute.itemsize], in_registers
    )


def forward(
    clusters: cluster_plan.Clusters,
    storage: Type,
    compute: Type,
    parameter: Type,
    running: Type,
    equation: Equation,
    ending: int,
) -> Any:
    """Return the plan of the forward pass."""
    shape = clusters.index, clusters.width, clusters.blocks, clusters.turns, clusters.one_param
    launch = _launch("cluster_forward", clusters, storage, compute, parameter, *shape, running, ending)
    loops, cut, rule = Struct(clusters.loops), Struct(clusters.cut), scalars(equation)

    def run(x: Array, s: Any, b: Any, residual: Any, y: Array, stats: Array, kept: Any) -> None:
        launch(x, (loops, cut, x, s, b, residual, y, stats, *rule, kept))

    return run


def backward(
    clusters: cluster_plan.Clusters, storage: Type, compute: Type, parameter: Type, equation: Equation, relu: bool
) -> Any:
    """Return the plan for dx, and for the sums of dy and dy * xhat. These go to `both` (2, rows), which has the type of
    the computation, or to `of_runs` (2, runs), which is float64.
    """
    shape = clusters.index, clusters.width, clusters.blocks, clusters.turns, clusters.runs, relu
    launch = _launch("cluster_backward", clusters, storage, compute, parameter, *shape)
    loops, cut, rule = Struct(clusters.loops), Struct(clusters.cut), scalars(equation)
    entries, second = np.int32(clusters.entries), clusters.index.type(clusters.results)

    def run(dy: Array, x: Array, y: Any, stats: Array, s: Any, dx: Array, masked: Any, of_runs: Any, both: Any) -> None:
        arguments = loops, cut, entries, dy, x, y, stats, s, dx, masked, of_runs, second, both
        launch(x, (*arguments, *rule))

    return run


def _launch(name: str, clusters: cluster_plan.Clusters, *types: Any) -> Any:
    return launcher(cluster_program.kernel(name, *types), clusters.grid, clusters.block, clusters.shared)


def launcher(kernel: Any, grid: tuple[int, ...], block: tuple[int, ...], shared: int) -> Any:
    """Return launch(x, arguments), which gives each block `shared` bytes of shared memory on the device of x."""
    asked: set[int] = set()  # the devices that know how much shared memory the kernel may take

    def launch(x: Array, arguments: tuple[Any, ...]) -> None:
        device = x.data.device_id
        if device not in asked:
            kernel.max_dynamic_shared_size_bytes = cluster_plan.MOST
            asked.add(device)
        kernel(grid, block, arguments, shared_mem=shared)

    return launch
