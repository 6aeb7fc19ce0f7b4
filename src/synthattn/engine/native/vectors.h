/* Vectors as wide as the registers of the processor that this is compiled for.
 *
 * The same source is compiled for several instruction sets, by GCC and by Clang.
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
/* For arithmetic that may overflow, which is undefined for signed numbers. */
typedef uint32_t bits __attribute__((vector_size(4 * W)));
typedef float loose __attribute__((vector_size(4 * W), aligned(4), may_alias));

/* Of Python's sizes and strides. */
typedef int64_t size;

#define INLINE static inline __attribute__((always_inline))
/* Compiled apart, so that the sums of a tile stay in registers whatever is around it. */
#define APART static __attribute__((noinline))
/* Unrolled: what is counted are registers. */
#ifdef __clang__
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif
#define FOR_EACH(i, n) UNROLLED for (int i = 0; i < (n); i++)

INLINE size least(size a, size b) { return a < b ? a : b; }
INLINE size most(size a, size b) { return a > b ? a : b; }
INLINE size round_up(size n, size unit) { return (n + unit - 1) / unit * unit; }

/* What is beyond the end is zero. */
INLINE vec load(const float *from, size left) {
    if (left >= W) return *(const loose *)from;
    vec result = {0};
    if (left > 0) memcpy(&result, from, (size_t)left * sizeof(float));
    return result;
}

/* Lane i of the result is lane lanes[i] of the lanes of `a` followed by those of `b`. The lanes are constants, so that
 * both compilers make instructions for the one permutation. */
INLINE vec shuffle(vec a, vec b, ints lanes) {
#ifdef __clang__
    vec result;
    FOR_EACH(i, W) result[i] = lanes[i] < W ? a[lanes[i] % W] : b[lanes[i] % W];
    return result;
#else
    return __builtin_shuffle(a, b, lanes);
#endif
}
