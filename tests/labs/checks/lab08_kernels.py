"""Kernels of lab 8 by name: honest ones of other kinds than the solution, and cheats with what is said of them."""

from __future__ import annotations

from minorm.labs.checks.right import lab08_cuda as ours

NORMALIZE = "__global__ void normalize(const float* x, const float* mean, const float* rstd, float* y, int m) {"
MOMENTS = "__global__ void moments(const float* x, float* k, float* d, float* var, int m) {"
SUM = "__device__ float block_sum(float v) {\n    __shared__ float part[1024]; int t = threadIdx.x, n = blockDim.x;\n"
WRITE = "    part[t] = v;\n    __syncthreads();\n"
GIVE = "    v = part[0];\n    __syncthreads();\n    return v;\n}\n"
ALONE = (
    "    if (t == 0) { float s = 0; for (int i = 0; i < n; i++) s += part[i]; part[0] = s; }\n    __syncthreads();\n"
)
TREE = "    for (int s = n / 2; s > 0; s /= 2) { if (t < s) part[t] += part[t + s]; __syncthreads(); }\n"
WARP = """__device__ float warp_sum(float v) {
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffff, v, step);
    return v;
}
"""
FIRST = "    int lane = t % 32, warps = n / 32;\n"

NORMALIZES = {
    "backwards": (
        NORMALIZE + " for (int i = m - 1 - (int)threadIdx.x; i >= 0; i -= blockDim.x) { int at = blockIdx.x * m + i;"
        " y[at] = (x[at] - mean[blockIdx.x]) * rstd[blockIdx.x]; } }"
    ),
    "neighbours of its own": (
        NORMALIZE + " int each = (m + blockDim.x - 1) / blockDim.x; float a = mean[blockIdx.x], b = rstd[blockIdx.x];"
        " for (int i = threadIdx.x * each; i < min((int)(threadIdx.x + 1) * each, m); i++)"
        " y[blockIdx.x * m + i] = (x[blockIdx.x * m + i] - a) * b; }"
    ),
}
FALSE_NORMALIZES = {
    "thread 0 does the row": (
        NORMALIZE + " if (threadIdx.x == 0) for (int i = 0; i < m; i++) { int at = blockIdx.x * m + i;"
        " y[at] = (x[at] - mean[blockIdx.x]) * rstd[blockIdx.x]; } }",
        r"at most \d+ writes by each thread.* got 64 by thread 0 of block 0, of the 64 writes",
    ),
    "block 0 does all rows": (
        NORMALIZE + " if (blockIdx.x == 0) for (int r = 0; r < gridDim.x; r++)"
        " for (int i = threadIdx.x; i < m; i += blockDim.x) y[r * m + i] = (x[r * m + i] - mean[r]) * rstd[r]; }",
        r"at most \d+ writes by each thread.* got \d+ by thread \d+ of block 0",
    ),
    "each thread writes all": (
        NORMALIZE + " for (int i = 0; i < m; i++) { int at = blockIdx.x * m + i;"
        " y[at] = (x[at] - mean[blockIdx.x]) * rstd[blockIdx.x]; } }",
        "at most 1 writes by each thread",
    ),
}
TREES = {
    "neighbours first": (
        SUM + WRITE + "    for (int s = 1; s < n; s *= 2) { if (t % (2 * s) == 0) part[t] += part[t + s]; "
        "__syncthreads(); }\n" + GIVE
    ),
    "each thread follows all steps": (
        "__device__ float block_sum(float v) {\n    __shared__ float part[2][1024];\n"
        "    int t = threadIdx.x, n = blockDim.x;\n    int side = 0;\n    part[0][t] = v;\n    __syncthreads();\n"
        "    for (int s = n / 2; s > 0; s /= 2) { part[1 - side][t] = part[side][t] + part[side][t ^ s]; side ^= 1; "
        "__syncthreads(); }\n    return part[side][t];\n}\n"
    ),
    "the last warp unrolled": (
        SUM + WRITE + TREE.replace("s > 0", "s > 32") +
        "    if (t < 32) {\n        float s = part[t];\n"
        "        if (n > 32) { s += part[t + 32]; __syncwarp(); part[t] = s; __syncwarp(); }\n"
        + "".join(
            f"        if (n > {s} && t < {s}) s += part[t + {s}];\n        __syncwarp();\n        part[t] = s;\n"
            "        __syncwarp();\n"
            for s in (16, 8, 4, 2, 1)
        )
        + "    }\n    __syncthreads();\n" + GIVE
    ),
    "four at a time": (
        SUM + WRITE + "    int s = n;\n    while (s > 1) {\n        int way = s % 4 ? 2 : 4;\n        s /= way;\n"
        "        if (t < s) { float sum = part[t]; for (int i = 1; i < way; i++) sum += part[t + i * s];"
        " part[t] = sum; }\n        __syncthreads();\n    }\n" + GIVE
    ),
}  # fmt: skip
FALSE_TREES = {
    "thread 0 adds all": (SUM + WRITE + ALONE + GIVE, r"got \d+ by thread 0 of block \d, of the \d+ reads of shared"),
    "thread 0 adds all in double": (
        SUM + WRITE + ALONE.replace("float s", "double s") + GIVE, "only float.*got text with 'double'"
    ),
    "each thread adds all": (
        SUM + WRITE + "    float s = 0;\n    for (int i = 0; i < n; i++) s += part[i];\n    __syncthreads();\n"
        "    return s;\n}\n",
        "at most .* reads of shared memory by each thread, in a tree",
    ),
    "a tree that is dropped": (
        SUM + "    __shared__ float kept[1024];\n    kept[t] = v;\n" + WRITE + TREE
        + ALONE.replace("part[i]", "kept[i]") + GIVE,
        "reads of shared memory by each thread, in a tree",
    ),
    "barriers that nothing waits for": (
        SUM + WRITE + "    for (int s = n / 2; s > 0; s /= 2) __syncthreads();\n" + ALONE + GIVE,
        "reads of shared memory by each thread, in a tree",
    ),
    "one thread for each warp": (
        SUM + WRITE + "    if (t % 32 == 0) for (int i = 1; i < 32; i++) part[t] += part[t + i];\n"
        "    __syncthreads();\n    if (t == 0) for (int i = 32; i < n; i += 32) part[0] += part[i];\n"
        "    __syncthreads();\n" + GIVE,
        "reads of shared memory by each thread, in a tree",
    ),
    "atomics": (
        SUM + "    if (t == 0) part[0] = 0;\n    __syncthreads();\n    atomicAdd(&part[0], v);\n    __syncthreads();\n"
        + GIVE, "without atomics",
    ),
    "whole numbers that all add to one": (
        ("__device__ float block_sum(float v) {\n    __shared__ int sum;\n    if (threadIdx.x == 0) sum = 0;\n"
        "    __syncthreads();\n    sum += (int)(v * 1048576.0f);\n    __syncthreads();\n    int found = sum;\n"
        "    __syncthreads();\n    return found / 1048576.0f;\n}\n"),
        "thread .* and thread .* use the same number in shared memory",
    ),
    "copied by memcpy": (
        SUM + WRITE + "    float all[1024], s = 0;\n    memcpy(all, part, 4 * n);\n"
        "    for (int i = 0; i < n; i++) s += all[i];\n    __syncthreads();\n    return s;\n}\n",
        "reads of shared memory by each thread, in a tree",
    ),
    "shuffles in place of the tree": (ours.SHUFFLES, "barriers"),
    "zeros": (SUM + "    return 0;\n}\n", "block_sum of"),
}  # fmt: skip
SHUFFLES = {
    "down, and back from lane 0": (
        "__device__ float warp_sum(float v) {\n"
        "    for (int step = 16; step > 0; step /= 2) v += __shfl_down_sync(0xffffffff, v, step);\n"
        "    return __shfl_sync(0xffffffff, v, 0);\n}\n" + SUM + FIRST
        + "    v = warp_sum(v);\n    if (lane == 0) part[t / 32] = v;\n    __syncthreads();\n"
        "    v = warp_sum(lane < warps ? part[lane] : 0);\n    __syncthreads();\n    return v;\n}\n"
    ),
    "the first warp for all": (
        WARP + SUM + FIRST + "    __shared__ float sum;\n    v = warp_sum(v);\n    if (lane == 0) part[t / 32] = v;\n"
        "    __syncthreads();\n    if (t < 32) { v = warp_sum(t < warps ? part[t] : 0); if (t == 0) sum = v; }\n"
        "    __syncthreads();\n    return sum;\n}\n"
    ),
    "up, and back from lane 31": (
        "__device__ float warp_sum(float v) {\n    for (int step = 1; step < 32; step *= 2) {\n"
        "        float other = __shfl_up_sync(0xffffffff, v, step);\n"
        "        if (threadIdx.x % 32 >= step) v += other;\n    }\n    return __shfl_sync(0xffffffff, v, 31);\n}\n"
        + SUM + FIRST
        + "    v = warp_sum(v);\n    if (lane == 31) part[t / 32] = v;\n    __syncthreads();\n"
        "    v = warp_sum(lane < warps ? part[lane] : 0);\n    __syncthreads();\n    return v;\n}\n"
    ),
}  # fmt: skip
ONE_FOR_WARPS = (
    "    __syncthreads();\n    v = 0;\n    for (int i = 0; i < warps; i++) v += part[i];\n    __syncthreads();\n"
    "    return v;\n}\n"
)
FALSE_SHUFFLES = {
    "thread 0 adds all": (SUM + WRITE + ALONE + GIVE, "reads of shared memory by each thread, because shuffles"),
    "a tree": (SUM + WRITE + TREE + GIVE, "reads of shared memory by each thread, because shuffles"),
    "shuffles that are dropped": (
        WARP + SUM + "    float w = warp_sum(warp_sum(v));\n    if (w == -1) v = w;\n" + WRITE + ALONE + GIVE,
        "reads of shared memory by each thread, because shuffles",
    ),
    "each thread adds the warps": (
        WARP + SUM + FIRST + "    v = warp_sum(v);\n    if (lane == 0) part[t / 32] = v;\n" + ONE_FOR_WARPS,
        "reads of shared memory by each thread, because shuffles",
    ),
    "one lane after the other": (
        "__device__ float warp_sum(float v) {\n    float s = 0;\n"
        "    for (int i = 0; i < 32; i++) s += __shfl_sync(0xffffffff, v, i);\n    return s;\n}\n"
        + ours.SHUFFLES[ours.SHUFFLES.index("__device__ float block_sum") :],
        "shuffles for .* threads, in two levels",
    ),
    "one of them used for nothing": (
        ours.SHUFFLES.replace(
            "    return sum;", "    float w = __shfl_xor_sync(0xffffffff, sum, 1);\n    return sum + 0 * w;"
        ),
        "the value of this shuffle is not used",
    ),
    "atomics": (
        WARP + SUM + "    v = warp_sum(v);\n    if (t == 0) part[0] = 0;\n    __syncthreads();\n"
        "    if (t % 32 == 0) atomicAdd(&part[0], v);\n    __syncthreads();\n" + GIVE, "without atomics",
    ),
}  # fmt: skip
HEAD = MOMENTS + "\n    const float* row = x + blockIdx.x * m; int t = threadIdx.x, n = blockDim.x, b = blockIdx.x;\n"
ROWS = {
    "two elements in a turn": (
        HEAD + "    float s = 0, q = 0, away = 0;\n"
        "    for (int i = t; i < m; i += 2 * n) s += row[i] + (i + n < m ? row[i + n] : 0);\n"
        "    float mean = block_sum(s) / m;\n"
        "    for (int i = t; i < m; i += n) { float c = row[i] - mean; away += c; q += c * c; }\n"
        "    away = block_sum(away) / m; q = block_sum(q) / m;\n"
        "    if (t == 0) { k[b] = mean; d[b] = away; var[b] = q - away * away; }\n}\n"
    ),
    "three passes": (
        HEAD + "    float s = 0, q = 0, away = 0;\n    for (int i = t; i < m; i += n) s += row[i];\n"
        "    float mean = block_sum(s) / m;\n    for (int i = t; i < m; i += n) away += row[i] - mean;\n"
        "    away = block_sum(away) / m;\n"
        "    for (int i = t; i < m; i += n) { float c = row[i] - mean; q += c * c; }\n    q = block_sum(q) / m;\n"
        "    if (t == n - 1) { k[b] = mean; d[b] = away; var[b] = q - away * away; }\n}\n"
    ),
}
ONE_ROW = (
    "float s = 0, q = 0, away = 0; for (int i = 0; i < m; i++) s += row[i] - row[0]; float mean = row[0] + s / m;"
    " for (int i = 0; i < m; i++) { float c = row[i] - mean; away += c; q += c * c; }"
    " away /= m; k[b] = mean; d[b] = away; var[b] = q / m - away * away;"
)
FALSE_ROWS = {
    "thread 0 alone": (HEAD + "    block_sum(0);\n    if (t == 0) { " + ONE_ROW + " }\n}\n", "thread 0 of block 0"),
    "block 0 alone": (
        HEAD + "    if (b == 0) for (b = 0; b < gridDim.x; b++) { row = x + b * m;\n    float s = 0, q = 0, away = 0;\n"
        "    for (int i = t; i < m; i += n) s += row[i];\n    float mean = block_sum(s) / m;\n"
        "    for (int i = t; i < m; i += n) { float c = row[i] - mean; away += c; q += c * c; }\n"
        "    away = block_sum(away) / m; q = block_sum(q) / m;\n"
        "    if (t == 0) { k[b] = mean; d[b] = away; var[b] = q - away * away; } }\n}\n",
        r"reads by each thread.* of block 0",
    ),
    "each thread does the row": (HEAD + "    block_sum(0);\n    " + ONE_ROW + "\n}\n", "reads by each thread"),
    "thread 0 adds what the others have": (
        HEAD + "    __shared__ float kept[2][1024]; float s = 0, away = 0, q = 0;\n"
        "    for (int i = t; i < m; i += n) s += row[i];\n    block_sum(0);\n    kept[0][t] = s; __syncthreads();\n"
        "    s = 0; for (int i = 0; i < n; i++) s += kept[0][i];\n    float mean = s / m;\n"
        "    for (int i = t; i < m; i += n) { float c = row[i] - mean; away += c; q += c * c; }\n"
        "    away = block_sum(away) / m; q = block_sum(q) / m;\n"
        "    if (t == 0) { k[b] = mean; d[b] = away; var[b] = q - away * away; }\n}\n",
        "reads of shared memory by each thread, for block_sum",
    ),
}  # fmt: skip
