/* The code that float and double share; exp.h sets REAL, INTEGER, NAME and the range. */

/* exp(x + low), where low is less than the last place of x. The result is multiplied by 2^n in two steps, so that a
 * denormal result is rounded once. */
static INLINE REAL NAME(exp_of)(REAL x, REAL low) {
    INTEGER n, half;
    x = x > HIGHEST ? HIGHEST : x;
    x = x < LOWEST ? LOWEST : x;
    REAL p = NAME(reduced)(x, low, &n);
    half = n >> 1;
    return (1 + p) * NAME(power2)(half) * NAME(power2)(n - half);
}

static INLINE REAL NAME(exp)(REAL x) { return NAME(exp_of)(x, 0); }

/* exp(x) - 1 without cancellation: 2^n (exp(r) - 1) + (2^n - 1). For x up to 40; below -50 the result is -1. */
static INLINE REAL NAME(expm1_up_to_40)(REAL x) {
    INTEGER n;
    x = x < -50 ? -50 : x;
    REAL p = NAME(reduced)(x, 0, &n);
    REAL power = NAME(power2)(n);
    return power * p + (power - 1);
}

/* exp(x) - 1; beyond 40 it is exp(x), after rounding. */
static INLINE REAL NAME(expm1)(REAL x) {
    REAL y = x > 40 ? NAME(exp)(x) : NAME(expm1_up_to_40)(x > 40 ? 40 : x);
    return x == 0 ? x : y; /* -0 stays */
}

/* With z = |x| and u = exp(-2z): (1 - u)/(1 + u) near 0, and 1 - 2u/(1 + u), whose error shrinks, beyond 1/2. */
static INLINE REAL NAME(tanh)(REAL x) {
    INTEGER n;
    REAL z = x < 0 ? -x : x;
    REAL twice = z > 25 ? -50 : -2 * z;
    REAL p = NAME(reduced)(twice, 0, &n);
    REAL power = NAME(power2)(n);
    REAL u = power * (1 + p);
    REAL part = (z > (REAL)0.5 ? 2 * u : -(power * p + (power - 1))) / (1 + u);
    REAL y = z > (REAL)0.5 ? 1 - part : part;
    return x < 0 ? -y : y;
}

static INLINE REAL NAME(sigmoid)(REAL x) {
    REAL e = NAME(exp)(x < 0 ? x : -x);
    return (x >= 0 ? 1 : e) / (1 + e);
}

/* The slope of x sigmoid(x). */
static INLINE REAL NAME(silu_slope)(REAL x) {
    REAL s = NAME(sigmoid)(x);
    return s * (1 + x * (1 - s));
}
