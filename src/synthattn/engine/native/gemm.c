/* Matrix products C = A B + bias for float32 on the CPU, one or several side by side.
 *
 * MKL uses no more than AVX2 on processors of AMD, which is half of what those with AVX-512 can do.
 *
 * Each task makes a block of C, of at most BLOCK x BLOCK numbers. It copies the part of B that it needs to the cache of
 * its core, as panels of NR columns, and then A, as panels of MR rows. A tile of C is the product of two panels; its
 * sums fill the registers. Tasks share no copies, so that no thread waits for another one.
 */

#include "gemm.h"
#include "threads.h"
#include "vectors.h"

/* A tile has MR rows and NV vectors of columns. */
enum { MR = 4 + REGISTERS / 8, NV = 1 + REGISTERS / 16, NR = W * NV };
/* The depth of panels, and the rows of A and of C that are copied and computed at a time. */
enum { DEPTH = 256, ROWS = 12 * MR, BLOCK = 512 };
/* Blocks are smaller where there would be fewer than this for each thread, but not smaller than the least one. */
enum { TASKS = 4, LEAST_BLOCK = 96 };

/* Packing -------------------------------------------------------------------------------------------------------- */

/* Copies columns of B to panels, vector by vector. Missing columns of the last vector are zero. */
APART void pack_right(float *to, const float *from, size row, size column, size depth, size columns) {
    for (size j = 0; j < columns; j += W) {
        float *target = to + j / NR * NR * depth + j % NR;
        const float *source = from + j * column;
        size left = columns - j;
        if (column == 1)
            for (size d = 0; d < depth; d++) *(loose *)(target + d * NR) = load(source + d * row, left);
        else
            for (size d = 0; d < depth; d += W) {
                vec lines[W];
                FOR_EACH(i, W) lines[i] = i < left ? load(source + i * column + d, depth - d) : (vec){0};
                transpose(lines);
                FOR_EACH(i, W) if (d + i < depth) *(loose *)(target + (d + i) * NR) = lines[i];
            }
    }
}

/* Copies rows of A to panels of MR * DEPTH numbers, in the order in which A has them: row after row, or column after
 * column. Missing rows of the last panel are zero. */
APART void pack_left(float *to, const float *from, size row, size column, size rows, size depth) {
    for (size r = 0; r < rows; r += MR, from += MR * row, to += MR * DEPTH) {
        size count = least(MR, rows - r);
        if (count < MR) memset(to, 0, MR * DEPTH * sizeof(float));
        if (column == 1)
            for (size i = 0; i < count; i++) memcpy(to + i * DEPTH, from + i * row, (size_t)depth * sizeof(float));
        else if (count == MR)
            for (size d = 0; d < depth; d++) memcpy(to + d * MR, from + d * column, MR * sizeof(float));
        else
            for (size d = 0; d < depth; d++) memcpy(to + d * MR, from + d * column, (size_t)count * sizeof(float));
    }
}

/* Tiles ---------------------------------------------------------------------------------------------------------- */

/* A part is some rows and columns of C, with the start of their bias. */
typedef struct {
    float *data;
    const float *bias;
    size row, bias_row, bias_column, rows, columns;
    int adds; /* The product is added to the numbers that are there. */
} Part;

/* Computes a tile of `rows` rows and `columns` columns, in so many vectors. */
INLINE void tile(Part c, size rows, size columns, int vectors, const float *a, size a_row, size a_step, const float *b,
                 size depth) {
    vec acc[MR][NV] = {0};
    FOR_EACH(m, MR) FOR_EACH(v, vectors) if (m < rows) __builtin_prefetch(c.data + m * c.row + v * W, 1);
    for (size d = 0; d < depth; d++) {
        vec right[NV];
        FOR_EACH(v, vectors) right[v] = *(const loose *)(b + d * NR + v * W);
        FOR_EACH(m, MR) {
            float left = a[m * a_row + d * a_step];
            FOR_EACH(v, vectors) acc[m][v] += left * right[v];
        }
    }
    FOR_EACH(m, MR) if (m < rows) FOR_EACH(v, vectors) {
        float *to = c.data + m * c.row + v * W;
        size left = columns - v * W;
        vec start = {0};
        if (c.adds)
            start = load(to, left);
        else if (c.bias)
            start = c.bias_column ? load(c.bias + v * W, left) : start + c.bias[m * c.bias_row];
        store(to, acc[m][v] + start, left);
    }
}

/* Computes some rows of one panel of columns. */
INLINE void panel(Part c, int vectors, const float *a, size a_row, size a_step, const float *b, size depth) {
    for (; c.rows > 0; c.rows -= MR, c.data += MR * c.row, a += MR * DEPTH) {
        if (vectors == NV && c.columns == NR && c.rows >= MR)
            tile(c, MR, NR, NV, a, a_row, a_step, b, depth); /* A whole tile needs no conditions. */
        else
            tile(c, least(MR, c.rows), c.columns, vectors, a, a_row, a_step, b, depth);
        if (c.bias) c.bias += MR * c.bias_row;
    }
}

