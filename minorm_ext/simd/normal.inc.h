/* The code that float and double share; normal.h sets REAL, NAME, FAR and UNIT. */

/* exp(-z^2 / 2) / UNIT, and 0 from FAR on */
static INLINE REAL NAME(density)(REAL z) {
    REAL a = NAME(leading)(z);
    REAL y = NAME(bell)(a * a, (z - a) * (z + a));
    return z >= FAR ? 0 : y;
}

static INLINE REAL NAME(gelu)(REAL x) {
    REAL z = NAME(without_sign)(x);
    z = z > FAR ? FAR : z;
    REAL tail = NAME(density)(z) * NAME(ratio)(z);
    REAL share = x > 0 ? 1 - tail * UNIT : tail;
    return (x * share) * (x > 0 ? 1 : UNIT); /* in this order: a denormal result is rounded once */
}

/* Phi(x) + x Phi'(x) */
static INLINE REAL NAME(gelu_slope)(REAL x) {
    REAL z = NAME(without_sign)(x);
    z = z > FAR ? FAR : z;
    REAL bell = NAME(density)(z) * UNIT;
    REAL tail = bell * NAME(ratio)(z);
    return (x > 0 ? 1 - tail : tail) + x * ((REAL)0.39894228040143267794 * bell);
}

/* 2 / sqrt(pi) * exp(-x^2); bell gets 2 x^2, as it computes exp(-u / 2) */
static INLINE REAL NAME(erf_slope)(REAL x) {
    const REAL far = (REAL)(FAR * 0.70710678);
    REAL z = NAME(without_sign)(x);
    z = z > far ? far : z;
    REAL a = NAME(leading)(z);
    REAL y = NAME(bell)(2 * a * a, 2 * ((z - a) * (z + a)));
    return z >= far ? 0 : (REAL)1.12837916709551257390 * y * UNIT;
}

/* gelu by tanh: (1 + tanh u) / 2 is the logistic of 2u; beyond 30 it is 0 or 1 anyway. */
static INLINE REAL NAME(within)(REAL x) { /* [-30, 30] */
    x = x < -30 ? -30 : x;
    return x > 30 ? 30 : x;
}

static INLINE REAL NAME(gelu_share)(REAL x) {
    x = NAME(within)(x);
    return NAME(sigmoid)((REAL)1.5957691216057308 * (x + (REAL)0.044715 * x * x * x));
}

static INLINE REAL NAME(gelu_tanh_slope)(REAL x) {
    REAL share = NAME(gelu_share)(x), c = NAME(within)(x);
    return share + x * (share * (1 - share)) * ((REAL)1.5957691216057308 * (1 + (REAL)0.134145 * c * c));
}
