/* The walk of a recurrent layer through time, for float and for double: see recurrent.pyx. */
#ifndef MINORM_RECURRENT_H
#define MINORM_RECURRENT_H

#include <math.h>

#include "matmul/blocks.h"
#include "simd/exp.h"
#include "simd/log.h"

enum { RNN, LSTM, GRU };

typedef struct {
    int number; /* its line in activations.inc.h */
    double alpha, beta;
} minorm_activation;

typedef struct {
    int kind;
    ptrdiff_t hidden;
    int at[4]; /* which block of rows of W and R belongs to the gates i f o g, or z r n */
    int variant; /* GRU: the reset comes after the product; LSTM: f = 1 - i */
    minorm_activation activations[3];
    double bound; /* pre-activations are limited to -bound .. bound; infinite: no limit */
} minorm_cell;

/* A matrix for `tile` or for `dots`. For `tile` it is packed: strips of `width` columns, row after row in each strip,
 * zeros beyond the last column. For `dots` it is not copied: it is the transpose of an array without gaps. */
typedef struct {
    const void *items;
    ptrdiff_t depth, columns, width; /* width 0: for `dots` */
} minorm_factor;

/* The data that all jobs of a call share. Arrays of all steps are (steps, batch, columns) or (steps, batch, hidden);
 * only y may have gaps, by y_step and y_row. Arrays that the caller does not want are NULL. */
typedef struct {
    minorm_cell cell;
    ptrdiff_t steps, batch, columns; /* columns: of all gates */
    int reverse;
    const int64_t *lengths; /* NULL: all sequences have all steps */
    minorm_factor factors[2]; /* R; the second one is the part for n, in a GRU that resets before the product */
    const char *b, *p;
    char *a, *v, *e, *hs, *cs; /* hs and cs: the states before each step */
    char *h, *c; /* (batch, hidden): the states, or their gradients */
    char *y; /* or its gradient, which may be NULL */
    ptrdiff_t y_step, y_row; /* numbers from a step to the next, and from a sequence to the next */
    char *da, *dq;
    char *scratch; /* scratch_size numbers for each thread */
    ptrdiff_t scratch_size;
    ptrdiff_t rows; /* sequences of a job */
    ptrdiff_t wide; /* numbers from a row of products to the next: whole strips, each from any column on */
    ptrdiff_t begin, end; /* the steps that are walked, counted in the direction of the walk */
} minorm_walk;

#define REAL float
#define INTEGER int32_t
#define COUNT COUNT_FLOAT
#define NAME(stem) stem##_float
#include "recurrent/cells.inc.h"
#include "recurrent/walk.inc.h"
#undef REAL
#undef INTEGER
#undef COUNT
#undef NAME

#define REAL double
#define INTEGER int64_t
#define COUNT COUNT_DOUBLE
#define NAME(stem) stem##_double
#include "recurrent/cells.inc.h"
#include "recurrent/walk.inc.h"
#undef REAL
#undef INTEGER
#undef COUNT
#undef NAME

#endif
