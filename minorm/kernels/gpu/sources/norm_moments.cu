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
// centered: k = 0, the means are 0 and M2_c = sum(x^2). All loads of a batch are in flight before the first is used.
#include "loops.cuh"
#include "merge.cuh"

const int BYTES = 128;  // bytes of a batch; a batch is added up in float
const int PARTS = 8;    // chunks that a thread loads at once

// Reads x as packs of V, one batch after the other, for a thread that begins at `at`.
template <class T, class C, class I, int V, int N> struct Batches {
    static const int SIZE = Batch<T, V, BYTES>::SIZE;
    const T* x;
    Cursor<N, I> cursor;
    const I step, end;
    I at;
    Held<T, V> packs[SIZE];

    __device__ Batches(const Loops<I>& loops, const T* x, I at, I step, I end)
        : x(x), cursor(loops, at, step), step(step), end(end), at(at) {}
    __device__ bool some() const { return at < end; }
    __device__ bool whole() const { return at + (SIZE - 1) * step < end; }

    __device__ void fetch_one(int u) { packs[u] = hold<T, V>(x, cursor.place.data); }
    __device__ void fetch_all() {
        if (whole()) {  // without branches between the loads
#pragma unroll
            for (int u = 0; u < SIZE; u++, cursor.advance()) fetch_one(u);
            return;
        }
#pragma unroll
        for (int u = 0; u < SIZE; u++, cursor.advance())
            if (at + u * step < end) fetch_one(u);
    }
    // Calls use(pack) for each valid pack.
    template <class F> __device__ void each(F use) const {
        const bool all = whole();
#pragma unroll
        for (int u = 0; u < SIZE; u++)
            if (all || at + u * step < end) use(packs[u].template widened<C>());
    }
    __device__ void next() {
        at += step * SIZE;
        fetch_all();
    }
};

