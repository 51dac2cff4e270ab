// Rows that fit into the registers of a warp or a block: read once, everything else happens on the chip.
//
//     forward   k = mean, d = mean(x - k), var = mean((x - k)^2) - d^2, y = ((x - k) - d) * rstd * s + b
//     backward  dx = rstd * (g - mean(g) - xhat * mean(g * xhat) * slope),  g = dy * s
//
// Thread `lane` of a team keeps E packs of V neighbours: those at (lane + e * team) * V. T, C, P: the types of the data,
// of the arithmetic, of scale and bias; I: of indices.
#include "loops.cuh"
#include "running.cuh"

// The shift is the mean as well as float has it: x0 + mean(x - x0), which is x0 itself where all x are equal. About it
// var = mean(t^2) - d^2 loses nothing, as d is a rounding error of k. Squares above 3e38 are added up again in double.
template <class C, class T, int V, int E, bool WARP, class I>
__device__ void statistics_of(const Pack<T, V> (&x)[E], C x0, I begin, I step, I columns, bool centered, double& k,
                              double& d, double& var) {
    k = d = 0;
    if (centered) {
        C sum = 0;
#pragma unroll
        for (int e = 0; e < E; e++)
            if (begin + e * step < columns)
#pragma unroll
                for (int v = 0; v < V; v++) sum += widen<C>(x[e].v[v]) - x0;
        k = (C)(x0 + row_sum<WARP>((double)sum) / columns);
    }
    C shift = (C)k, sum = 0, squares = 0;
#pragma unroll
    for (int e = 0; e < E; e++)
        if (begin + e * step < columns)
#pragma unroll
            for (int v = 0; v < V; v++) {
                C t = widen<C>(x[e].v[v]) - shift;
                sum += t;
                squares += t * t;
            }
    double total = squares, rest = sum;
    add_up<WARP>(total, rest);
    if (!(total < 1e300)) {
        double wide = 0;
#pragma unroll
        for (int e = 0; e < E; e++)
            if (begin + e * step < columns)
#pragma unroll
                for (int v = 0; v < V; v++) {
                    double t = widen<C>(x[e].v[v]) - shift;
                    wide += t * t;
                }
        total = row_sum<WARP>(wide);
    }
    if (centered) d = rest / columns;
    var = total / columns - d * d;
    if (var < 0) var = 0;  // NaN stays
}

template <class T, class C, class P, class I, int V, int E, bool WARP, class R>
__global__ void __launch_bounds__(512, 1) row_forward(Loops<I> loops, const T* x, const P* s, const P* b, T* y,
                                                    double* stats, double eps, bool centered, bool guard,
                                                    Running<R> running) {
    Team<WARP, I> team;
    if (team.index >= loops.results) return;  // a whole warp
    Place<I> row = loops.result(team.index);
    const I begin = (I)team.lane * V, step = (I)team.size * V;
    Pack<T, V> kept[E];
#pragma unroll
    for (int e = 0; e < E; e++)
        if (begin + e * step < loops.terms) kept[e] = fetch<T, V>(x, row.data + loops.column(begin + e * step).data);
    double k, d, var;
    statistics_of<C, T, V, E, WARP>(kept, widen<C>(x[row.data]), begin, step, loops.terms, centered, k, d, var);
    const double rstd = rstd_of(var, eps, guard);
    if (team.lane == 0) {
        stats[row.row] = k;
        stats[loops.results + row.row] = d;
        stats[2 * loops.results + row.row] = var;
        stats[3 * loops.results + row.row] = rstd;
        running.update(row.row, k + d, var);
    }
    const C shift = (C)k, offset = (C)d, factor = (C)rstd;
#pragma unroll
    for (int e = 0; e < E; e++) {
        if (begin + e * step >= loops.terms) break;
        const Place<I> column = loops.column(begin + e * step);
        const Pack<T, V> in = kept[e];
        Pack<T, V> out;
#pragma unroll
        for (int v = 0; v < V; v++) {
            const I at = row.param + column.param + v * loops.reduced[3].param;
            C value = ((widen<C>(in.v[v]) - shift) - offset) * factor;
            if (s) value *= widen<C>(s[at]);
            if (b) value += widen<C>(b[at]);
            place(out.v[v], value);
        }
        put(y, row.data + column.data, out);
    }
}

