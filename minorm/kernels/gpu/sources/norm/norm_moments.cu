// Means and variances of rows that do not fit into a block's registers: first those of chunks, which then merge in
// order.
//
// Chunk c of a row has a separate shift k, near its mean; with t = x - k
//
//     mean_c = k + sum(t) / n,   M2_c = sum(t^2) - sum(t)^2 / n
//
// and with t_c = mean_c - mean_0 the chunks merge into
//
//     mean = mean_0 + sum(n_c t_c) / n,   M2 = sum(M2_c) + sum(n_c t_c^2) - sum(n_c t_c)^2 / n
//
// Float sums of a few elements, 64 at most, are added up in double. `partial` is (2, chunks, rows): the means, then the M2. Not
// centered: k = 0, the means are 0 and M2_c = sum(x^2).
#include "map.cuh"
#include "merge.cuh"

const int BYTES = 128;  // bytes of a batch; a batch is added up in float
const int PARTS = 8;    // chunks that a thread loads at once

// The unit-step loop is reduced: a team of neighbouring threads walks along one row.
template <class T, class C, class I, int V, bool WARP, int N>
__global__ void __launch_bounds__(256, BLOCKS<C, I, 0>)
    moments_rows(Loops<I> loops, I chunk, const T* __restrict__ x, double* __restrict__ partial, bool centered) {
    Team<WARP, I> team;
    if (team.index >= loops.results) return;
    const Place<I> row = loops.result(team.index);
    const I first = chunk * blockIdx.y, end = min(first + chunk, loops.terms), step = (I)team.size * V;
    const I begin = first + team.lane * V;
    Batches<1, Batch<T, V, BYTES>::SIZE, T, I, V, N> batches(loops, x, x, x, row.data, begin, step, end);
    batches.fetch();
    C shift = 0;
    if (centered) {  // the shift is the mean of the first batch, because a single element may be far off
        const C x0 = widen<C>(x[row.data + Cursor<N, I>(loops, first, step).place.data]);
        C few = 0;
        batches.each([&](int u) {
            const Pack<C, V> pack = batches.template of<C>(0, u);
            for (int v = 0; v < V; v++) few += pack.v[v] - x0;
        });
        shift = x0 + row_sum<WARP>(few) / (C)min(step * Batch<T, V, BYTES>::SIZE, end - first);
    }
    double parts[2] = {0, 0};
    while (batches.some()) {
        C sum = 0, squares = 0;
        batches.each([&](int u) {
            const Pack<C, V> pack = batches.template of<C>(0, u);
            for (int v = 0; v < V; v++) {
                const C t = pack.v[v] - shift;
                sum += t;
                squares += t * t;
            }
        });
        parts[0] += sum;
        parts[1] += squares;
        batches.next();
        batches.fetch();
    }
    double totals[2];
    add_up<WARP>(parts, totals);
    if (!(totals[1] < 1e300)) {  // a float square overflowed: once more in double
        double squares = 0;
        Cursor<N, I> again(loops, begin, step);
        for (I at = begin; at < end; at += step, again.advance()) {
            const Pack<T, V> pack = fetch<T, V>(x, row.data + again.place.data);
            for (int v = 0; v < V; v++) {
                const double t = widen<C>(pack.v[v]) - shift;
                squares += t * t;
            }
        }
        totals[1] = row_sum<WARP>(squares);
    }
    if (team.lane == 0) {
        const I to = blockIdx.y * loops.results + row.row, n = end - first;
        partial[to] = centered ? shift + totals[0] / n : 0;
        const double m2 = totals[1] - totals[0] * totals[0] / n;
        partial[gridDim.y * loops.results + to] = !centered ? totals[1] : m2 < 0 ? 0 : m2;
    }
}

