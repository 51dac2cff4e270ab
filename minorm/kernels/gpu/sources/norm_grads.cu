// The sums of the gradient: of w * dy and of w * dy * xhat, w = s or 1, over whatever loops are reduced.
//
//     sum_g, sum_gx   w = s, kept loops: those of the statistics
//     db, ds          w = 1, kept loops: those along which scale and bias vary
//
// Partial sums by chunks, (2, chunks, results), are merged in order. Where scale and bias do not vary along some reduced
// loop one pass serves both: `partial` is then of runs, the turns of all other loops, with w = 1, and runs are added up
// twice, weighted by s for the one and along other loops for the other. All loads of a batch are on their way before the
// first is used. Behind a ReLU dy counts as 0 where y <= 0; `masked`, if it is given, gets that dy.
#include "ending.cuh"
#include "loops.cuh"
#include "merge.cuh"

const int BYTES = 64;  // of a batch of each array, widened; it is added up in float
const int PARTS = 4;   // partial sums that a thread has on their way

template <bool RELU, class T, class C, class I, int V, int BATCH>
__device__ inline void fetch_batch(Pack<T, V> (&packs)[2][BATCH], Place<I> (&terms)[BATCH], const T* __restrict__ dy,
                                   const T* __restrict__ x, const T* __restrict__ y, T* __restrict__ masked,
                                   Cursor<4, I>& cursor, I from, I at, I step, I end) {
    Pack<T, V> kept[BATCH];
#pragma unroll
    for (int u = 0; u < BATCH; u++) {
        terms[u] = cursor.place;
        if (at + u * step < end) {
            packs[0][u] = fetch<T, V>(dy, from + terms[u].data);
            packs[1][u] = fetch<T, V>(x, from + terms[u].data);
            if (RELU) kept[u] = fetch<T, V>(y, from + terms[u].data);
        }
        cursor.advance();
    }
    if (!RELU) return;
#pragma unroll
    for (int u = 0; u < BATCH; u++) {
        mask<RELU, C>(packs[0][u], kept[u]);
        if (masked && at + u * step < end) put(masked, from + terms[u].data, packs[0][u]);
    }
}

// The unit-step loop is reduced: a team of neighbouring threads walks along the terms of one result.
template <class T, class C, class P, class I, int V, bool WARP, bool RELU>
__global__ void grads_rows(Loops<I> loops, I rows, I chunk, const T* __restrict__ dy, const T* __restrict__ x,
                           const T* __restrict__ y, const double* __restrict__ stats, const P* __restrict__ s,
                           double* __restrict__ partial, T* __restrict__ masked) {
    Team<WARP, I> team;
    if (team.index >= loops.results) return;
    const Place<I> result = loops.result(team.index);
    const I first = chunk * blockIdx.y, end = min(first + chunk, loops.terms), step = (I)team.size * V;
    const I begin = first + team.lane * V, param_step = loops.reduced[3].param;
    const bool one_row = loops.one_row();
    Statistics<C> stat(stats, rows, result.row);
    const int BATCH = Batch<C, V, BYTES>::SIZE;
    Cursor<4, I> cursor(loops, begin, step);
    double sum_g = 0, sum_gx = 0;
    for (I at = begin; at < end; at += step * BATCH) {
        Pack<T, V> packs[2][BATCH];
        Place<I> terms[BATCH];
        fetch_batch<RELU, T, C>(packs, terms, dy, x, y, masked, cursor, result.data, at, step, end);
        C few_g = 0, few_gx = 0;
#pragma unroll
        for (int u = 0; u < BATCH; u++) {
            if (at + u * step >= end) break;
            if (!one_row) stat = Statistics<C>(stats, rows, result.row + terms[u].row);
            Pack<C, V> scale;
            if (s) scale = parameters<C, V>(s, result.param + terms[u].param, param_step, C(1));
#pragma unroll
            for (int v = 0; v < V; v++) {
                C g = widen<C>(packs[0][u].v[v]);
                if (s) g *= scale.v[v];
                few_g += g;
                few_gx += g * stat.xhat(widen<C>(packs[1][u].v[v]));
            }
        }
        sum_g += few_g;
        sum_gx += few_gx;
    }
    add_up<WARP>(sum_g, sum_gx);
    if (team.lane == 0) {
        partial[blockIdx.y * loops.results + team.index] = sum_g;
        partial[(gridDim.y + blockIdx.y) * loops.results + team.index] = sum_gx;
    }
}

