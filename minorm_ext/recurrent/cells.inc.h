/* One step of one sequence: a row of every gate, forward and backward. recurrent.h sets REAL and NAME.
 * kernels/reference/recurrent.py uses the same letters, and has the formulas in NumPy.
 *
 * Every loop is over the hidden units of one gate, and all its data lies in the first cache. */

static INLINE REAL NAME(positive)(REAL x) { return x < 0 ? -x : x; }
static INLINE REAL NAME(unit)(REAL x) { return x < 0 ? 0 : x > 1 ? 1 : x; }
static INLINE REAL NAME(bounded)(REAL x, REAL bound) { return x > bound ? bound : x < -bound ? -bound : x; }

#define ACTIVATION(name, value, slope)                                                                                \
    static void NAME(name##_value)(const REAL *xs, REAL *ys, ptrdiff_t n, REAL alpha, REAL beta, REAL bound) {         \
        (void)alpha, (void)beta;                                                                                      \
        for (ptrdiff_t i = 0; i < n; i++) {                                                                           \
            const REAL x = NAME(bounded)(xs[i], bound);                                                               \
            ys[i] = value;                                                                                            \
        }                                                                                                             \
    }                                                                                                                 \
    static void NAME(name##_slope)(const REAL *xs, const REAL *ys, REAL *slopes, ptrdiff_t n, REAL alpha, REAL beta,   \
                                   REAL bound) {                                                                      \
        (void)alpha, (void)beta;                                                                                      \
        for (ptrdiff_t i = 0; i < n; i++) {                                                                           \
            const REAL x = NAME(bounded)(xs[i], bound), y = ys[i];                                                    \
            (void)y;                                                                                                  \
            slopes[i] = x == xs[i] || xs[i] != xs[i] ? slope : 0;                                                     \
        }                                                                                                             \
    }
#include "recurrent/activations.inc.h"
#undef ACTIVATION

static const struct {
    void (*value)(const REAL *xs, REAL *ys, ptrdiff_t n, REAL alpha, REAL beta, REAL bound);
    void (*slope)(const REAL *xs, const REAL *ys, REAL *slopes, ptrdiff_t n, REAL alpha, REAL beta, REAL bound);
} NAME(activations)[] = {
#define ACTIVATION(name, value, slope) {NAME(name##_value), NAME(name##_slope)},
#include "recurrent/activations.inc.h"
#undef ACTIVATION
};

/* y = activation `kind` of the cell, at pre-activations x that are first limited to -bound .. bound. */
static INLINE void NAME(value)(const minorm_cell *k, int kind, const REAL *x, REAL *y, ptrdiff_t n, double bound) {
    const minorm_activation *f = &k->activations[kind];
    NAME(activations)[f->number].value(x, y, n, (REAL)f->alpha, (REAL)f->beta, (REAL)bound);
}

/* s = the slope of the same activation at x, where its value is y. */
static INLINE void NAME(slope)(const minorm_cell *k, int kind, const REAL *x, const REAL *y, REAL *s, ptrdiff_t n,
                               double bound) {
    const minorm_activation *f = &k->activations[kind];
    NAME(activations)[f->number].slope(x, y, s, n, (REAL)f->alpha, (REAL)f->beta, (REAL)bound);
}

#define EACH for (ptrdiff_t j = 0; j < n; j++)

/* ---- forward: h and c become the state after the step, v gets the gates' values, e other values for backward --- */

static void NAME(rnn_step)(const minorm_cell *k, REAL *a, const REAL *q, REAL *h, REAL *v) {
    const ptrdiff_t n = k->hidden;
    EACH a[j] += q[j];
    NAME(value)(k, 0, a, v, n, k->bound);
    memcpy(h, v, n * sizeof(REAL));
}

static void NAME(lstm_step)(const minorm_cell *k, REAL *a, const REAL *q, const REAL *p, REAL *h, REAL *c, REAL *v,
                            REAL *e) {
    const ptrdiff_t n = k->hidden, i = k->at[0] * n, f = k->at[1] * n, o = k->at[2] * n, g = k->at[3] * n;
    for (ptrdiff_t j = 0; j < 4 * n; j++) a[j] += q[j];
    if (p) {
        EACH a[i + j] += p[j] * c[j];
        EACH a[f + j] += p[2 * n + j] * c[j];
    }
    NAME(value)(k, 0, a + i, v + i, n, k->bound);
    if (k->variant) EACH v[f + j] = 1 - v[i + j];
    else NAME(value)(k, 0, a + f, v + f, n, k->bound);
    NAME(value)(k, 1, a + g, v + g, n, k->bound);
    EACH c[j] = v[f + j] * c[j] + v[i + j] * v[g + j];
    if (p) EACH a[o + j] += p[n + j] * c[j];
    NAME(value)(k, 0, a + o, v + o, n, k->bound);
    NAME(value)(k, 2, c, e, n, INFINITY);
    EACH h[j] = v[o + j] * e[j];
}

/* q is the state times R: for all gates if the reset comes after the product; else for z and r, and gru_end gets it for
 * n. */
