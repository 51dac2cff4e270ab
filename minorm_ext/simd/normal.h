/* gelu and erf, and their slopes: loops over an array that vectorise.
 *
 * The tail of the normal distribution beyond z >= 0 is exp(-z^2 / 2) R(z), and R falls slowly, like 1/z: a quotient of
 * polynomials whose coefficients are all positive, so that nothing cancels. Phi is the tail or 1 - tail. z^2 is taken in
 * two parts, or its rounding would be z^2 / 2 units of the tail's last place. erf is x + x S(x^2) up to 1, and 1 - erfc
 * beyond. Largest errors of the approximations, relative to what is computed with them:
 *
 *                            float                              double
 *     R, to where it is 0    6e-9   degrees 4 over 5            6e-17  degrees 9 over 10
 *     exp(-u / 2)            2e-9   degree 6                    3e-18  degree 11
 *     S                      1e-9   degree 6                    7e-18  degree 11
 *     erfc, for erf          1e-8   2^-h(z), degree 5           1e-18  exp(-z^2) times degrees 5 over 6
 *
 * The quotients are least-squares fits with Lawson's weights, the polynomials Remez' minimax, computed with 60 digits.
 * With roundings, against 50 digits, in units of the last place (tests/kernels/test_normal.py): erf 2, its slope 4;
 * gelu 4 for x > 0, and 7 below, however far out; its slope, which crosses 0, 2 units of 1. On the average all are
 * within one unit.
 *
 * Every level computes the same bits: a * b + c is rounded twice, and not once where the processor can. NaN goes through.
 */
#ifndef MINORM_NORMAL_H
#define MINORM_NORMAL_H

#include <stddef.h>

#include "simd/exp.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif

static inline float minorm_ratio_f(float z) { /* R(z) */
    float p = 4.12349878e-03f;
    p = p * z + 4.06815930e-02f;
    p = p * z + 1.83378402e-01f;
    p = p * z + 4.38487955e-01f;
    p = p * z + 5.00000003e-01f;
    float q = 1.03359605e-02f;
    q = q * z + 1.01980013e-01f;
    q = q * z + 4.69848867e-01f;
    q = q * z + 1.20309762e+00f;
    q = q * z + 1.67486089e+00f;
    return p / (q * z + 1.0f);
}

static inline double minorm_ratio_d(double z) {
    double p = 1.3967686866868001541e-6;
    p = p * z + 3.7502874781693408656e-5;
    p = p * z + 4.9315704454219047561e-4;
    p = p * z + 4.1082636583792681748e-3;
    p = p * z + 2.3711659479832470598e-2;
    p = p * z + 9.7991448976469164242e-2;
    p = p * z + 2.8998343418327954901e-1;
    p = p * z + 5.9495737892850586332e-1;
    p = p * z + 7.7550273670903169242e-1;
    p = p * z + 0.5;
    double q = 3.5011798831777212989e-6;
    q = q * z + 9.4005766305769896014e-5;
    q = q * z + 1.2396625717521460423e-3;
    q = q * z + 1.0391895601481033933e-2;
    q = q * z + 6.0665475527871072191e-2;
    q = q * z + 2.5573800373271755806e-1;
    q = q * z + 7.8387991655794388675e-1;
    q = q * z + 1.7173055439861719508;
    q = q * z + 2.5640578511859311360;
    q = q * z + 2.3488900342209182859;
    return p / (q * z + 1.0);
}

static inline float minorm_near_f(float u) { /* erf(x) / x - 1 with u = x^2 <= 1 */
    float s = 7.85384983e-05f;
    s = s * u - 8.01020270e-04f;
    s = s * u + 5.18833048e-03f;
    s = s * u - 2.68538146e-02f;
    s = s * u + 1.12835852e-01f;
    s = s * u - 3.76126258e-01f;
    return s * u + 1.28379166e-01f;
}

static inline double minorm_near_d(double u) { /* erf(x) / x - 1 with u = x^2 <= 1 */
    double s = -7.7794629717615968919e-10;
    s = s * u + 1.3710988704190523118e-8;
    s = s * u - 1.6206318752969209004e-7;
    s = s * u + 1.6447132699786621009e-6;
    s = s * u - 1.4924712439534814108e-5;
    s = s * u + 1.2055293586936949976e-4;
    s = s * u - 8.5483259297662442975e-4;
    s = s * u + 5.2239776061308421667e-3;
    s = s * u - 2.6866170643113413715e-2;
    s = s * u + 1.1283791670944200308e-1;
    s = s * u - 3.7612638903183520025e-1;
    return s * u + 1.2837916709551256568e-1;
}

