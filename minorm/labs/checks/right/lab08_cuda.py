"""Lab 8: returns the source text of kernels on which other kernels build."""

from __future__ import annotations

SHUFFLES = """
__device__ float warp_sum(float v) {
    for (int step = 1; step < 32; step *= 2) v += __shfl_xor_sync(0xffffffff, v, step);
    return v;
}
__device__ float block_sum(float v) {
    __shared__ float of_warp[32];
    int place = threadIdx.x % 32;
    float mine = warp_sum(v);
    if (place == 0) of_warp[threadIdx.x / 32] = mine;
    __syncthreads();
    float sum = warp_sum(place < blockDim.x / 32 ? of_warp[place] : 0);
    __syncthreads();
    return sum;
}
"""
MOMENTS = """
__global__ void moments(const float* x, float* k, float* d, float* var, int m) {
    const float* row = x + blockIdx.x * m;
    float sum = 0;
    for (int i = threadIdx.x; i < m; i += blockDim.x) sum += row[i];
    float shift = block_sum(sum) / m;
    float away = 0, squares = 0;
    for (int i = threadIdx.x; i < m; i += blockDim.x) {
        float c = row[i] - shift;
        away += c;
        squares += c * c;
    }
    away = block_sum(away) / m;
    squares = block_sum(squares) / m;
    if (threadIdx.x == 0) {
        k[blockIdx.x] = shift;
        d[blockIdx.x] = away;
        var[blockIdx.x] = squares - away * away;
    }
}
"""


def shuffle_cu() -> str:
    """Return the CUDA text of block_sum, which adds the numbers of a block by shuffles."""
    return SHUFFLES


def moments_cu() -> str:
    """Return the CUDA text of a kernel that computes k, d and var of every row."""
    return MOMENTS