// The unit-step loop is kept: LANES neighbouring threads have V lanes each, the others take turns with the terms.
template <class T, class C, class P, class I, int V, int LANES, bool RELU>
__global__ void grads_lanes(Loops<I> loops, I rows, I chunk, const T* __restrict__ dy, const T* __restrict__ x,
                            const T* __restrict__ y, const double* __restrict__ stats, const P* __restrict__ s,
                            double* __restrict__ partial, T* __restrict__ masked) {
    const int TEAMS = 256 / LANES, lane = threadIdx.x % LANES, team = threadIdx.x / LANES;
    __shared__ double shared[2][TEAMS][LANES * V];
    const I index = ((I)blockIdx.x * LANES + lane) * V;
    const bool inside = index < loops.results;
    const Place<I> result = loops.result(inside ? index : 0);
    const I first = chunk * blockIdx.y, end = inside ? min(first + chunk, loops.terms) : first, step = TEAMS;
    const I lane_row = loops.kept[3].row, param_step = loops.kept[3].param;
    const bool one_row = loops.one_row();
    Statistics<C> stat[V];
    double sum_g[V], sum_gx[V];
    for (int v = 0; v < V; v++) {
        stat[v] = Statistics<C>(stats, rows, result.row + v * lane_row);
        sum_g[v] = sum_gx[v] = 0;
    }
    const int BATCH = Batch<C, V, BYTES>::SIZE;
    Cursor<4, I> cursor(loops, first + team, step);
    for (I at = first + team; at < end; at += step * BATCH) {
        Pack<T, V> packs[2][BATCH];
        Place<I> terms[BATCH];
        fetch_batch<RELU, T, C>(packs, terms, dy, x, y, masked, cursor, result.data, at, step, end);
        C few_g[V], few_gx[V];
        for (int v = 0; v < V; v++) few_g[v] = few_gx[v] = 0;
#pragma unroll
        for (int u = 0; u < BATCH; u++) {
            if (at + u * step >= end) break;
            Pack<C, V> scale;
            if (s) scale = parameters<C, V>(s, result.param + terms[u].param, param_step, C(1));
#pragma unroll
            for (int v = 0; v < V; v++) {
                if (!one_row) stat[v] = Statistics<C>(stats, rows, result.row + terms[u].row + v * lane_row);
                C g = widen<C>(packs[0][u].v[v]);
                if (s) g *= scale.v[v];
                few_g[v] += g;
                few_gx[v] += g * stat[v].xhat(widen<C>(packs[1][u].v[v]));
            }
        }
        for (int v = 0; v < V; v++) {
            sum_g[v] += few_g[v];
            sum_gx[v] += few_gx[v];
        }
    }
    for (int v = 0; v < V; v++) {
        shared[0][team][lane * V + v] = sum_g[v];
        shared[1][team][lane * V + v] = sum_gx[v];
    }
    __syncthreads();
    if (team > 0 || !inside) return;
    for (int v = 0; v < V; v++) {
        double total_g = 0, total_gx = 0;
        for (int t = 0; t < TEAMS; t++) {
            total_g += shared[0][t][lane * V + v];
            total_gx += shared[1][t][lane * V + v];
        }
        partial[blockIdx.y * loops.results + index + v] = total_g;
        partial[(gridDim.y + blockIdx.y) * loops.results + index + v] = total_gx;
    }
}

// The factors that make sums ready for dx: mean(g) counts only where a mean was taken off, and mean(g * xhat) counts
// (std + eps) / std times where eps is added to the standard deviation, not at all where that is 0 (equation.py).
struct Finish {
    double eps;
    bool centered, guard;
    template <class I>
    __device__ void operator()(const double* stats, I rows, I row, double& sum_g, double& sum_gx) const {
        if (!stats) return;
        const double std = sqrt(stats[2 * rows + row]);
        if (!centered) sum_g = 0;
        if (guard) sum_gx *= std > 0 ? (std + eps) / std : 0;
    }
};