static inline double minorm_beyond_d(double z) { /* exp(z^2) erfc(z), 1 <= z <= 5.95 */
    double p = 8.9129647076015634529e-3;
    p = p * z + 8.4233308971862781666e-2;
    p = p * z + 3.7323624354140728480e-1;
    p = p * z + 9.4891250049821260796e-1;
    p = p * z + 1.3900877529240117985;
    p = p * z + 9.9999988911291782148e-1;
    double q = 1.5797941996915255924e-2;
    q = q * z + 1.4929572284273841769e-1;
    q = q * z + 6.6950275929332447436e-1;
    q = q * z + 1.7559751633034880588;
    q = q * z + 2.7907026710464007090;
    q = q * z + 2.5184657501683822475;
    return p / (q * z + 1.0);
}

/* The leading half of the bits: its square is exact. */
static inline float minorm_leading_f(float z) {
    uint32_t bits;
    memcpy(&bits, &z, sizeof bits);
    bits &= 0xfffff000u;
    memcpy(&z, &bits, sizeof z);
    return z;
}

static inline double minorm_leading_d(double z) {
    uint64_t bits;
    memcpy(&bits, &z, sizeof bits);
    bits &= 0xfffffffff8000000u;
    memcpy(&z, &bits, sizeof z);
    return z;
}

/* exp(-u / 2) for u = z^2, of which the rest of `square` is `low`, times 2^SHIFT so that no factor is denormal. As
 * exp.h does it: u + 2 n ln 2 = r with |r| <= ln 2, a minimax polynomial (2e-9, 3e-18), and n, which stands in the
 * low bits of a sum, added to the exponent. */
static inline float minorm_bell_f(float u, float low) {
    const float magic = 12582976.0f; /* 1.5 * 2^23 + 64 */
    float sum = u * -0.72134752f + magic;
    float whole = sum - magic;
    float r = u + whole * 1.38671875f;
    r = r - whole * 4.24388880e-4f + low;
    float p = 2.16184610e-05f;
    p = p * r - 2.61738888e-04f;
    p = p * r + 2.60426803e-03f;
    p = p * r - 2.08330128e-02f;
    p = p * r + 1.24999979e-01f;
    p = p * r - 5.00000019e-01f;
    p = p * r + 1.0f;
    uint32_t bits, power;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&power, &sum, sizeof power);
    bits += power << 23;
    memcpy(&p, &bits, sizeof p);
    return p;
}

static inline double minorm_bell_d(double u, double low) {
    const double magic = 6755399441055872.0; /* 1.5 * 2^52 + 128 */
    double sum = u * -0.72134752044448170368 + magic;
    double whole = sum - magic;
    double r = u + whole * 1.38629436073824763298;
    r = r + whole * 3.81642985854117540004e-10 + low;
    double p = -1.220367517528281947e-11;
    p = p * r + 2.6986128643375194409e-10;
    p = p * r - 5.3823505693925300028e-9;
    p = p * r + 9.6880790804960439312e-8;
    p = p * r - 1.5500991724561874533e-6;
    p = p * r + 2.1701388992248393145e-5;
    p = p * r - 2.604166666742714279e-4;
    p = p * r + 2.6041666666549033147e-3;
    p = p * r - 2.0833333333332645526e-2;
    p = p * r + 1.25000000000000048800e-1;
    p = p * r - 0.5;
    p = p * r + 1.0;
    uint64_t bits, power;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&power, &sum, sizeof power);
    bits += power << 52;
    memcpy(&p, &bits, sizeof p);
    return p;
}

/* `far`: from there on exp(-z^2 / 2) is 0. `unit`: 2^-SHIFT. */
#define MINORM_NORMALS(real, s, far, unit)                                                                            \
    /* exp(-z^2 / 2) / unit, and 0 from `far` on */                                                                   \
    static inline real minorm_density_##s(real z) {                                                                   \
        real a = minorm_leading_##s(z);                                                                               \
        real y = minorm_bell_##s(a * a, (z - a) * (z + a));                                                           \
        return z >= (real)far ? 0 : y;                                                                                \
    }                                                                                                                 \
    static inline real minorm_gelu_##s(real x) {                                                                      \
        real z = x < 0 ? -x : x;                                                                                      \
        z = z > (real)far ? (real)far : z;                                                                            \
        real tail = minorm_density_##s(z) * minorm_ratio_##s(z);                                                      \
        real share = x > 0 ? 1 - tail * (real)unit : tail;                                                            \
        return (x * share) * (x > 0 ? 1 : (real)unit); /* in this order: a denormal result is rounded once */         \
    }                                                                                                                 \
    /* Phi(x) + x Phi'(x) */                                                                                          \
    static inline real minorm_gelu_slope_##s(real x) {                                                                \
        real z = x < 0 ? -x : x;                                                                                      \
        z = z > (real)far ? (real)far : z;                                                                            \
        real bell = minorm_density_##s(z) * (real)unit;                                                               \
        real tail = bell * minorm_ratio_##s(z);                                                                       \
        return (x > 0 ? 1 - tail : tail) + x * ((real)0.39894228040143267794 * bell);                                 \
    }                                                                                                                 \
    /* 2 / sqrt(pi) * exp(-x^2), x^2 being half of what bell wants */                                                 \
    static inline real minorm_erf_slope_##s(real x) {                                                                 \
        real z = x < 0 ? -x : x;                                                                                      \
        z = z > (real)(far * 0.70710678) ? (real)(far * 0.70710678) : z;                                              \
        real a = minorm_leading_##s(z);                                                                               \
        real y = minorm_bell_##s(2 * a * a, 2 * ((z - a) * (z + a)));                                                 \
        return z >= (real)(far * 0.70710678) ? 0 : (real)1.12837916709551257390 * y * (real)unit;                     \
    }

