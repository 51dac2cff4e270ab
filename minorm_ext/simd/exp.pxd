# exp.h for both element types: `exp(x)` is the float or the double function by the type of x.

cdef extern from "simd/exp.h" nogil:
    float minorm_exp_f(float x) noexcept
    float minorm_expm1_f(float x) noexcept
    float minorm_tanh_f(float x) noexcept
    float minorm_sigmoid_f(float x) noexcept
    double minorm_exp_d(double x) noexcept
    double minorm_expm1_d(double x) noexcept
    double minorm_tanh_d(double x) noexcept
    double minorm_sigmoid_d(double x) noexcept

ctypedef fused real:
    float
    double


cdef inline real exp(real x) noexcept nogil:
    return minorm_exp_f(x) if real is float else minorm_exp_d(x)


cdef inline real expm1(real x) noexcept nogil:
    return minorm_expm1_f(x) if real is float else minorm_expm1_d(x)


cdef inline real tanh(real x) noexcept nogil:
    return minorm_tanh_f(x) if real is float else minorm_tanh_d(x)


cdef inline real sigmoid(real x) noexcept nogil:
    return minorm_sigmoid_f(x) if real is float else minorm_sigmoid_d(x)
