// The backward pass of rows that fit into the registers of a block, if each column has a separate scale and bias: dx, and
// the sums for scale and bias, in one pass.
//
//     dx = rstd * (g - mean(g) - xhat * mean(g * xhat) * slope),  g = dy * s; behind a ReLU dy is 0 where y <= 0
//     db = sum(dy) and ds = sum(dy * xhat) over the rows of the block, which are added up by merge_parts
//
// A block takes rows in turn. Every thread copies the next row's packs into shared memory while it works on this row
// (copy_async in cluster.cuh). It reads only what it copied itself, so the data needs no barrier. In row_backward
// (norm_rows.cu) both rows are in registers: this kernel takes 80 registers in place of 120, and half as many threads
// more fit beside each other. The sums of a row need one barrier, because each row has other places for the sums of
// warps than the row before it.
#include "cluster.cuh"
#include "ending.cuh"
#include "loops.cuh"

// The threads of a block that would take all registers: 768 threads with 80 registers, or 512 with 128 registers.
// The larger number is for up to 16 columns of a thread, and a single reduced loop.
template <class C, class I, int COLUMNS, int N> constexpr int LARGEST =
    COLUMNS <= 16 && N == 1 && sizeof(C) == 4 && sizeof(I) == 4 ? 768 : 512;

template <class T, class C, class P, class I, int V, int E, int N, bool RELU>
__global__ void __launch_bounds__(LARGEST<C, I, E * V, N>, 1)
    row_backward_ahead(Loops<I> loops, const T* __restrict__ dy, const T* __restrict__ x, const T* __restrict__ y,
                       const double* __restrict__ stats, const P* __restrict__ s, T* __restrict__ dx,
                       T* __restrict__ masked, C* __restrict__ param_sums, double eps, bool centered, bool guard) {
    const int ARRAYS = RELU ? 3 : 2;
    __shared__ double of_warps[2][32][2];
    const I begin = (I)threadIdx.x * V, step = (I)blockDim.x * V, rows = loops.results, columns = loops.terms;
    const I blocks = gridDim.x;
    const Loop<I>& of_row = loops.kept[3];  // the only kept loop
    const Cursor<N, I> start(loops, begin, step);
    C of_scale[E * V], of_bias[E * V];
#pragma unroll
    for (int i = 0; i < E * V; i++) of_scale[i] = of_bias[i] = 0;
    const auto waiting = [&](int stage, int array, int e) -> Held<T, V>& {
        return reinterpret_cast<Held<T, V>*>(dynamic_shared())[((stage * ARRAYS + array) * E + e) * blockDim.x + threadIdx.x];
    };
    // Calls use(e, place) for each pack of a row.
    const auto each = [&](auto use) {
        Cursor<N, I> cursor = start;
#pragma unroll
        for (int e = 0; e < E; e++, cursor.advance())
            if (begin + e * step < columns) use(e, cursor.place);
    };
    const auto copy = [&](I row, int stage) {
        if (row < rows)
            each([&](int e, const Place<I>& place) {
                const I at = row * of_row.data + place.data;
                copy_async<sizeof(T) * V>(&waiting(stage, 0, e), dy + at);
                copy_async<sizeof(T) * V>(&waiting(stage, 1, e), x + at);
                if (RELU) copy_async<sizeof(T) * V>(&waiting(stage, ARRAYS - 1, e), y + at);
            });
        end_copies();
    };
    I row = blockIdx.x;
    int stage = 0;
    copy(row, stage);
    Statistics<C> next(stats, rows, row * of_row.row);
    for (; row < rows; row += blocks, stage = 1 - stage) {
        const Statistics<C> stat = next;
        copy(row + blocks, 1 - stage);
        if (row + blocks < rows) next = Statistics<C>(stats, rows, (row + blocks) * of_row.row);
        wait_for_copies(1);
        const I from = row * of_row.data;
        C sums[2] = {0, 0};
        each([&](int e, const Place<I>& place) {
            Pack<C, V> of_dy = waiting(stage, 0, e).template widened<C>();
            const Pack<C, V> of_x = waiting(stage, 1, e).template widened<C>();
            if (RELU) {
                mask(of_dy, waiting(stage, ARRAYS - 1, e).template widened<C>());
                waiting(stage, 0, e).round(of_dy);
                if (masked) put_rounded(masked, from + place.data, of_dy);
            }
            const Pack<C, V> scale = parameters<C, V>(s, place.param, (I)1, C(1));
#pragma unroll
            for (int v = 0; v < V; v++) {
                C g = of_dy.v[v];
                const C xhat = stat.xhat(of_x.v[v]);
                of_scale[e * V + v] += g * xhat;
                of_bias[e * V + v] += g;
                g *= scale.v[v];
                sums[0] += g;
                sums[1] += g * xhat;
            }
        });
#pragma unroll
        for (int n = 0; n < 2; n++) sums[n] = warp_sum(sums[n]);
        if (threadIdx.x % 32 == 0)
            for (int n = 0; n < 2; n++) of_warps[stage][threadIdx.x / 32][n] = sums[n];
        __syncthreads();
        double total_g = 0, total_gx = 0;
        for (int warp = 0; warp < blockDim.x / 32; warp++) {
            total_g += of_warps[stage][warp][0];
            total_gx += of_warps[stage][warp][1];
        }
        if (guard) {
            const double std = sqrt(stats[2 * rows + row * of_row.row]);
            total_gx *= std > 0 ? (std + eps) / std : 0;
        }
        const C mean_g = centered ? (C)(total_g * loops.part) : 0, mean_gx = (C)(total_gx * loops.part);
        each([&](int e, const Place<I>& place) {
            const Pack<C, V> of_dy = waiting(stage, 0, e).template widened<C>();
            const Pack<C, V> of_x = waiting(stage, 1, e).template widened<C>();
            const Pack<C, V> scale = parameters<C, V>(s, place.param, (I)1, C(1));
            Pack<C, V> out;
#pragma unroll
            for (int v = 0; v < V; v++)
                out.v[v] = stat.rstd * (product(of_dy.v[v], scale.v[v]) - mean_g - stat.xhat(of_x.v[v]) * mean_gx);
            put_rounded(dx, from + place.data, out);
        });
    }
#pragma unroll
    for (int i = 0; i < E * V; i++) {
        const I column = begin + i / V * step + i % V;
        if (column >= columns) break;
        param_sums[blockIdx.x * columns + column] = of_bias[i];
        param_sums[(blocks + blockIdx.x) * columns + column] = of_scale[i];
    }
}
