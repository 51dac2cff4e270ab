// Optimizer steps for many parameters in one launch.
//
// A step of a small network is bound by launches, not by memory: 65 parameters of ResNet-20 have 1 MB in all. So a
// launch takes a list: the struct `Parts`, within the limit of 4 KB for arguments, holds the addresses of MOST
// parameters, their gradients and their state. A block works on CHUNK elements of one parameter, which it finds by the
// block's number. 16-bit floats are computed in float32; parameter and state are each rounded once.
#include "types.cuh"
#include "maths.cuh"

const int MOST = 48, CHUNK = 4096;  // update_plan.py has the same numbers

struct Parts {
    void *p[MOST], *g[MOST], *m[MOST], *v[MOST], *peak[MOST];
    long long size[MOST];
    double rate[MOST], root[MOST];  // of Adam: lr / (1 - beta1^t) and sqrt(1 - beta2^t)
    int first[MOST + 1];            // block of a part; the number of all blocks from the number of parts on
};

// Element begin + at of an array. Threads of a block differ only in the int `at`: with one long long instead, NVRTC
// writes each 16-bit element separately.
struct Spot {
    long long begin;
    int at;
};

// V neighbours of an array, in the type computed in.
template <class T, class C, int V> struct Some {
    C v[V];
    __device__ Some(void* array, Spot spot) {
        const Pack<T, V> pack = fetch<T, V>(reinterpret_cast<const T*>(array) + spot.begin, spot.at);
#pragma unroll
        for (int i = 0; i < V; i++) v[i] = widen<C>(pack.v[i]);
    }
    __device__ void write(void* array, Spot spot) const {
        Pack<T, V> pack;
#pragma unroll
        for (int i = 0; i < V; i++) place(pack.v[i], v[i]);
        put(reinterpret_cast<T*>(array) + spot.begin, spot.at, pack);
    }
};

// Calls step.some<N>(parts, part, spot) for all elements of this block: N = V elements from `spot` on, and the last
// elements of a part one by one.
template <int V, class F> __device__ void each(const Parts& parts, const F& step) {
    int low = 0, high = MOST;  // the part with first[low] <= block < first[high]
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        (parts.first[middle] <= blockIdx.x ? low : high) = middle;
    }
    const long long begin = (long long)(blockIdx.x - parts.first[low]) * CHUNK;
    const int size = (int)min((long long)CHUNK, parts.size[low] - begin), whole = size - size % V;
    for (int at = threadIdx.x * V; at < whole; at += blockDim.x * V) step.template some<V>(parts, low, Spot{begin, at});
    for (int at = whole + threadIdx.x; at < size; at += blockDim.x) step.template some<1>(parts, low, Spot{begin, at});
}

//     g = sign * gradient + decay * p,  m = momentum * m + fresh * g,  p -= lr * m
// fresh = 1 - dampening; sign = -1 to maximize. With nesterov p -= lr * (g + momentum * m); without momentum
// p -= lr * g, and there is no m.
template <class T, class C, bool MOMENTUM, bool NESTEROV> struct Sgd {
    C lr, momentum, fresh, decay, sign;
    template <int N> __device__ void some(const Parts& parts, int part, Spot spot) const {
        Some<T, C, N> p(parts.p[part], spot);
        const Some<T, C, N> gradient(parts.g[part], spot);
        Some<T, C, N> buffer(MOMENTUM ? parts.m[part] : parts.p[part], spot);
#pragma unroll
        for (int i = 0; i < N; i++) {
            C g = sign * gradient.v[i];
            if (decay != 0) g += decay * p.v[i];
            if (MOMENTUM) {
                const C m = buffer.v[i] = momentum * buffer.v[i] + fresh * g;
                g = NESTEROV ? g + momentum * m : m;
            }
            p.v[i] -= lr * g;
        }
        if (MOMENTUM) buffer.write(parts.m[part], spot);
        p.write(parts.p[part], spot);
    }
};

template <class T, class C, int V, bool MOMENTUM, bool NESTEROV>
__global__ void sgd(Parts parts, Sgd<T, C, MOMENTUM, NESTEROV> step) {
    each<V>(parts, step);
}

// The same for a CUDA graph, which reads the numbers from memory: arguments cannot change from one replay to the next.
template <class T, class C, int V, bool MOMENTUM, bool NESTEROV>
__global__ void sgd_kept(const Parts* parts, const Sgd<T, C, MOMENTUM, NESTEROV>* step) {
    each<V>(*parts, Sgd<T, C, MOMENTUM, NESTEROV>(*step));
}

//     g = sign * gradient + decay * p,  p = shrink * p;  m += fresh1 * (g - m),  v = beta2 * v + fresh2 * g^2
//     p -= rate * m / (sqrt(v) / root + eps), with the largest v so far if PEAKS;  fresh = 1 - beta
template <class T, class C, bool PEAKS> struct Adam {
    C beta2, fresh1, fresh2, eps, decay, shrink, sign;
    template <int N> __device__ void some(const Parts& parts, int part, Spot spot) const {
        Some<T, C, N> p(parts.p[part], spot);
        const Some<T, C, N> gradient(parts.g[part], spot);
        Some<T, C, N> mean(parts.m[part], spot), square(parts.v[part], spot);
        Some<T, C, N> peak(PEAKS ? parts.peak[part] : parts.v[part], spot);
        const C rate = (C)parts.rate[part], root = (C)parts.root[part];
#pragma unroll
        for (int i = 0; i < N; i++) {
            C g = sign * gradient.v[i];
            if (decay != 0) g += decay * p.v[i];
            const C m = mean.v[i] += fresh1 * (g - mean.v[i]);
            C v = square.v[i] = beta2 * square.v[i] + fresh2 * g * g;
            if (PEAKS) v = peak.v[i] = v > peak.v[i] || v != v ? v : peak.v[i];  // NaN stays
            p.v[i] = shrink * p.v[i] - rate * m / (sqrt_of(v) / root + eps);
        }
        mean.write(parts.m[part], spot);
        square.write(parts.v[part], spot);
        if (PEAKS) peak.write(parts.peak[part], spot);
        p.write(parts.p[part], spot);
    }
};

template <class T, class C, int V, bool PEAKS> __global__ void adam(Parts parts, Adam<T, C, PEAKS> step) {
    each<V>(parts, step);
}

template <class T, class C, int V, bool PEAKS>
__global__ void adam_kept(const Parts* parts, const Adam<T, C, PEAKS>* step) {
    each<V>(*parts, Adam<T, C, PEAKS>(*step));
}

//     x = x * factor
template <class T, class C> struct Scale {
    C factor;
    template <int N> __device__ void some(const Parts& parts, int part, Spot spot) const {
        Some<T, C, N> x(parts.p[part], spot);
#pragma unroll
        for (int i = 0; i < N; i++) x.v[i] *= factor;
        x.write(parts.p[part], spot);
    }
};

template <class T, class C, int V> __global__ void scale(Parts parts, Scale<T, C> step) { each<V>(parts, step); }
