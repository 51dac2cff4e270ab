// Normalizes rows that fit into the registers of a team (some lanes of a warp, or a block): each row is read once, and
// everything else happens on the chip.
//
//     forward   k = mean, d = mean(x - k), var = mean((x - k)^2) - d^2, y = ((x - k) - d) * rstd * s + b,
//               or max(y + residual, 0)
//     backward  dx = rstd * (g - mean(g) - xhat * mean(g * xhat) * slope),  g = dy * s; behind a ReLU dy is 0 where y <= 0
//
// Thread `lane` of a team keeps E packs of V neighbours: those at (lane + e * team) * V. T, C, P: the types of the
// data, of the arithmetic, of scale and bias; I: of indices; SAME: scale and bias are the same for a whole row. In
// forward a team has one row, and many teams on a multiprocessor keep its memory busy. In backward, sums for scale and
// bias take registers and leave room for few teams, so a team takes rows in turn, and reads the next row while it adds
// up this one.
#include "ending.cuh"
#include "loops.cuh"
#include "running.cuh"

// A thread reads the next row ahead if its part has at most so many bytes of each array, and numbers take one register.
const int AHEAD = 32;

// Calls use(element) for each element that a thread has of a row.
template <class C, class T, int V, int E, class I, class F>
__device__ __forceinline__ void each(const Held<T, V> (&x)[E], I begin, I step, I columns, F use) {
#pragma unroll
    for (int e = 0; e < E; e++) {
        if (begin + e * step >= columns) break;
        const Pack<C, V> pack = x[e].template widened<C>();
#pragma unroll
        for (int v = 0; v < V; v++) use(pack.v[v]);
    }
}

template <class T, class C, class P, class I, int V, int E, int LANES, int N, bool SAME, class R, int ENDING>
__global__ void __launch_bounds__(ROW_THREADS<C, I>, 1)
    row_forward(Loops<I> loops, const T* __restrict__ x, const P* __restrict__ s, const P* __restrict__ b,
                const T* __restrict__ residual, T* __restrict__ y, double* __restrict__ stats, double eps, bool centered,
                bool guard, Running<R> running) {
    const Turns<LANES, I> team(loops.results);
    if (!team.some()) return;
    const I begin = (I)team.lane * V, step = (I)team.size * V, rows = loops.results, columns = loops.terms;
    const I param_step = SAME ? 0 : loops.reduced[3].param;
    const bool sum = ENDING == RESIDUAL_RELU;
    const Place<I> row = loops.result(team.inside() ? team.index : 0);
    Held<T, V> kept[E], added[sum ? E : 1];
    Cursor<N, I> reading(loops, begin, step);
#pragma unroll
    for (int e = 0; e < E; e++, reading.advance())
        if (begin + e * step < columns) {
            kept[e] = hold<T, V>(x, row.data + reading.place.data);
            if (sum) added[sum ? e : 0] = hold<T, V>(residual, row.data + reading.place.data);
        }
    double k, d, var;
    const auto each_of_row = [&](auto use) { each<C>(kept, begin, step, columns, use); };
    statistics_of<LANES>(each_of_row, widen<C>(x[row.data]), loops.part, centered, k, d, var);
    const double rstd = rstd_of(var, eps, guard);
    const bool writes = team.lane == 0 && team.inside();
    if (writes) {
        stats[row.row] = k;
        stats[rows + row.row] = d;
        stats[2 * rows + row.row] = var;
        stats[3 * rows + row.row] = rstd;
        running.update(row.row, k + d, var);
    }
    const C shift = (C)k, offset = (C)d, factor = (C)rstd;
    Cursor<N, I> writing(loops, begin, step);  // not a copy of an earlier cursor, which would take registers all the time
    Unrolled<E>::run([&](int e) {
        if (begin + e * step >= columns || !team.inside()) return;
        const I param = row.param + (SAME ? 0 : writing.place.param);
        const Pack<C, V> scale = parameters<C, V>(s, param, param_step, C(1));
        const Pack<C, V> bias = parameters<C, V>(b, param, param_step, C(0));
        const Pack<C, V> in = kept[e].template widened<C>();
        Pack<C, V> more, out;
        if (sum) more = added[sum ? e : 0].template widened<C>();
#pragma unroll
        for (int v = 0; v < V; v++) {
            const C xhat = product((in.v[v] - shift) - offset, factor);
            const C value = affine(xhat, scale.v[v], bias.v[v], s, b);
            out.v[v] = finished<ENDING, T>(value, more.v[v]);
        }
        put_rounded(y, row.data + writing.place.data, out);
        writing.advance();
    });
    const int lane = LANES ? threadIdx.x % 32 : threadIdx.x;
    running.template finish<LANES != 0>(stats, rows, writes, lane, LANES ? 32 : team.size);
}

