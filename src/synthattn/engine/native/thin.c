/* What a step of generation consists of, for a few rows of float32 on the CPU: X W^T + b, and norms.
 *
 * Such a product takes as long as reading W once. Libraries for large products pack their operands first, which is more
 * work here than the product. W is read as it lies in memory: its rows and those of X are multiplied vector by vector,
 * and what is in the lanes of a sum is added up at the end.
 */

#include "threads.h"
#include "vectors.h"

#include <math.h>

/* Floats in a line of the cache. */
enum { LINE = 16 };

/* A tile is XR rows of X with WR rows of W; their sums fill the registers. */
enum { XR = 4, WR = 3 * REGISTERS / 16 };

/* Of W lines, the sums of their lanes: that of line i in lane i. Each step adds two halves of every line, and what
 * becomes free takes another line. */
#define HALVE(half)                                                                                   \
    FOR_EACH(i, half) {                                                                               \
        ints low;                                                                                     \
        FOR_EACH(l, W) low[l] = (l & ~(half)) + (l & (half) ? W : 0);                                  \
        vec one = lines[i], other = lines[i + (half)];                                                \
        lines[i] = shuffle(one, other, low) + shuffle(one, other, low + (half));            \
    }

INLINE vec sum_each(vec lines[W]) {
    if (W >= 16) HALVE(8 % W)
    if (W >= 8) HALVE(4 % W)
    HALVE(2)
    HALVE(1)
    return lines[0];
}

/* The first `rows` and `columns` of a tile of the result; those beyond are computed from the last and left out. While
 * the rows of W are multiplied, a part of the next ones is asked for: `step` floats from `next` on, vector by vector. */
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

/* Some groups of WR rows of W. */
static void run_thin(const void *data, size group, size end, size thread) {
    (void)thread;
    const ThinJob *job = data;
    size rows = job->rows, columns = job->columns, depth = job->depth;
    /* The next rows of W are asked for in equal parts, so that memory is never idle. */
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

/* All matrices are rows without gaps: x (rows, depth), w (columns, depth), y (rows, columns); bias may be NULL. */
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

/* x / sqrt(mean(x^2) + eps) * weight for each row; weight may be NULL. Sums of squares are of W sums, of which none is
 * long. */
void synthattn_rms_norm(float *y, const float *x, const float *weight, float eps, size rows, size width, size threads) {
    NormJob job = {y, x, weight, eps, width};
    run_equal_shares(run_rms_norm, &job, rows, threads);
}