INLINE void panel_of_any_width(Part c, const float *a, size a_row, size a_step, const float *b, size depth) {
    if (c.columns <= W)
        panel(c, 1, a, a_row, a_step, b, depth);
    else if (c.columns <= 2 * W)
        panel(c, 2, a, a_row, a_step, b, depth);
    else
        panel(c, NV, a, a_row, a_step, b, depth);
}

APART void panel_by_rows(Part c, const float *a, const float *b, size depth) {
    panel_of_any_width(c, a, DEPTH, 1, b, depth);
}

APART void panel_by_columns(Part c, const float *a, const float *b, size depth) {
    panel_of_any_width(c, a, 1, MR, b, depth);
}

/* Blocks --------------------------------------------------------------------------------------------------------- */

typedef struct {
    Gemm g;
    size rows, columns, row_blocks, column_blocks; /* They are the size of each block, and the number of blocks. */
} Plan;

/* A range is the indices of an axis from `from` up to `to`. */
typedef struct {
    size from, to;
} Range;

/* Shortens the range of the depth to what a triangle leaves for some rows and columns; it may become empty. */
INLINE Range within_triangle(const Gemm *g, Range rows, Range columns, Range depth) {
    if (g->lesser == ALL) return depth;
    Range axes[] = {[ROW] = rows, [COLUMN] = columns, [INNER] = depth};
    Range lesser = axes[g->lesser], greater = axes[g->greater];
    if (g->lesser == INNER)
        depth.to = least(depth.to, greater.to);
    else if (g->greater == INNER)
        depth.from = most(depth.from, lesser.from);
    else if (lesser.from >= greater.to)
        depth.to = depth.from;
    return depth;
}

/* Adds the products of some rows of A and columns of B, which lie packed in panels, for some range of the depth. */
static void multiply_packed(const Gemm *g, size n, Range rows, Range columns, Range depth, const float *left,
                            const float *right) {
    for (Range some = columns; some.from < columns.to; some.from += NR) {
        some.to = least(some.from + NR, columns.to);
        Range part = within_triangle(g, rows, some, depth);
        size number = part.to - part.from, skipped = part.from - depth.from;
        if (number <= 0) number = skipped = 0;
        if (number == 0 && depth.from > 0) continue; /* The first time, it writes zeros. */
        Part c = {.data = g->c.data + n * g->c.batch + rows.from * g->c.row + some.from,
                  .bias = g->bias ? g->bias + rows.from * g->bias_row + some.from * g->bias_column : NULL,
                  .row = g->c.row, .bias_row = g->bias_row, .bias_column = g->bias_column,
                  .rows = rows.to - rows.from, .columns = some.to - some.from, .adds = depth.from > 0};
        const float *b = right + (some.from - columns.from) * (depth.to - depth.from) + skipped * NR;
        if (g->a.column == 1)
            panel_by_rows(c, left + skipped, b, number);
        else
            panel_by_columns(c, left + skipped * MR, b, number);
    }
}

size synthattn_gemm_workspace(void) { return DEPTH * (round_up(BLOCK, NR) + ROWS); }

static void run_gemm(const void *data, size task, size end, size thread) {
    const Plan *plan = data;
    const Gemm *g = &plan->g;
    const Matrix *a = &g->a, *b = &g->b;
    float *right = g->workspace + thread * synthattn_gemm_workspace(), *left = right + DEPTH * round_up(BLOCK, NR);
    for (; task < end; task++) {
        size n = task / (plan->row_blocks * plan->column_blocks);
        size i = task / plan->column_blocks % plan->row_blocks * plan->rows;
        size j = task % plan->column_blocks * plan->columns;
        Range rows = {i, least(i + plan->rows, g->rows)}, columns = {j, least(j + plan->columns, g->columns)};
        for (size d = 0; d < g->depth; d += DEPTH) {
            Range depth = {d, least(d + DEPTH, g->depth)};
            Range needed = within_triangle(g, rows, columns, depth);
            if (needed.from >= needed.to && d > 0) continue;
            pack_right(right, b->data + n * b->batch + j * b->column + d * b->row, b->row, b->column, depth.to - d,
                       columns.to - j);
            for (Range some = rows; some.from < rows.to; some.from += ROWS) {
                some.to = least(some.from + ROWS, rows.to);
                pack_left(left, a->data + n * a->batch + some.from * a->row + d * a->column, a->row, a->column,
                          some.to - some.from, depth.to - d);
                multiply_packed(g, n, some, columns, depth, left, right);
            }
        }
    }
}

/* Divides an axis into equal blocks of at most `most` numbers, whole tiles each. */
static size block_of(size number, size most, size unit) {
    size blocks = (number + most - 1) / most;
    return least(round_up((number + blocks - 1) / blocks, unit), BLOCK);
}

void synthattn_gemm(const Gemm *g) {
    Plan plan = {.g = *g};
    size tasks = 0;
    for (size block = BLOCK; block >= LEAST_BLOCK && tasks < TASKS * g->threads; block /= 2) {
        plan.rows = block_of(g->rows, block, MR), plan.columns = block_of(g->columns, block, W);
        plan.row_blocks = (g->rows + plan.rows - 1) / plan.rows;
        plan.column_blocks = (g->columns + plan.columns - 1) / plan.columns;
        tasks = g->batch * plan.row_blocks * plan.column_blocks;
    }
    run_one_by_one(run_gemm, &plan, tasks, g->threads);
}