// The use of the sums for scale and bias.
enum Gradients {
    NONE,         // there are no sums
    OF_ROW,       // one scale per row: sum(dy) and sum(dy * xhat) of each row go to `param_sums` (2, rows), or to
                  // `row_sums` if another row has the same scale
    OF_ELEMENTS,  // one scale per column: each block adds up its rows, and writes to `param_sums` (2, blocks, columns)
};

// dy, x and y of a row, and its statistics. If a team has several rows, they are read during the work on the previous
// row.
template <bool RELU, class T, class C, class I, int V, int E> struct Row {
    Held<T, V> dy[E], x[E], y[RELU ? E : 1];
    Statistics<C> stat;
    Place<I> place;
};

template <class T, class C, class P, class I, int V, int E, int LANES, int N, bool SAME, int GRADIENTS, bool RELU>
__global__ void __launch_bounds__(512, 1)
    row_backward(Loops<I> loops, const T* __restrict__ dy, const T* __restrict__ x, const T* __restrict__ y,
                 const double* __restrict__ stats, const P* __restrict__ s, T* __restrict__ dx, T* __restrict__ masked,
                 double* __restrict__ row_sums, C* __restrict__ param_sums, double eps, bool centered, bool guard) {
    Turns<LANES, I> team(loops.results);
    const I begin = (I)team.lane * V, step = (I)team.size * V, rows = loops.results, columns = loops.terms;
    const I param_step = SAME ? 0 : loops.reduced[3].param;
    const bool ahead = sizeof(C) == 4 && sizeof(T) * V * E * (RELU ? 2 : 1) <= AHEAD;
    const bool of_columns = GRADIENTS == OF_ELEMENTS, keeps = of_columns && ahead;  // scale, which all rows share
    const Cursor<N, I> start(loops, begin, step);
    C of_scale[of_columns ? E * V : 1], of_bias[of_columns ? E * V : 1];
    Pack<C, V> scales[keeps ? E : 1];
    if (of_columns) {
        Cursor<N, I> cursor = start;
#pragma unroll
        for (int e = 0; e < E; e++, cursor.advance()) {
            if (keeps && begin + e * step < columns)
                scales[keeps ? e : 0] = parameters<C, V>(s, cursor.place.param, param_step, C(1));
#pragma unroll
            for (int v = 0; v < V; v++) of_scale[e * V + v] = of_bias[e * V + v] = 0;
        }
    }
    const auto scale_of = [&](int e, I param) {
        return keeps ? scales[keeps ? e : 0] : parameters<C, V>(s, param, param_step, C(1));
    };
    typedef Row<RELU, T, C, I, V, E> Kept;
    const auto read = [&](Kept& row, I index) {
        row.place = loops.result(index < rows ? index : 0);
        Cursor<N, I> cursor = start;
#pragma unroll
        for (int e = 0; e < E; e++, cursor.advance())
            if (begin + e * step < columns) {
                const I at = row.place.data + cursor.place.data;
                row.dy[e] = hold<T, V>(dy, at);
                row.x[e] = hold<T, V>(x, at);
                if (RELU) row.y[RELU ? e : 0] = hold<T, V>(y, at);
            }
        row.stat = Statistics<C>(stats, rows, row.place.row);
    };
    Kept next;
    if (ahead && team.some()) read(next, team.index);
    for (; team.some(); team.next()) {
        if (!ahead) read(next, team.index);
        const Kept row = next;
        if (ahead && team.another()) read(next, team.index + team.teams);
        const Statistics<C> stat = row.stat;
        // Returns the masked dy of pack e, with g and xhat of each element. It is computed twice, to save registers.
        const auto given = [&](int e) {
            Pack<C, V> found = row.dy[e].template widened<C>();
            if (RELU) mask(found, row.y[RELU ? e : 0].template widened<C>());
            return found;
        };
        C sum_g = 0, sum_gx = 0;
        Cursor<N, I> adding = start;
#pragma unroll
        for (int e = 0; e < E; e++, adding.advance()) {
            if (begin + e * step >= columns || !team.inside()) break;
            const Pack<C, V> of_dy = given(e), of_x = row.x[e].template widened<C>();
            if (RELU && masked) put_rounded(masked, row.place.data + adding.place.data, of_dy);
            Pack<C, V> scale;
            if (GRADIENTS != OF_ROW) scale = scale_of(e, row.place.param + (SAME ? 0 : adding.place.param));
#pragma unroll
            for (int v = 0; v < V; v++) {
                C g = of_dy.v[v], xhat = stat.xhat(of_x.v[v]);
                if (of_columns) {
                    of_scale[e * V + v] += g * xhat;
                    of_bias[e * V + v] += g;
                }
                if (s && GRADIENTS != OF_ROW) g *= scale.v[v];
                sum_g += g;
                sum_gx += g * xhat;
            }
        }
        const C parts[2] = {sum_g, sum_gx};
        double totals[2];
        add_up_team<LANES>(parts, totals);
        double total_g = totals[0], total_gx = totals[1];
        if (GRADIENTS == OF_ROW) {
            if (team.lane == 0 && team.inside() && param_sums) {
                param_sums[row.place.param] = (C)total_g;
                param_sums[rows + row.place.param] = (C)total_gx;
            } else if (team.lane == 0 && team.inside()) {
                row_sums[team.index] = total_g;
                row_sums[rows + team.index] = total_gx;
            }
            if (s) {
                const double scale = widen<C>(s[row.place.param]);
                total_g *= scale, total_gx *= scale;
            }
        }
        if (guard) {
            const double std = sqrt(stats[2 * rows + row.place.row]);
            total_gx *= std > 0 ? (std + eps) / std : 0;
        }
        const C mean_g = centered ? (C)(total_g * loops.part) : 0, mean_gx = (C)(total_gx * loops.part);
        Cursor<N, I> writing = start;
#pragma unroll
        for (int e = 0; e < E; e++, writing.advance()) {
            if (begin + e * step >= columns || !team.inside()) break;
            const Pack<C, V> of_dy = given(e), of_x = row.x[e].template widened<C>();
            const Pack<C, V> scale = scale_of(e, row.place.param + (SAME ? 0 : writing.place.param));
            Pack<C, V> out;
#pragma unroll
            for (int v = 0; v < V; v++) {
                C g = of_dy.v[v], xhat = stat.xhat(of_x.v[v]);
                if (s) g = product(g, scale.v[v]);
                out.v[v] = stat.rstd * (g - mean_g - xhat * mean_gx);
            }
            put_rounded(dx, row.place.data + writing.place.data, out);
        }
    }
    if (!of_columns) return;
    const int TEAMS = LANES ? 128 / LANES : 1, own = LANES ? threadIdx.x / LANES : 0;  // of a block, one after the other
    __shared__ C shared[of_columns && LANES ? 2 : 1][of_columns && LANES ? LANES * E * V : 1];
#pragma unroll 1
    for (int turn = 0; turn < TEAMS; turn++) {
        if (LANES) __syncthreads();
        if (turn != own) continue;
#pragma unroll
        for (int i = 0; i < E * V; i++) {
            const I column = begin + i / V * step + i % V;
            if (column >= columns) break;
            C bias = of_bias[of_columns ? i : 0], scale = of_scale[of_columns ? i : 0];
            if (LANES && turn > 0) bias += shared[0][column], scale += shared[1][column];
            if (LANES && turn < TEAMS - 1) {
                shared[0][column] = bias;
                shared[1][column] = scale;
            } else {
                param_sums[blockIdx.x * columns + column] = bias;
                param_sums[((I)gridDim.x + blockIdx.x) * columns + column] = scale;
            }
        }
    }
}
