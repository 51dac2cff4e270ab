// The mean and the variance of a row that a team of threads keeps.
#include "types.cuh"

// each(use) calls use(element) for each element that this thread keeps; x0 is the first element of the row.
//
// The shift is the mean to float precision: x0 + mean(x - x0), which is x0 itself if all x are equal. About it var =
// mean(t^2) - d^2 loses nothing, as d is only the rounding error of k. Squares above 3e38 are added up again in double.
template <int LANES, class C, class F>
__device__ __forceinline__ void statistics_of(F each, C x0, double part, bool centered, double& k, double& d, double& var) {
    k = d = 0;
    C shift = 0;
    if (centered) {
        C sum = 0;
        each([&](C value) { sum += value - x0; });
        k = shift = x0 + team_sum<LANES>(sum) * (C)part;
    }
    C parts[2] = {0, 0};  // of t = x - shift and of its square
    each([&](C value) {
        const C t = value - shift;
        parts[0] += t;
        parts[1] += t * t;
    });
    double totals[2];
    add_up_team<LANES>(parts, totals);
    const bool large = !(totals[1] < 1e300);
    if (any_team<LANES>(large)) {  // a float square overflowed: once more in double
        double squares = 0;
        each([&](C value) {
            const double t = value - shift;
            squares += t * t;
        });
        squares = team_sum<LANES>(squares);
        if (large) totals[1] = squares;
    }
    if (centered) d = totals[0] * part;
    var = totals[1] * part - d * d;
    if (var < 0) var = 0;  // NaN stays
}
