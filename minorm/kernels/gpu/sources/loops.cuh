// The loops of a normalization (minorm/normalization/nest.py) for a kernel: two groups, by value, outer loop first.
//
// A sum has one result for each turn of the `kept` loops, taken over the turns of the `reduced` ones. For statistics
// these are the nest's own groups. For the gradients of scale and bias, the kept loops are those along which scale and
// bias vary.
#include "digits.cuh"
#include "maths.cuh"
#include "types.cuh"

template <class I> struct Place { I data, param, row; };  // of an element, of its scale and bias, of its statistics

template <class I> struct Loop { I count, data, param, row; };  // count and steps

template <class I> struct Loops {
    Loop<I> kept[4], reduced[4];
    I results, terms;  // turns of the kept loops, of the reduced loops
    I statistics;      // rows of the statistics, of which a result may be a part
    double part;       // 1 / elements of a row: a division in double takes a thread as long as forty additions

    __device__ Place<I> result(I index) const {
        Place<I> place = {0, 0, 0};
#pragma unroll 1
        for (int l = 3; l >= 0; l--) {
            const I digit = take_digit(index, kept[l].count, false);
            place.data += digit * kept[l].data;
            place.param += digit * kept[l].param;
            place.row += digit * kept[l].row;
        }
        return place;
    }
};

// The place of a term in the reduced loops, and then of terms `step` further on: only the first place needs divisions.
// N: the number of innermost loops, 2 if the nest's reduced loops are meant. Places past the last term have no meaning.
template <int N, class I> struct Cursor {
    const Loops<I>& loops;
    Place<I> place, jump;
    I digit[N], jump_digit[N];

    __device__ Cursor(const Loops<I>& loops, I at, I step) : loops(loops) {
        place = split(at, digit);
        jump = split(step, jump_digit);
    }

    __device__ Place<I> split(I index, I (&digits)[N]) const {
        Place<I> found = {0, 0, 0};
#pragma unroll
        for (int n = N - 1; n >= 0; n--) {
            const Loop<I>& loop = loops.reduced[4 - N + n];
            digits[n] = index;
            if (n > 0 && index >= loop.count) {
                index /= loop.count;
                digits[n] -= index * loop.count;
            } else {
                index = 0;
            }
            found.data += digits[n] * loop.data;
            found.param += digits[n] * loop.param;
            found.row += digits[n] * loop.row;
        }
        return found;
    }

    __device__ void advance() {
        place.data += jump.data;
        place.param += jump.param;
        place.row += jump.row;
#pragma unroll
        for (int n = N - 1; n > 0; n--) {
            const Loop<I>&loop = loops.reduced[4 - N + n], &outer = loops.reduced[3 - N + n];
            digit[n] += jump_digit[n];
            if (digit[n] < loop.count) continue;
            digit[n] -= loop.count;  // one turn of the next loop
            digit[n - 1] += 1;
            place.data += outer.data - loop.count * loop.data;
            place.param += outer.param - loop.count * loop.param;
            place.row += outer.row - loop.count * loop.row;
        }
    }
};

// The number of blocks of 256 threads that a multiprocessor should run at once, which limits their registers: one less
// for each feature that takes more registers (LESS), such as wide indices, and one less for double.
template <class C, class I, int LESS> constexpr int BLOCKS = sizeof(C) == 8 || LESS >= 2 ? 1 : (sizeof(I) == 8 ? 2 : 3) - LESS;

// The most threads of a block that keeps a row (MOST_THREADS in norm_plan.py): each has 64 registers, or 128 if numbers or
// indices take two.
template <class C, class I> constexpr int ROW_THREADS = sizeof(C) == 4 && sizeof(I) == 4 ? 1024 : 512;

