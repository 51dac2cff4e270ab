/* Where a step along the depth reads a and b: the distance from the beginning of a row of a, and of a column of b. */
#ifndef MINORM_PRODUCTS_STEP_H
#define MINORM_PRODUCTS_STEP_H

#include <stdint.h>

typedef struct {
    int32_t a, b;
} minorm_step;

#endif
