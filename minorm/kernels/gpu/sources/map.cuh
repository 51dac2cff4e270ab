// The elementwise pass of a normalization: the formulas of norm_apply.cu, applied by rows or by lanes.
#include "batches.cuh"
#include "ending.cuh"

const int OF_MAP = 64;  // bytes of a batch of each array

// The two formulas, for one element of row r. `numbers` are what they know of a row; a formula made with `numbers` is the
// same formula.
template <class C> struct Apply {
    static const int NUMBERS = 3;
    Statistics<C> stat;
    Apply() = default;
    template <class D, class I>
    __device__ Apply(D stats, D, I rows, I row, double) : stat(stats, rows, row) {}
    __device__ C& number(int n) { return n == 0 ? stat.k : n == 1 ? stat.d : stat.rstd; }
    __device__ C operator()(C x, C, C s, C b, bool scaled, bool biased) const {
        return affine(stat.xhat(x), s, b, scaled, biased);
    }
};

template <class C> struct GradInput {
    static const int NUMBERS = 5;
    Statistics<C> stat;
    C mean_g, mean_gx;
    GradInput() = default;
    template <class D, class I>
    __device__ GradInput(D stats, D sums, I rows, I row, double part)
        : stat(stats, rows, row), mean_g(sums ? (C)(sums[row] * part) : 0),
          mean_gx(sums ? (C)(sums[rows + row] * part) : 0) {}
    __device__ C& number(int n) {
        return n == 0 ? stat.k : n == 1 ? stat.d : n == 2 ? stat.rstd : n == 3 ? mean_g : mean_gx;
    }
    __device__ C operator()(C x, C dy, C s, C, bool scaled, bool) const {
        if (scaled) dy = product(dy, s);
        return stat.rstd * (dy - mean_g - stat.xhat(x) * mean_gx);
    }
};

// Computes the terms of `batches`, whose first batch is on its way. K: the number of statistics of a pack, 1, or V if
// neighbours have separate statistics. SAME: true if all terms have the given scale and bias; otherwise these lie
// `param_step` apart, from `param` on. The arrays are x; dy in backward, or the residual in forward; and y.
template <class F, bool BACKWARD, int ENDING, bool SAME, class T, class C, class P, class I, int V, int K, class B>
__device__ __forceinline__ void map(B& batches, const F (&formula)[K], I param, Pack<C, V> scale, Pack<C, V> bias,
                                    I param_step, const P* __restrict__ s, const P* __restrict__ b,
                                    T* __restrict__ out) {
    const bool scaled = s, biased = b;
    while (batches.some()) {
        batches.each([&](int u) {
            if (!SAME) {
                scale = parameters<C, V>(s, param + batches.terms[u].param, param_step, C(1));
                bias = parameters<C, V>(b, param + batches.terms[u].param, param_step, C(0));
            }
            const Pack<C, V> of_x = batches.template of<C>(0, u);
            Pack<C, V> given, result;
            if (BACKWARD || ENDING == RESIDUAL_RELU) given = batches.template of<C>(1, u);
            if (BACKWARD && ENDING != PLAIN) mask(given, batches.template of<C>(2, u));
#pragma unroll
            for (int v = 0; v < V; v++) {
                const C value = formula[K == 1 ? 0 : v](of_x.v[v], given.v[v], scale.v[v], bias.v[v], scaled, biased);
                result.v[v] = finished<BACKWARD ? PLAIN : ENDING, T>(value, given.v[v]);
            }
            put_rounded(out, batches.terms[u].data, result);
        });
        batches.next();
        batches.fetch();
    }
}

// The number of arrays that a pass reads.
template <bool BACKWARD, int ENDING>
constexpr int ARRAYS = BACKWARD ? 2 + (ENDING != PLAIN) : 1 + (ENDING == RESIDUAL_RELU);

