// Normalizes rows whose data fits into the shared memory of a cluster (cluster.cuh): each row is read once.
//
//     forward   y = ((x - k) - d) * rstd * s + b, or max(y + residual, 0)
//     backward  dx = rstd * (g - mean(g) - xhat * mean(g * xhat) * slope),  g = dy * s; behind a ReLU dy is 0 where y <= 0
//
// Block `rank` of a cluster keeps part `rank` of the row. Every thread copies packs of V neighbours into shared memory,
// and later reads only the packs that it copied itself. So shared memory serves as a larger set of registers, and no
// barrier is needed for the data. A thread copies in GROUPS groups, and adds up one group while the next ones arrive.
// The blocks merge their statistics, or their sums, in the order of their ranks, as merge_moments (norm_moments.cu)
// merges chunks.
//
// T, C, P: the types of the data, of the arithmetic, of scale and bias; I: of indices; N: the number of reduced loops
// that the cursor counts; SAME: scale and bias are the same for a whole row.
#include "cluster.cuh"
#include "ending.cuh"
#include "loops.cuh"
#include "running.cuh"

const int GROUPS = 4;

// How a part is cut (cluster_plan.py).
template <class I> struct Cut {
    I part;        // elements of a block
    int runs;      // runs of a block, if scale and bias are constant along runs but vary from run to run; otherwise 1
    int team;      // threads that work on a run together
    int packs;     // the most packs of a thread in one turn
    int turns;     // a turn is one run of each team; a single run is cut into GROUPS turns
    int together;  // turns of a group of copies
};

// The share of a block and of a thread in a row.
template <bool RUNS, int V, int N, class I> struct Part {
    const Loops<I>& loops;
    const Cut<I>& cut;
    const Place<I> row;
    const int lane, team, first_run;
    const I first, step;
    const Cursor<N, I> start;
    int mine;  // packs of the thread in a run

    __device__ Part(const Loops<I>& loops, const Cut<I>& cut, Place<I> row, int rank)
        : loops(loops), cut(cut), row(row), lane(RUNS ? threadIdx.x % cut.team : threadIdx.x),
          team(RUNS ? threadIdx.x / cut.team : 0), first_run(rank * cut.runs), first(rank * cut.part), step((I)cut.team * V),
          start(loops, (RUNS ? 0 : first) + lane * V, step) {
        mine = lane * V < length() ? (length() - lane * V + step - 1) / step : 0;
    }

    __device__ I terms() const { return min(cut.part, loops.terms - first); }
    __device__ I length() const { return RUNS ? loops.reduced[3].count : terms(); }  // elements of a run
    __device__ int runs() const { return RUNS ? min(cut.runs, (int)loops.reduced[2].count - first_run) : 1; }
    __device__ int run_of(int turn) const { return RUNS ? team + turn * (int)(blockDim.x / cut.team) : 0; }
    __device__ Place<I> place_of(int run) const {
        Place<I> place = row;
        if (RUNS) place.data += (first_run + run) * loops.reduced[2].data;
        if (RUNS) place.param += (first_run + run) * loops.reduced[2].param;
        return place;
    }
    __device__ int group_of(int turn) const { return RUNS ? turn / cut.together : turn; }
    __device__ bool begins_group(int turn) const { return !RUNS || turn % cut.together == 0; }

    // Calls begin(turn), use(slot, place) for each pack of the thread in this turn, and end(run). A slot is the place of
    // a pack in shared memory.
    template <class Begin, class Use, class End>
    __device__ __forceinline__ void walk(int turns, Begin begin, Use use, End end) const {
        Cursor<N, I> cursor = start;
        I slot = lane;
        for (int turn = 0; turn < turns; turn++) {
            const int run = run_of(turn);
            Place<I> from = row;
            if (RUNS) {
                if (run >= runs()) break;
                from = place_of(run), cursor.place = start.place, slot = run * (length() / V) + lane;
            }
            begin(turn);
            const int count = RUNS ? mine : min(cut.packs, mine - turn * cut.packs);
#pragma unroll 2
            for (int e = 0; e < count; e++, slot += cut.team) {
                use(slot, Place<I>{from.data + cursor.place.data, from.param + cursor.place.param, 0});
                cursor.advance();
            }
            end(run);
        }
    }

    // Starts all copies of the thread by copy(slot, place).
    template <class Copy> __device__ void copy_all(Copy copy) const {
        int groups = 0;
        const auto close = [&](int group) {
            for (; groups < group; groups++) end_copies();
        };
        walk(cut.turns, [&](int turn) { close(group_of(turn)); }, copy, [](int) {});
        close(GROUPS);
    }
    // Waits for the copies of a turn.
    __device__ void await(int turn) const {
        if (begins_group(turn)) wait_for_copies(GROUPS - 1 - group_of(turn));
    }
};

