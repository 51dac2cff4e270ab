/* exp, exp - 1, tanh and the logistic, written so that loops of them vectorise and give the same bits everywhere.
 *
 * libm's functions are calls, one element at a time, and gcc uses its vector versions only under -ffast-math. These are
 * plain arithmetic without branches: x = n ln 2 + r with |r| <= (ln 2)/2, a polynomial for exp(r) - 1, and 2^n put
 * together from its bits. No multiply-add is fused, so the bits do not depend on whether the processor can do that. NaN
 * stays NaN; results beyond the range are infinite, zero or denormal as in exact arithmetic. Largest errors in units of
 * the last place (tests/ext/test_exp.py, test_elementwise.py): exp 1, expm1 2, the others 4.
 */
#ifndef MINORM_EXP_H
#define MINORM_EXP_H

#include "simd/vec.h"

static INLINE uint32_t bits_float(float x) { uint32_t u; memcpy(&u, &x, sizeof u); return u; }
static INLINE uint64_t bits_double(double x) { uint64_t u; memcpy(&u, &x, sizeof u); return u; }
static INLINE float of_bits_float(uint32_t u) { float x; memcpy(&x, &u, sizeof x); return x; }
static INLINE double of_bits_double(uint64_t u) { double x; memcpy(&x, &u, sizeof x); return x; }

/* 2^n for -126 <= n <= 127, and for -1022 <= n <= 1023. */
static INLINE float power2_float(int32_t n) { return of_bits_float((uint32_t)(n + 127) << 23); }
static INLINE double power2_double(int64_t n) { return of_bits_double((uint64_t)(n + 1023) << 52); }

/* exp(r) - 1 for the remainder r of x + low, and n through a pointer. Adding 1.5 * 2^23 rounds to an integer, which
 * is then in the low bits of the sum. So no conversion instruction is needed; for NaN the bits mean nothing, and do not
 * matter. ln 2 comes in two parts; the first has few bits, so that n times it is exact. */
static INLINE float reduced_float(float x, float low, int32_t *n) {
    const float magic = 12582912.0f;
    float sum = x * 1.44269504f + magic;
    float whole = sum - magic;
    float r = x - whole * 0.693359375f;
    r = r + (whole * 2.12194440e-4f + low);
    float q = 1.989933433e-4f; /* Chebyshev fit of (exp(r) - 1 - r) / r^2, error 2e-10 */
    q = q * r + 1.393368836e-3f;
    q = q * r + 8.333298411e-3f;
    q = q * r + 4.166646457e-2f;
    q = q * r + 1.666666672e-1f;
    q = q * r + 0.5f;
    *n = (int32_t)(bits_float(sum) - bits_float(magic));
    return r + r * r * q;
}

static INLINE double reduced_double(double x, double low, int64_t *n) {
    const double magic = 6755399441055744.0;
    double sum = x * 1.4426950408889634 + magic;
    double whole = sum - magic;
    double r = x - whole * 6.93147180369123816490e-01;
    r = r - (whole * 1.90821492927058770002e-10 - low);
    double q = 2.092158900614991288736e-9; /* minimax fit, error 1e-18 */
    q = q * r + 2.510521761002637904720e-8;
    q = q * r + 2.755725291135470678221e-7;
    q = q * r + 2.755725539855631156180e-6;
    q = q * r + 2.480158734734380122663e-5;
    q = q * r + 1.984126987482210805433e-4;
    q = q * r + 1.388888888887439452193e-3;
    q = q * r + 8.333333333326134640176e-3;
    q = q * r + 4.166666666666668380681e-2;
    q = q * r + 1.666666666666667099102e-1;
    q = q * r + 0.5;
    *n = (int64_t)(bits_double(sum) - bits_double(magic));
    return r + r * r * q;
}

#define REAL float
#define INTEGER int32_t
#define NAME(stem) stem##_float
#define LOWEST -104.0f /* exp is 0 below LOWEST, and infinite above HIGHEST */
#define HIGHEST 89.0f
#include "simd/exp.inc.h"
#undef REAL
#undef INTEGER
#undef NAME
#undef LOWEST
#undef HIGHEST

#define REAL double
#define INTEGER int64_t
#define NAME(stem) stem##_double
#define LOWEST -746.0
#define HIGHEST 710.0
#include "simd/exp.inc.h"
#undef REAL
#undef INTEGER
#undef NAME
#undef LOWEST
#undef HIGHEST

#endif
