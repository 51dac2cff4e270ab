// The sums of the gradient: of w * dy and of w * dy * xhat, w = s or 1, over the reduced loops.
//
//     sum_g, sum_gx   w = s, kept loops: those of the statistics
//     db, ds          w = 1, kept loops: those along which scale and bias vary
//
// Partial sums by chunks, (2, chunks, results), are merged in order. If scale and bias do not vary along some reduced
// loop, one pass serves both. Then a run is one turn of all other loops, and `partial` has the sums of runs with w = 1.
// Runs are added up twice: weighted by s for the statistics, and along other loops for the parameters. If a ReLU
// followed, dy counts as 0 where y <= 0; `masked`, if it is given, gets this dy.
#include "map.cuh"
#include "merge.cuh"

const int BYTES = 64;  // bytes of a batch of each array; a batch is added up in float
const int PARTS = 4;   // partial sums that a thread loads at once

// dy and x of pack u, and y behind a ReLU: dy is masked then, and written to `masked`.
template <bool RELU, class C, class B, class T, int V>
__device__ __forceinline__ void read(const B& batches, int u, T* masked, Pack<C, V>& dy, Pack<C, V>& x) {
    dy = batches.template of<C>(0, u);
    x = batches.template of<C>(1, u);
    if (!RELU) return;
    mask(dy, batches.template of<C>(RELU ? 2 : 0, u));
    if (masked) put_rounded(masked, batches.terms[u].data, dy);
}

// The unit-step loop is reduced: a team of neighbouring threads walks along the terms of one result. ONE_ROW: all terms of
// a result share their statistics.
template <class T, class C, class P, class I, int V, bool WARP, int N, bool ONE_ROW, bool RELU>
__global__ void __launch_bounds__(256, BLOCKS<C, I, RELU + !ONE_ROW>)
    grads_rows(Loops<I> loops, I rows, I chunk, const T* __restrict__ dy, const T* __restrict__ x,
               const T* __restrict__ y, const double* __restrict__ stats, const P* __restrict__ s,
               double* __restrict__ partial, T* __restrict__ masked) {
    Team<WARP, I> team;
    if (team.index >= loops.results) return;
    const Place<I> result = loops.result(team.index);
    const I first = chunk * blockIdx.y, end = min(first + chunk, loops.terms), step = (I)team.size * V;
    const I param_step = loops.reduced[3].param;
    Statistics<C> stat(stats, rows, result.row);
    Batches<2 + RELU, Batch<T, V, BYTES>::SIZE, T, I, V, N> batches(
        loops, dy, x, y, result.data, first + team.lane * V, step, end);
    double parts[2] = {0, 0};
    for (; batches.some(); batches.next()) {
        batches.fetch();
        C few_g = 0, few_gx = 0;
        batches.each([&](int u) {
            const Place<I> term = batches.terms[u];
            Pack<C, V> of_dy, of_x;
            read<RELU>(batches, u, masked, of_dy, of_x);
            if (!ONE_ROW) stat = Statistics<C>(stats, rows, result.row + term.row);
            Pack<C, V> scale;
            if (s) scale = parameters<C, V>(s, result.param + term.param, param_step, C(1));
#pragma unroll
            for (int v = 0; v < V; v++) {
                C g = of_dy.v[v];
                if (s) g *= scale.v[v];
                few_g += g;
                few_gx += g * stat.xhat(of_x.v[v]);
            }
        });
        parts[0] += few_g;
        parts[1] += few_gx;
    }
    double totals[2];
    add_up<WARP>(parts, totals);
    if (team.lane == 0) {
        partial[blockIdx.y * loops.results + team.index] = totals[0];
        partial[(gridDim.y + blockIdx.y) * loops.results + team.index] = totals[1];
    }
}