// Returns the sums over the blocks of a cluster of what each block has at `own`, in the order of their ranks, to every
// thread. Each thread of a warp reads one block; merge(rank, values) may change what it has read. The other blocks must
// stay until `cluster_wait`, which is the caller's last step.
template <int BLOCKS, int N, int M, class F>
__device__ void add_up_cluster(const double (&own)[N], double (&sums)[M], F merge) {
    const int rank = threadIdx.x % BLOCKS;
    double values[N];
#pragma unroll
    for (int n = 0; n < N; n++) values[n] = own[n];
    if (BLOCKS > 1) {
        cluster_arrive();
        cluster_wait();
#pragma unroll
        for (int n = 0; n < N; n++) values[n] = of_block(own[n], rank);
        cluster_arrive();
    }
    merge(rank, values, sums);
#pragma unroll
    for (int m = 0; m < M; m++) sums[m] = warp_sum<BLOCKS>(sums[m]);
}

template <class T, class C, class P, class I, int V, int BLOCKS, int N, bool SAME, class R, int ENDING>
__global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(ROW_THREADS<C, I>, 1)
    cluster_forward(Loops<I> loops, Cut<I> cut, const T* __restrict__ x, const P* __restrict__ s,
                    const P* __restrict__ b, const T* __restrict__ residual, T* __restrict__ y,
                    double* __restrict__ stats, double eps, bool centered, bool guard, Running<R> running) {
    __shared__ double own[2];  // the mean of the part, and the sum of (x - mean)^2
    const int rank = cluster_rank();
    const Place<I> row = loops.result((I)(blockIdx.x / BLOCKS));
    const Part<false, V, N, I> part(loops, cut, row, rank);
    const I terms = part.terms(), rows = loops.statistics;
    Held<T, V>* const kept = reinterpret_cast<Held<T, V>*>(dynamic_shared());
    Held<T, V>* const added = kept + cut.part / V;
    part.copy_all([&](I slot, Place<I> place) {
        copy_async<sizeof(T) * V>(kept + slot, x + place.data);
        if (ENDING == RESIDUAL_RELU) copy_async<sizeof(T) * V>(added + slot, residual + place.data);
    });
    const auto pack_of = [&](I slot) { return kept[slot].template widened<C>(); };
    C shift = 0;
    if (centered) {  // the shift is the mean of the first turn, because a single element may be far off
        const C x0 = widen<C>(x[row.data]);
        C few = 0;
        part.walk(1, [&](int turn) { part.await(turn); },
            [&](I slot, Place<I>) {
                const Pack<C, V> pack = pack_of(slot);
#pragma unroll
                for (int v = 0; v < V; v++) few += pack.v[v] - x0;
            },
            [](int) {});
        shift = x0 + row_sum<false>(few) / (C)min((I)cut.packs * (I)blockDim.x * V, terms);
    }
    double parts[2] = {0, 0}, totals[2];
    C sum, squares;
    part.walk(cut.turns, [&](int turn) { part.await(turn), sum = squares = 0; },
        [&](I slot, Place<I>) {
            const Pack<C, V> pack = pack_of(slot);
#pragma unroll
            for (int v = 0; v < V; v++) {
                const C t = pack.v[v] - shift;
                sum += t;
                squares += t * t;
            }
        },
        [&](int) { parts[0] += sum, parts[1] += squares; });
    add_up<false>(parts, totals);
    if (!(totals[1] < 1e300)) {  // a float square overflowed: once more in double
        double wide = 0;
        part.walk(cut.turns, [](int) {},
            [&](I slot, Place<I>) {
                const Pack<C, V> pack = pack_of(slot);
                for (int v = 0; v < V; v++) {
                    const double t = pack.v[v] - shift;
                    wide += t * t;
                }
            },
            [](int) {});
        totals[1] = row_sum<false>(wide);
    }
    if (threadIdx.x == 0) {
        const double m2 = totals[1] - totals[0] * totals[0] / terms;
        own[0] = centered ? shift + totals[0] / terms : 0;
        own[1] = !centered ? totals[1] : m2 < 0 ? 0 : m2;
    }
    if (BLOCKS == 1) __syncthreads();
    double sums[3], mean_0;  // of the M2, of n t, of n t^2; t = mean - mean_0
    add_up_cluster<BLOCKS>(own, sums, [&](int of_rank, const double (&found)[2], double (&made)[3]) {
        mean_0 = __shfl_sync(0xffffffffu, found[0], 0);
        const double t = found[0] - mean_0, n = min(cut.part, loops.terms - of_rank * cut.part);
        made[0] = found[1], made[1] = n * t, made[2] = n * t * t;
    });
    const double step = sums[1] * loops.part, mean = mean_0 + step, k = (C)mean;
    const double m2 = sums[0] + (sums[2] - sums[1] * step), var = m2 < 0 ? 0 : m2 * loops.part;  // NaN stays
    const double d = mean - k, rstd = rstd_of(var, eps, guard);
    const bool writes = rank == 0 && threadIdx.x == 0;
    if (writes) {
        stats[row.row] = k;
        stats[rows + row.row] = d;
        stats[2 * rows + row.row] = var;
        stats[3 * rows + row.row] = rstd;
        running.update(row.row, mean, var);
    }
    const C of_k = (C)k, of_d = (C)d, factor = (C)rstd;
    const I param_step = SAME ? 0 : loops.reduced[3].param;
    Pack<C, V> scale, bias;
    if (SAME) scale = parameters<C, V>(s, row.param, (I)0, C(1)), bias = parameters<C, V>(b, row.param, (I)0, C(0));
    part.walk(cut.turns, [](int) {},
        [&](I slot, Place<I> place) {
            const Pack<C, V> in = pack_of(slot);
            Pack<C, V> more, out;
            if (ENDING == RESIDUAL_RELU) more = added[slot].template widened<C>();
            if (!SAME) scale = parameters<C, V>(s, place.param, param_step, C(1));
            if (!SAME) bias = parameters<C, V>(b, place.param, param_step, C(0));
#pragma unroll
            for (int v = 0; v < V; v++) {
                const C xhat = product((in.v[v] - of_k) - of_d, factor);
                out.v[v] = finished<ENDING, T>(affine(xhat, scale.v[v], bias.v[v], s, b), more.v[v]);
            }
            put_rounded(y, place.data, out);
        },
        [](int) {});
    if (rank == 0) running.template finish<false>(stats, rows, writes, threadIdx.x, blockDim.x);
    if (BLOCKS > 1) cluster_wait();
}

