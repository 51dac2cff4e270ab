// GELU and erf for 16-bit results, with as few operations as 8 or 11 bits need. The relative error before rounding is
// at most 2^-17, so a result is within 0.52 units in the last place of the true one; subnormal results may be 0.
// Float32 and float64 take the mathematical library's erfc, which is exact and far longer.
namespace narrow {
// exp(-x^2 / 2)
__device__ inline float bell(float x) { return exp2f(x * x * -0.72134752044f); }

struct gelu {
    // Phi(x), e = bell(x): Phi(-a) = e * q(t), t = 1 / (1 + 0.31 a). The coefficients of q
    // minimize its largest relative error for 0 < a < 15.
    static __device__ float phi(float x, float e) {
        const float t = __fdividef(1.0f, fmaf(0.31f, fabsf(x), 1.0f));
        float q = -0.073928704246f;
        q = fmaf(q, t, 0.180448859159f);
        q = fmaf(q, t, 0.015746655124f);
        q = fmaf(q, t, 0.133428572668f);
        q = fmaf(q, t, 0.120441633654f);
        q = fmaf(q, t, 0.123860662471f);
        const float tail = q * t * e;
        return x < 0 ? tail : 1 - tail;
    }
    static __device__ float y(float x, float) { return x * phi(x, bell(x)); }
    static __device__ float dx(float dy, float x, float) {
        const float e = bell(x);
        return dy * (phi(x, e) + x * (e * 0.3989422804f));
    }
};

struct erf {  // x * p(x^2), up to the x where the result becomes 1 in 11 bits
    static __device__ float y(float x, float) {
        const float c = x > 2.75f ? 2.75f : x < -2.75f ? -2.75f : x, u = c * c;  // NaN stays
        float p = 7.528902551e-08f;
        p = fmaf(p, u, -3.070624382e-06f);
        p = fmaf(p, u, 5.614439336e-05f);
        p = fmaf(p, u, -6.180730995e-04f);
        p = fmaf(p, u, 4.667050160e-03f);
        p = fmaf(p, u, -2.608783124e-02f);
        p = fmaf(p, u, 1.122687029e-01f);
        p = fmaf(p, u, -3.759591876e-01f);
        p = fmaf(p, u, 1.1283706289f);
        return c * p;
    }
    static __device__ float dx(float dy, float x, float) { return dy * (1.1283791671f * exp2f(x * x * -1.44269504089f)); }
};
}  // namespace narrow
