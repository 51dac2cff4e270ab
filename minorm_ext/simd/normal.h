/* gelu and erf, and their slopes, as plain arithmetic like exp.h.
 *
 * The tail of the normal distribution beyond z >= 0 is exp(-z^2 / 2) R(z), and R falls slowly, like 1/z: a quotient of
 * polynomials whose coefficients are all positive, so that nothing cancels. Phi is the tail or 1 - tail. z^2 is
 * computed as a sum of two parts, because its rounding error alone would be z^2 / 2 units of the tail's last place. erf
 * is x + x S(x^2) up to 1, and 1 - erfc beyond. Largest errors of the approximations, relative to what is computed with
 * them:
 *
 *                            float                              double
 *     R, to where it is 0    6e-9   degrees 4 over 5            6e-17  degrees 9 over 10
 *     exp(-u / 2)            2e-9   degree 6                    3e-18  degree 11
 *     S                      1e-9   degree 6                    7e-18  degree 11
 *     erfc, for erf          1e-8   2^-h(z), degree 5           1e-18  exp(-z^2) times degrees 5 over 6
 *
 * The quotients are least-squares fits with Lawson's weights, the polynomials Remez' minimax, computed with 60 digits.
 * With roundings, compared with 50 digits, in units of the last place (tests/ext/test_normal.py): erf 2, its slope 4;
 * gelu 4 for x > 0, and 7 below, however far out; its slope, which crosses 0, 2 units of 1. On the average all are
 * within one unit.
 *
 * NaN stays NaN.
 */
#ifndef MINORM_NORMAL_H
#define MINORM_NORMAL_H

#include "simd/exp.h"

static INLINE float ratio_float(float z) { /* R(z) */
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

static INLINE double ratio_double(double z) {
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

static INLINE float near_float(float u) { /* erf(x) / x - 1 with u = x^2 <= 1 */
    float s = 7.85384983e-05f;
    s = s * u - 8.01020270e-04f;
    s = s * u + 5.18833048e-03f;
    s = s * u - 2.68538146e-02f;
    s = s * u + 1.12835852e-01f;
    s = s * u - 3.76126258e-01f;
    return s * u + 1.28379166e-01f;
}

static INLINE double near_double(double u) { /* erf(x) / x - 1 with u = x^2 <= 1 */
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

static INLINE double beyond_double(double z) { /* exp(z^2) erfc(z), 1 <= z <= 5.95 */
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

/* |x|, and y >= 0 with the sign of x: work on the bits takes one instruction, a comparison takes three. */
static INLINE float without_sign_float(float x) { return of_bits_float(bits_float(x) & 0x7fffffffu); }
static INLINE double without_sign_double(double x) { return of_bits_double(bits_double(x) & ~(1ull << 63)); }
static INLINE float with_sign_float(float y, float x) {
    return of_bits_float(bits_float(y) | (bits_float(x) & 0x80000000u));
}
static INLINE double with_sign_double(double y, double x) {
    return of_bits_double(bits_double(y) | (bits_double(x) & 1ull << 63));
}

/* The leading half of the bits: its square is exact. */
static INLINE float leading_float(float z) {
    uint32_t bits;
    memcpy(&bits, &z, sizeof bits);
    bits &= 0xfffff000u;
    memcpy(&z, &bits, sizeof z);
    return z;
}

static INLINE double leading_double(double z) {
    uint64_t bits;
    memcpy(&bits, &z, sizeof bits);
    bits &= 0xfffffffff8000000u;
    memcpy(&z, &bits, sizeof z);
    return z;
}

/* exp(-u / 2) for u = z^2, of which the rest of `square` is `low`, times 2^SHIFT so that no factor is denormal. As
 * exp.h does it: u + 2 n ln 2 = r with |r| <= ln 2, a minimax polynomial (2e-9, 3e-18), and n, which stands in the
 * low bits of a sum, is added to the exponent. */
static INLINE float bell_float(float u, float low) {
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

static INLINE double bell_double(double u, double low) {
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

#define REAL float
#define NAME(stem) stem##_float
#define FAR 14.5f /* from here on exp(-z^2 / 2) is 0 */
#define UNIT 0x1p-64f /* 2^-SHIFT */
#include "simd/normal.inc.h"
#undef REAL
#undef NAME
#undef FAR
#undef UNIT

#define REAL double
#define NAME(stem) stem##_double
#define FAR 38.75
#define UNIT 0x1p-128
#include "simd/normal.inc.h"
#undef REAL
#undef NAME
#undef FAR
#undef UNIT

/* Beyond 1 a float of erf needs few digits of erfc: that is 2^-h(z), h a polynomial (2e-8), and 2^-r another (8e-8). */
static INLINE float erf_float(float x) {
    const float magic = 12582912.0f;
    float z = without_sign_float(x);
    float c = z < 3.93f ? z : 3.93f, u = c * c; /* there erf is 1 */
    float near = z + z * near_float(u < 1 ? u : 1); /* NaN where z is */
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
    return with_sign_float(z > 1 ? 1 - p : near, x);
}

static INLINE double erf_double(double x) {
    double z = without_sign_double(x);
    double c = z < 5.95 ? z : 5.95, u = c * c; /* there erf is 1 */
    double near = z + z * near_double(u < 1 ? u : 1);
    return with_sign_double(z > 1 ? 1 - bell_double(2 * u, 0) * (0x1p-128 * beyond_double(c)) : near, x);
}

#endif
