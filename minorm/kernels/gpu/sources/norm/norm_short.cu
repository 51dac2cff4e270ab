// Normalizes short rows that do not all begin at multiples of 16 bytes, for example 7 x 7 images. Neighbouring rows are
// neighbours in memory, so a block reads many of them together, in accesses of 16 bytes, into shared memory. There each
// row belongs to LANES threads, which read it element by element.
//
//     forward   y = ((x - mean) * rstd) * s + b, or max(y + residual, 0)
//     backward  dx = rstd * (g - mean(g) - xhat * mean(g * xhat) * slope),  g = dy * s; behind a ReLU dy is 0 where y <= 0
//
// A row consists of one or more runs with one scale and bias each (the channels of a group). The results replace the
// data in shared memory, and go from there to memory. T, C, P: the types of the data, of the arithmetic, of scale and
// bias; I: of indices.
#include "ending.cuh"
#include "loops.cuh"
#include "running.cuh"

const int THREADS = 128;
const int ROOM = 16384;  // bytes of each array in shared memory, as in norm_plan.py
const int BATCH = 4;     // accesses of a thread to each array that are in flight together
template <class C> const int RESIDENT = sizeof(C) == 4 ? 8 : 1;  // blocks of a multiprocessor, so 64 registers a thread
const int RESIDENT_BACKWARD = 6;  // as many as fit the shared memory of sm_90

// The elements of a block's rows, in shared memory and in memory, and the place of one thread among them.
template <class T, class I, int LANES> struct Short {
    static const int V = 16 / sizeof(T), ROWS = THREADS / LANES, PACKS = ROOM / 16;
    typedef Held<T, V> Packs[PACKS];
    int channels, inner, columns, lane, begin, count;
    I row, from;
    bool inside;

    __device__ Short(const Loops<I>& loops) {
        const int team = threadIdx.x / LANES;
        const I first = (I)blockIdx.x * ROWS;
        channels = (int)loops.reduced[2].count, inner = (int)loops.reduced[3].count, columns = channels * inner;
        lane = threadIdx.x % LANES;
        begin = team * columns;
        row = first + team;
        inside = row < loops.results;
        from = first * columns;
        count = (int)min((I)ROWS, loops.results - first) * columns;
    }
    // Calls load(pack, at) for all packs of a thread in a batch, and then use(pack, p, at); p is the pack's number.
    template <class L, class F> __device__ __forceinline__ void each_pack(L load, F use) const {
        for (int p = threadIdx.x; p < count / V; p += THREADS * BATCH) {
#pragma unroll
            for (int u = 0; u < BATCH; u++)
                if (p + u * THREADS < count / V) load(u, from + (p + u * THREADS) * V);
#pragma unroll
            for (int u = 0; u < BATCH; u++)
                if (p + u * THREADS < count / V) use(u, p + u * THREADS, from + (p + u * THREADS) * V);
        }
    }
    // Calls use(i, at) for the last elements, which do not fill a pack. Element i of the block is at `at` in memory.
    template <class F> __device__ __forceinline__ void each_last(F use) const {
        for (int i = count / V * V + threadIdx.x; i < count; i += THREADS) use(i, from + i);
    }
    // Calls use(i) for each element of a run that this thread has.
    template <class F> __device__ __forceinline__ void each(int channel, F use) const {
        for (int i = lane; i < inner; i += LANES) use(begin + channel * inner + i);
    }
};

template <class T, class C, class P, class I, int LANES, class R, int ENDING>
__global__ void __launch_bounds__(THREADS, RESIDENT<C>)
    short_forward(Loops<I> loops, const T* __restrict__ x, const P* __restrict__ s, const P* __restrict__ b,
                  const T* __restrict__ residual, T* __restrict__ y, double* __restrict__ stats, double eps, bool centered,
                  bool guard, Running<R> running) {
    typedef Short<T, I, LANES> Here;
    const int V = Here::V;
    __shared__ typename Here::Packs packs;
    T* const kept = reinterpret_cast<T*>(packs);
    const Here at(loops);
    Held<T, V> held[BATCH];
    at.each_pack([&](int u, I from) { held[u] = hold<T, V>(x, from); }, [&](int u, int p, I) { packs[p] = held[u]; });
    at.each_last([&](int i, I from) { kept[i] = x[from]; });
    const Place<I> row = loops.result(at.inside ? at.row : 0);
    __syncthreads();
    double k, d, var;
    const auto each_of_row = [&](auto use) {
        for (int i = at.lane; i < at.columns; i += LANES) use(widen<C>(kept[at.begin + i]));
    };
    statistics_of<LANES>(each_of_row, widen<C>(kept[at.begin]), loops.part, centered, k, d, var);
    const double rstd = rstd_of(var, eps, guard);
    const bool writes = at.lane == 0 && at.inside;
    if (writes) {
        stats[row.row] = k;
        stats[loops.results + row.row] = d;
        stats[2 * loops.results + row.row] = var;
        stats[3 * loops.results + row.row] = rstd;
        running.update(row.row, k + d, var);
    }
    const C shift = (C)k, offset = (C)d, factor = (C)rstd;
    for (int channel = 0; channel < at.channels; channel++) {
        const I param = row.param + channel * loops.reduced[2].param;
        const C scale = s ? widen<C>(s[param]) : C(1), bias = b ? widen<C>(b[param]) : C(0);
        at.each(channel, [&](int i) {
            const C xhat = product((widen<C>(kept[i]) - shift) - offset, factor);
            const C value = affine(xhat, scale, bias, s, b);
            place(kept[i], ENDING == RELU ? finished<RELU, T>(value, C(0)) : value);
        });
    }
    __syncthreads();
    at.each_pack([&](int u, I from) { if (ENDING == RESIDUAL_RELU) held[u] = hold<T, V>(residual, from); },
                 [&](int u, int p, I from) {
                     if (ENDING == RESIDUAL_RELU) {
                         Pack<C, V> out = packs[p].template widened<C>();
                         const Pack<C, V> more = held[u].template widened<C>();
                         for (int v = 0; v < V; v++) out.v[v] = finished<ENDING, T>(out.v[v], more.v[v]);
                         packs[p].round(out);
                     }
                     *reinterpret_cast<Held<T, V>*>(y + from) = packs[p];
                 });
    at.each_last([&](int i, I from) {
        if (ENDING == RESIDUAL_RELU) place(kept[i], finished<ENDING, T>(widen<C>(kept[i]), widen<C>(residual[from])));
        y[from] = kept[i];
    });
    running.template finish<true>(stats, loops.results, writes, threadIdx.x % 32, 32);
}

