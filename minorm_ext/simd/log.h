/* log, log(1 + x) and powers, as plain arithmetic like exp.h: their loops vectorise and give the same bits everywhere.
 *
 * x = 2^k m with m from sqrt(1/2) to sqrt(2), f = m - 1 and s = f / (2 + f): then log m = log (1 + s)/(1 - s) is
 * 2 s (1 + s^2/3 + s^4/5 ...). Of 2 s = f - s f the first part is exact, so it is added last.
 *
 * A power is exp(y log x), and the factor y makes an error of the logarithm up to 700 times as large. So powers take
 * the logarithm with twice the digits, as an unevaluated sum of two numbers. float is computed in double, and rounded
 * once.
 *
 * Largest errors in units of the last place (tests/ext/test_exp.py): log and log1p 1, powers 1.1; of float 0.501.
 * Zeros, infinities, NaN and negative numbers give the results of C99; denormal numbers need no special treatment.
 */
#ifndef MINORM_LOG_H
#define MINORM_LOG_H

#include <math.h>

#include "simd/exp.h"

#define LN2_HIGH 6.93147180369123816490e-01 /* with few bits, so that k times it is exact */
#define LN2_LOW 1.90821492927058770002e-10

/* x > 0 as 2^k m; k comes as a number, by way of the bits of 2^52 + k. */
static INLINE double split_double(double x, double *k) {
    const double shift = x < 0x1p-1022 ? 54 : 0; /* denormal */
    const uint64_t bits = bits_double(shift ? x * 0x1p54 : x) + (bits_double(1) - bits_double(M_SQRT1_2));
    *k = of_bits_double(bits >> 52 | bits_double(0x1p52)) - (0x1p52 + 1023) - shift;
    return of_bits_double((bits & 0x000fffffffffffff) + bits_double(M_SQRT1_2));
}

/* k ln 2 + low + log(1 + f) */
static INLINE double log_of_double(double k, double f, double low) {
    double s = f / (2 + f), z = s * s, half = f * f * 0.5;
    double q = 0.1461787137133515931805; /* minimax fit of (log((1 + s)/(1 - s)) / s - 2) / z, error 3e-16 */
    q = q * z + 0.1533159709585875493485;
    q = q * z + 0.1818289321318472503561;
    q = q * z + 0.2222221107295089694217;
    q = q * z + 0.2857142862639821468267;
    q = q * z + 0.3999999999989844819972;
    q = q * z + 0.6666666666666669728917;
    return k * LN2_HIGH - ((half - (s * (half + z * q) + (k * LN2_LOW + low))) - f);
}

static INLINE double log_double(double x) {
    double k, m = split_double(x, &k);
    double y = log_of_double(k, m - 1, 0);
    y = x > 0 ? y : x == 0 ? -INFINITY : NAN;
    return x < INFINITY ? y : x;
}

/* log u + (x - (u - 1)) / u with u = 1 + x rounded; where k is 0, f is x itself. */
static INLINE double log1p_double(double x) {
    double u = 1 + x, k, m = split_double(u, &k);
    double rest = (x > 1 ? 1 - (u - x) : x - (u - 1)) / u;
    double y = log_of_double(k, k == 0 ? x : m - 1, k == 0 ? 0 : rest);
    y = x > -1 ? y : x == -1 ? -INFINITY : NAN;
    y = x == 0 ? x : y; /* -0 stays */
    return x < INFINITY ? y : x;
}

/* a * b = high + low, exactly: halves of 26 bits have exact products. */
static INLINE double high_bits(double a) { return of_bits_double(bits_double(a) & 0xfffffffff8000000); }

static INLINE double product_double(double a, double b, double *low) {
    double p = a * b, a1 = high_bits(a), a2 = a - a1, b1 = high_bits(b), b2 = b - b1;
    *low = ((a1 * b1 - p) + (a1 * b2 + a2 * b1)) + a2 * b2;
    return p;
}

