// Rows that fit into the registers of a warp or a block: read once, everything else happens on the chip.
//
//     forward   k = mean, d = mean(x - k), var = mean((x - k)^2) - d^2, y = ((x - k) - d) * rstd * s + b,
//               or max(y + residual, 0)
//     backward  dx = rstd * (g - mean(g) - xhat * mean(g * xhat) * slope),  g = dy * s; behind a ReLU dy is 0 where y <= 0
//
// Thread `lane` of a team keeps E packs of V neighbours: those at (lane + e * team) * V. T, C, P: the types of the data,
// of the arithmetic, of scale and bias; I: of indices.
#include "ending.cuh"
#include "loops.cuh"
#include "running.cuh"

// Blocks of 512 threads that a multiprocessor is to have at once, of threads that hold so many bytes: two where 64 registers
// a thread do.
template <class C, int HELD> constexpr int OF_BLOCKS = sizeof(C) == 4 && HELD <= 64 ? 2 : 1;

// The shift is the mean as well as float has it: x0 + mean(x - x0), which is x0 itself where all x are equal. About it
// var = mean(t^2) - d^2 loses nothing, as d is a rounding error of k. Squares above 3e38 are added up again in double.
template <class C, class T, int V, int E, bool WARP, class I>
__device__ void statistics_of(const Held<T, V> (&x)[E], C x0, I begin, I step, I columns, double part, bool centered,
                              double& k, double& d, double& var) {
    k = d = 0;
    if (centered) {
        C sum = 0;
#pragma unroll
        for (int e = 0; e < E; e++)
            if (begin + e * step < columns)
#pragma unroll
                for (int v = 0; v < V; v++) sum += widen<C>(x[e].pack().v[v]) - x0;
        k = x0 + row_sum<WARP>(sum) * (C)part;
    }
    C shift = (C)k, sum = 0, squares = 0;
#pragma unroll
    for (int e = 0; e < E; e++)
        if (begin + e * step < columns)
#pragma unroll
            for (int v = 0; v < V; v++) {
                C t = widen<C>(x[e].pack().v[v]) - shift;
                sum += t;
                squares += t * t;
            }
    const C parts[2] = {sum, squares};
    double totals[2];
    add_up<WARP>(parts, totals);
    double rest = totals[0], total = totals[1];
    if (!(total < 1e300)) {  // a float square overflowed: once more in double
        double wide = 0;
#pragma unroll
        for (int e = 0; e < E; e++)
            if (begin + e * step < columns)
#pragma unroll
                for (int v = 0; v < V; v++) {
                    double t = widen<C>(x[e].pack().v[v]) - shift;
                    wide += t * t;
                }
        total = row_sum<WARP>(wide);
    }
    if (centered) d = rest * part;
    var = total * part - d * d;
    if (var < 0) var = 0;  // NaN stays
}

