// What may follow a normalization in the same pass: max(y + residual, 0), each step rounded as operations of their own do.
#include "types.cuh"

enum Ending { PLAIN, RELU, RESIDUAL_RELU };

template <int ENDING, class C, class T> __device__ inline void finish(T& to, C value, T residual) {
    place(to, value);
    if (ENDING == RESIDUAL_RELU) place(to, widen<C>(to) + widen<C>(residual));
    if (ENDING != PLAIN && widen<C>(to) <= 0) place(to, C(0));  // NaN stays
}

// dy where the result was above 0 or NaN, 0 elsewhere.
template <bool RELU, class C, int V, class T> __device__ inline void mask(Pack<T, V>& dy, const Pack<T, V>& y) {
#pragma unroll
    for (int v = 0; v < V; v++)
        if (RELU && widen<C>(y.v[v]) <= 0) place(dy.v[v], C(0));
}
