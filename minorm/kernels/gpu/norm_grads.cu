// The sums of the gradient: of w * dy and of w * dy * xhat, w = s or 1, over whatever loops are reduced.
//
//     sum_g, sum_gx   w = s, kept loops: those of the statistics
//     db, ds          w = 1, kept loops: those along which scale and bias vary
//
// Partial sums by chunks, (2, chunks, results), are merged in order. Where scale and bias do not vary along the inner
// reduced loop one pass serves both: `partial` is then of runs, the turns of all other loops, with w = 1, and runs are
// added up twice, weighted by s for the one and along other loops for the other.
#include "loops.cuh"

const int UNROLL = 8;  // packs that a thread adds up in float

// The unit-step loop is reduced: a team of neighbouring threads walks along the terms of one result.
template <class T, class C, class P, class I, int V, bool WARP>
__global__ void grads_rows(Loops<I> loops, I rows, I chunk, const T* dy, const T* x, const double* stats, const P* s,
                           double* partial) {
    Team<WARP, I> team;
    if (team.index >= loops.results) return;
    const Place<I> at = loops.result(team.index);
    const I first = chunk * blockIdx.y, end = min(first + chunk, loops.terms), step = (I)team.size * V;
    const bool one_row = loops.one_row();
    Statistics<C> stat(stats, rows, at.row);
    double sum_g = 0, sum_gx = 0;
    for (I start = first + team.lane * V; start < end; start += step * UNROLL) {
        C few_g = 0, few_gx = 0;
        for (int u = 0; u < UNROLL; u++) {
            if (start + u * step >= end) break;
            const Place<I> term = loops.term(start + u * step);
            const Pack<T, V> pack_dy = fetch<T, V>(dy, at.data + term.data);
            const Pack<T, V> pack_x = fetch<T, V>(x, at.data + term.data);
            if (!one_row) stat = Statistics<C>(stats, rows, at.row + term.row);
            for (int v = 0; v < V; v++) {
                C g = widen<C>(pack_dy.v[v]);
                if (s) g *= widen<C>(s[at.param + term.param + v * loops.reduced[3].param]);
                few_g += g;
                few_gx += g * stat.xhat(widen<C>(pack_x.v[v]));
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
template <class T, class C, class P, class I, int V, int LANES>
__global__ void grads_lanes(Loops<I> loops, I rows, I chunk, const T* dy, const T* x, const double* stats, const P* s,
                            double* partial) {
    const int TEAMS = 256 / LANES, lane = threadIdx.x % LANES, team = threadIdx.x / LANES;
    __shared__ double shared[2][TEAMS][LANES * V];
    const I index = ((I)blockIdx.x * LANES + lane) * V;
    const bool inside = index < loops.results;
    const Place<I> at = loops.result(inside ? index : 0);
    const I first = chunk * blockIdx.y, end = inside ? min(first + chunk, loops.terms) : first;
    const I lane_row = loops.kept[3].row;
    const bool one_row = loops.one_row();
    Statistics<C> stat[V];
    double sum_g[V], sum_gx[V];
    for (int v = 0; v < V; v++) {
        stat[v] = Statistics<C>(stats, rows, at.row + v * lane_row);
        sum_g[v] = sum_gx[v] = 0;
    }
    for (I start = first + team; start < end; start += TEAMS * UNROLL) {
        C few_g[V], few_gx[V];
        for (int v = 0; v < V; v++) few_g[v] = few_gx[v] = 0;
        for (int u = 0; u < UNROLL; u++) {
            if (start + u * TEAMS >= end) break;
            const Place<I> term = loops.term(start + u * TEAMS);
            const Pack<T, V> pack_dy = fetch<T, V>(dy, at.data + term.data);
            const Pack<T, V> pack_x = fetch<T, V>(x, at.data + term.data);
            for (int v = 0; v < V; v++) {
                if (!one_row) stat[v] = Statistics<C>(stats, rows, at.row + term.row + v * lane_row);
                C g = widen<C>(pack_dy.v[v]);
                if (s) g *= widen<C>(s[at.param + term.param + v * loops.kept[3].param]);
                few_g[v] += g;
                few_gx[v] += g * stat[v].xhat(widen<C>(pack_x.v[v]));
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

// A thread a result: its chunks one after the other. A is the type of the results; `stats` is null for those of parameters.
template <class I, class A>
__global__ void merge_chunks(I results, int chunks, const double* partial, const double* stats, double eps,
                             bool centered, bool guard, A* out) {
    const I index = (I)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= results) return;
    double sum_g = 0, sum_gx = 0;
    for (I c = 0; c < chunks; c++) {
        sum_g += partial[c * results + index];
        sum_gx += partial[(chunks + c) * results + index];
    }
    Finish{eps, centered, guard}(stats, results, index, sum_g, sum_gx);
    out[index] = (A)sum_g;
    out[results + index] = (A)sum_gx;
}

// A warp a result: its terms are runs, whose numbers `data` tells, with all chunks of each.
template <class P, class I, class A>
__global__ void merge_runs(Loops<I> loops, I runs, int chunks, const double* partial, const P* s, const double* stats,
                           double eps, bool centered, bool guard, A* out) {
    Team<true, I> team;
    if (team.index >= loops.results) return;
    const Place<I> at = loops.result(team.index);
    double sum_g = 0, sum_gx = 0;
    for (I i = team.lane; i < loops.terms; i += 32) {
        const Place<I> term = loops.term(i);
        double of_g = 0, of_gx = 0;
        for (I c = 0; c < chunks; c++) {
            of_g += partial[c * runs + at.data + term.data];
            of_gx += partial[(chunks + c) * runs + at.data + term.data];
        }
        const double weight = s ? widen<double>(s[at.param + term.param]) : 1.0;
        sum_g += of_g * weight;
        sum_gx += of_gx * weight;
    }
    add_up<true>(sum_g, sum_gx);
    Finish{eps, centered, guard}(stats, loops.results, team.index, sum_g, sum_gx);
    if (team.lane == 0) {
        out[team.index] = (A)sum_g;
        out[loops.results + team.index] = (A)sum_gx;
    }
}

// The sums over teams of (2, teams, columns): 32 neighbouring columns a block, whose 8 warps take turns with the teams.
template <class C, class I> __global__ void merge_columns(I columns, I teams, const C* partial, C* out) {
    __shared__ double shared[8][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const I column = (I)blockIdx.x * 32 + lane;
    double sum = 0;
    if (column < columns)
        for (I t = warp; t < teams; t += 8) sum += partial[(blockIdx.y * teams + t) * columns + column];
    shared[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || column >= columns) return;
    for (int w = 1; w < 8; w++) sum += shared[w][lane];
    out[blockIdx.y * columns + column] = (C)sum;
}