// k, d, rstd of a row in the type computed in. The statistics lie in four rows: k, d, var, rstd.
template <class C> struct Statistics {
    C k, d, rstd;
    Statistics() = default;
    template <class D, class I> __device__ Statistics(D stats, I rows, I row)
        : k((C)stats[row]), d((C)stats[rows + row]), rstd((C)stats[3 * rows + row]) {}
    __device__ C xhat(C x) const { return product((x - k) - d, rstd); }
};

// The mean k + d and the variance of a row that a team keeps. each(use) calls use(element) for each element that this
// thread keeps; x0 is the first element of the row.
//
// The shift is the mean to float precision: x0 + mean(x - x0), which is x0 itself if all x are equal. About it var =
// mean(t^2) - d^2 loses nothing, as d is only the rounding error of k. Squares above 3e38 are added up again in double.
template <int LANES, class C, class F>
__device__ __forceinline__ void statistics_of(F each, C x0, double part, bool centered, double& k, double& d, double& var) {
    k = d = 0;
    C shift = 0;
    if (centered) {
        C sum = 0;
        each([&](C value) { sum += value - x0; });
        k = shift = x0 + team_sum<LANES>(sum) * (C)part;
    }
    C parts[2] = {0, 0};  // of t = x - shift and of its square
    each([&](C value) {
        const C t = value - shift;
        parts[0] += t;
        parts[1] += t * t;
    });
    double totals[2];
    add_up_team<LANES>(parts, totals);
    const bool large = !(totals[1] < 1e300);
    if (any_team<LANES>(large)) {  // a float square overflowed: once more in double
        double squares = 0;
        each([&](C value) {
            const double t = value - shift;
            squares += t * t;
        });
        squares = team_sum<LANES>(squares);
        if (large) totals[1] = squares;
    }
    if (centered) d = totals[0] * part;
    var = totals[1] * part - d * d;
    if (var < 0) var = 0;  // NaN stays
}

__device__ inline double rstd_of(double var, double eps, bool guard) {
    if (guard) return var == 0 ? 0 : 1.0 / (sqrt(var) + eps);  // all equal: y and dx are 0
    return rsqrt(var + eps);
}

// Scale or bias of V neighbours, from `at` on: one number for all with step 0, else one access. Null gives `otherwise`.
template <class C, int V, class P, class I>
__device__ __forceinline__ Pack<C, V> parameters(const P* __restrict__ s, I at, I step, C otherwise) {
    Pack<C, V> found;
    if (V > 1 && s && step != 0) {
        found = hold<P, V>(s, at).template widened<C>();
    } else {
        const C one = s ? widen<C>(s[at]) : otherwise;
#pragma unroll
        for (int v = 0; v < V; v++) found.v[v] = one;
    }
    return found;
}

// The share of a team of threads in the sums or the data: team t of the grid has result `index`, and of its terms chunk
// blockIdx.y. A team is a warp (WARP) or a block.
template <bool WARP, class I> struct Team {
    int size, lane;
    I index;
    __device__ Team() {
        size = WARP ? 32 : blockDim.x;
        lane = threadIdx.x % size;
        index = (I)blockIdx.x * (blockDim.x / size) + threadIdx.x / size;
    }
};

// Teams that take rows in turn. A team is LANES threads of a warp, or a block if LANES is 0. All teams of a warp
// continue as long as one of them has a row, because they add up together.
template <int LANES, class I> struct Turns {
    int size, lane;
    I rows, teams, first, index;  // `first`: the row of the warp's first team
    __device__ Turns(I rows) : rows(rows) {
        size = LANES ? LANES : blockDim.x;
        lane = threadIdx.x % size;
        teams = (I)gridDim.x * (blockDim.x / size);
        index = (I)blockIdx.x * (blockDim.x / size) + threadIdx.x / size;
        first = LANES ? index - threadIdx.x % 32 / LANES : index;
    }
    __device__ bool some() const { return first < rows; }
    __device__ bool inside() const { return index < rows; }
    __device__ bool another() const { return first + teams < rows; }
    __device__ void next() { first += teams, index += teams; }
};
