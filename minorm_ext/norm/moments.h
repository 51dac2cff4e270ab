/* Means and variances that can be put together: see moments.pxd.
 *
 * Near rows and far ones come here from different places, and where a compiler inlines arithmetic it joins a product and
 * a sum into one instruction or not, by what else is nearby: their bits would differ. So for rows these are calls. All
 * lanes come from one place, and a call for each of many would take as long as the rest.
 */
#ifndef MINORM_NORM_MOMENTS_H
#define MINORM_NORM_MOMENTS_H

#include <stdbool.h>

#include "simd/convert.h"

typedef struct {
    double n;      /* how many elements */
    double offset; /* their mean minus the shift */
    double m2;     /* sum of squared distances from their mean */
} minorm_moments;

/* The moments of n elements from sum(x - k) and sum((x - k)^2); k lies `ahead` of the shift. */
MINORM_APART minorm_moments minorm_moments_of(double n, double ahead, double sum, double squares, bool centered) {
    const double one = 1 / n, rest = squares - sum * sum * one;
    return (minorm_moments){n, centered ? ahead + sum * one : 0, !centered ? squares : rest < 0 ? 0 : rest};
}

/* Both together: Chan's formula. */
MINORM_INLINE minorm_moments minorm_merge_here(minorm_moments a, minorm_moments b) {
    const double n = a.n + b.n, delta = b.offset - a.offset, share = b.n / n;
    if (a.n == 0) return b;
    return (minorm_moments){n, a.offset + delta * share, a.m2 + b.m2 + delta * delta * (a.n * share)};
}

MINORM_APART minorm_moments minorm_merge(minorm_moments a, minorm_moments b) { return minorm_merge_here(a, b); }

#endif
