// The sums of the gradient: of w * dy and of w * dy * xhat, w = s or 1, over the reduced loops.
//
//     sum_g, sum_gx   w = s, kept loops: those of the statistics
//     db, ds          w = 1, kept loops: those along which scale and bias vary
//
// Partial sums by chunks, (2, chunks, results), are merged in order. If scale and bias do not vary along some reduced
// loop, one pass serves both. Then a run is one turn of all other loops, and `partial` has the sums of runs with w = 1.
// Runs are added up twice: weighted by s for the statistics, and along other loops for the parameters. All loads of a
// batch are in flight before the first is used. If a ReLU followed, dy counts as 0 where y <= 0; `masked`, if it is
// given, gets this dy.
#include "ending.cuh"
#include "loops.cuh"
#include "merge.cuh"

const int BYTES = 64;  // bytes of a batch of each array; a batch is added up in float
const int PARTS = 4;   // partial sums that a thread loads at once

// Reads dy and x as packs of V, one batch after the other, for a thread that begins at `at`.
template <int SIZE, bool RELU, class T, class C, class I, int V, int N> struct Batches {
    const T *dy, *x, *y;
    T* masked;
    Cursor<N, I> cursor;
    const I from, step, end;
    I at;
    Held<T, V> of_dy[SIZE], of_x[SIZE], of_y[RELU ? SIZE : 1];
    Place<I> terms[SIZE];

    __device__ Batches(const Loops<I>& loops, const T* dy, const T* x, const T* y, T* masked, I from, I at, I step, I end)
        : dy(dy), x(x), y(y), masked(masked), cursor(loops, at, step), from(from), step(step), end(end), at(at) {}
    __device__ bool some() const { return at < end; }
    __device__ bool whole() const { return at + (SIZE - 1) * step < end; }

    __device__ void fetch_one(int u) {
        of_dy[u] = hold<T, V>(dy, from + terms[u].data);
        of_x[u] = hold<T, V>(x, from + terms[u].data);
        if (RELU) of_y[u] = hold<T, V>(y, from + terms[u].data);
    }
    __device__ void fetch_all() {
#pragma unroll
        for (int u = 0; u < SIZE; u++, cursor.advance()) terms[u] = cursor.place;
        if (whole()) {  // without branches between the loads
#pragma unroll
            for (int u = 0; u < SIZE; u++) fetch_one(u);
            return;
        }
#pragma unroll
        for (int u = 0; u < SIZE; u++)
            if (at + u * step < end) fetch_one(u);
    }
    // Calls use(dy, x, term) for each valid pack; behind a ReLU dy is masked, and written to `masked`.
    template <class F> __device__ void each(F use) const {
        const bool all = whole();
#pragma unroll
        for (int u = 0; u < SIZE; u++) {
            if (!all && at + u * step >= end) break;
            Pack<C, V> given = of_dy[u].template widened<C>();
            if (RELU) mask(given, of_y[RELU ? u : 0].template widened<C>());
            if (RELU && masked) put_rounded(masked, from + terms[u].data, given);
            use(given, of_x[u].template widened<C>(), terms[u]);
        }
    }
    __device__ void next() { at += step * SIZE; }
};

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
    Batches<Batch<T, V, BYTES>::SIZE, RELU, T, C, I, V, N> batches(loops, dy, x, y, masked, result.data, first + team.lane * V, step, end);
    double parts[2] = {0, 0};
    for (; batches.some(); batches.next()) {
        batches.fetch_all();
        C few_g = 0, few_gx = 0;
        batches.each([&](const Pack<C, V>& of_dy, const Pack<C, V>& of_x, const Place<I>& term) {
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
// has so few terms that it adds them up in float.
template <class T, class C, class P, class I, int V, int LANES, int N, bool ONE_ROW, bool RAGGED, bool RELU>
__global__ void __launch_bounds__(256, BLOCKS<C, I, RELU + !ONE_ROW>)
    grads_lanes(Loops<I> loops, I rows, I chunk, const T* __restrict__ dy, const T* __restrict__ x,
                const T* __restrict__ y, const double* __restrict__ stats, const P* __restrict__ s,
                double* __restrict__ partial, T* __restrict__ masked) {
    const int TEAMS = 256 / LANES, lane = threadIdx.x % LANES, team = threadIdx.x / LANES;
    __shared__ double shared[2][TEAMS][LANES * V];
    const I index = ((I)blockIdx.x * LANES + lane) * V;
    const bool inside = index < loops.results;
    Place<I> results[V];
    results_of<RAGGED>(loops, inside ? index : 0, results);
    const Place<I> result = results[0];
    const I first = chunk * blockIdx.y, end = inside ? min(first + chunk, loops.terms) : first;
    const I param_step = loops.kept[3].param;
    Statistics<C> stat[V];
    C sum_g[V], sum_gx[V];
    for (int v = 0; v < V; v++) {
        stat[v] = Statistics<C>(stats, rows, results[v].row);
        sum_g[v] = sum_gx[v] = 0;
    }
    Batches<Batch<C, V, BYTES>::SIZE, RELU, T, C, I, V, N> batches(
        loops, dy, x, y, masked, result.data, first + team, (I)TEAMS, end);
    for (; batches.some(); batches.next()) {
        batches.fetch_all();
        batches.each([&](const Pack<C, V>& of_dy, const Pack<C, V>& of_x, const Place<I>& term) {
            Pack<C, V> scale;
            if (s && !RAGGED) scale = parameters<C, V>(s, result.param + term.param, param_step, C(1));
            if (s && RAGGED)
                for (int v = 0; v < V; v++) scale.v[v] = widen<C>(s[results[v].param + term.param]);
#pragma unroll
            for (int v = 0; v < V; v++) {
                if (!ONE_ROW) stat[v] = Statistics<C>(stats, rows, results[v].row + term.row);
                C g = of_dy.v[v];
                if (s) g *= scale.v[v];
                sum_g[v] += g;
                sum_gx[v] += g * stat[v].xhat(of_x.v[v]);
            }
        });
    }
    for (int v = 0; v < V; v++) {
        shared[0][team][lane * V + v] = sum_g[v];
        shared[1][team][lane * V + v] = sum_gx[v];
    }
    knock_out(shared);
    for (int column = threadIdx.x; column < LANES * V; column += 256) {
        const I to = (I)blockIdx.x * (LANES * V) + column;
        if (to >= loops.results) break;
        partial[blockIdx.y * loops.results + to] = shared[0][0][column];
        partial[(gridDim.y + blockIdx.y) * loops.results + to] = shared[1][0][column];
    }
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
// those of the parameters (2, params). `second` is the distance from the sums of dy to those of dy * xhat.
template <class A, class I, class P, bool WARP>
__global__ void __launch_bounds__(LARGEST_TEAM<I>, 1)
    merge_runs(Loops<I> of_rows, Loops<I> of_params, I second, const double* __restrict__ partial,
               const P* __restrict__ s, const double* __restrict__ stats, double eps, bool centered, bool guard,
               double* __restrict__ sums, A* __restrict__ both) {
    Team<WARP, I> team;
    double found[2];
    if (team.index < of_rows.results) {
        add_runs<WARP>(of_rows, team.index, second, team.lane, team.size, partial, s, found);
        Finish{eps, centered, guard}(stats, of_rows.results, team.index, found[0], found[1]);
        if (team.lane == 0) sums[team.index] = found[0], sums[of_rows.results + team.index] = found[1];
    } else if (team.index - of_rows.results < of_params.results) {
        const I result = team.index - of_rows.results;
        add_runs<WARP>(of_params, result, second, team.lane, team.size, partial, (const P*)nullptr, found);
        if (team.lane == 0) both[result] = (A)found[0], both[of_params.results + result] = (A)found[1];
    }
}
