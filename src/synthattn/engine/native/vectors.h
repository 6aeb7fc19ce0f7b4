/* Vectors as wide as the registers of the processor that a kernel is compiled for.
 *
 * GCC and Clang compile the same source for several instruction sets. Letters stand for sizes in all kernels:
 *   B batch, H heads, Q queries, K keys, F width of queries and keys, D width of values; W floats in a vector.
 */

#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
enum { W = 16, REGISTERS = 32 };
#elif defined(__aarch64__)
enum { W = 4, REGISTERS = 32 };
#else
enum { W = 8, REGISTERS = 16 };
#endif

typedef float vec __attribute__((vector_size(4 * W)));
typedef int32_t ints __attribute__((vector_size(4 * W)));
/* Unsigned numbers may overflow; overflow of signed numbers is undefined. */
typedef uint32_t bits __attribute__((vector_size(4 * W)));
typedef float loose __attribute__((vector_size(4 * W), aligned(4), may_alias));

/* The type of sizes and strides, as in Python's binding. */
typedef int64_t size;

#define INLINE static inline __attribute__((always_inline))
/* The compiler does not inline these functions, so that the sums of a tile stay in registers. */
#define APART static __attribute__((noinline))
/* A loop over registers, which the compiler unrolls completely. */
#ifdef __clang__
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif
#define FOR_EACH(i, n) UNROLLED for (int i = 0; i < (n); i++)

INLINE size least(size a, size b) { return a < b ? a : b; }
INLINE size most(size a, size b) { return a > b ? a : b; }
INLINE size round_up(size n, size unit) { return (n + unit - 1) / unit * unit; }

/* Loads one vector, of which `left` floats exist; the others are zero. */
INLINE vec load(const float *from, size left) {
    if (left >= W) return *(const loose *)from;
    vec result = {0};
    if (left > 0) memcpy(&result, from, (size_t)left * sizeof(float));
    return result;
}

/* Stores the first `left` floats of a vector. */
INLINE void store(float *to, vec x, size left) {
    if (left >= W)
        *(loose *)to = x;
    else if (left > 0)
        memcpy(to, &x, (size_t)left * sizeof(float));
}

/* Returns the vector whose lane i is lane lanes[i] of `a` and `b` in sequence. Callers pass constant lanes, which both
 * compilers turn into permutation instructions. */
INLINE vec shuffle(vec a, vec b, ints lanes) {
#ifdef __clang__
    vec result;
    FOR_EACH(i, W) result[i] = lanes[i] < W ? a[lanes[i] % W] : b[lanes[i] % W];
    return result;
#else
    return __builtin_shuffle(a, b, lanes);
#endif
}

/* Transposes W rows of W floats. It interleaves the first half of the rows with the second, as often as 2 divides W. */
INLINE void transpose(vec lines[W]) {
    ints low, high;
    FOR_EACH(i, W) {
        low[i] = i / 2 + i % 2 * W;
        high[i] = low[i] + W / 2;
    }
    for (int half = 1; half < W; half *= 2) {
        vec next[W];
        FOR_EACH(i, W / 2) {
            next[2 * i] = shuffle(lines[i], lines[i + W / 2], low);
            next[2 * i + 1] = shuffle(lines[i], lines[i + W / 2], high);
        }
        FOR_EACH(i, W) lines[i] = next[i];
    }
}
