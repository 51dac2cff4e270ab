// Means and variances of rows that are longer than a block's registers: partial ones by chunks, then merged in order.
//
// Chunk c of a row has its own shift k, near its mean; with t = x - k
//
//     mean_c = k + sum(t) / n,   M2_c = sum(t^2) - sum(t)^2 / n
//
// and two parts merge by Chan's formula. Float sums of a few elements are added up in double. `partial` is
// (2, chunks, rows): the means, then the M2. Not centered: k = 0, the means are 0 and M2_c = sum(x^2).
#include "loops.cuh"
#include "running.cuh"

const int UNROLL = 8;  // packs that a thread adds up in float

// The unit-step loop is reduced: a team of neighbouring threads walks along one row.
template <class T, class C, class I, int V, bool WARP>
__global__ void moments_rows(Loops<I> loops, I chunk, const T* x, double* partial, bool centered) {
    Team<WARP, I> team;
    if (team.index >= loops.results) return;
    const Place<I> row = loops.result(team.index);
    const I first = chunk * blockIdx.y, end = min(first + chunk, loops.terms), step = (I)team.size * V;
    C shift = 0;
    if (centered) {  // about the mean of the first packs: a single far element would be a bad shift
        const C x0 = widen<C>(x[row.data + loops.column(first).data]);
        double sum = 0;
        const I at = first + team.lane * V;
        if (at < end) {
            const Pack<T, V> pack = fetch<T, V>(x, row.data + loops.column(at).data);
            for (int v = 0; v < V; v++) sum += widen<C>(pack.v[v]) - x0;
        }
        shift = (C)(x0 + row_sum<WARP>(sum) / min(step, end - first));
    }
    double sum = 0, squares = 0;
    for (I start = first + team.lane * V; start < end; start += step * UNROLL) {
        C few = 0, few_squares = 0;
        for (int u = 0; u < UNROLL; u++) {
            if (start + u * step >= end) break;
            const Pack<T, V> pack = fetch<T, V>(x, row.data + loops.column(start + u * step).data);
            for (int v = 0; v < V; v++) {
                const C t = widen<C>(pack.v[v]) - shift;
                few += t;
                few_squares += t * t;
            }
        }
        sum += few;
        squares += few_squares;
    }
    double total = squares, rest = sum;
    add_up<WARP>(total, rest);
    if (!(total < 1e300)) {  // a float square overflowed: once more in double
        squares = 0;
        for (I at = first + team.lane * V; at < end; at += step) {
            const Pack<T, V> pack = fetch<T, V>(x, row.data + loops.column(at).data);
            for (int v = 0; v < V; v++) {
                const double t = widen<C>(pack.v[v]) - shift;
                squares += t * t;
            }
        }
        total = row_sum<WARP>(squares);
    }
    if (team.lane == 0) {
        const I at = blockIdx.y * loops.results + row.row, n = end - first;
        partial[at] = centered ? shift + rest / n : 0;
        const double m2 = total - rest * rest / n;
        partial[gridDim.y * loops.results + at] = !centered ? total : m2 < 0 ? 0 : m2;
    }
}

// The unit-step loop is kept: LANES neighbouring threads have V lanes each, and the block's other threads take turns with
// the terms; their sums meet in shared memory.
template <class T, class C, class I, int V, int LANES>
__global__ void moments_lanes(Loops<I> loops, I chunk, const T* x, double* partial, bool centered) {
    const int TEAMS = 256 / LANES, lane = threadIdx.x % LANES, team = threadIdx.x / LANES;
    __shared__ double shared[2][TEAMS][LANES * V];
    const I index = ((I)blockIdx.x * LANES + lane) * V;
    const bool inside = index < loops.results;
    const Place<I> row = loops.result(inside ? index : 0);
    const I first = chunk * blockIdx.y, end = inside ? min(first + chunk, loops.terms) : first;
    C shift[V];
    double sum[V], squares[V];
    for (int v = 0; v < V; v++) shift[v] = 0, sum[v] = squares[v] = 0;
    if (centered) {
        Pack<T, V> x0 = fetch<T, V>(x, row.data + loops.column(first).data);
        for (I at = first + team, u = 0; at < end && u < 4; at += TEAMS, u++) {
            const Pack<T, V> pack = fetch<T, V>(x, row.data + loops.column(at).data);
            for (int v = 0; v < V; v++) sum[v] += widen<C>(pack.v[v]) - widen<C>(x0.v[v]);
        }
        for (int v = 0; v < V; v++) shared[0][team][lane * V + v] = sum[v];
        __syncthreads();
        for (int v = 0; v < V; v++) {
            double all = 0;
            for (int t = 0; t < TEAMS; t++) all += shared[0][t][lane * V + v];
            shift[v] = (C)(widen<C>(x0.v[v]) + all / max((I)1, min((I)(4 * TEAMS), end - first)));
            sum[v] = 0;
        }
        __syncthreads();
    }
    for (I start = first + team; start < end; start += TEAMS * UNROLL) {
        C few[V], few_squares[V];
        for (int v = 0; v < V; v++) few[v] = few_squares[v] = 0;
        for (int u = 0; u < UNROLL; u++) {
            if (start + u * TEAMS >= end) break;
            const Pack<T, V> pack = fetch<T, V>(x, row.data + loops.column(start + u * TEAMS).data);
            for (int v = 0; v < V; v++) {
                const C t = widen<C>(pack.v[v]) - shift[v];
                few[v] += t;
                few_squares[v] += t * t;
            }
        }
        bool large = false;
        for (int v = 0; v < V; v++) large = large || !(few_squares[v] < C(1e38));
        if (large) {
            for (int v = 0; v < V; v++) few_squares[v] = 0;
            for (int u = 0; u < UNROLL && start + u * TEAMS < end; u++) {
                const Pack<T, V> pack = fetch<T, V>(x, row.data + loops.column(start + u * TEAMS).data);
                for (int v = 0; v < V; v++) {
                    const double t = widen<C>(pack.v[v]) - shift[v];
                    squares[v] += t * t;
                }
            }
        }
        for (int v = 0; v < V; v++) {
            sum[v] += few[v];
            squares[v] += few_squares[v];
        }
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
        const I at = blockIdx.y * loops.results + row.row + v;
        const double m2 = total - rest * rest / n;
        partial[at] = centered ? shift[v] + rest / n : 0;
        partial[gridDim.y * loops.results + at] = !centered ? total : m2 < 0 ? 0 : m2;
    }
}

// One thread a row: the chunks one after the other, then k, d, var, rstd. k is the mean as the type computed in has it.
template <class C, class I, class R>
__global__ void merge_moments(I rows, I columns, I chunk, int chunks, const double* partial, double* stats, double eps,
                              bool guard, Running<R> running) {
    const I row = (I)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double mean = partial[row], m2 = partial[chunks * rows + row];
    double n = min(chunk, columns);
    for (int c = 1; c < chunks; c++) {
        const double count = min(chunk, columns - c * chunk), delta = partial[c * rows + row] - mean;
        mean += delta * (count / (n + count));
        m2 += partial[(chunks + c) * rows + row] + delta * delta * (n * count / (n + count));
        n += count;
    }
    const double k = (C)mean, var = m2 / columns;
    stats[row] = k;
    stats[rows + row] = mean - k;
    stats[2 * rows + row] = var;
    stats[3 * rows + row] = rstd_of(var, eps, guard);
    running.update(row, mean, var);
}