// `run_sums` (2, runs), if it is given, gets sum(dy) and sum(dy * xhat) of each run.
template <class T, class C, class P, class I, int LANES, bool RELU>
__global__ void __launch_bounds__(THREADS, RESIDENT_BACKWARD)
    short_backward(Loops<I> loops, const T* __restrict__ dy, const T* __restrict__ x, const T* __restrict__ y,
                   const double* __restrict__ stats, const P* __restrict__ s, T* __restrict__ dx, T* __restrict__ masked,
                   double* __restrict__ run_sums, double eps, bool centered, bool guard) {
    typedef Short<T, I, LANES> Here;
    const int V = Here::V;
    __shared__ typename Here::Packs packs_of_dy, packs_of_x;
    T *const of_dy = reinterpret_cast<T*>(packs_of_dy), *const of_x = reinterpret_cast<T*>(packs_of_x);
    const Here at(loops);
    Held<T, V> held[BATCH], held_x[BATCH], held_y[RELU ? BATCH : 1];
    at.each_pack(
        [&](int u, I from) {
            held[u] = hold<T, V>(dy, from);
            held_x[u] = hold<T, V>(x, from);
            if (RELU) held_y[RELU ? u : 0] = hold<T, V>(y, from);
        },
        [&](int u, int p, I from) {
            if (RELU) {
                Pack<C, V> given = held[u].template widened<C>();
                mask(given, held_y[RELU ? u : 0].template widened<C>());
                held[u].round(given);
                if (masked) *reinterpret_cast<Held<T, V>*>(masked + from) = held[u];
            }
            packs_of_dy[p] = held[u];
            packs_of_x[p] = held_x[u];
        });
    at.each_last([&](int i, I from) {
        C given = widen<C>(dy[from]);
        if (RELU && widen<C>(y[from]) <= 0) given = 0;
        place(of_dy[i], given);
        if (RELU && masked) place(masked[from], given);
        of_x[i] = x[from];
    });
    const Place<I> row = loops.result(at.inside ? at.row : 0);
    const Statistics<C> stat(stats, loops.results, row.row);
    __syncthreads();
    double total_g = 0, total_gx = 0;
    for (int channel = 0; channel < at.channels; channel++) {
        C parts[2] = {0, 0};
        at.each(channel, [&](int i) {
            const C g = widen<C>(of_dy[i]);
            parts[0] += g;
            parts[1] += g * stat.xhat(widen<C>(of_x[i]));
        });
        double found[2];
        add_up_team<LANES>(parts, found);
        if (run_sums && at.lane == 0 && at.inside) {
            const I run = at.row * at.channels + channel;
            run_sums[run] = found[0];
            run_sums[loops.results * at.channels + run] = found[1];
        }
        const double scale = s ? widen<double>(s[row.param + channel * loops.reduced[2].param]) : 1;
        total_g += found[0] * scale;
        total_gx += found[1] * scale;
    }
    if (guard) {
        const double std = sqrt(stats[2 * loops.results + row.row]);
        total_gx *= std > 0 ? (std + eps) / std : 0;
    }
    const C mean_g = centered ? (C)(total_g * loops.part) : 0, mean_gx = (C)(total_gx * loops.part);
    for (int channel = 0; channel < at.channels; channel++) {
        const C scale = s ? widen<C>(s[row.param + channel * loops.reduced[2].param]) : C(1);
        at.each(channel, [&](int i) {
            C g = widen<C>(of_dy[i]);
            if (s) g = product(g, scale);
            place(of_dy[i], stat.rstd * (g - mean_g - stat.xhat(widen<C>(of_x[i])) * mean_gx));
        });
    }
    __syncthreads();
    at.each_pack([](int, I) {}, [&](int, int p, I from) { *reinterpret_cast<Held<T, V>*>(dx + from) = packs_of_dy[p]; });
    at.each_last([&](int i, I from) { dx[from] = of_dy[i]; });
}
