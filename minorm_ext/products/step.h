/* Where a step along the depth reads both sides of a product, counted from where rows and columns begin. */
#ifndef MINORM_PRODUCTS_STEP_H
#define MINORM_PRODUCTS_STEP_H

#include <stdint.h>

typedef struct {
    int32_t a, b;
} minorm_step;

#endif