// The unit-step loop is kept: LANES neighbouring threads have V lanes each, and the block's other threads take the
// terms in turn. Each has so few terms that it adds them up in float (norm_plan.py); shared memory joins their sums.
// The shift is the mean of the first batch of the first thread. In shared memory lane v of a thread is LANES places from
// lane v - 1, so that neighbouring threads use neighbouring banks.
template <class T, class C, class I, int V, int LANES, int N>
__device__ inline void moments_of(const Loops<I>& loops, I tile, I which, I chunks, I chunk, const T* __restrict__ x,
                                  double* __restrict__ partial, bool centered) {
    const int TEAMS = 256 / LANES, lane = threadIdx.x % LANES, team = threadIdx.x / LANES;
    __shared__ double shared[2][TEAMS][LANES * V];
    __shared__ C shifts[LANES * V];
    const I index = (tile * LANES + lane) * V;
    const bool inside = index < loops.results;
    const I first = chunk * which, last = min(first + chunk, loops.terms), end = inside ? last : first;
    const I from = loops.result(inside ? index : 0).data;
    Batches<1, Batch<T, V, BYTES>::SIZE, T, I, V, N> batches(loops, x, x, x, from, first + team, (I)TEAMS, end);
    batches.fetch();
    C shift[V], sum[V], squares[V];
    for (int v = 0; v < V; v++) sum[v] = squares[v] = 0;
    if (team == 0) {
        const Pack<C, V> x0 = batches.template of<C>(0, 0);
        C count = 0;
        batches.each([&](int u) {
            const Pack<C, V> pack = batches.template of<C>(0, u);
            count += 1;
            for (int v = 0; v < V; v++) sum[v] += pack.v[v] - x0.v[v];
        });
        for (int v = 0; v < V; v++) {
            shifts[v * LANES + lane] = centered && inside ? x0.v[v] + sum[v] / count : C(0);
            sum[v] = 0;
        }
    }
    __syncthreads();
    for (int v = 0; v < V; v++) shift[v] = shifts[v * LANES + lane];
    while (batches.some()) {
        batches.each([&](int u) {
            const Pack<C, V> pack = batches.template of<C>(0, u);
            for (int v = 0; v < V; v++) {
                const C t = pack.v[v] - shift[v];
                sum[v] += t;
                squares[v] += t * t;
            }
        });
        batches.next();
        batches.fetch();
    }
    bool large = false;
    for (int v = 0; v < V; v++) {
        shared[0][team][v * LANES + lane] = sum[v];
        shared[1][team][v * LANES + lane] = squares[v];
        large = large || !(squares[v] < C(1e38));
    }
    if (large) {  // once more in double
        for (int v = 0; v < V; v++) shared[1][team][v * LANES + lane] = 0;
        Cursor<N, I> again(loops, first + team, (I)TEAMS);
        for (I at = first + team; at < end; at += TEAMS, again.advance()) {
            const Pack<T, V> pack = fetch<T, V>(x, from + again.place.data);
            for (int v = 0; v < V; v++) {
                const double t = widen<C>(pack.v[v]) - shift[v];
                shared[1][team][v * LANES + lane] += t * t;
            }
        }
    }
    knock_out(shared);
    const I n = last - first;
    for (int at = threadIdx.x; at < LANES * V; at += 256) {
        const I result = (tile * LANES + at % LANES) * V + at / LANES;
        if (result >= loops.results) continue;
        const double rest = shared[0][0][at], total = shared[1][0][at], m2 = total - rest * rest / n;
        const I to = which * loops.results + result;
        partial[to] = centered ? shifts[at] + rest / n : 0;
        partial[chunks * loops.results + to] = !centered ? total : m2 < 0 ? 0 : m2;
    }
}

template <class T, class C, class I, int V, int LANES, int N>
__global__ void __launch_bounds__(256, BLOCKS<C, I, (V == 8 && N > 1)>)
    moments_lanes(Loops<I> loops, I chunk, const T* __restrict__ x, double* __restrict__ partial, bool centered) {
    moments_of<T, C, I, V, LANES, N>(loops, blockIdx.x, blockIdx.y, gridDim.y, chunk, x, partial, centered);
}

// Adds part `part` of n elements to `sums`: of the M2, of n t, of n t^2.
__device__ inline void add_part(double mean, double m2, double n, double mean_0, double (&sums)[3]) {
    const double t = mean - mean_0;
    sums[0] += m2;
    sums[1] += n * t;
    sums[2] += n * t * t;
}

// Writes k, d, var, rstd of a row. k is the mean, rounded to the type computed in.
template <class C, class I>
__device__ inline void write_statistics(double* stats, I rows, I row, double mean_0, const double (&sums)[3], double part,
                                        double eps, bool guard) {
    const double step = sums[1] * part, mean = mean_0 + step;
    const double m2 = sums[0] + (sums[2] - sums[1] * step), k = (C)mean, var = m2 < 0 ? 0 : m2 * part;  // NaN stays
    stats[row] = k;
    stats[rows + row] = mean - k;
    stats[2 * rows + row] = var;
    stats[3 * rows + row] = rstd_of(var, eps, guard);
}

