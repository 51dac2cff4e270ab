// Elementwise functions and their gradients: read once, computed in C, rounded once, written once.
//
//     map_one          y  = f(x, option)
//     map_two          dx = dy * f'(v, option), v is y or x, kept by forward; and a + b, a - b, a * b, a / b
//     map_broadcast    the same for operands that broadcast against each other, in any order of memory and two types
//
// A thread has one access of V elements; the last thread goes element by element. The formulas are
// those of reference/elementwise.py. At a kink the gradient is PyTorch's, and NaN stays NaN.
#include "types.cuh"
#include "digits.cuh"
#include "maths.cuh"
#include "narrow.cuh"

namespace op {
struct relu {
    template <class C> static __device__ C y(C x, C) { return x <= 0 ? C(0) : x; }
    template <class C> static __device__ C dx(C dy, C y, C) { return y <= 0 ? C(0) : dy; }
};

struct relu6 {
    template <class C> static __device__ C y(C x, C) { return x <= 0 ? C(0) : x >= 6 ? C(6) : x; }
    template <class C> static __device__ C dx(C dy, C y, C) { return y <= 0 || y >= 6 ? C(0) : dy; }
};

struct leaky_relu {
    template <class C> static __device__ C y(C x, C slope) { return x > 0 ? x : x * slope; }
    template <class C> static __device__ C dx(C dy, C x, C slope) { return x > 0 ? dy : dy * slope; }
};

struct hardswish {  // x * min(max(x + 3, 0), 6) / 6
    template <class C> static __device__ C y(C x, C) {
        const C t = x + 3;
        return x * (t <= 0 ? C(0) : t >= 6 ? C(6) : t) / 6;
    }
    template <class C> static __device__ C dx(C dy, C x, C) {
        return x <= -3 ? C(0) : x < 3 ? dy * (x / 3 + C(0.5)) : dy;
    }
};

// 1 / (1 + e^-x), with an exponential that never overflows
template <class C> __device__ inline C logistic(C x) {
    const C small = exp_of(-abs_of(x));
    return (x >= 0 ? C(1) : small) / (1 + small);
}

struct sigmoid {
    template <class C> static __device__ C y(C x, C) { return logistic(x); }
    template <class C> static __device__ C dx(C dy, C y, C) { return dy * y * (1 - y); }
};

struct tanh {
    template <class C> static __device__ C y(C x, C) { return tanh_of(x); }
    template <class C> static __device__ C dx(C dy, C y, C) { return dy * (1 - y * y); }
};

struct silu {  // x * s, s = sigmoid(x)
    template <class C> static __device__ C y(C x, C) { return x * logistic(x); }
    template <class C> static __device__ C dx(C dy, C x, C) {
        const C s = logistic(x);
        return dy * (s * (1 + x * (1 - s)));
    }
};

struct elu {
    template <class C> static __device__ C y(C x, C alpha) { return x > 0 ? x : alpha * expm1_of(x); }
    template <class C> static __device__ C dx(C dy, C x, C alpha) { return x <= 0 ? dy * (alpha * exp_of(x)) : dy; }
};

struct gelu {  // x * Phi(x), Phi(x) = erfc(-x / sqrt 2) / 2; Phi'(x) = exp(-x^2 / 2) / sqrt(2 pi)
    template <class C> static __device__ C phi(C x) { return erfc_of(x * C(-0.70710678118654752440)) / 2; }
    template <class C> static __device__ C y(C x, C) { return x * phi(x); }
    template <class C> static __device__ C dx(C dy, C x, C) {
        return dy * (phi(x) + x * (exp_of(x * x / -2) * C(0.39894228040143267794)));
    }
};

struct gelu_tanh {  // Phi(x) = (1 + tanh u) / 2 = 1 / (1 + e^-2u), u = sqrt(2 / pi) * (x + 0.044715 x^3)
    template <class C> static __device__ C twice_u(C x) {
        return C(1.5957691216057307118) * (x + C(0.044715) * x * x * x);
    }
    template <class C> static __device__ C y(C x, C) { return x * logistic(twice_u(x)); }
    template <class C> static __device__ C dx(C dy, C x, C) {
        const C phi = logistic(twice_u(x)), slope = C(1.5957691216057307118) * (1 + C(0.134145) * x * x);
        const C bump = phi * (1 - phi);
        return dy * (bump == 0 ? phi : phi + x * (bump * slope));  // x * x may be infinite far out
    }
};

struct erf {
    template <class C> static __device__ C y(C x, C) { return erf_of(x); }
    template <class C> static __device__ C dx(C dy, C x, C) {
        return dy * (C(1.12837916709551257390) * exp_of(-x * x));
    }
};

struct scale {
    template <class C> static __device__ C y(C x, C factor) { return x * factor; }
};

struct neg {
    template <class C> static __device__ C y(C x, C) { return -x; }
};

struct over {
    template <class C> static __device__ C y(C x, C number) { return x / number; }
};

struct add {
    template <class C> static __device__ C dx(C a, C b, C) { return a + b; }
};

struct sub {
    template <class C> static __device__ C dx(C a, C b, C) { return a - b; }
};

struct mul {
    template <class C> static __device__ C dx(C a, C b, C) { return a * b; }
};

struct div {
    template <class C> static __device__ C dx(C a, C b, C) { return a / b; }
};

template <class F> struct swapped {
    template <class C> static __device__ C dx(C a, C b, C option) { return F::dx(b, a, option); }
};
}  // namespace op