// The parts of (2, parts, results), in type Part. A is the type of the results; `stats` is null for those of parameters.
template <class Part, class I, int SPLITS, class A>
__global__ void merge_parts(I results, int parts, const Part* __restrict__ partial, const double* __restrict__ stats,
                            double eps, bool centered, bool guard, A* __restrict__ out) {
    const Merge<SPLITS, I> at;
    const bool inside = at.result < results;
    const I result = inside ? at.result : 0;
    double sums[2] = {0, 0};
    for (int first = at.split; first < parts; first += SPLITS * PARTS) {
        Part of_g[PARTS], of_gx[PARTS];
#pragma unroll
        for (int u = 0; u < PARTS; u++) {
            const int part = first + u * SPLITS;
            of_g[u] = part < parts ? partial[part * results + result] : Part(0);
            of_gx[u] = part < parts ? partial[(parts + part) * results + result] : Part(0);
        }
#pragma unroll
        for (int u = 0; u < PARTS; u++) {
            sums[0] += of_g[u];
            sums[1] += of_gx[u];
        }
    }
    at.add_up(sums);
    if (at.split > 0 || !inside) return;
    Finish{eps, centered, guard}(stats, results, result, sums[0], sums[1]);
    out[result] = (A)sums[0];
    out[results + result] = (A)sums[1];
}

// One result of runs and their chunks, by a team: `data` tells the place of a part.
template <bool WARP, class P, class I>
__device__ void add_runs(const Loops<I>& loops, I result, I second, int lane, int size, const double* __restrict__ partial,
                         const P* __restrict__ s, double& sum_g, double& sum_gx) {
    const Place<I> from = loops.result(result);
    Cursor<4, I> cursor(loops, lane, size);
    for (I at = lane; at < loops.terms; at += size * PARTS) {
        double of_g[PARTS], of_gx[PARTS], weight[PARTS];
#pragma unroll
        for (int u = 0; u < PARTS; u++) {
            of_g[u] = of_gx[u] = 0, weight[u] = 1;
            if (at + u * size < loops.terms) {
                of_g[u] = partial[from.data + cursor.place.data];
                of_gx[u] = partial[second + from.data + cursor.place.data];
                if (s) weight[u] = widen<double>(s[from.param + cursor.place.param]);
            }
            cursor.advance();
        }
#pragma unroll
        for (int u = 0; u < PARTS; u++) {
            sum_g += of_g[u] * weight[u];
            sum_gx += of_gx[u] * weight[u];
        }
    }
    add_up<WARP>(sum_g, sum_gx);
}

// Threads of the largest block, as norm_plan.py has it: wide indices take more registers.
template <class I> constexpr int LARGEST_TEAM = sizeof(I) == 4 ? 1024 : 512;

// A team a result, first those of the statistics (2, rows), weighted by s and ready for dx, then those of the parameters
// (2, params). `second` is how far behind the sums of dy those of dy * xhat begin.
template <class A, class I, class P, bool WARP>
__global__ void __launch_bounds__(LARGEST_TEAM<I>, 1)
    merge_runs(Loops<I> of_rows, Loops<I> of_params, I second, const double* __restrict__ partial,
               const P* __restrict__ s, const double* __restrict__ stats, double eps, bool centered, bool guard,
               double* __restrict__ sums, A* __restrict__ both) {
    Team<WARP, I> team;
    double sum_g = 0, sum_gx = 0;
    if (team.index < of_rows.results) {
        add_runs<WARP>(of_rows, team.index, second, team.lane, team.size, partial, s, sum_g, sum_gx);
        Finish{eps, centered, guard}(stats, of_rows.results, team.index, sum_g, sum_gx);
        if (team.lane == 0) sums[team.index] = sum_g, sums[of_rows.results + team.index] = sum_gx;
    } else if (team.index - of_rows.results < of_params.results) {
        const I result = team.index - of_rows.results;
        add_runs<WARP>(of_params, result, second, team.lane, team.size, partial, (const P*)nullptr, sum_g, sum_gx);
        if (team.lane == 0) both[result] = (A)sum_g, both[of_params.results + result] = (A)sum_gx;
    }
}