// The parts of each row, `columns` of them in each of its chunks, then k, d, var, rstd. A part has `terms` elements in all
// chunks together.
template <class C, class I, int SPLITS>
__global__ void __launch_bounds__(Merge<SPLITS, I>::THREADS)
    merge_moments(I rows, I columns, I terms, I chunk, int chunks, const double* __restrict__ partial,
                  double* __restrict__ stats, double eps, bool guard) {
    const Merge<SPLITS, I> at;
    const bool inside = at.result < rows;
    const I row = inside ? at.result : 0, parts = chunks * columns, second = parts * rows;
    const double mean_0 = partial[row * columns];
    double sums[3] = {0, 0, 0};  // of the M2, of n t, of n t^2
    for (I first = at.split; first < parts; first += SPLITS * PARTS) {
        double means[PARTS], m2[PARTS], n[PARTS];
#pragma unroll
        for (int u = 0; u < PARTS; u++) {
            const I part = first + u * SPLITS, c = columns == 1 ? part : part / columns;
            means[u] = m2[u] = n[u] = 0;
            if (part < parts) {
                const I from = (c * rows + row) * columns + (part - c * columns);
                means[u] = partial[from];
                m2[u] = partial[second + from];
                n[u] = min(chunk, terms - c * chunk);
            }
        }
#pragma unroll
        for (int u = 0; u < PARTS; u++) add_part(means[u], m2[u], n[u], mean_0, sums);
    }
    at.add_up(sums);
    if (at.split > 0 || !inside) return;
    write_statistics<C>(stats, rows, row, mean_0, sums, 1.0 / ((double)terms * columns), eps, guard);
}

// All of a forward pass whose rows lie within tiles of lanes, each row in `columns` neighbouring lanes (a power of two).
// The last block that writes moments of a tile merges them.
template <class T, class C, class P, class I, int V, int LANES, int N, bool SAME, int ENDING>
__global__ void __launch_bounds__(256, BLOCKS<C, I, (ENDING == RESIDUAL_RELU || V == 8)>)
    relay_forward(Loops<I> loops, I chunk, int chunks, int lag, int columns, const T* x, const P* s, const P* b,
                  const T* residual, T* y, double* stats, double* partial, unsigned* counters, double eps, bool centered,
                  bool guard) {
    const Relay work(counters, chunks, lag);
    const I tile = work.tile, which = work.chunk, rows = loops.statistics;
    if (work.results) {
        const volatile double* const merged = stats;
        map_lanes<Apply<C>, false, ENDING, N, SAME, T, C, P, I, V, LANES>(
            loops, tile, which * chunk, chunk, x, residual, x, merged, merged, s, b, y, [&] { work.wait(); });
        return;
    }
    moments_of<T, C, I, V, LANES, N>(loops, tile, which, chunks, chunk, x, partial, centered);
    if (!work.last()) return;
    const int of_tile = LANES * V / columns, size = of_tile >= 256 ? 1 : of_tile <= 8 ? 32 : 256 / of_tile;
    const int mine = threadIdx.x / size, lane = threadIdx.x % size;
    const I found = tile * of_tile + mine, row = mine < of_tile && found < rows ? found : 0;
    const volatile double* const parts = partial;
    const double mean_0 = parts[row * columns];
    double sums[3] = {0, 0, 0};
    for (int part = lane; part < chunks * columns; part += size) {
        const int c = part / columns;
        const I from = c * loops.results + row * columns + part % columns;
        add_part(parts[from], parts[chunks * loops.results + from], min(chunk, loops.terms - c * chunk), mean_0, sums);
    }
    for (int n = 0; n < 3; n++) sums[n] = sum_beside(sums[n], size);
    if (lane == 0 && mine < of_tile && found < rows)
        write_statistics<C>(stats, rows, row, mean_0, sums, loops.part, eps, guard);
    work.publish();
}

// k, d, var, rstd of a given mean and variance, in type R.
template <class C, class I, class R>
__global__ void given_moments(I rows, const R* __restrict__ mean, const R* __restrict__ var, double eps, bool guard,
                              double* __restrict__ stats) {
    const I row = (I)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const double whole = widen<double>(mean[row]), k = (C)whole, of = widen<double>(var[row]);
    stats[row] = k;
    stats[rows + row] = whole - k;
    stats[2 * rows + row] = of;
    stats[3 * rows + row] = rstd_of(of, eps, guard);
}