/* x^y for 0 < x < inf and a finite y, by log x = high + low. */
static INLINE double positive_power_double(double x, double y) {
    double k, m = split_double(x, &k), e;
    /* s = f / (2 + f) and z = s^2, each as a number and its rounding error */
    double f = m - 1, g = m + 1, g_low = m - (g - 1);
    double s = f / g, p = product_double(s, g, &e);
    double s_low = (((f - p) - e) - s * g_low) / g;
    double z_low, z = product_double(s, s, &z_low);
    z_low += 2 * s * s_low;
    /* t = z / 3 + z^2 q: of the first term, and of 1/3, both parts are needed */
    double q = 0.05862129488231260547295; /* minimax fit of 1/5 + z/7 + z^2/9 ..., error 1e-18 */
    q = q * z + 0.05853062536929529872372;
    q = q * z + 0.0666740459764945984888;
    q = q * z + 0.07692297436112116780723;
    q = q * z + 0.09090909168161204727665;
    q = q * z + 0.1111111111082566461586;
    q = q * z + 0.1428571428571468730369;
    q = q * z + 0.1999999999999999990732;
    double t_low, t = product_double(z, 0x1.5555555555555p-2, &t_low);
    t_low += z * 1.850371707708594234e-17 + z_low * 0x1.5555555555555p-2 + z * z * q;
    /* log m = 2 (s + s t) */
    double u_low, u = product_double(s, t, &u_low);
    u_low += s * t_low + s_low * t + s_low;
    double sum = s + u, sum_low = (s - sum) + u + u_low;
    /* plus k ln 2, which is larger than log m if it is not 0 */
    double a = k * LN2_HIGH, high = a + 2 * sum;
    double low = (k == 0 ? 0 : (a - high) + 2 * sum) + (k * LN2_LOW + 2 * sum_low);
    double bound = y > 0x1p70 ? 0x1p70 : y < -0x1p70 ? -0x1p70 : y; /* far beyond the range, whatever x */
    double rest, product = product_double(bound, high, &rest);
    rest += bound * low;
    return exp_of_double(product, product > -746 && product < 710 ? rest : 0);
}

/* x^y, given r = |x|^y, which is right if both are finite and x is not 0: correct all other cases, without a branch. */
static INLINE double power_of_any(double x, double y, double r) {
    double size = x < 0 ? -x : x, much = y < 0 ? -y : y, half = much * 0.5;
    /* 0, or infinity, for a base or an exponent at the end of the range */
    double above = y < 0 ? 0 : INFINITY, below = y < 0 ? INFINITY : 0;
    double end = size > 1 ? above : below;
    r = size == 0 ? end : r;
    r = size == INFINITY ? end : r;
    r = much == INFINITY ? (size == 1 ? 1 : end) : r;
    /* a negative base has only whole powers, and odd powers are negative; beyond 2^52 all numbers are whole */
    double rest = much - ((much + 0x1p52) - 0x1p52), rest_of_half = half - ((half + 0x1p52) - 0x1p52);
    rest = much >= 0x1p52 ? 0 : rest;
    rest_of_half = half >= 0x1p52 ? 0 : rest_of_half;
    double odd = rest_of_half != 0 ? -r : r, of_negative = rest != 0 ? r : odd;
    double finite = size < INFINITY ? NAN : r;
    finite = size == 0 ? r : finite;
    of_negative = rest != 0 ? finite : of_negative;
    r = of_bits_double(bits_double(x) >> 63) != 0 ? of_negative : r;
    r = x != x ? x : r;
    r = y != y ? y : r;
    r = x == 1 ? 1 : r;
    return y == 0 ? 1 : r;
}

static INLINE double pow_double(double x, double y) {
    return power_of_any(x, y, positive_power_double(x < 0 ? -x : x, y));
}

static INLINE float log_float(float x) { return (float)log_double(x); }
static INLINE float log1p_float(float x) { return (float)log1p_double(x); }
static INLINE float pow_float(float x, float y) { /* a double has digits enough for y log x */
    return (float)power_of_any(x, y, exp_double(y * log_double(x < 0 ? -x : x)));
}

#endif
