// The kernels around the matrix products of a convolution; cols is (channels * taps, images * results).
//
//     im2col    cols[c, k; n, o] = x[n, c, o * s + k * d - low], 0 outside
//     col2im    dx[n, c, p] = more[n, c, p] + b[c] + sum over the windows o that meet p, with tap k, of cols[c, k; n, o]
//     swap      y[i, j, p] = x[j, i, p] + b[j]: to channels before images, as matrix products need it, or back
//
// Each thread computes one window or one place of one channel. col2im gathers, so every sum has a fixed order.
#include "types.cuh"
#include "windows.cuh"

template <class T, class C, class I>
__global__ void im2col(Windows w, I count, I images, I channels, const T* x, T* cols) {
    const I index = (I)blockIdx.x * blockDim.x + threadIdx.x, columns = images * w.results;
    if (index >= count) return;
    const I channel = index / columns, column = index - channel * columns, image = column / w.results;
    int o[3], start[3];
    w.digits<false>(column - image * w.results, o);
#pragma unroll
    for (int a = 0; a < 3; a++) start[a] = w.axis[a].start(o[a]);
    x += (image * channels + channel) * w.plane;
    cols += channel * w.taps * columns + column;
    for (int i = 0; i < w.axis[0].k; i++)
        for (int j = 0; j < w.axis[1].k; j++)
            for (int k = 0; k < w.axis[2].k; k++) {
                const int p = start[0] + i * w.axis[0].d, q = start[1] + j * w.axis[1].d, r = start[2] + k * w.axis[2].d;
                const bool inside = p >= 0 && p < w.axis[0].n && q >= 0 && q < w.axis[1].n && r >= 0 && r < w.axis[2].n;
                place(*cols, C(0));
                if (inside) *cols = x[(p * w.axis[1].n + q) * w.axis[2].n + r];
                cols += columns;
            }
}

template <class T, class C, class I>
__global__ void col2im(Windows w, I count, I images, I channels, const C* cols, const T* b, const T* more, T* dx) {
    const I index = (I)blockIdx.x * blockDim.x + threadIdx.x, columns = images * w.results;
    if (index >= count) return;
    const I plane = index / w.plane, image = plane / channels, channel = plane - image * channels;
    int p[3];
    w.digits<true>(index - plane * w.plane, p);
    cols += channel * w.taps * columns + image * w.results;
    C sum = 0;
    for (int i = w.axis[0].begin(p[0]); i < w.axis[0].end(p[0]); i++) {
        const int first = w.axis[0].tap(p[0], i);
        if (first < 0) continue;
        for (int j = w.axis[1].begin(p[1]); j < w.axis[1].end(p[1]); j++) {
            const int second = w.axis[1].tap(p[1], j);
            if (second < 0) continue;
            for (int k = w.axis[2].begin(p[2]); k < w.axis[2].end(p[2]); k++) {
                const int third = w.axis[2].tap(p[2], k);
                if (third < 0) continue;
                const I tap = (first * w.axis[1].k + second) * w.axis[2].k + third;
                sum += cols[tap * columns + (i * w.axis[1].o + j) * w.axis[2].o + k];
            }
        }
    }
    if (b) sum += widen<C>(b[channel]);
    place(dx[index], sum);
    if (more) place(dx[index], widen<C>(dx[index]) + widen<C>(more[index]));
}

// x (J, I, plane) in type S, y (I, J, plane) in type R. V divides the plane.
template <class S, class R, class C, int V, class I>
__global__ void swap(I count, I inner, I outer, I plane, const S* x, const R* b, R* y) {
    const I at = ((I)blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (at >= count) return;
    const I row = at / plane, p = at - row * plane, i = row / inner, j = row - i * inner;
    const C bias = b ? widen<C>(b[j]) : C(0);
    const Pack<S, V> in = fetch<S, V>(x, (j * outer + i) * plane + p);
    Pack<R, V> out;
#pragma unroll
    for (int v = 0; v < V; v++) place(out.v[v], widen<C>(in.v[v]) + bias);
    put(y, at, out);
}
