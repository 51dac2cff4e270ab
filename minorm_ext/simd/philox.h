/* Philox4x64-10: block number n of a generator depends on n and a key alone, so that any thread can make any block.
 *
 * Ten rounds of two products of 64 by 64 bits stir the number, 256 bits wide, until no test can tell the result from
 * chance. The words equal those of NumPy's Philox, in its order; the constants come from Salmon et al. 2011, "Parallel
 * random numbers: as easy as 1, 2, 3". A block waits for its products, so the processor works on several at once.
 * Vectors have no such product, and would gain nothing.
 */
#ifndef MINORM_PHILOX_H
#define MINORM_PHILOX_H

#include "simd/vec.h"

enum { BLOCK_WORDS = 4 };

typedef uint32_t __attribute__((may_alias)) minorm_half_word; /* the lower half of a word comes first in memory */

typedef struct {
    uint64_t before, rank, key[2]; /* the number of the first block is (before + 1, 0, rank, 1), least word first */
} minorm_blocks;

static INLINE uint64_t minorm_product(uint64_t a, uint64_t b, uint64_t *high) {
    const unsigned __int128 product = (unsigned __int128)a * b;
    *high = (uint64_t)(product >> 64);
    return (uint64_t)product;
}

static INLINE void minorm_philox_block(const minorm_blocks *blocks, uint64_t index, uint64_t *words) {
    uint64_t a = blocks->before + 1 + index, b = 0, c = blocks->rank, d = 1;
    uint64_t first = blocks->key[0], second = blocks->key[1];
    UNROLL for (int round = 0; round < 10; round++) {
        uint64_t high_a, high_c;
        const uint64_t low_a = minorm_product(a, 0xD2E7470EE14C6C93u, &high_a);
        const uint64_t low_c = minorm_product(c, 0xCA5A826395121157u, &high_c);
        a = high_c ^ b ^ first;
        b = low_c;
        c = high_a ^ d ^ second;
        d = low_a;
        first += 0x9E3779B97F4A7C15u;
        second += 0xBB67AE8584CAA73Bu;
    }
    words[0] = a, words[1] = b, words[2] = c, words[3] = d;
}

/* Write the words of `count` blocks, from block number `first` on. */
static NOINLINE void minorm_philox_words(const minorm_blocks *blocks, uint64_t first, ptrdiff_t count, uint64_t *words) {
    for (ptrdiff_t i = 0; i < count; i++) minorm_philox_block(blocks, first + i, words + i * BLOCK_WORDS);
}

#endif