// The unit-step loop is reduced.
template <class F, bool BACKWARD, int ENDING, int N, bool SAME, class T, class C, class P, class I, int V, bool WARP>
__device__ inline void map_rows(const Loops<I>& loops, I chunk, const T* x, const T* other, const T* y, const double* stats,
                                const double* sums, const P* s, const P* b, T* out) {
    Team<WARP, I> team;
    if (team.index >= loops.results) return;
    const Place<I> row = loops.result(loops.results - 1 - team.index);
    const I first = chunk * (gridDim.y - 1 - blockIdx.y), end = min(first + chunk, loops.terms);
    Batches<ARRAYS<BACKWARD, ENDING>, Batch<T, V, OF_MAP>::SIZE, T, I, V, N> batches(
        loops, x, other, y, row.data, first + team.lane * V, (I)team.size * V, end);
    batches.fetch();
    const F formula[1] = {F(stats, sums, loops.statistics, row.row, loops.part)};
    Pack<C, V> scale, bias;
    if (SAME) {
        scale = parameters<C, V>(s, row.param, (I)0, C(1));
        bias = parameters<C, V>(b, row.param, (I)0, C(0));
    }
    map<F, BACKWARD, ENDING, SAME, T, C, P, I, V>(batches, formula, row.param, scale, bias, loops.reduced[3].param, s, b, out);
}

// The unit-step loop is kept: a thread has V lanes, with their statistics in registers, and walks down the terms. One
// thread finds the numbers of a lane for all others, while the first batch is on its way. In shared memory lane v of a
// thread is LANES places from lane v - 1, so that neighbouring threads use neighbouring banks.
// The block has the lanes of tile `tile` and the terms from `first` on. D: a pointer to the statistics and sums, volatile
// if another block of this launch writes them; `wait` waits until it has.
template <class F, bool BACKWARD, int ENDING, int N, bool SAME, class T, class C, class P, class I, int V, int LANES, class D, class W>
__device__ inline void map_lanes(const Loops<I>& loops, I tile, I first, I chunk, const T* x, const T* other, const T* y,
                                 D stats, D sums, const P* s, const P* b, T* out, W wait) {
    __shared__ C numbers[F::NUMBERS + 2][LANES * V];
    const int lane = threadIdx.x % LANES;
    const I index = (tile * LANES + lane) * V;
    const Place<I> row = loops.result(index < loops.results ? index : 0);
    const I end = index < loops.results ? min(first + chunk, loops.terms) : first;
    Batches<ARRAYS<BACKWARD, ENDING>, Batch<T, V, OF_MAP>::SIZE, T, I, V, N> batches(
        loops, x, other, y, row.data, first + (I)(threadIdx.x / LANES), (I)(256 / LANES), end);
    batches.fetch();
    wait();
    for (int at = threadIdx.x; at < LANES * V; at += 256) {
        const I which = (tile * LANES + at % LANES) * V + at / LANES;
        if (which >= loops.results) continue;
        const Place<I> place = loops.result(which);
        F found(stats, sums, loops.statistics, place.row, loops.part);
        for (int n = 0; n < F::NUMBERS; n++) numbers[n][at] = found.number(n);
        if (!SAME) continue;
        numbers[F::NUMBERS][at] = s ? widen<C>(s[place.param]) : C(1);
        numbers[F::NUMBERS + 1][at] = b ? widen<C>(b[place.param]) : C(0);
    }
    __syncthreads();
    F formula[V];
    Pack<C, V> scale, bias;
#pragma unroll
    for (int v = 0; v < V; v++) {
        const int at = v * LANES + lane;
        for (int n = 0; n < F::NUMBERS; n++) formula[v].number(n) = numbers[n][at];
        scale.v[v] = numbers[F::NUMBERS][at];
        bias.v[v] = numbers[F::NUMBERS + 1][at];
    }
    map<F, BACKWARD, ENDING, SAME, T, C, P, I, V>(batches, formula, row.param, scale, bias, loops.kept[3].param, s, b, out);
}
