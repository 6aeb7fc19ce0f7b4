/* Products X W^T + b with few rows, and norms, for float32 on the CPU. A step of generation consists of them.
 *
 * The time of such a product is the time to read W once. Libraries for large products pack their operands first; here,
 * packing would take longer than the product. The kernel reads W as it lies in memory. It multiplies rows of W and rows
 * of X vector by vector, and adds up the lanes of each sum at the end.
 *
 * In these comments W is the matrix; in the code, `w` is the matrix and W the number of floats in a vector.
 */

#include "threads.h"
#include "vectors.h"

#include <math.h>

/* The number of floats in a cache line. */
enum { LINE = 16 };

/* A tile multiplies XR rows of X with WR rows of W. Its sums fill the registers. */
enum { XR = 4, WR = 3 * REGISTERS / 16 };

/* One step of sum_each adds the two halves of every line, and combines two lines of half length into one. */
#define HALVE(half)                                                                                   \
    FOR_EACH(i, half) {                                                                               \
        ints low;                                                                                     \
        FOR_EACH(l, W) low[l] = (l & ~(half)) + (l & (half) ? W : 0);                                  \
        vec one = lines[i], other = lines[i + (half)];                                                \
        lines[i] = shuffle(one, other, low) + shuffle(one, other, low + (half));            \
    }

/* Returns the sum of the lanes of each line: the sum of line i is in lane i. */
INLINE vec sum_each(vec lines[W]) {
    if (W >= 16) HALVE(8 % W)
    if (W >= 8) HALVE(4 % W)
    HALVE(2)
    HALVE(1)
    return lines[0];
}

/* Computes one tile of the result and stores its first `rows` rows and `columns` columns. Missing rows and columns are
 * computed from the last one and dropped. Meanwhile, each vector of depth prefetches `step` floats from `next` on; they
 * belong to the next rows of W. */
APART void thin_tile(float *y, size y_row, size rows, size columns, const float *x, const float *w, const float *bias,
                     size depth, const float *next, size step) {
    vec acc[XR][WR] = {0};
    const float *left[XR], *right[WR];
    FOR_EACH(i, XR) left[i] = x + least(i, rows - 1) * depth;
    FOR_EACH(j, WR) right[j] = w + least(j, columns - 1) * depth;
    size d = 0, lines = (step + LINE - 1) / LINE;
    for (; d + W <= depth; d += W, next += step) {
        vec b[WR];
        for (size line = 0; line < lines; line++) __builtin_prefetch(next + line * LINE);
        FOR_EACH(j, WR) b[j] = *(const loose *)(right[j] + d);
        FOR_EACH(i, XR) {
            vec a = *(const loose *)(left[i] + d);
            FOR_EACH(j, WR) acc[i][j] += a * b[j];
        }
    }
    if (d < depth) {
        vec b[WR];
        FOR_EACH(j, WR) b[j] = load(right[j] + d, depth - d);
        FOR_EACH(i, XR) {
            vec a = load(left[i] + d, depth - d);
            FOR_EACH(j, WR) acc[i][j] += a * b[j];
        }
    }

    enum { PARTS = (XR * WR + W - 1) / W };
    float sums[PARTS * W];
    FOR_EACH(part, PARTS) {
        vec lines[W];
        FOR_EACH(i, W) {
            int at = part * W + i;
            lines[i] = at < XR * WR ? acc[at % XR][at / XR % WR] : (vec){0};
        }
        *(loose *)(sums + part * W) = sum_each(lines);
    }
    for (size i = 0; i < rows; i++)
        for (size j = 0; j < columns; j++) y[i * y_row + j] = sums[j * XR + i] + (bias ? bias[j] : 0.0f);
}

typedef struct {
    float *y;
    const float *x, *w, *bias;
    size rows, columns, depth;
} ThinJob;

/* Computes the columns of the result for some groups of WR rows of W. */
static void run_thin(const void *data, size group, size end, size thread) {
    (void)thread;
    const ThinJob *job = data;
    size rows = job->rows, columns = job->columns, depth = job->depth;
    /* Each pass prefetches an equal part of the next rows of W, so that memory is never idle. */
    size passes = (rows + XR - 1) / XR, step = WR * W / passes;
    for (; group < end; group++) {
        size j = group * WR;
        for (size i = 0; i < rows; i += XR) {
            const float *next = job->w + (j + WR) * depth + i / XR * (depth / W) * step;
            thin_tile(job->y + i * columns + j, columns, least(XR, rows - i), least(WR, columns - j),
                      job->x + i * depth, job->w + j * depth, job->bias ? job->bias + j : NULL, depth, next, step);
        }
    }
}

/* Computes y = x w^T + bias. All are contiguous: x (rows, depth), w (columns, depth), y (rows, columns). `bias` may be
 * NULL. */
void synthattn_thin(float *y, const float *x, const float *w, const float *bias, size rows, size columns, size depth,
                    size threads) {
    ThinJob job = {y, x, w, bias, rows, columns, depth};
    run_equal_shares(run_thin, &job, (columns + WR - 1) / WR, threads);
}

typedef struct {
    float *y;
    const float *x, *weight;
    float eps;
    size width;
} NormJob;

static void run_rms_norm(const void *data, size row, size end, size thread) {
    (void)thread;
    const NormJob *job = data;
    const float *weight = job->weight;
    size width = job->width;
    for (; row < end; row++) {
        const float *from = job->x + row * width;
        float *to = job->y + row * width;
        vec total = {0};
        for (size i = 0; i < width; i += W) {
            vec part = load(from + i, width - i);
            total += part * part;
        }
        float sum = 0;
        FOR_EACH(i, W) sum += total[i];
        float factor = 1.0f / sqrtf(sum / (float)width + job->eps);
        for (size i = 0; i < width; i++) to[i] = from[i] * factor * (weight ? weight[i] : 1.0f);
    }
}

/* Computes y = x / sqrt(mean(x^2) + eps) * weight for each row; `weight` may be NULL. Each lane sums its own squares,
 * because short sums lose fewer digits. */
void synthattn_rms_norm(float *y, const float *x, const float *weight, float eps, size rows, size width, size threads) {
    NormJob job = {y, x, weight, eps, width};
    run_equal_shares(run_rms_norm, &job, rows, threads);
}
