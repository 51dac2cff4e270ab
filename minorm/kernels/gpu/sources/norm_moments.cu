// Means and variances of rows that are longer than a block's registers: partial ones by chunks, then merged in order.
//
// Chunk c of a row has its own shift k, near its mean; with t = x - k
//
//     mean_c = k + sum(t) / n,   M2_c = sum(t^2) - sum(t)^2 / n
//
// and with t_c = mean_c - mean_0 the chunks merge into
//
//     mean = mean_0 + sum(n_c t_c) / n,   M2 = sum(M2_c) + sum(n_c t_c^2) - sum(n_c t_c)^2 / n
//
// Float sums of a few elements are added up in double. `partial` is (2, chunks, rows): the means, then the M2. Not
// centered: k = 0, the means are 0 and M2_c = sum(x^2). All loads of a batch are on their way before the first is used.
#include "loops.cuh"
#include "merge.cuh"
#include "running.cuh"

const int BYTES = 128;  // of a batch, widened; it is added up in float
const int PARTS = 4;    // chunks that a thread has on their way

template <class T, int V, int BATCH, class I>
__device__ inline void fetch_batch(Pack<T, V> (&packs)[BATCH], const T* __restrict__ x, Cursor<2, I>& cursor, I at,
                                   I step, I end) {
#pragma unroll
    for (int u = 0; u < BATCH; u++) {
        if (at + u * step < end) packs[u] = fetch<T, V>(x, cursor.place.data);
        cursor.advance();
    }
}

// The unit-step loop is reduced: a team of neighbouring threads walks along one row.
template <class T, class C, class I, int V, bool WARP>
__global__ void moments_rows(Loops<I> loops, I chunk, const T* __restrict__ x, double* __restrict__ partial,
                             bool centered) {
    Team<WARP, I> team;
    if (team.index >= loops.results) return;
    const Place<I> row = loops.result(team.index);
    const I first = chunk * blockIdx.y, end = min(first + chunk, loops.terms), step = (I)team.size * V;
    const I begin = first + team.lane * V;
    x += row.data;
    const int BATCH = Batch<C, V, BYTES>::SIZE;
    Pack<T, V> packs[BATCH];
    Cursor<2, I> cursor(loops, begin, step);
    I at = begin;
    fetch_batch(packs, x, cursor, at, step, end);
    C shift = 0;
    if (centered) {  // about the mean of the first batch: a single far element would be a bad shift
        const C x0 = widen<C>(x[Cursor<2, I>(loops, first, step).place.data]);
        C few = 0;
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            if (at + u * step < end)
                for (int v = 0; v < V; v++) few += widen<C>(packs[u].v[v]) - x0;
        shift = (C)(x0 + row_sum<WARP>((double)few) / min(step * BATCH, end - first));
    }
    double sum = 0, squares = 0;
    while (at < end) {
        C few = 0, few_squares = 0;
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            if (at + u * step < end)
                for (int v = 0; v < V; v++) {
                    const C t = widen<C>(packs[u].v[v]) - shift;
                    few += t;
                    few_squares += t * t;
                }
        sum += few;
        squares += few_squares;
        at += step * BATCH;
        fetch_batch(packs, x, cursor, at, step, end);
    }
    double total = squares, rest = sum;
    add_up<WARP>(total, rest);
    if (!(total < 1e300)) {  // a float square overflowed: once more in double
        squares = 0;
        Cursor<2, I> again(loops, begin, step);
        for (at = begin; at < end; at += step, again.advance()) {
            const Pack<T, V> pack = fetch<T, V>(x, again.place.data);
            for (int v = 0; v < V; v++) {
                const double t = widen<C>(pack.v[v]) - shift;
                squares += t * t;
            }
        }
        total = row_sum<WARP>(squares);
    }
    if (team.lane == 0) {
        const I to = blockIdx.y * loops.results + row.row, n = end - first;
        partial[to] = centered ? shift + rest / n : 0;
        const double m2 = total - rest * rest / n;
        partial[gridDim.y * loops.results + to] = !centered ? total : m2 < 0 ? 0 : m2;
    }
}