static void NAME(gru_step)(const minorm_cell *k, REAL *a, REAL *q, const REAL *b, const REAL *h, REAL *v, REAL *e) {
    const ptrdiff_t n = k->hidden, r = k->at[1] * n, last = 2 * n;
    if (b) for (ptrdiff_t j = 0; j < (k->variant ? 3 : 2) * n; j++) q[j] += b[j];
    for (ptrdiff_t j = 0; j < last; j++) a[j] += q[j];
    NAME(value)(k, 0, a, v, last, k->bound);
    if (k->variant) EACH e[j] = q[last + j];
    else EACH e[j] = v[r + j] * h[j];
}

static void NAME(gru_end)(const minorm_cell *k, REAL *a, const REAL *q, const REAL *b, REAL *h, REAL *v, const REAL *e) {
    const ptrdiff_t n = k->hidden, z = k->at[0] * n, r = k->at[1] * n, last = 2 * n;
    if (k->variant) {
        EACH a[last + j] += v[r + j] * e[j];
    } else {
        EACH a[last + j] += q[last + j];
        if (b) EACH a[last + j] += b[last + j];
    }
    NAME(value)(k, 1, a + last, v + last, n, k->bound);
    EACH h[j] = (1 - v[z + j]) * v[last + j] + v[z + j] * h[j];
}

/* ---- backward: dh is the gradient of the state after the step; da gets that of W x, dq that of the product with R --
 *
 * Then dh gets the gradient of the state before the step, except the part that comes from the product of dq with R. s
 * is scratch memory. */

static void NAME(rnn_back)(const minorm_cell *k, const REAL *a, const REAL *v, REAL *dh, REAL *da, REAL *s) {
    const ptrdiff_t n = k->hidden;
    NAME(slope)(k, 0, a, v, s, n, k->bound);
    EACH da[j] = dh[j] * s[j];
    EACH dh[j] = 0;
}

static void NAME(lstm_back)(const minorm_cell *k, const REAL *a, const REAL *v, const REAL *e, const REAL *c,
                            const REAL *p, REAL *dh, REAL *dc, REAL *da, REAL *s) {
    const ptrdiff_t n = k->hidden, i = k->at[0] * n, f = k->at[1] * n, o = k->at[2] * n, g = k->at[3] * n;
    REAL *after = s + n; /* c after the step */
    EACH after[j] = v[f + j] * c[j] + v[i + j] * v[g + j];
    NAME(slope)(k, 0, a + o, v + o, s, n, k->bound);
    EACH da[o + j] = dh[j] * e[j] * s[j];
    NAME(slope)(k, 2, after, e, s, n, INFINITY);
    EACH dc[j] += dh[j] * v[o + j] * s[j];
    if (p) EACH dc[j] += da[o + j] * p[n + j];
    NAME(slope)(k, 0, a + i, v + i, s, n, k->bound);
    if (k->variant) { /* f = 1 - i */
        EACH da[i + j] = dc[j] * (v[g + j] - c[j]) * s[j];
        EACH da[f + j] = 0;
    } else {
        EACH da[i + j] = dc[j] * v[g + j] * s[j];
        NAME(slope)(k, 0, a + f, v + f, s, n, k->bound);
        EACH da[f + j] = dc[j] * c[j] * s[j];
    }
    NAME(slope)(k, 1, a + g, v + g, s, n, k->bound);
    EACH da[g + j] = dc[j] * v[i + j] * s[j];
    EACH dc[j] *= v[f + j];
    if (p) EACH dc[j] += da[i + j] * p[j] + da[f + j] * p[2 * n + j];
    EACH dh[j] = 0;
}

/* The gradients of n and z, and of r if the reset comes after the product. dh becomes dh * z, for the term z * h. */
static void NAME(gru_back)(const minorm_cell *k, const REAL *a, const REAL *v, const REAL *e, const REAL *h, REAL *dh,
                           REAL *da, REAL *dq, REAL *s) {
    const ptrdiff_t n = k->hidden, z = k->at[0] * n, r = k->at[1] * n, last = 2 * n;
    NAME(slope)(k, 1, a + last, v + last, s, n, k->bound);
    EACH da[last + j] = dh[j] * (1 - v[z + j]) * s[j];
    NAME(slope)(k, 0, a + z, v + z, s, n, k->bound);
    EACH da[z + j] = dh[j] * (h[j] - v[last + j]) * s[j];
    EACH dh[j] *= v[z + j];
    if (!k->variant) return;
    NAME(slope)(k, 0, a + r, v + r, s, n, k->bound);
    EACH da[r + j] = da[last + j] * e[j] * s[j];
    EACH dq[z + j] = da[z + j];
    EACH dq[r + j] = da[r + j];
    EACH dq[last + j] = da[last + j] * v[r + j];
}

/* The gradient of r if the reset comes before the product; `through` is the gradient of r * h. */
static void NAME(gru_back_end)(const minorm_cell *k, const REAL *a, const REAL *v, const REAL *h, const REAL *through,
                               REAL *dh, REAL *da, REAL *s) {
    const ptrdiff_t n = k->hidden, r = k->at[1] * n;
    NAME(slope)(k, 0, a + r, v + r, s, n, k->bound);
    EACH da[r + j] = through[j] * h[j] * s[j];
    EACH dh[j] += through[j] * v[r + j];
}

#undef EACH