// `both` (2, rows) gets the gradients of bias and scale, if a row is the only one with its scale. Otherwise `of_runs`
// (2, second) gets sum(dy) and sum(dy * xhat) of each run. A result of the reduced loops has `runs` runs.
template <class T, class C, class P, class I, int V, int BLOCKS, int N, bool RUNS, bool RELU>
__global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(ROW_THREADS<C, I>, 1)
    cluster_backward(Loops<I> loops, Cut<I> cut, int entries, const T* __restrict__ dy, const T* __restrict__ x,
                     const T* __restrict__ y, const double* __restrict__ stats, const P* __restrict__ s,
                     T* __restrict__ dx, T* __restrict__ masked, double* __restrict__ of_runs, I second,
                     C* __restrict__ both, double eps, bool centered, bool guard) {
    __shared__ double own[2];  // the sums of g and of g * xhat over the part
    const int rank = cluster_rank();
    const I result = blockIdx.x / BLOCKS, rows = loops.statistics;
    const Place<I> row = loops.result(result);
    const Part<RUNS, V, N, I> part(loops, cut, row, rank);
    double(*const of_warps)[2] = reinterpret_cast<double(*)[2]>(dynamic_shared());  // of each run, by each of its warps
    Held<T, V>* const kept_dy = reinterpret_cast<Held<T, V>*>(of_warps + entries);
    Held<T, V>*const kept_x = kept_dy + cut.part / V, *const kept_y = kept_x + cut.part / V;
    part.copy_all([&](I slot, Place<I> place) {
        copy_async<sizeof(T) * V>(kept_dy + slot, dy + place.data);
        copy_async<sizeof(T) * V>(kept_x + slot, x + place.data);
        if (RELU) copy_async<sizeof(T) * V>(kept_y + slot, y + place.data);
    });
    const Statistics<C> stat(stats, rows, row.row);
    const int warps = cut.team / 32, warp = threadIdx.x / 32 % warps;  // of a team
    const auto write_sums = [&](int run, double (&sums)[2]) {
#pragma unroll
        for (int n = 0; n < 2; n++) sums[n] = warp_sum(sums[n]);
        if (threadIdx.x % 32 == 0)
            for (int n = 0; n < 2; n++) of_warps[run * warps + warp][n] = sums[n];
    };
    double parts[2] = {0, 0};
    C few_g, few_gx;
    part.walk(cut.turns, [&](int turn) { part.await(turn), few_g = few_gx = 0; },
        [&](I slot, Place<I> place) {
            Pack<C, V> g = kept_dy[slot].template widened<C>();
            const Pack<C, V> of_x = kept_x[slot].template widened<C>();
            if (RELU) {
                mask(g, kept_y[slot].template widened<C>());
                kept_dy[slot].round(g);
                if (masked) put_rounded(masked, place.data, g);
            }
#pragma unroll
            for (int v = 0; v < V; v++) {
                few_g += g.v[v];
                few_gx += g.v[v] * stat.xhat(of_x.v[v]);
            }
        },
        [&](int run) {
            parts[0] += few_g, parts[1] += few_gx;
            if (!RUNS) return;
            write_sums(run, parts);
            parts[0] = parts[1] = 0;
        });
    if (!RUNS) write_sums(0, parts);
    __syncthreads();
    if (threadIdx.x < 32) {
        double found[2] = {0, 0};
        const int count = part.runs() * warps;
        for (int base = 0; base < count; base += 32) {
            const int at = base + threadIdx.x, run = at / warps;
            const bool inside = at < count;
            double sums[2];
            for (int n = 0; n < 2; n++) sums[n] = inside ? of_warps[at][n] : 0;
            for (int step = warps / 2; step > 0; step /= 2)
                for (int n = 0; n < 2; n++) sums[n] += __shfl_xor_sync(0xffffffffu, sums[n], step);
            if (!inside || at % warps > 0) continue;
            double weight = 1;
            if (RUNS) {
                const Place<I> place = part.place_of(run);
                if (s) weight = widen<double>(s[place.param]);
                const I to = result * loops.reduced[2].count + part.first_run + run;
                if (of_runs) of_runs[to] = sums[0], of_runs[second + to] = sums[1];
            }
            found[0] += sums[0] * weight;
            found[1] += sums[1] * weight;
        }
        for (int n = 0; n < 2; n++) found[n] = warp_sum(found[n]);
        if (threadIdx.x == 0) own[0] = found[0], own[1] = found[1];
    }
    if (BLOCKS == 1) __syncthreads();
    double totals[2];
    add_up_cluster<BLOCKS>(own, totals, [](int, const double (&found)[2], double (&made)[2]) {
        made[0] = found[0], made[1] = found[1];
    });
    double total_g = totals[0], total_gx = totals[1];
    const Pack<C, V> scale = parameters<C, V>(s, row.param, (I)0, C(1));
    if (!RUNS) {
        if (rank == 0 && threadIdx.x == 0) {
            if (both) both[row.param] = (C)total_g, both[rows + row.param] = (C)total_gx;
            if (of_runs) of_runs[result] = total_g, of_runs[second + result] = total_gx;
        }
        total_g *= scale.v[0], total_gx *= scale.v[0];
    }
    if (guard) {
        const double std = sqrt(stats[2 * rows + row.row]);
        total_gx *= std > 0 ? (std + eps) / std : 0;
    }
    const C mean_g = centered ? (C)(total_g * loops.part) : 0, mean_gx = (C)(total_gx * loops.part);
    part.walk(cut.turns, [](int) {},
        [&](I slot, Place<I> place) {
            const Pack<C, V> of_dy = kept_dy[slot].template widened<C>(), of_x = kept_x[slot].template widened<C>();
            const C factor = RUNS && s ? widen<C>(s[place.param]) : scale.v[0];
            Pack<C, V> out;
#pragma unroll
            for (int v = 0; v < V; v++) {
                const C g = s ? product(of_dy.v[v], factor) : of_dy.v[v];
                out.v[v] = stat.rstd * (g - mean_g - stat.xhat(of_x.v[v]) * mean_gx);
            }
            put_rounded(dx, place.data, out);
        },
        [](int) {});
    if (BLOCKS > 1) cluster_wait();
}