// The unit-step loop is reduced: a team of neighbouring threads walks along one row.
template <class T, class C, class I, int V, bool WARP, int N>
__global__ void __launch_bounds__(256, BLOCKS<C, I, 0>)
    moments_rows(Loops<I> loops, I chunk, const T* __restrict__ x, double* __restrict__ partial, bool centered) {
    Team<WARP, I> team;
    if (team.index >= loops.results) return;
    const Place<I> row = loops.result(team.index);
    const I first = chunk * blockIdx.y, end = min(first + chunk, loops.terms), step = (I)team.size * V;
    const I begin = first + team.lane * V;
    x += row.data;
    Batches<T, C, I, V, N> batches(loops, x, begin, step, end);
    batches.fetch_all();
    C shift = 0;
    if (centered) {  // the shift is the mean of the first batch, because a single element may be far off
        const C x0 = widen<C>(x[Cursor<N, I>(loops, first, step).place.data]);
        C few = 0;
        batches.each([&](const Pack<C, V>& pack) {
            for (int v = 0; v < V; v++) few += pack.v[v] - x0;
        });
        shift = x0 + row_sum<WARP>(few) / (C)min(step * batches.SIZE, end - first);
    }
    double parts[2] = {0, 0};
    for (; batches.some(); batches.next()) {
        C sum = 0, squares = 0;
        batches.each([&](const Pack<C, V>& pack) {
            for (int v = 0; v < V; v++) {
                const C t = pack.v[v] - shift;
                sum += t;
                squares += t * t;
            }
        });
        parts[0] += sum;
        parts[1] += squares;
    }
    double totals[2];
    add_up<WARP>(parts, totals);
    if (!(totals[1] < 1e300)) {  // a float square overflowed: once more in double
        double squares = 0;
        Cursor<N, I> again(loops, begin, step);
        for (I at = begin; at < end; at += step, again.advance()) {
            const Pack<T, V> pack = fetch<T, V>(x, again.place.data);
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
// The shift is the mean of the first batch of the first thread.
template <class T, class C, class I, int V, int LANES, int N>
__global__ void __launch_bounds__(256, BLOCKS<C, I, 0>)
    moments_lanes(Loops<I> loops, I chunk, const T* __restrict__ x, double* __restrict__ partial, bool centered) {
    const int TEAMS = 256 / LANES, lane = threadIdx.x % LANES, team = threadIdx.x / LANES;
    __shared__ double shared[2][TEAMS][LANES * V];
    __shared__ C shifts[LANES * V];
    const I index = ((I)blockIdx.x * LANES + lane) * V;
    const bool inside = index < loops.results;
    const I first = chunk * blockIdx.y, last = min(first + chunk, loops.terms), end = inside ? last : first;
    x += loops.result(inside ? index : 0).data;
    Batches<T, C, I, V, N> batches(loops, x, first + team, (I)TEAMS, end);
    batches.fetch_all();
    C shift[V], sum[V], squares[V];
    for (int v = 0; v < V; v++) sum[v] = squares[v] = 0;
    if (team == 0) {
        const Pack<C, V> x0 = batches.packs[0].template widened<C>();
        C count = 0;
        batches.each([&](const Pack<C, V>& pack) {
            count += 1;
            for (int v = 0; v < V; v++) sum[v] += pack.v[v] - x0.v[v];
        });
        for (int v = 0; v < V; v++) {
            shifts[lane * V + v] = centered && inside ? x0.v[v] + sum[v] / count : C(0);
            sum[v] = 0;
        }
    }
    __syncthreads();
    for (int v = 0; v < V; v++) shift[v] = shifts[lane * V + v];
    for (; batches.some(); batches.next())
        batches.each([&](const Pack<C, V>& pack) {
            for (int v = 0; v < V; v++) {
                const C t = pack.v[v] - shift[v];
                sum[v] += t;
                squares[v] += t * t;
            }
        });
    bool large = false;
    for (int v = 0; v < V; v++) {
        shared[0][team][lane * V + v] = sum[v];
        shared[1][team][lane * V + v] = squares[v];
        large = large || !(squares[v] < C(1e38));
    }
    if (large) {  // once more in double
        for (int v = 0; v < V; v++) shared[1][team][lane * V + v] = 0;
        Cursor<N, I> again(loops, first + team, (I)TEAMS);
        for (I at = first + team; at < end; at += TEAMS, again.advance()) {
            const Pack<T, V> pack = fetch<T, V>(x, again.place.data);
            for (int v = 0; v < V; v++) {
                const double t = widen<C>(pack.v[v]) - shift[v];
                shared[1][team][lane * V + v] += t * t;
            }
        }
    }
    knock_out(shared);
    const I n = last - first;
    for (int column = threadIdx.x; column < LANES * V; column += 256) {
        const I result = (I)blockIdx.x * (LANES * V) + column;
        if (result >= loops.results) break;
        const double rest = shared[0][0][column], total = shared[1][0][column], m2 = total - rest * rest / n;
        const I to = blockIdx.y * loops.results + result;
        partial[to] = centered ? shifts[column] + rest / n : 0;
        partial[gridDim.y * loops.results + to] = !centered ? total : m2 < 0 ? 0 : m2;
    }
}

// The parts of each row, `columns` of them in each of its chunks, then k, d, var, rstd. A part has `terms` elements in all
// chunks together. k is the mean, rounded to the type computed in.
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
        for (int u = 0; u < PARTS; u++) {
            const double t = means[u] - mean_0;
            sums[0] += m2[u];
            sums[1] += n[u] * t;
            sums[2] += n[u] * t * t;
        }
    }
    at.add_up(sums);
    if (at.split > 0 || !inside) return;
    const double part = 1.0 / ((double)terms * columns), step = sums[1] * part, mean = mean_0 + step;
    const double m2 = sums[0] + (sums[2] - sums[1] * step), k = (C)mean, var = m2 < 0 ? 0 : m2 * part;  // NaN stays
    stats[row] = k;
    stats[rows + row] = mean - k;
    stats[2 * rows + row] = var;
    stats[3 * rows + row] = rstd_of(var, eps, guard);
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