// The unit-step loop is kept: LANES neighbouring threads have V lanes each, and the block's other threads take turns with
// the terms; their sums meet in shared memory.
template <class T, class C, class I, int V, int LANES>
__global__ void moments_lanes(Loops<I> loops, I chunk, const T* __restrict__ x, double* __restrict__ partial,
                              bool centered) {
    const int TEAMS = 256 / LANES, lane = threadIdx.x % LANES, team = threadIdx.x / LANES;
    __shared__ double shared[2][TEAMS][LANES * V];
    const I index = ((I)blockIdx.x * LANES + lane) * V;
    const bool inside = index < loops.results;
    const Place<I> row = loops.result(inside ? index : 0);
    const I first = chunk * blockIdx.y, end = inside ? min(first + chunk, loops.terms) : first, step = TEAMS;
    x += row.data;
    const int BATCH = Batch<C, V, BYTES>::SIZE;
    Pack<T, V> packs[BATCH];
    I at = first + team;
    Cursor<2, I> cursor(loops, at, step);
    fetch_batch(packs, x, cursor, at, step, end);
    C shift[V];
    double sum[V], squares[V];
    for (int v = 0; v < V; v++) shift[v] = 0, sum[v] = squares[v] = 0;
    if (centered) {
        const Pack<T, V> x0 = fetch<T, V>(x, Cursor<2, I>(loops, first, step).place.data);
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            if (at + u * step < end)
                for (int v = 0; v < V; v++) sum[v] += widen<C>(packs[u].v[v]) - widen<C>(x0.v[v]);
        for (int v = 0; v < V; v++) shared[0][team][lane * V + v] = sum[v];
        __syncthreads();
        for (int v = 0; v < V; v++) {
            double all = 0;
            for (int t = 0; t < TEAMS; t++) all += shared[0][t][lane * V + v];
            shift[v] = (C)(widen<C>(x0.v[v]) + all / max((I)1, min(step * BATCH, end - first)));
            sum[v] = 0;
        }
        __syncthreads();
    }
    while (at < end) {
        C few[V], few_squares[V];
        for (int v = 0; v < V; v++) few[v] = few_squares[v] = 0;
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            if (at + u * step < end)
                for (int v = 0; v < V; v++) {
                    const C t = widen<C>(packs[u].v[v]) - shift[v];
                    few[v] += t;
                    few_squares[v] += t * t;
                }
        bool large = false;
        for (int v = 0; v < V; v++) large = large || !(few_squares[v] < C(1e38));
        if (large) {  // once more in double
            for (int v = 0; v < V; v++) few_squares[v] = 0;
#pragma unroll
            for (int u = 0; u < BATCH; u++)
                if (at + u * step < end)
                    for (int v = 0; v < V; v++) {
                        const double t = widen<C>(packs[u].v[v]) - shift[v];
                        squares[v] += t * t;
                    }
        }
        for (int v = 0; v < V; v++) {
            sum[v] += few[v];
            squares[v] += few_squares[v];
        }
        at += step * BATCH;
        fetch_batch(packs, x, cursor, at, step, end);
    }
    for (int v = 0; v < V; v++) {
        shared[0][team][lane * V + v] = sum[v];
        shared[1][team][lane * V + v] = squares[v];
    }
    __syncthreads();
    if (team > 0 || !inside) return;
    const I n = end - first;
    for (int v = 0; v < V; v++) {
        double rest = 0, total = 0;
        for (int t = 0; t < TEAMS; t++) {
            rest += shared[0][t][lane * V + v];
            total += shared[1][t][lane * V + v];
        }
        const I to = blockIdx.y * loops.results + row.row + v;
        const double m2 = total - rest * rest / n;
        partial[to] = centered ? shift[v] + rest / n : 0;
        partial[gridDim.y * loops.results + to] = !centered ? total : m2 < 0 ? 0 : m2;
    }
}

// The chunks of each row, then k, d, var, rstd. k is the mean as the type computed in has it.
template <class C, class I, int SPLITS, class R>
__global__ void __launch_bounds__(Merge<SPLITS, I>::THREADS)
    merge_moments(I rows, I columns, I chunk, int chunks, const double* __restrict__ partial,
                  double* __restrict__ stats, double eps, bool guard, Running<R> running) {
    const Merge<SPLITS, I> at;
    const bool inside = at.result < rows;
    const I row = inside ? at.result : 0;
    const double mean_0 = partial[row];
    double sums[3] = {0, 0, 0};  // of the M2, of n t, of n t^2
    for (int first = at.split; first < chunks; first += SPLITS * PARTS) {
        double means[PARTS], m2[PARTS], n[PARTS];
#pragma unroll
        for (int u = 0; u < PARTS; u++) {
            const int c = first + u * SPLITS;
            means[u] = m2[u] = n[u] = 0;
            if (c < chunks) {
                means[u] = partial[c * rows + row];
                m2[u] = partial[(chunks + c) * rows + row];
                n[u] = min(chunk, columns - c * chunk);
            }
        }
#pragma unroll
        for (int u = 0; u < PARTS; u++) {
            const double t = means[u] - mean_0;
            sums[0] += m2[u];
            sums[1] += n[u] * t;
            sums[2] += n[u] * t * t;
        }
    }
    at.add_up(sums);
    const bool writes = at.split == 0 && inside;
    if (writes) {
        const double step = sums[1] / columns, mean = mean_0 + step, m2 = sums[0] + (sums[2] - sums[1] * step);
        const double k = (C)mean, var = m2 < 0 ? 0 : m2 / columns;  // NaN stays
        stats[row] = k;
        stats[rows + row] = mean - k;
        stats[2 * rows + row] = var;
        stats[3 * rows + row] = rstd_of(var, eps, guard);
        running.update(row, mean, var);
    }
    running.template finish<false>(stats, rows, writes, (int)threadIdx.x, (int)blockDim.x);
}