// What becomes of the sums that scale and bias need.
enum Gradients {
    NONE,         // nobody asked
    OF_ROW,       // one scale a row: sum(dy) and sum(dy * xhat) of each row are written to `row_sums`
    OF_ELEMENTS,  // one scale a column: each team adds up its rows, and writes to `column_sums` (2, teams, columns)
};

template <class T, class C, class P, class I, int V, int E, bool WARP, int GRADIENTS>
__global__ void __launch_bounds__(512, 1) row_backward(Loops<I> loops, const T* dy, const T* x, const double* stats,
                                                    const P* s, T* dx, double* row_sums, C* column_sums,
                                                    double eps, bool centered, bool guard) {
    Team<WARP, I> team;
    const I teams = (I)gridDim.x * (blockDim.x / team.size), rows = loops.results, columns = loops.terms;
    const I begin = (I)team.lane * V, step = (I)team.size * V;
    C of_scale[GRADIENTS == OF_ELEMENTS ? E * V : 1], of_bias[GRADIENTS == OF_ELEMENTS ? E * V : 1];
    if (GRADIENTS == OF_ELEMENTS)
#pragma unroll
        for (int i = 0; i < E * V; i++) of_scale[i] = of_bias[i] = 0;
    for (I index = team.index; index < rows; index += teams) {
        const Place<I> row = loops.result(index);
        const Statistics<C> stat(stats, rows, row.row);
        Pack<T, V> kept_dy[E], kept_x[E];
        C sum_g = 0, sum_gx = 0;
#pragma unroll
        for (int e = 0; e < E; e++) {
            if (begin + e * step >= columns) break;
            const Place<I> column = loops.column(begin + e * step);
            kept_dy[e] = fetch<T, V>(dy, row.data + column.data);
            kept_x[e] = fetch<T, V>(x, row.data + column.data);
        }
#pragma unroll
        for (int e = 0; e < E; e++) {
            if (begin + e * step >= columns) break;
            const Place<I> column = loops.column(begin + e * step);
#pragma unroll
            for (int v = 0; v < V; v++) {
                C g = widen<C>(kept_dy[e].v[v]), xhat = stat.xhat(widen<C>(kept_x[e].v[v]));
                if (GRADIENTS == OF_ELEMENTS) {
                    of_scale[e * V + v] += g * xhat;
                    of_bias[e * V + v] += g;
                }
                if (s && GRADIENTS != OF_ROW) g *= widen<C>(s[row.param + column.param + v * loops.reduced[3].param]);
                sum_g += g;
                sum_gx += g * xhat;
            }
        }
        double total_g = sum_g, total_gx = sum_gx;
        add_up<WARP>(total_g, total_gx);
        if (GRADIENTS == OF_ROW) {
            if (team.lane == 0) {
                row_sums[index] = total_g;
                row_sums[rows + index] = total_gx;
            }
            if (s) {
                const double scale = widen<C>(s[row.param]);
                total_g *= scale, total_gx *= scale;
            }
        }
        const double var = stats[2 * rows + row.row];
        if (guard) total_gx *= var > 0 ? (sqrt(var) + eps) / sqrt(var) : 0;
        const C mean_g = centered ? (C)(total_g / columns) : 0, mean_gx = (C)(total_gx / columns);
#pragma unroll
        for (int e = 0; e < E; e++) {
            if (begin + e * step >= columns) break;
            const Place<I> column = loops.column(begin + e * step);
            Pack<T, V> out;
#pragma unroll
            for (int v = 0; v < V; v++) {
                C g = widen<C>(kept_dy[e].v[v]), xhat = stat.xhat(widen<C>(kept_x[e].v[v]));
                if (s) g *= widen<C>(s[row.param + column.param + v * loops.reduced[3].param]);
                place(out.v[v], stat.rstd * (g - mean_g - xhat * mean_gx));
            }
            put(dx, row.data + column.data, out);
        }
    }
    if (GRADIENTS == OF_ELEMENTS)
#pragma unroll
        for (int e = 0; e < E; e++)
#pragma unroll
            for (int v = 0; v < V; v++) {
                const I column = begin + e * step + v;
                if (column >= columns) break;
                column_sums[team.index * columns + column] = of_bias[e * V + v];
                column_sums[(teams + team.index) * columns + column] = of_scale[e * V + v];
            }
}