template <class T, class C, class P, class I, int V, int E, bool WARP, int N, class R, int ENDING>
__global__ void __launch_bounds__(512, OF_BLOCKS<C, (ENDING == RESIDUAL_RELU ? 4 : 2) * V * E>) row_forward(Loops<I> loops, const T* __restrict__ x, const P* __restrict__ s,
                                                    const P* __restrict__ b, const T* __restrict__ residual,
                                                    T* __restrict__ y, double* __restrict__ stats, double eps,
                                                    bool centered, bool guard, Running<R> running) {
    Team<WARP, I> team;
    if (team.index >= loops.results) return;  // a whole warp
    const Place<I> row = loops.result(team.index);
    const I begin = (I)team.lane * V, step = (I)team.size * V, columns = loops.terms;
    const Cursor<N, I> start(loops, begin, step);
    Held<T, V> kept[E], added[ENDING == RESIDUAL_RELU ? E : 1];
    Cursor<N, I> cursor = start;
#pragma unroll
    for (int e = 0; e < E; e++) {
        if (begin + e * step < columns) {
            kept[e] = hold<T, V>(x, row.data + cursor.place.data);
            if (ENDING == RESIDUAL_RELU) added[e] = hold<T, V>(residual, row.data + cursor.place.data);
        }
        cursor.advance();
    }
    double k, d, var;
    statistics_of<C, T, V, E, WARP>(kept, widen<C>(x[row.data]), begin, step, columns, loops.part, centered,
                                         k, d, var);
    const double rstd = rstd_of(var, eps, guard);
    if (team.lane == 0) {
        stats[row.row] = k;
        stats[loops.results + row.row] = d;
        stats[2 * loops.results + row.row] = var;
        stats[3 * loops.results + row.row] = rstd;
        running.update(row.row, k + d, var);
    }
    const C shift = (C)k, offset = (C)d, factor = (C)rstd;
    Cursor<N, I> writing = start;
#pragma unroll
    for (int e = 0; e < E; e++) {
        if (begin + e * step >= columns) break;
        const I param = row.param + writing.place.param;
        const Pack<C, V> scale = parameters<C, V>(s, param, loops.reduced[3].param, C(1));
        const Pack<C, V> bias = parameters<C, V>(b, param, loops.reduced[3].param, C(0));
        const Pack<T, V> in = kept[e].pack(), more = added[ENDING == RESIDUAL_RELU ? e : 0].pack();
        Pack<T, V> out;
#pragma unroll
        for (int v = 0; v < V; v++) {
            const C xhat = product((widen<C>(in.v[v]) - shift) - offset, factor);
            const C value = affine(xhat, scale.v[v], bias.v[v], s, b);
            finish<ENDING>(out.v[v], value, more.v[v]);
        }
        put(y, row.data + writing.place.data, out);
        writing.advance();
    }
    running.template finish<WARP>(stats, loops.results, team.lane == 0, team.lane, team.size);
}

// What becomes of the sums that scale and bias need.
enum Gradients {
    NONE,         // nobody asked
    OF_ROW,       // one scale a row: sum(dy) and sum(dy * xhat) of each row go to `param_sums` (2, rows) if no other row
                  // has this scale, else to `row_sums`
    OF_ELEMENTS,  // one scale a column: each block adds up its rows, and writes to `param_sums` (2, blocks, columns)
};

// dy, x and y of a row, and its statistics: read while the row before is worked on, where a team has several.
template <bool RELU, class T, class C, class I, int V, int E> struct Row {
    Held<T, V> dy[E], x[E], y[RELU ? E : 1];
    Statistics<C> stat;
    Place<I> place;
};

