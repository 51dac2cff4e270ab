// Pooling: a thread has one element of the result. Forward it walks over the taps of its window; backward it gathers from the
// windows that reach over its place, in their order, so that nothing is added by atomics and every run gives the same bits.
#include "types.cuh"
#include "maths.cuh"
#include "windows.cuh"

// y = max over the taps inside, and its place in the plane, rows after each other; -inf and -1 where no tap is inside. The
// first of equals wins; NaN is larger than anything, and the last of them wins.
template <class T, class C, class I>
__global__ void max_forward(Windows w, I count, const T* x, T* y, int* places) {
    const I index = (I)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    int o[3], start[3], first[3], last[3];
    w.digits<false>(index % w.results, o);
#pragma unroll
    for (int a = 0; a < 3; a++) {
        start[a] = w.axis[a].start(o[a]);
        first[a] = w.axis[a].first(start[a]);
        last[a] = w.axis[a].last(start[a], w.axis[a].n);
    }
    x += index / w.results * w.plane;
    T best;
    place(best, -infinity());
    C most = 0;
    int at = -1;
    for (int i = first[0]; i < last[0]; i++)
        for (int j = first[1]; j < last[1]; j++)
            for (int k = first[2]; k < last[2]; k++) {
                const int row = (start[0] + i * w.axis[0].d) * w.axis[1].n + start[1] + j * w.axis[1].d;
                const int here = row * w.axis[2].n + start[2] + k * w.axis[2].d;
                const C value = widen<C>(x[here]);
                if (at < 0 || value > most || value != value) {
                    most = value;
                    best = x[here];
                    at = here;
                }
            }
    y[index] = best;
    places[index] = at;
}

// dx[p] = the sum of dy over the windows whose maximum came from p
template <class T, class C, class I>
__global__ void max_backward(Windows w, I count, const T* dy, const int* places, T* dx) {
    const I index = (I)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    int p[3];
    const int here = index % w.plane;
    w.digits<true>(here, p);
    dy += index / w.plane * w.results;
    places += index / w.plane * w.results;
    C sum = 0;
    for (int i = w.axis[0].begin(p[0]); i < w.axis[0].end(p[0]); i++)
        for (int j = w.axis[1].begin(p[1]); j < w.axis[1].end(p[1]); j++)
            for (int k = w.axis[2].begin(p[2]); k < w.axis[2].end(p[2]); k++) {
                const int o = (i * w.axis[1].o + j) * w.axis[2].o + k;
                if (places[o] == here) sum += widen<C>(dy[o]);
            }
    place(dx[index], sum);
}

// What the sum over window (i, j, k) is divided by: `divisor`, or the number of taps inside, or of those in the padding too.
template <class C> __device__ C divisor_of(const Windows& w, int i, int j, int k, bool padding, int divisor) {
    if (divisor) return divisor;
    const int a = w.axis[0].count(w.axis[0].start(i), padding), b = w.axis[1].count(w.axis[1].start(j), padding);
    return max(1, a * b * w.axis[2].count(w.axis[2].start(k), padding));
}

// y = sum over the taps inside / divisor
template <class T, class C, class I>
__global__ void avg_forward(Windows w, I count, const T* x, T* y, bool padding, int divisor) {
    const I index = (I)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    int o[3], start[3], first[3], last[3];
    w.digits<false>(index % w.results, o);
#pragma unroll
    for (int a = 0; a < 3; a++) {
        start[a] = w.axis[a].start(o[a]);
        first[a] = w.axis[a].first(start[a]);
        last[a] = w.axis[a].last(start[a], w.axis[a].n);
    }
    x += index / w.results * w.plane;
    C sum = 0;
    for (int i = first[0]; i < last[0]; i++)
        for (int j = first[1]; j < last[1]; j++)
            for (int k = first[2]; k < last[2]; k++) {
                const int row = (start[0] + i * w.axis[0].d) * w.axis[1].n + start[1] + j * w.axis[1].d;
                sum += widen<C>(x[row * w.axis[2].n + start[2] + k * w.axis[2].d]);
            }
    place(y[index], sum / divisor_of<C>(w, o[0], o[1], o[2], padding, divisor));
}

// dx[p] = the sum of dy / divisor over the windows that meet p
template <class T, class C, class I>
__global__ void avg_backward(Windows w, I count, const T* dy, T* dx, bool padding, int divisor) {
    const I index = (I)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    int p[3];
    w.digits<true>(index % w.plane, p);
    dy += index / w.plane * w.results;
    C sum = 0;
    for (int i = w.axis[0].begin(p[0]); i < w.axis[0].end(p[0]); i++) {
        if (w.axis[0].tap(p[0], i) < 0) continue;
        for (int j = w.axis[1].begin(p[1]); j < w.axis[1].end(p[1]); j++) {
            if (w.axis[1].tap(p[1], j) < 0) continue;
            for (int k = w.axis[2].begin(p[2]); k < w.axis[2].end(p[2]); k++) {
                if (w.axis[2].tap(p[2], k) < 0) continue;
                const C value = widen<C>(dy[(i * w.axis[1].o + j) * w.axis[2].o + k]);
                sum += value / divisor_of<C>(w, i, j, k, padding, divisor);
            }
        }
    }
    place(dx[index], sum);
}