// The unit-step loop is kept: LANES neighbouring threads have V lanes each, and the others take the terms in turn. Each
// has so few terms that it adds them up in float. The statistics of a lane, and its scale if that is the same for all
// terms, are found by one thread for all others, while the first batch is on its way. In shared memory lane v of a thread
// is LANES places from lane v - 1, so that neighbouring threads use neighbouring banks.
template <class T, class C, class P, class I, int V, int LANES, int N, bool ONE_ROW, bool RAGGED, bool RELU>
__device__ inline void grads_of(const Loops<I>& loops, I tile, I which_chunk, I chunks, I rows, I chunk,
                                const T* __restrict__ dy, const T* __restrict__ x, const T* __restrict__ y,
                                const double* __restrict__ stats, const P* __restrict__ s, double* __restrict__ partial,
                                T* __restrict__ masked) {
    const int TEAMS = 256 / LANES, lane = threadIdx.x % LANES, team = threadIdx.x / LANES;
    __shared__ double shared[2][TEAMS][LANES * V];
    __shared__ C numbers[4][LANES * V];  // k, d, rstd, scale
    const I index = (tile * LANES + lane) * V;
    const bool inside = index < loops.results;
    const Place<I> result = loops.result(inside ? index : 0);
    const I first = chunk * which_chunk, end = inside ? min(first + chunk, loops.terms) : first;
    const int SIZE = Batch<T, V, RELU && V == 8 ? 48 : BYTES>::SIZE;  // fewer, where y takes registers too
    Batches<2 + RELU, SIZE, T, I, V, N> batches(loops, dy, x, y, result.data, first + team, (I)TEAMS, end);
    batches.fetch();
    for (int at = threadIdx.x; at < LANES * V; at += 256) {
        const I which = (tile * LANES + at % LANES) * V + at / LANES;
        const Place<I> place = loops.result(which < loops.results ? which : 0);
        if (ONE_ROW) {
            const Statistics<C> stat(stats, rows, place.row);
            numbers[0][at] = stat.k, numbers[1][at] = stat.d, numbers[2][at] = stat.rstd;
        }
        if (RAGGED && s) numbers[3][at] = widen<C>(s[place.param]);
    }
    __syncthreads();
    Statistics<C> stat[V];
    C sum_g[V], sum_gx[V];
    I row_of[V];
    for (int v = 0; v < V; v++) {
        const int at = v * LANES + lane;
        if (ONE_ROW) stat[v].k = numbers[0][at], stat[v].d = numbers[1][at], stat[v].rstd = numbers[2][at];
        if (!ONE_ROW) row_of[v] = RAGGED ? loops.result(inside ? index + v : 0).row : result.row + v * loops.kept[3].row;
        sum_g[v] = sum_gx[v] = 0;
    }
    while (batches.some()) {
        batches.each([&](int u) {
            const Place<I> term = batches.terms[u];
            Pack<C, V> of_dy, of_x, scale;
            read<RELU>(batches, u, masked, of_dy, of_x);
            if (s && !RAGGED) scale = parameters<C, V>(s, result.param + term.param, loops.kept[3].param, C(1));
#pragma unroll
            for (int v = 0; v < V; v++) {
                if (!ONE_ROW) stat[v] = Statistics<C>(stats, rows, row_of[v] + term.row);
                C g = of_dy.v[v];
                if (s) g *= RAGGED ? numbers[3][v * LANES + lane] : scale.v[v];
                sum_g[v] += g;
                sum_gx[v] += g * stat[v].xhat(of_x.v[v]);
            }
        });
        batches.next();
        batches.fetch();
    }
    for (int v = 0; v < V; v++) {
        shared[0][team][v * LANES + lane] = sum_g[v];
        shared[1][team][v * LANES + lane] = sum_gx[v];
    }
    knock_out(shared);
    for (int at = threadIdx.x; at < LANES * V; at += 256) {
        const I to = (tile * LANES + at % LANES) * V + at / LANES;
        if (to >= loops.results) continue;
        partial[which_chunk * loops.results + to] = shared[0][0][at];
        partial[(chunks + which_chunk) * loops.results + to] = shared[1][0][at];
    }
}

template <class T, class C, class P, class I, int V, int LANES, int N, bool ONE_ROW, bool RAGGED, bool RELU>
__global__ void __launch_bounds__(256, BLOCKS<C, I, (RELU || V == 8) + !ONE_ROW>)
    grads_lanes(Loops<I> loops, I rows, I chunk, const T* __restrict__ dy, const T* __restrict__ x,
                const T* __restrict__ y, const double* __restrict__ stats, const P* __restrict__ s,
                double* __restrict__ partial, T* __restrict__ masked) {
    grads_of<T, C, P, I, V, LANES, N, ONE_ROW, RAGGED, RELU>(
        loops, blockIdx.x, blockIdx.y, gridDim.y, rows, chunk, dy, x, y, stats, s, partial, masked);
}

// The factors of the sums for dx (equation.py). mean(g) counts only if the mean is subtracted. If eps is added to the
// standard deviation, mean(g * xhat) has the factor (std + eps) / std, or 0 if std is 0.
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

// Adds up the parts of (2, parts, results), of type Part. A is the type of the results; `stats` is null for the sums of
// parameters.
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

// Adds up one result from runs and their chunks, by a team; `data` returns the place of a part.
template <bool WARP, class P, class I>
__device__ void add_runs(const Loops<I>& loops, I result, I second, int lane, int size, const double* __restrict__ partial,
                         const P* __restrict__ s, double (&sums)[2]) {
    double found[2] = {0, 0};
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
            found[0] += of_g[u] * weight[u];
            found[1] += of_gx[u] * weight[u];
        }
    }
    add_up<WARP>(found, sums);
}

