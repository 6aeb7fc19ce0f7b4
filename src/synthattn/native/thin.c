/* X W^T + b for a few rows X, float32 on the CPU: the product of every projection in a step of generation.
 *
 * Such a product takes as long as reading W once. Libraries for large products pack their operands first, which is more
 * work here than the product. W is read as it lies in memory: its rows and those of X are multiplied vector by vector,
 * and what is in the lanes of a sum is added up at the end.
 */

#include "vectors.h"

/* A tile is XR rows of X with WR rows of W; their sums fill the registers. */
enum { XR = 4, WR = 3 * REGISTERS / 16 };

/* Of W lines, the sums of their lanes: that of line i in lane i. Each step adds two halves of every line, and what
 * becomes free takes another line. */
#define HALVE(half)                                                                                   \
    FOR_EACH(i, half) {                                                                               \
        ints low;                                                                                     \
        FOR_EACH(l, W) low[l] = (l & ~(half)) + (l & (half) ? W : 0);                                  \
        vec one = lines[i], other = lines[i + (half)];                                                \
        lines[i] = __builtin_shuffle(one, other, low) + __builtin_shuffle(one, other, low + (half)); \
    }

INLINE vec sum_each(vec lines[W]) {
    if (W == 16) HALVE(8 % W)
    HALVE(4)
    HALVE(2)
    HALVE(1)
    return lines[0];
}

/* The first `rows` and `columns` of a tile of the result; those beyond are computed from the last and left out. `new`
 * says that these rows of W are read for the first time. */
APART void thin_tile(float *y, size y_row, size rows, size columns, const float *x, const float *w, const float *bias,
                     size depth, int new) {
    vec acc[XR][WR] = {0};
    const float *left[XR], *right[WR];
    FOR_EACH(i, XR) left[i] = x + least(i, rows - 1) * depth;
    FOR_EACH(j, WR) right[j] = w + least(j, columns - 1) * depth;
    size d = 0;
    for (; d + W <= depth; d += W) {
        vec b[WR];
        FOR_EACH(j, WR) b[j] = *(const loose *)(right[j] + d);
        if (new) FOR_EACH(j, WR) __builtin_prefetch(right[j] + WR * depth + d); /* the same of the next tile */
        FOR_EACH(i, XR) {
            vec a = *(const loose *)(left[i] + d);
            FOR_EACH(j, WR) acc[i][j] += a * b[j];
        }
    }
    if (d < depth) {
        vec b[WR];
        FOR_EACH(j, WR) b[j] = load(right[j] + d, depth - d);
        for (int i = 0; i < XR; i++) {
            vec a = load(left[i] + d, depth - d);
            FOR_EACH(j, WR) acc[i][j] += a * b[j];
        }
    }

    float sums[2 * W];
    FOR_EACH(part, 2) {
        vec lines[W];
        FOR_EACH(i, W) lines[i] = part * W + i < XR * WR ? acc[(part * W + i) % XR][(part * W + i) / XR % WR] : (vec){0};
        *(loose *)(sums + part * W) = sum_each(lines);
    }
    for (size i = 0; i < rows; i++)
        for (size j = 0; j < columns; j++) y[i * y_row + j] = sums[j * XR + i] + (bias ? bias[j] : 0.0f);
}

/* All matrices are rows without gaps: x (rows, depth), w (columns, depth), y (rows, columns); bias may be NULL. */
void synthattn_thin(float *y, const float *x, const float *w, const float *bias, size rows, size columns, size depth,
                    size threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size j = 0; j < columns; j += WR)
        for (size i = 0; i < rows; i += XR)
            thin_tile(y + i * columns + j, columns, least(XR, rows - i), least(WR, columns - j), x + i * depth,
                      w + j * depth, bias ? bias + j : NULL, depth, i == 0);
}