/* (1 + tanh u) / 2 is the logistic of 2u; beyond 30 it is 0 or 1 anyway. */
#define MINORM_GELUS_BY_TANH(real, s)                                                                                 \
    static inline real minorm_within_##s(real x) { /* [-30, 30] */                                                    \
        x = x < -30 ? -30 : x;                                                                                        \
        return x > 30 ? 30 : x;                                                                                       \
    }                                                                                                                 \
    static inline real minorm_gelu_share_##s(real x) {                                                                \
        x = minorm_within_##s(x);                                                                                     \
        return minorm_sigmoid_##s((real)1.5957691216057308 * (x + (real)0.044715 * x * x * x));                       \
    }                                                                                                                 \
    static inline real minorm_gelu_tanh_slope_##s(real x) {                                                           \
        real share = minorm_gelu_share_##s(x), c = minorm_within_##s(x);                                              \
        return share + x * (share * (1 - share)) * ((real)1.5957691216057308 * (1 + (real)0.134145 * c * c));         \
    }

MINORM_GELUS_BY_TANH(float, f)
MINORM_GELUS_BY_TANH(double, d)

MINORM_NORMALS(float, f, 14.5, 0x1p-64f)
MINORM_NORMALS(double, d, 38.75, 0x1p-128)

/* Beyond 1 a float of erf needs few digits of erfc: that is 2^-h(z), h a polynomial (2e-8), and 2^-r another (8e-8). */
static inline float minorm_erf_f(float x) {
    const float magic = 12582912.0f;
    float z = x < 0 ? -x : x;
    float c = z > 3.93f ? 3.93f : z, u = c * c; /* there erf is 1 */
    float near = z + z * minorm_near_f(u > 1 ? 1 : u);
    float h = 1.66950467e-3f;
    h = h * c - 2.13977445e-2f;
    h = h * c + 1.28110687e-1f;
    h = h * c + 9.43869193e-1f;
    h = h * c + 1.61238646e+0f;
    h = h * c + 3.77871714e-3f;
    float sum = h + magic;
    float r = h - (sum - magic);
    float p = -1.32764666e-3f;
    p = p * r + 9.67554169e-3f;
    p = p * r - 5.55071328e-2f;
    p = p * r + 2.40221197e-1f;
    p = p * r - 6.93146967e-1f;
    p = p * r + 1.00000007e+0f;
    uint32_t bits, power;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&power, &sum, sizeof power);
    bits -= power << 23;
    memcpy(&p, &bits, sizeof p);
    float y = z > 1 ? 1 - p : near;
    return x < 0 ? -y : x > 0 ? y : x;
}

static inline double minorm_erf_d(double x) {
    double z = x < 0 ? -x : x;
    double c = z > 5.95 ? 5.95 : z, u = c * c; /* there erf is 1 */
    double near = z + z * minorm_near_d(u > 1 ? 1 : u);
    double y = z > 1 ? 1 - minorm_bell_d(2 * u, 0) * (0x1p-128 * minorm_beyond_d(c)) : near;
    return x < 0 ? -y : x > 0 ? y : x;
}

/* Gradients take dy as a, and x as b. */
#define MINORM_NORMAL_LOOP(real, s, name, expression)                                                                 \
    static void minorm_##name##_loop_##s(const real *a, const real *b, real *out, ptrdiff_t n, real option) {           \
        (void)b, (void)option;                                                                                        \
        for (ptrdiff_t i = 0; i < n; i++) out[i] = expression;                                                        \
    }

#define MINORM_NORMAL_LOOPS(real, s)                                                                                  \
    MINORM_NORMAL_LOOP(real, s, gelu, minorm_gelu_##s(a[i]))                                                          \
    MINORM_NORMAL_LOOP(real, s, gelu_grad, a[i] * minorm_gelu_slope_##s(b[i]))                                        \
    MINORM_NORMAL_LOOP(real, s, gelu_tanh, a[i] * minorm_gelu_share_##s(a[i]))                                        \
    MINORM_NORMAL_LOOP(real, s, gelu_tanh_grad, a[i] * minorm_gelu_tanh_slope_##s(b[i]))                              \
    MINORM_NORMAL_LOOP(real, s, erf, minorm_erf_##s(a[i]))                                                            \
    MINORM_NORMAL_LOOP(real, s, erf_grad, a[i] * minorm_erf_slope_##s(b[i]))

MINORM_NORMAL_LOOPS(float, f)
MINORM_NORMAL_LOOPS(double, d)

#if defined(__clang__)
#pragma STDC FP_CONTRACT ON
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif

#endif
