/* The loops of the normalizations, with one name for each: the type of the data selects one of four.
 *
 * sums.inc.h      first phases on rows
 * apply.inc.h     second phases on rows
 * columns.inc.h   both on columns
 * stores.inc.h    vectors of data, and stores of a second phase's results
 *
 * They are written once, for data STORED in one type and computed in another, and included for each pair. Scalar
 * arguments and results are double, which holds them exactly; parameters and their gradients are in the type computed
 * in.
 */
#ifndef MINORM_NORM_KERNELS_H
#define MINORM_NORM_KERNELS_H

#include "simd/convert.h"
#include "simd/stream.h"

#define ACCUMULATORS 32 /* of a sum */
#define PIECE 512       /* elements that accumulators take before they are added to the totals */
#define ROWS 32         /* rows that go together, at most */
#define BLOCK 4         /* vectors of parameters that stay in registers */
#define COLLECTED 256   /* parameters whose gradients are added up at once */

/* Runs of a row: the start of the first, the steps from one to the next in the data and in the parameters, their
 * number, and their elements. If results go around the cache, each vector prefetches the data `next` elements further
 * on. Also the statistics of the row and, backward, the terms that its sums subtract from dx. */
typedef struct {
    ptrdiff_t at, step, param, runs, n, next;
    double k, d, r, p, q;
} minorm_runs;

/* Rows of one run that go together: their number, their elements, and the same fields for each row. */
typedef struct {
    ptrdiff_t count, n, next;
    const ptrdiff_t *start, *param;
    const double *k, *d, *r, *p, *q;
} minorm_short_rows;

/* Rows of n columns, `step` apart. cached: true if they are in cache by now. If data comes from memory, each vector
 * prefetches the data `next` and `then` elements further on. */
typedef struct {
    ptrdiff_t count, step, n, next, then;
    bool cached;
} minorm_rows;

#define STORED float
#define REAL float
#define INTEGER int32_t
#define NAME(stem) stem##_float
#include "norm/kernels.inc.h"

#define STORED double
#define REAL double
#define INTEGER int64_t
#define NAME(stem) stem##_double
#include "norm/kernels.inc.h"

#if WIDEN
#define STORED uint16_t
#define REAL float
#define INTEGER int32_t
#define NAME(stem) stem##_half
#define WIDENED
#include "norm/kernels.inc.h"

#define STORED uint16_t
#define REAL float
#define INTEGER int32_t
#define NAME(stem) stem##_bfloat
#define WIDENED
#include "norm/kernels.inc.h"

#define OF_TYPE(type, stem, ...)                                                                                       \
    switch (type) {                                                                                                    \
        case MINORM_HALF: stem##_half(__VA_ARGS__); break;                                                             \
        case MINORM_BFLOAT: stem##_bfloat(__VA_ARGS__); break;                                                         \
        case MINORM_SINGLE: stem##_float(__VA_ARGS__); break;                                                          \
        case MINORM_DOUBLE: stem##_double(__VA_ARGS__); break;                                                         \
    }
#else /* 16 bits are staged as float */
#define OF_TYPE(type, stem, ...)                                                                                       \
    do {                                                                                                               \
        if (type == MINORM_DOUBLE) stem##_double(__VA_ARGS__);                                                         \
        else stem##_float(__VA_ARGS__);                                                                                \
    } while (0)
#endif

static INLINE double norm_sample_mean(const minorm_data *x, ptrdiff_t at, ptrdiff_t across) {
    OF_TYPE(x->type, return sample_mean, x, at, across);
    return 0; /* no other type */
}

static INLINE void norm_sums(const minorm_data *dy, const minorm_data *x, ptrdiff_t at, ptrdiff_t step, const void *s,
                             ptrdiff_t s_step, ptrdiff_t runs, ptrdiff_t n, double k, double d, double *a, double *q) {
    OF_TYPE(x->type, sums, dy, x, at, step, s, s_step, runs, n, k, d, a, q);
}

static INLINE void norm_rows_sums(const minorm_data *dy, const minorm_data *x, const ptrdiff_t *start, ptrdiff_t rows,
                                  const void *s, ptrdiff_t n, ptrdiff_t next, bool guesses, double *k, const double *d,
                                  double *a, double *q) {
    OF_TYPE(x->type, rows_sums, dy, x, start, rows, s, n, next, guesses, k, d, a, q);
}

static INLINE void norm_apply(const minorm_data *x, const minorm_data *y, const minorm_runs *of, const void *s,
                              const void *b, bool each) {
    OF_TYPE(x->type, apply, x, y, of, s, b, each);
}

static INLINE void norm_apply_rows(const minorm_data *x, const minorm_data *y, const minorm_short_rows *of,
                                   const void *s, const void *b, bool shared) {
    OF_TYPE(x->type, apply_rows, x, y, of, s, b, shared);
}

static INLINE void norm_grad(const minorm_data *dy, const minorm_data *x, const minorm_data *dx, const minorm_runs *of,
                             bool given, const void *s, bool each, void *ds, void *db) {
    OF_TYPE(x->type, grad, dy, x, dx, of, given, s, each, ds, db);
}

static INLINE void norm_grad_rows(const minorm_data *dy, const minorm_data *x, const minorm_data *dx,
                                  const minorm_short_rows *of, const void *s, bool shared, void *ds, void *db) {
    OF_TYPE(x->type, grad_rows, dy, x, dx, of, s, shared, ds, db);
}

static INLINE void norm_columns_sums(const minorm_data *dy, const minorm_data *x, ptrdiff_t at, const minorm_rows *rows,
                                     const void *k, const void *d, double w, void *a, void *q) {
    OF_TYPE(x->type, columns_sums, dy, x, at, rows, k, d, w, a, q);
}

static INLINE void norm_columns_apply(const minorm_data *x, const minorm_data *y, ptrdiff_t at, const minorm_rows *rows,
                                      const void *k, const void *d, const void *c, const void *e, double w, double u) {
    OF_TYPE(x->type, columns_apply, x, y, at, rows, k, d, c, e, w, u);
}

static INLINE void norm_columns_grad(const minorm_data *dy, const minorm_data *x, const minorm_data *dx, ptrdiff_t at,
                                     const minorm_rows *rows, bool given, const void *k, const void *d, const void *r,
                                     const void *c, const void *p, const void *q, double w) {
    OF_TYPE(x->type, columns_grad, dy, x, dx, at, rows, given, k, d, r, c, p, q, w);
}

static INLINE void norm_columns_params(const minorm_data *dy, const minorm_data *x, ptrdiff_t at, ptrdiff_t n,
                                       const void *k, const void *d, const void *r, double *ds, double *db) {
    OF_TYPE(x->type, columns_params, dy, x, at, n, k, d, r, ds, db);
}

static INLINE void norm_add_collected(minorm_type computed, const void *collected, ptrdiff_t at, ptrdiff_t pitch,
                                      ptrdiff_t blocks, ptrdiff_t n, void *to, ptrdiff_t to_at) {
    if (computed == MINORM_SINGLE) add_collected_float(collected, at, pitch, blocks, n, to, to_at);
    else add_collected_double(collected, at, pitch, blocks, n, to, to_at);
}

#endif