// The threads of the largest block, as in norm_plan.py: wide indices take more registers.
template <class I> constexpr int LARGEST_TEAM = sizeof(I) == 4 ? 1024 : 512;

// One team for each result: first the sums of the statistics (2, rows), weighted by s and with the factors for dx, then
// those of the parameters (2, params). A row and a parameter may have very different numbers of parts, so each kind has
// teams of its size: a warp (WARP_ROWS, WARP_PARAMS), or a block. `second` is the distance from the sums of dy to those
// of dy * xhat.
template <class A, class I, class P, bool WARP_ROWS, bool WARP_PARAMS>
__global__ void __launch_bounds__(LARGEST_TEAM<I>, 1)
    merge_runs(Loops<I> of_rows, Loops<I> of_params, I second, const double* __restrict__ partial,
               const P* __restrict__ s, const double* __restrict__ stats, double eps, bool centered, bool guard,
               double* __restrict__ sums, A* __restrict__ both) {
    const Team<WARP_ROWS, I> row;
    const I row_teams = blockDim.x / row.size, row_blocks = (of_rows.results + row_teams - 1) / row_teams;
    double found[2];
    if (blockIdx.x < row_blocks) {
        if (row.index >= of_rows.results) return;
        add_runs<WARP_ROWS>(of_rows, row.index, second, row.lane, row.size, partial, s, found);
        Finish{eps, centered, guard}(stats, of_rows.results, row.index, found[0], found[1]);
        if (row.lane == 0) sums[row.index] = found[0], sums[of_rows.results + row.index] = found[1];
        return;
    }
    const Team<WARP_PARAMS, I> param;
    const I result = param.index - row_blocks * (blockDim.x / param.size);
    if (result >= of_params.results) return;
    add_runs<WARP_PARAMS>(of_params, result, second, param.lane, param.size, partial, (const P*)nullptr, found);
    if (param.lane == 0) both[result] = (A)found[0], both[of_params.results + result] = (A)found[1];
}

// All of a backward pass whose rows lie within tiles of lanes, each row in `columns` neighbouring lanes (a power of two),
// but for the sums of the parameters, which need `partial` later. The last block that writes sums of a tile merges them
// into those of the statistics.
template <class T, class C, class P, class I, int V, int LANES, int N, bool SAME, bool RELU>
__global__ void __launch_bounds__(256, BLOCKS<C, I, (RELU || V == 8)>)
    relay_backward(Loops<I> loops, I chunk, int chunks, int lag, int columns, const T* dy, const T* x, const T* y,
                   const double* stats, const P* s, T* dx, T* masked, double* sums, double* partial, unsigned* counters,
                   double eps, bool centered, bool guard) {
    const Relay work(counters, chunks, lag);
    const I tile = work.tile, which = work.chunk, rows = loops.statistics;
    if (work.results) {
        const volatile double *const known = stats, *const merged = sums;
        map_lanes<GradInput<C>, true, RELU, N, SAME, T, C, P, I, V, LANES>(
            loops, tile, which * chunk, chunk, x, dy, y, known, merged, s, s, dx, [&] { work.wait(); });
        return;
    }
    grads_of<T, C, P, I, V, LANES, N, true, false, RELU>(
        loops, tile, which, chunks, rows, chunk, dy, x, y, stats, (const P*)nullptr, partial, masked);
    if (!work.last()) return;
    const int of_tile = LANES * V / columns, size = of_tile >= 256 ? 1 : of_tile <= 8 ? 32 : 256 / of_tile;
    const int mine = threadIdx.x / size, lane = threadIdx.x % size;
    const I candidate = tile * of_tile + mine, row = mine < of_tile && candidate < rows ? candidate : 0;
    const volatile double* const parts = partial;
    double found[2] = {0, 0};
    for (int part = lane; part < chunks * columns; part += size) {
        const I result = row * columns + part % columns, from = part / columns * loops.results + result;
        const double weight = s ? widen<double>(s[loops.result(result).param]) : 1;
        found[0] += parts[from] * weight;
        found[1] += parts[chunks * loops.results + from] * weight;
    }
    for (int n = 0; n < 2; n++) found[n] = sum_beside(found[n], size);
    Finish{eps, centered, guard}(stats, rows, row, found[0], found[1]);
    if (lane == 0 && mine < of_tile && candidate < rows) sums[row] = found[0], sums[rows + row] = found[1];
    work.publish();
}