// The version of a function that kernels for type T use.
template <class F, class T> struct Form : F {};
template <class F, class T> struct Form<op::swapped<F>, T> : op::swapped<Form<F, T>> {};
template <> struct Form<op::gelu, __half> : narrow::gelu {};
template <> struct Form<op::gelu, __nv_bfloat16> : narrow::gelu {};
template <> struct Form<op::erf, __half> : narrow::erf {};
template <> struct Form<op::erf, __nv_bfloat16> : narrow::erf {};

template <class F, class T, class C, int V, class I> __global__ void map_one(const T* x, T* y, I n, C option) {
    const I at = ((I)blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (at + V <= n) {
        const Pack<T, V> in = fetch<T, V>(x, at);
        Pack<T, V> out;
#pragma unroll
        for (int v = 0; v < V; v++) place(out.v[v], Form<F, T>::y(widen<C>(in.v[v]), option));
        put(y, at, out);
    } else {
        for (I i = at; i < n; i++) place(y[i], Form<F, T>::y(widen<C>(x[i]), option));
    }
}

// y may be a or b itself: the thread that writes an element is the only one that reads it.
template <class F, class T, class C, int V, class I>
__global__ void map_two(const T* a, const T* b, T* y, I n, C option) {
    const I at = ((I)blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (at + V <= n) {
        const Pack<T, V> left = fetch<T, V>(a, at), right = fetch<T, V>(b, at);
        Pack<T, V> out;
#pragma unroll
        for (int v = 0; v < V; v++) place(out.v[v], Form<F, T>::dx(widen<C>(left.v[v]), widen<C>(right.v[v]), option));
        put(y, at, out);
    } else {
        for (I i = at; i < n; i++) place(y[i], Form<F, T>::dx(widen<C>(a[i]), widen<C>(b[i]), option));
    }
}

// Loops over the result, from the outermost to the innermost: counts, and steps in both operands.
template <class I> struct Loops {
    static const int N = 6;  // broadcast_plan.py has the same number
    I count[N], a[N], b[N];

    // The places of both operands for one element of the result, and its number in the innermost loop.
    __device__ void find(I index, I& a_at, I& b_at, I& inner) const {
        a_at = b_at = 0;
#pragma unroll
        for (int n = N - 1; n >= 0; n--) {
            const I digit = take_digit(index, count[n], n == 0);
            if (n == N - 1) inner = digit;
            a_at += digit * a[n];
            b_at += digit * b[n];
        }
    }
};

// V neighbours of the innermost loop. whole: they are one access.
template <class T, int V, class I> __device__ Pack<T, V> along(const T* x, I at, I step, bool whole) {
    if (whole) return fetch<T, V>(x, at);
    Pack<T, V> found;
    if (step == 0) {
        const T one = x[at];
#pragma unroll
        for (int v = 0; v < V; v++) found.v[v] = one;
    } else {
#pragma unroll
        for (int v = 0; v < V; v++) found.v[v] = x[at + v * step];
    }
    return found;
}

// A thread finds its place in the loops once. If the innermost loop ends within the V elements, the thread finds the
// next place from there. FLAT: a lies as y, so it needs no place, and y may be a itself.
template <class F, class A, class B, class R, class C, int V, bool FLAT, class I>
__global__ void map_broadcast(Loops<I> loops, I n, bool a_whole, bool b_whole, const A* a, const B* b, R* y, C option) {
    const int last = Loops<I>::N - 1;
    const I at = ((I)blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (at >= n) return;
    I a_at, b_at, inner;
    loops.find(at, a_at, b_at, inner);
    if (at + V <= n) {
        Pack<A, V> left;
        Pack<B, V> right;
        if (FLAT) left = fetch<A, V>(a, at);
        if (loops.count[last] % V == 0) {
            if (!FLAT) left = along<A, V>(a, a_at, loops.a[last], a_whole);
            right = along<B, V>(b, b_at, loops.b[last], b_whole);
        } else {
#pragma unroll
            for (int v = 0; v < V; v++) {
                if (!FLAT) left.v[v] = a[a_at];
                right.v[v] = b[b_at];
                if (++inner < loops.count[last]) {
                    a_at += loops.a[last];
                    b_at += loops.b[last];
                } else if (v + 1 < V) {
                    loops.find(at + v + 1, a_at, b_at, inner);
                }
            }
        }
        Pack<R, V> out;
#pragma unroll
        for (int v = 0; v < V; v++) place(out.v[v], Form<F, R>::dx(widen<C>(left.v[v]), widen<C>(right.v[v]), option));
        put(y, at, out);
    } else {
        for (I i = at; i < n; i++) {
            loops.find(i, a_at, b_at, inner);
            place(y[i], Form<F, R>::dx(widen<C>(a[FLAT ? i : a_at]), widen<C>(b[b_at]), option));
        }
    }
}
