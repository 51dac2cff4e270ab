/* Vectors of REAL: reading and writing them anywhere, multiply-add, and moves among their elements. The header that
 * sets REAL, INTEGER (of as many bits), COUNT and NAME includes this for float and for double. */

#undef LANES
#undef SHORT
#undef SUMS
#undef VECTOR
#undef INDEX
#define LANES (VECTOR_BYTES / (int)sizeof(REAL))
#define SUMS (SUM_BYTES / (int)sizeof(REAL)) /* number of partial sums of a sum along a vector */
#define SHORT (16 / (int)sizeof(REAL)) /* numbers in 16 bytes, within which every instruction set shuffles best */
#define VECTOR NAME(vector)
#define INDEX NAME(index)

typedef REAL VECTOR __attribute__((vector_size(VECTOR_BYTES)));
typedef REAL NAME(unaligned) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef INTEGER INDEX __attribute__((vector_size(VECTOR_BYTES)));

static INLINE VECTOR NAME(load)(const REAL *p) { return *(const NAME(unaligned) *)p; }
static INLINE void NAME(store)(REAL *p, VECTOR v) { *(NAME(unaligned) *)p = v; }

/* a * b + c, rounded once if the processor can do that. All other code is built with two roundings (setup.py), so that
 * bits do not depend on the processor; only the innermost blocks of convolution and matmul use this function. */
static INLINE VECTOR NAME(fma)(VECTOR a, VECTOR b, VECTOR c) {
#if defined(__AVX512F__)
    if (sizeof(REAL) == 4) return (VECTOR)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
    return (VECTOR)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__AVX2__) && defined(__FMA__)
    if (sizeof(REAL) == 4) return (VECTOR)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
    return (VECTOR)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(__aarch64__)
    if (sizeof(REAL) == 4) return (VECTOR)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
    return (VECTOR)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#else
    return a * b + c;
#endif
}

/* The elements of u and v whose numbers are in `from`; the numbers of v follow those of u. */
static INLINE VECTOR NAME(shuffle)(VECTOR u, VECTOR v, INDEX from) {
#if defined(__clang__)
    VECTOR result;
    UNROLL for (int i = 0; i < LANES; i++) result[i] = from[i] < LANES ? u[from[i]] : v[from[i] - LANES];
    return result;
#else
    return __builtin_shuffle(u, v, from);
#endif
}

/* LANES rows of LANES numbers change places with their columns. First SHORT x SHORT numbers within every 16 bytes, by
   interleaving rows twice (once for double), then the 16 bytes among each other, by parting even from odd ones: what
   every instruction set does in one instruction each. */
static INLINE void NAME(transpose)(VECTOR *rows) {
    const INDEX count = {COUNT}, inside = count & (SHORT - 1);
    const INDEX low = (count - inside) + (inside >> 1) + (inside & 1) * LANES, even = 2 * count - inside;
    const int groups = LANES / SHORT;
    VECTOR next[LANES];
    UNROLL for (int step = 1; step < SHORT; step *= 2) {
        UNROLL for (int i = 0; i < LANES; i += SHORT) {
            UNROLL for (int j = 0; j < SHORT / 2; j++) {
                next[i + 2 * j] = NAME(shuffle)(rows[i + j], rows[i + j + SHORT / 2], low);
                next[i + 2 * j + 1] = NAME(shuffle)(rows[i + j], rows[i + j + SHORT / 2], low + SHORT / 2);
            }
        }
        UNROLL for (int i = 0; i < LANES; i++) rows[i] = next[i];
    }
    UNROLL for (int step = 1; step < groups; step *= 2) {
        UNROLL for (int i = 0; i < groups / 2; i++) {
            UNROLL for (int j = 0; j < SHORT; j++) {
                const VECTOR u = rows[2 * i * SHORT + j], v = rows[(2 * i + 1) * SHORT + j];
                next[i * SHORT + j] = NAME(shuffle)(u, v, even);
                next[(i + groups / 2) * SHORT + j] = NAME(shuffle)(u, v, even + SHORT);
            }
        }
        UNROLL for (int i = 0; i < LANES; i++) rows[i] = next[i];
    }
}
