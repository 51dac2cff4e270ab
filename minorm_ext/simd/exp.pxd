# exp.h and log.h for both element types: `exp(x)` is the float or the double function by the type of x.

from minorm_ext.runtime.numbers cimport real

cdef extern from "simd/log.h" nogil:
    float exp_float(float x) noexcept
    double exp_double(double x) noexcept
    double log "log_double"(double x) noexcept
    double power "pow_double"(double x, double y) noexcept


cdef inline real exp(real x) noexcept nogil:
    return exp_float(x) if real is float else exp_double(x)
