// The loops of a normalization (minorm/nest.py) in two groups, as a kernel gets them: by value, outer loop first.
//
// A sum has one result for each turn of the `kept` loops, taken over the turns of the `reduced` ones. For statistics these
// are the nest's own groups. For the gradients of scale and bias those loops are kept along which scale and bias vary.
#include "types.cuh"

template <class I> struct Place { I data, param, row; };  // of an element, of its scale and bias, of its statistics

template <class I> struct Loop { I count, data, param, row; };  // how often, and how far apart

template <class I> struct Loops {
    Loop<I> kept[4], reduced[4];
    I results, terms;  // turns of the kept loops, of the reduced loops

    __device__ Place<I> result(I index) const { return turn(kept, index); }
    __device__ Place<I> term(I index) const { return turn(reduced, index); }

    // A term where the nest's own loops are reduced, two at most; no statistics vary along them.
    __device__ Place<I> column(I index) const {
        const Loop<I>&outer = reduced[2], &inner = reduced[3];
        if (outer.count == 1) return {index * inner.data, index * inner.param, 0};
        const I turn = index / inner.count, rest = index - turn * inner.count;
        return {turn * outer.data + rest * inner.data, turn * outer.param + rest * inner.param, 0};
    }

    // Do all terms of a result share their statistics?
    __device__ bool one_row() const {
        return reduced[0].row == 0 && reduced[1].row == 0 && reduced[2].row == 0 && reduced[3].row == 0;
    }

    __device__ static Place<I> turn(const Loop<I>* loops, I index) {
        Place<I> place = {0, 0, 0};
#pragma unroll 1
        for (int l = 3; l >= 0; l--) {
            I digit = index;
            if (index >= loops[l].count) {  // a division is the dearest step here
                index /= loops[l].count;
                digit -= index * loops[l].count;
            } else {
                index = 0;
            }
            place.data += digit * loops[l].data;
            place.param += digit * loops[l].param;
            place.row += digit * loops[l].row;
        }
        return place;
    }
};

// k, d, rstd of a row in the type computed in; they stand in a block of four rows: k, d, var, rstd.
template <class C> struct Statistics {
    C k, d, rstd;
    Statistics() = default;
    template <class I> __device__ Statistics(const double* stats, I rows, I row)
        : k((C)stats[row]), d((C)stats[rows + row]), rstd((C)stats[3 * rows + row]) {}
    __device__ C xhat(C x) const { return ((x - k) - d) * rstd; }
};

__device__ inline double rstd_of(double var, double eps, bool guard) {
    if (guard) return var == 0 ? 0 : 1.0 / (sqrt(var) + eps);  // all equal: y and dx are 0
    return 1.0 / sqrt(var + eps);
}

// Which part of the sums or of the data a team of threads works on: team t of the grid has result `index` in chunk
// blockIdx.y of its terms. A team is a warp (WARP) or a block.
template <bool WARP, class I> struct Team {
    int size, lane;
    I index;
    __device__ Team() {
        size = WARP ? 32 : blockDim.x;
        lane = threadIdx.x % size;
        index = (I)blockIdx.x * (blockDim.x / size) + threadIdx.x / size;
    }
};
