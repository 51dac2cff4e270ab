// The functions of the mathematical library, with one name for both types computed in.
__device__ inline float abs_of(float v) { return fabsf(v); }
__device__ inline double abs_of(double v) { return fabs(v); }
__device__ inline float exp_of(float v) { return expf(v); }
__device__ inline double exp_of(double v) { return exp(v); }
__device__ inline float expm1_of(float v) { return expm1f(v); }
__device__ inline double expm1_of(double v) { return expm1(v); }
__device__ inline float log_of(float v) { return logf(v); }
__device__ inline double log_of(double v) { return log(v); }
__device__ inline float tanh_of(float v) { return tanhf(v); }
__device__ inline double tanh_of(double v) { return tanh(v); }
__device__ inline float erf_of(float v) { return erff(v); }
__device__ inline double erf_of(double v) { return erf(v); }
__device__ inline float erfc_of(float v) { return erfcf(v); }
__device__ inline double erfc_of(double v) { return erfc(v); }
__device__ inline float sqrt_of(float v) { return sqrtf(v); }
__device__ inline double sqrt_of(double v) { return sqrt(v); }
// The larger of two numbers, or the other one if one of them is NaN.
__device__ inline float larger(float a, float b) { return fmaxf(a, b); }
__device__ inline double larger(double a, double b) { return fmax(a, b); }
// Returns a * b, rounded separately, never in a fused multiply-add. Otherwise the compiler decides from the surrounding
// code whether to fuse. But if a product is subtracted again from a sum, it must have the bits that went into the sum,
// and a formula must have the same bits in every kernel.
__device__ inline float product(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double product(double a, double b) { return __dmul_rn(a, b); }
__device__ inline float fused(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double fused(double a, double b, double c) { return fma(a, b, c); }
// Returns v * scale + bias, without the scale or the bias if it is not given; with both, rounded once.
template <class C> __device__ inline C affine(C v, C scale, C bias, bool scaled, bool biased) {
    if (scaled && biased) return fused(v, scale, bias);
    return scaled ? product(v, scale) : biased ? v + bias : v;
}
__device__ inline float infinity() { return -logf(0.0f); }
