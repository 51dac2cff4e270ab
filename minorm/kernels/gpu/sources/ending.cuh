// The optional last step of a normalization, in the same pass: max(y + residual, 0), with the roundings of separate
// operations.
#include "types.cuh"

enum Ending { PLAIN, RELU, RESIDUAL_RELU };

// T is the type that the result is rounded to.
template <int ENDING, class T, class C> __device__ inline C finished(C value, C residual) {
    if (ENDING == RESIDUAL_RELU) value = rounded<T>(value) + residual;
    return ENDING != PLAIN && value <= 0 ? C(0) : value;  // NaN stays
}

// Returns dy where the result was above 0 or NaN, 0 elsewhere.
template <class C, int V> __device__ inline void mask(Pack<C, V>& dy, const Pack<C, V>& y) {
#pragma unroll
    for (int v = 0; v < V; v++)
        if (y.v[v] <= 0) dy.v[v] = 0;
}
