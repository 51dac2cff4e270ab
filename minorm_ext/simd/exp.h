/* exp, exp - 1, tanh and the logistic, written so that a loop of them vectorises.
 *
 * libm's functions are calls, one element at a time, and gcc uses its vector versions only under -ffast-math. These are
 * plain arithmetic without branches: x = n ln 2 + r with |r| <= (ln 2)/2, a polynomial for exp(r) - 1, and 2^n put
 * together from its bits. NaN goes through; results beyond the range are infinite, zero or denormal as they should be.
 * Errors against float64 (tests/kernels/test_elementwise.py): exp, expm1 2 units of the last place, the others 4.
 */
#ifndef MINORM_EXPONENTIAL_H
#define MINORM_EXPONENTIAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float minorm_power2_f(int32_t n) { /* 2^n, -126 <= n <= 127 */
    uint32_t bits = (uint32_t)(n + 127) << 23;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

static inline double minorm_power2_d(int64_t n) { /* 2^n, -1022 <= n <= 1023 */
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* exp(r) - 1 for the remainder r of x, and n through a pointer. Adding 1.5 * 2^23 rounds to an integer, which then
 * stands in the low bits of the sum: no conversion instruction, and any bits at all for NaN, where they do not matter. */
static inline float minorm_reduced_f(float x, int32_t *n) {
    const float magic = 12582912.0f;
    float sum = x * 1.44269504f + magic;
    float whole = sum - magic;
    float r = x - whole * 0.693359375f; /* ln 2 in two parts; the first has few bits, so that the product is exact */
    r = r + whole * 2.12194440e-4f;
    float q = 1.989933433e-4f; /* Chebyshev fit of (exp(r) - 1 - r) / r^2, error 2e-10 */
    q = q * r + 1.393368836e-3f;
    q = q * r + 8.333298411e-3f;
    q = q * r + 4.166646457e-2f;
    q = q * r + 1.666666672e-1f;
    q = q * r + 0.5f;
    uint32_t bits, base;
    memcpy(&bits, &sum, sizeof bits);
    memcpy(&base, &magic, sizeof base);
    *n = (int32_t)(bits - base);
    return r + r * r * q;
}

static inline double minorm_reduced_d(double x, int64_t *n) {
    const double magic = 6755399441055744.0;
    double sum = x * 1.4426950408889634 + magic;
    double whole = sum - magic;
    double r = x - whole * 6.93147180369123816490e-01;
    r = r - whole * 1.90821492927058770002e-10;
    double q = 1.0 / 6227020800.0; /* Taylor's series: the next term is 4e-18 of the result */
    q = q * r + 1.0 / 479001600.0;
    q = q * r + 1.0 / 39916800.0;
    q = q * r + 1.0 / 3628800.0;
    q = q * r + 1.0 / 362880.0;
    q = q * r + 1.0 / 40320.0;
    q = q * r + 1.0 / 5040.0;
    q = q * r + 1.0 / 720.0;
    q = q * r + 1.0 / 120.0;
    q = q * r + 1.0 / 24.0;
    q = q * r + 1.0 / 6.0;
    q = q * r + 0.5;
    uint64_t bits, base;
    memcpy(&bits, &sum, sizeof bits);
    memcpy(&base, &magic, sizeof base);
    *n = (int64_t)(bits - base);
    return r + r * r * q;
}

/* The rest is the same for both types. 2^n is applied in two steps, so that a denormal result is rounded once. */
#define MINORM_EXPONENTIALS(real, integer, s, low, high)                                                              \
    static inline real minorm_exp_##s(real x) {                                                                       \
        integer n, half;                                                                                              \
        x = x > (real)high ? (real)high : x;                                                                          \
        x = x < (real)low ? (real)low : x;                                                                            \
        real p = minorm_reduced_##s(x, &n);                                                                           \
        half = n >> 1;                                                                                                \
        return (1 + p) * minorm_power2_##s(half) * minorm_power2_##s(n - half);                                       \
    }                                                                                                                 \
    /* exp(x) - 1 for x <= 0 without cancellation: 2^n (exp(r) - 1) + (2^n - 1), below -50 it is -1 */               \
    static inline real minorm_expm1_##s(real x) {                                                                     \
        integer n;                                                                                                    \
        x = x < (real)-50 ? (real)-50 : x;                                                                            \
        real p = minorm_reduced_##s(x, &n);                                                                           \
        real power = minorm_power2_##s(n);                                                                            \
        return power * p + (power - 1);                                                                               \
    }                                                                                                                 \
    /* With z = |x| and u = exp(-2z): (1 - u)/(1 + u) near 0, and 1 - 2u/(1 + u), whose error shrinks, beyond 1/2 */  \
    static inline real minorm_tanh_##s(real x) {                                                                      \
        integer n;                                                                                                    \
        real z = x < 0 ? -x : x;                                                                                      \
        real twice = z > 25 ? -50 : -2 * z;                                                                           \
        real p = minorm_reduced_##s(twice, &n);                                                                       \
        real power = minorm_power2_##s(n);                                                                            \
        real u = power * (1 + p);                                                                                     \
        real part = (z > (real)0.5 ? 2 * u : -(power * p + (power - 1))) / (1 + u);                                   \
        real y = z > (real)0.5 ? 1 - part : part;                                                                     \
        return x < 0 ? -y : y;                                                                                        \
    }                                                                                                                 \
    static inline real minorm_sigmoid_##s(real x) {                                                                   \
        real e = minorm_exp_##s(x < 0 ? x : -x);                                                                      \
        return (x >= 0 ? 1 : e) / (1 + e);                                                                            \
    }

MINORM_EXPONENTIALS(float, int32_t, f, -104.0, 89.0)
MINORM_EXPONENTIALS(double, int64_t, d, -746.0, 710.0)

#endif