template <class T, class C, class P, class I, int V, int E, bool WARP, int N, int GRADIENTS, bool RELU>
__global__ void __launch_bounds__(512, OF_BLOCKS<C, GRADIENTS == OF_ELEMENTS ? 128 : (RELU ? 3 : 2) * sizeof(T) * V * E>)
    row_backward(Loops<I> loops, const T* __restrict__ dy, const T* __restrict__ x, const T* __restrict__ y,
                 const double* __restrict__ stats, const P* __restrict__ s, T* __restrict__ dx, T* __restrict__ masked,
                 double* __restrict__ row_sums, C* __restrict__ param_sums, double eps, bool centered, bool guard) {
    Team<WARP, I> team;
    const I teams = (I)gridDim.x * (blockDim.x / team.size), rows = loops.results, columns = loops.terms;
    const I begin = (I)team.lane * V, step = (I)team.size * V;
    const bool of_columns = GRADIENTS == OF_ELEMENTS;  // a team has several rows then
    const bool ahead = of_columns && sizeof(T) * V * E <= 32;  // registers for the row after this one, and for scale
    const Cursor<N, I> start(loops, begin, step);
    C of_scale[of_columns ? E * V : 1], of_bias[of_columns ? E * V : 1];
    Pack<C, V> scales[ahead ? E : 1];
    if (of_columns) {
        Cursor<N, I> cursor = start;
#pragma unroll
        for (int e = 0; e < E; e++, cursor.advance()) {
            if (ahead && begin + e * step < columns) scales[ahead ? e : 0] = parameters<C, V>(s, cursor.place.param, loops.reduced[3].param, C(1));
#pragma unroll
            for (int v = 0; v < V; v++) of_scale[e * V + v] = of_bias[e * V + v] = 0;
        }
    }
    const auto scale_of = [&](int e, I param) {
        return ahead ? scales[ahead ? e : 0] : parameters<C, V>(s, param, loops.reduced[3].param, C(1));
    };
    typedef Row<RELU, T, C, I, V, E> Kept;
    const auto read = [&](Kept& row, I index) {
        row.place = loops.result(index);
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
    if (ahead && team.index < rows) read(next, team.index);
    for (I index = team.index; index < rows; index += teams) {
        if (!ahead) read(next, index);
        const Kept row = next;
        if (ahead && index + teams < rows) read(next, index + teams);
        const Statistics<C> stat = row.stat;
        // dy of pack e, masked, and its g and xhat of each element: worked out twice, which takes no registers.
        const auto given = [&](int e) {
            Pack<T, V> found = row.dy[e].pack();
            if (RELU) mask<RELU, C>(found, row.y[RELU ? e : 0].pack());
            return found;
        };
        C sum_g = 0, sum_gx = 0;
        Cursor<N, I> adding = start;
#pragma unroll
        for (int e = 0; e < E; e++, adding.advance()) {
            if (begin + e * step >= columns) break;
            const Pack<T, V> of_dy = given(e), of_x = row.x[e].pack();
            if (RELU && masked) put(masked, row.place.data + adding.place.data, of_dy);
            Pack<C, V> scale;
            if (GRADIENTS != OF_ROW) scale = scale_of(e, row.place.param + adding.place.param);
#pragma unroll
            for (int v = 0; v < V; v++) {
                C g = widen<C>(of_dy.v[v]), xhat = stat.xhat(widen<C>(of_x.v[v]));
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
        add_up<WARP>(parts, totals);
        double total_g = totals[0], total_gx = totals[1];
        if (GRADIENTS == OF_ROW) {
            if (team.lane == 0 && param_sums) {
                param_sums[row.place.param] = (C)total_g;
                param_sums[rows + row.place.param] = (C)total_gx;
            } else if (team.lane == 0) {
                row_sums[index] = total_g;
                row_sums[rows + index] = total_gx;
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
            if (begin + e * step >= columns) break;
            const Pack<T, V> of_dy = given(e), of_x = row.x[e].pack();
            const Pack<C, V> scale = scale_of(e, row.place.param + writing.place.param);
            Pack<T, V> out;
#pragma unroll
            for (int v = 0; v < V; v++) {
                C g = widen<C>(of_dy.v[v]), xhat = stat.xhat(widen<C>(of_x.v[v]));
                if (s) g = product(g, scale.v[v]);
                place(out.v[v], stat.rstd * (g - mean_g - xhat * mean_gx));
            }
            put(dx, row.place.data + writing.place.data, out);
        }
    }
    if (!of_columns) return;
    const int WARPS = WARP ? 4 : 1, warp = WARP ? threadIdx.x / 32 : 0;  // the teams of a block, one after the other
    __shared__ C shared[of_columns && WARP ? 2 : 1][of_columns && WARP ? 32 * E * V : 1];
#pragma unroll 1
    for (int turn = 0; turn < WARPS; turn++) {
        if (WARP) __syncthreads();
        if (turn != warp) continue;
#pragma unroll
        for (int i = 0; i < E * V; i++) {
            const I column = begin + i / V * step + i % V;
            if (column >= columns) break;
            C bias = of_bias[of_columns ? i : 0], scale = of_scale[of_columns ? i : 0];
            if (WARP && turn > 0) bias += shared[0][column], scale += shared[1][column];
            if (WARP && turn < WARPS - 1) {
                shared[0][column] = bias;
                shared[1][column] = scale;
            } else {
                param_sums[blockIdx.x * columns + column] = bias;
                param_sums[((I)gridDim.x + blockIdx.x) * columns + column] = scale;
            }
        }
    }
}
