// Optimizer steps for many parameters in one launch.
//
// A step of a small network is bound by launches, not by memory: 65 parameters of ResNet-20 have 1 MB in all. So a launch
// takes a list: the struct `Parts`, within the 4 KB that arguments may have, holds the addresses of MOST parameters, their
// gradients and their state; a block works on CHUNK elements of one of them, which it finds by its number. 16-bit floats are
// computed in float32; parameter and state are rounded once each.
#include "types.cuh"
#include "maths.cuh"

const int MOST = 48, CHUNK = 4096;  // update_plan.py has the same numbers

struct Parts {
    unsigned long long p[MOST], g[MOST], m[MOST], v[MOST], peak[MOST];  // addresses
    long long size[MOST];
    double rate[MOST], root[MOST];  // of Adam: lr / (1 - beta1^t) and sqrt(1 - beta2^t)
    int first[MOST + 1];            // block of a part; the number of all blocks from the number of parts on
};

// Up to V neighbours of an array, in the type computed in; the last ones of a part may be fewer.
template <class T, class C, int V> struct Some {
    C v[V];
    __device__ Some(unsigned long long address, long long at, int count) {
        const T* x = reinterpret_cast<const T*>(address) + at;
        if (count == V) {
            const Pack<T, V> pack = fetch<T, V>(x, 0);
#pragma unroll
            for (int i = 0; i < V; i++) v[i] = widen<C>(pack.v[i]);
        } else {
#pragma unroll
            for (int i = 0; i < V; i++) v[i] = i < count ? widen<C>(x[i]) : C(0);
        }
    }
    __device__ void write(unsigned long long address, long long at, int count) const {
        T* x = reinterpret_cast<T*>(address) + at;
        Pack<T, V> pack;
#pragma unroll
        for (int i = 0; i < V; i++) place(pack.v[i], v[i]);
        if (count == V) {
            put(x, 0, pack);
        } else {
            for (int i = 0; i < count; i++) x[i] = pack.v[i];
        }
    }
};

// Calls work(part, at, count) for all elements of this block: `count` of them, V but at the end, from number `at` on.
template <int V, class F> __device__ void each(const Parts& parts, F work) {
    int low = 0, high = MOST;  // the part with first[low] <= block < first[high]
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        (parts.first[middle] <= blockIdx.x ? low : high) = middle;
    }
    const long long begin = (long long)(blockIdx.x - parts.first[low]) * CHUNK;
    const long long end = min(begin + CHUNK, parts.size[low]);
    for (long long at = begin + threadIdx.x * V; at < end; at += blockDim.x * V)
        work(low, at, (int)min((long long)V, end - at));
}

template <class C> struct Sgd { C lr, momentum, fresh, decay, sign; };  // fresh = 1 - dampening, sign = -1 to climb

//     g = sign * gradient + decay * p,  m = momentum * m + fresh * g,  p -= lr * m
// With nesterov p -= lr * (g + momentum * m); without momentum p -= lr * g, and m is not there.
template <class T, class C, int V, bool MOMENTUM, bool NESTEROV> __global__ void sgd(Parts parts, Sgd<C> step) {
    each<V>(parts, [&](int part, long long at, int count) {
        Some<T, C, V> p(parts.p[part], at, count);
        const Some<T, C, V> gradient(parts.g[part], at, count);
        Some<T, C, V> buffer(MOMENTUM ? parts.m[part] : parts.p[part], at, count);
#pragma unroll
        for (int i = 0; i < V; i++) {
            C g = step.sign * gradient.v[i];
            if (step.decay != 0) g += step.decay * p.v[i];
            if (MOMENTUM) {
                const C m = buffer.v[i] = step.momentum * buffer.v[i] + step.fresh * g;
                g = NESTEROV ? g + step.momentum * m : m;
            }
            p.v[i] -= step.lr * g;
        }
        if (MOMENTUM) buffer.write(parts.m[part], at, count);
        p.write(parts.p[part], at, count);
    });
}

template <class C> struct Adam { C beta2, fresh1, fresh2, eps, decay, shrink, sign; };  // fresh = 1 - beta

//     g = sign * gradient + decay * p,  p = shrink * p;  m += fresh1 * (g - m),  v = beta2 * v + fresh2 * g^2
//     p -= rate * m / (sqrt(v) / root + eps), of the largest v so far where PEAKS
template <class T, class C, int V, bool PEAKS> __global__ void adam(Parts parts, Adam<C> step) {
    each<V>(parts, [&](int part, long long at, int count) {
        Some<T, C, V> p(parts.p[part], at, count);
        const Some<T, C, V> gradient(parts.g[part], at, count);
        Some<T, C, V> mean(parts.m[part], at, count), square(parts.v[part], at, count);
        Some<T, C, V> peak(PEAKS ? parts.peak[part] : parts.v[part], at, count);
        const C rate = (C)parts.rate[part], root = (C)parts.root[part];
#pragma unroll
        for (int i = 0; i < V; i++) {
            C g = step.sign * gradient.v[i];
            if (step.decay != 0) g += step.decay * p.v[i];
            const C m = mean.v[i] += step.fresh1 * (g - mean.v[i]);
            C v = square.v[i] = step.beta2 * square.v[i] + step.fresh2 * g * g;
            if (PEAKS) v = peak.v[i] = v > peak.v[i] || v != v ? v : peak.v[i];  // NaN stays
            p.v[i] = step.shrink * p.v[i] - rate * m / (sqrt_of(v) / root + step.eps);
        }
        mean.write(parts.m[part], at, count);
        square.write(parts.v[part], at, count);
        if (PEAKS) peak.write(parts.peak[part], at, count);
        p.write(parts.p[part], at, count);
    });
}

//     x = x * factor
template <class T, class C, int V> __global__ void scale(Parts parts, C factor) {
    each<V>(parts, [&](int part, long long at, int count) {
        Some<T, C, V> x(parts.p[part], at, count);
#pragma unroll
        for (int i = 0; i < V; i++) x.v[i] *= factor;
        x.write(parts.p[part], at, count);
    });
}
