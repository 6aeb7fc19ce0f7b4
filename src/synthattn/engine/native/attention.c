/* Computes softmax(scale * Q K^T + weight * bias + diagonals) V for float32 on the CPU, and all of its gradients.
 *
 * Torch's fused kernel has no gradient for a bias and takes one product of features, as wide as the values. This kernel
 * also works on blocks of logits that stay in the cache of a core. It has its own products of small matrices, so that
 * the steps between two products (bias, exponential, slope, gradient of the bias) happen in registers.
 */

#include "threads.h"
#include "vectors.h"

#include <math.h>

/* A tile of a product has MR rows and NR columns, which fill the registers. */
enum { MR = 6, NV = REGISTERS / 8, NR = W * NV };
/* DEPTH rows of a panel fit the innermost cache beside the rows that they are multiplied with. More would fit where
 * vectors are short, but long sums lose digits, most of all sums of equal numbers. */
enum { DEPTH = 128 };
/* A block of logits stays in the cache of a core, together with its slopes and the features that make it. ROWS is a
 * multiple of MR and KEYS of NR. STRIDE is no power of two: rows would then share the same few places of the cache. */
enum { ROWS = 132, KEYS = 512, STRIDE = KEYS + W };

/* Rows describes floats by example, head and place, with strides in floats. An axis that is shared has stride 0.
 * Gradients that several threads add to have a copy for each split, which is a part of the rows. */
typedef struct {
    float *data;
    size batch, head, row, width, split;
} Rows;

/* library.py reads the structures that follow from this file. */
typedef struct {
    size batch, heads, q, k, products, causal, threads;
    const Rows *query, *key; /* There is one for each product. */
    const float *scale;      /* There is one for each product. */
    Rows value;
    Rows bias;           /* Its data is NULL if there is no bias. */
    Rows diagonals;      /* It has a number for each difference of key and query. Rows overlap; their stride is -1. */
    const float *weight; /* It weighs the bias of each head; NULL means 1. */
    const size *first, *last; /* They bound the keys of each example; NULL means all keys. */
    float *workspace;
    /* Dropout keeps weights whose random number is at most `limit`, and multiplies them by `factor`. 1 drops none. */
    double factor;
    size limit, seed;
} Problem;

typedef struct {
    Rows result;
    float *peaks; /* (B, H, Q) holds the logarithm of the sum of exponentials of each row; it may be NULL. */
    /* These hold the exponentials of each block, and the peaks that they are relative to. They are NULL where computing
     * the exponentials again takes no longer than reading them. */
    float *kept, *kept_peaks;
} Forward;

typedef struct {
    Rows above, result;
    const float *peaks;
    float *kept, *kept_peaks;
    size splits; /* The rows have so many parts, each with its own gradients of keys and values. */
    const Rows *to_query, *to_key; /* There is one for each product. A gradient without data is not wanted. */
    Rows to_value, to_bias, to_diagonals;
    float *to_weight; /* Its shape is (splits, H). */
} Backward;

/* The digest names the sources that this was compiled from. */
const char *const synthattn_source = SOURCE;

/* library.py reads the rows and keys of a block, and the floats from one of its rows to the next. */
const size synthattn_block[] = {ROWS, KEYS, STRIDE};

INLINE float *row_of(const Rows *rows, size b, size h, size r) {
    return rows->data + b * rows->batch + h * rows->head + r * rows->row;
}

INLINE float sum_of(vec x) {
    float total = 0;
    for (int i = 0; i < W; i++) total += x[i];
    return total;
}

/* Returns exp(x) for x <= 0, within two units of the last place; zero where it would be below the smallest numbers. */
INLINE vec exponential(vec x) {
    const float magic = 12582912.0f; /* Adding 1.5 * 2^23 rounds to an integer in the lowest bits. */
    vec shifted = x * 1.44269504088896341f + magic;
    vec n = shifted - magic;
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    bits power = (bits)p + ((bits)shifted << 23);
    return (vec)(power & ~(bits)(x < -86.5f)); /* NaN stays NaN. */
}

/* Products ------------------------------------------------------------------------------------------------------- */

/* Adds A B to acc, for MR rows of A and the first `wide` vectors of a panel of B, whose rows follow each other. */
INLINE void multiply(vec acc[MR][NV], int wide, const float *a, size a_row, size a_step, const float *b, size depth) {
    for (size d = 0; d < depth; d++) {
        vec right[NV];
        FOR_EACH(v, wide) right[v] = *(const loose *)(b + d * NR + v * W);
        FOR_EACH(m, MR) {
            float left = a[m * a_row + d * a_step];
            FOR_EACH(v, wide) acc[m][v] += left * right[v];
        }
    }
}

/* Adds A B to C for one panel of B. It may read A up to a whole tile. */
INLINE void add_panel(float *c, size c_row, size rows, int wide, const float *a, size a_row, size a_step, const float *b,
                      size depth) {
    for (size r = 0; r < rows; r += MR) {
        vec acc[MR][NV] = {0};
        float *tile = c + r * c_row;
        size count = least(MR, rows - r);
        multiply(acc, wide, a + r * a_row, a_row, a_step, b, depth);
        /* The tile is added at the end, because a sum of sums loses fewer digits than one long sum. */
        FOR_EACH(m, MR) FOR_EACH(v, wide) if (m < count) *(loose *)(tile + m * c_row + v * W) += acc[m][v];
    }
}

/* Adds A B to C, in panels of B that are `height` rows high. Of the last panel it computes the vectors needed. */
INLINE void accumulate(float *c, size c_row, size rows, size columns, const float *a, size a_row, size a_step,
                       const float *b, size height, size depth) {
    for (size start = 0; start < depth; start += DEPTH) {
        size part = least(DEPTH, depth - start);
        for (size column = 0; column < columns; column += NR) {
            const float *left = a + start * a_step, *right = b + column * height + start * NR;
            if (columns - column <= W)
                add_panel(c + column, c_row, rows, 1, left, a_row, a_step, right, part);
            else if (columns - column <= 2 * W)
                add_panel(c + column, c_row, rows, 2, left, a_row, a_step, right, part);
            else
                add_panel(c + column, c_row, rows, NV, left, a_row, a_step, right, part);
        }
    }
}

APART void times(float *c, size c_row, size rows, size columns, const float *a, size a_row, const float *b,
                 size height, size depth) {
    accumulate(c, c_row, rows, columns, a, a_row, 1, b, height, depth);
}

APART void transposed_times(float *c, size c_row, size rows, size columns, const float *a, size a_row, const float *b,
                            size depth) {
    accumulate(c, c_row, rows, columns, a, 1, a_row, b, depth, depth);
}

/* Packing -------------------------------------------------------------------------------------------------------- */

/* Writes the columns [column, column + width) of panels of NR columns with `height` rows each. */
static void pack_rows(float *to, size height, size column, const float *from, size row, size rows, size width,
                      float factor) {
    for (size c = 0; c < width;) {
        size panel = (column + c) / NR, inside = (column + c) % NR, part = least(NR - inside, width - c);
        float *target = to + panel * height * NR + inside;
        for (size r = 0; r < rows; r++)
            for (size i = 0; i < part; i++) target[r * NR + i] = factor * from[r * row + c + i];
        c += part;
    }
}

/* Writes rows as the columns of panels: panel, feature, column. Missing columns of the last panel are zero. */
static void pack_columns(float *to, size features, size feature, const float *from, size row, size rows, size width) {
    for (size start = 0; start < round_up(rows, NR); start += W) {
        float *target = to + start / NR * NR * features + feature * NR + start % NR;
        const float *source = from + start * row;
        for (size c = 0; c < width; c += W) {
            vec lines[W];
            FOR_EACH(i, W) lines[i] = start + i < rows ? load(source + i * row + c, width - c) : (vec){0};
            transpose(lines);
            FOR_EACH(i, W) if (c + i < width) *(loose *)(target + (c + i) * NR) = lines[i];
        }
    }
}

/* Blocks of logits ----------------------------------------------------------------------------------------------- */

/* A block is some rows and keys of one example and head. */
typedef struct {
    size b, h, row, rows, key, keys; /* Keys count from the start of the example, padding included. */
} Block;

/* An example has the keys from first_key up to last_key. */
INLINE size first_key(const Problem *p, size b) { return p->first ? p->first[b] : 0; }
INLINE size last_key(const Problem *p, size b) { return p->last ? p->last[b] : p->k; }

/* Returns the number of keys of a block that its row r may see. */
INLINE size seen_by(const Problem *p, const Block *at, size r) {
    return p->causal ? most(0, least(at->keys, at->row + r + 1 - at->key)) : at->keys;
}

/* Dropout compares a random number for each weight, the hash of its place and the seed. The backward pass computes it
 * again, so that nothing is stored. dropout.py does this in torch's operations. */

INLINE int drops(const Problem *p) { return p->factor != 1; }

/* Returns a number for a row, which SplitMix64 makes of its place. */
INLINE uint64_t row_hash(const Problem *p, size b, size h, size row) {
    uint64_t x = (uint64_t)p->seed + (uint64_t)((b * p->heads + h) * p->q + row + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* Returns all bits for each of W columns that is kept, from this one on, and no bits for the others. */
INLINE bits kept_from(const Problem *p, uint64_t hash, size column) {
    bits x;
    FOR_EACH(i, W) x[i] = i;
    x += (uint32_t)column + (uint32_t)hash;
    x = (x ^ x >> 16) * 0x21F0AAADu + (uint32_t)(hash >> 32);
    x = (x ^ x >> 15) * 0x735A2D97u;
    return (bits)((ints)x <= (int32_t)p->limit);
}

INLINE vec masked(vec x, bits mask) { return (vec)((bits)x & mask); }

/* Work is the memory of one thread. */
typedef struct {
    size features, f_pad, d_pad; /* They are the sum of all F, and that sum and D rounded up to panels. */
    /* These hold a block. `logits` is `block` or memory that is kept. Dropout leaves its weights in `block`. */
    float *block, *logits, *slopes;
    float *queries, *query_panels;
    float *above, *above_panels; /* They hold the rows of a block; the forward pass has the result here. */
    float *keys, *key_panels, *to_keys, *values, *to_values; /* They hold its keys; in the forward pass, all keys. */
    float *to_queries, *all_sums;                            /* They hold all rows. */
    float factors[ROWS], sums[ROWS]; /* They turn exponentials into weights; they hold sum_j P_j dP_j. */
    uint64_t hashes[ROWS];
} Work;

static float *take(float **rest, size number) {
    float *result = *rest;
    *rest += round_up(number, 64); /* Vectors across two lines of the cache are slow. */
    return result;
}

/* Divides memory up, and returns the number of floats that are used. */
static size divide(const Problem *p, float *memory, int backward, Work *w) {
    float *start = memory;
    w->features = 0;
    for (size i = 0; i < p->products; i++) w->features += p->query[i].width;
    w->f_pad = round_up(w->features, NR);
    w->d_pad = round_up(p->value.width, NR);
    size keys = backward ? KEYS : round_up(p->k, NR);
    w->logits = w->block = take(&memory, ROWS * STRIDE);
    w->queries = take(&memory, ROWS * w->features);
    w->above = take(&memory, ROWS * w->d_pad);
    w->keys = take(&memory, keys * w->features);
    w->values = take(&memory, keys * w->d_pad);
    if (backward) {
        w->slopes = take(&memory, ROWS * STRIDE);
        w->query_panels = take(&memory, ROWS * w->f_pad);
        w->above_panels = take(&memory, ROWS * w->d_pad);
        w->key_panels = take(&memory, KEYS * w->f_pad);
        w->to_keys = take(&memory, KEYS * w->f_pad);
        w->to_values = take(&memory, KEYS * w->d_pad);
        w->to_queries = take(&memory, p->q * w->f_pad);
        w->all_sums = take(&memory, p->q);
    }
    return memory - start;
}

/* Returns the floats of workspace that the threads need together. */
size synthattn_workspace(const Problem *p, size backward) {
    Work nowhere;
    return divide(p, p->workspace, (int)backward, &nowhere) * p->threads;
}

/* Returns the number of rows that are kept before a block, in whole blocks. */
INLINE size place_of(const Problem *p, const Block *at) {
    size high = (p->q + ROWS - 1) / ROWS, wide = (p->k + KEYS - 1) / KEYS;
    size column = (at->key - first_key(p, at->b)) / KEYS;
    return (((at->b * p->heads + at->h) * high + at->row / ROWS) * wide + column) * ROWS;
}

static void pack_keys(const Problem *p, const Work *w, size b, size h, size key, size keys) {
    size feature = 0;
    for (size i = 0; i < p->products; i++) {
        const Rows *from = &p->key[i];
        pack_columns(w->keys, w->features, feature, row_of(from, b, h, key), from->row, keys, from->width);
        feature += from->width;
    }
}

static void pack_queries(const Problem *p, const Work *w, const Block *at) {
    size feature = 0;
    for (size i = 0; i < p->products; i++) {
        const Rows *query = &p->query[i];
        for (size r = 0; r < at->rows; r++) {
            const float *from = row_of(query, at->b, at->h, at->row + r);
            for (size c = 0; c < query->width; c++) w->queries[r * w->features + feature + c] = p->scale[i] * from[c];
        }
        feature += query->width;
    }
}

/* A patch is a part of MR rows of a table, NR columns wide, of which the first `left` exist. A row beyond the last is
 * read as the last; its result is dropped. */
typedef struct {
    float *line[MR];
    size left;
} Patch;

INLINE Patch patch_of(const Rows *table, const Block *at, size r, size column) {
    Patch result = {.left = at->keys - column};
    FOR_EACH(m, MR)
    result.line[m] = row_of(table, at->b, at->h, at->row + least(r + m, at->rows - 1)) + at->key + column;
    return result;
}

/* Prefetches a patch before the product that it is added to. */
INLINE void expect(const Patch *patch) {
    FOR_EACH(m, MR) FOR_EACH(v, NR / 16) __builtin_prefetch(patch->line[m] + v * 16);
}

INLINE void add_patch(vec acc[MR][NV], const Patch *patch, float weight) {
    if (patch->left >= NR)
        FOR_EACH(m, MR) FOR_EACH(v, NV) acc[m][v] += weight * *(loose *)(patch->line[m] + v * W);
    else if (patch->left > 0)
        FOR_EACH(m, MR) FOR_EACH(v, NV) acc[m][v] += weight * load(patch->line[m] + v * W, patch->left - v * W);
}

/* Computes Q K^T + weight * bias + diagonals. Where peaks are given, it subtracts them and takes the exponential. */
APART void logits_of(const Problem *p, const Work *w, const Block *at, const float *keys, const float *peaks) {
    float weight = p->weight ? p->weight[at->h] : 1.0f;
    for (size column = 0; column < at->keys; column += NR) {
        for (size r = 0; r < at->rows; r += MR) {
            vec acc[MR][NV] = {0};
            Patch bias = {.left = 0};
            if (p->bias.data) {
                bias = patch_of(&p->bias, at, r, column);
                expect(&bias);
            }
            multiply(acc, NV, w->queries + r * w->features, w->features, 1, keys + column * w->features, w->features);
            float *tile = w->logits + r * STRIDE + column;
            add_patch(acc, &bias, weight);
            if (p->diagonals.data) {
                Patch diagonals = patch_of(&p->diagonals, at, r, column);
                add_patch(acc, &diagonals, 1);
            }
            FOR_EACH(m, MR) FOR_EACH(v, NV) *(loose *)(tile + m * STRIDE + v * W) = acc[m][v];
            for (size m = 0; peaks && m < least(MR, at->rows - r); m++)
                FOR_EACH(v, NV) {
                    loose *place = (loose *)(tile + m * STRIDE + v * W);
                    *place = exponential(*place - peaks[r + m]);
                }
        }
    }
}

/* Sets weights of keys that a row may not see to zero, up to the end of the last panel. */
INLINE void clear_beyond(float *line, size seen, size keys) {
    size end = round_up(keys, NR);
    if (seen < end) memset(line + seen, 0, (size_t)(end - seen) * sizeof(float));
}

/* Forward -------------------------------------------------------------------------------------------------------- */

/* Returns the highest of some logits and the peak so far. It sets the rest of the last vector to minus infinity. */
static float highest_of(float *line, size seen, float peak) {
    for (size i = seen; i < round_up(seen, W); i++) line[i] = -INFINITY;
    vec top = *(loose *)line;
    for (size i = W; i < seen; i += W) {
        vec x = *(loose *)(line + i);
        ints larger = x > top;
        top = (vec)(((ints)x & larger) | ((ints)top & ~larger));
    }
    FOR_EACH(i, W) peak = top[i] > peak ? top[i] : peak;
    return peak;
}

/* Returns 1 if any of some logits is not a number. The peak cannot tell, because comparisons skip NaN. */
static int has_nan(const float *line, size seen) {
    for (size i = 0; i < seen; i++)
        if (line[i] != line[i]) return 1;
    return 0;
}

/* Replaces logits by exp(logits - peak) and returns their sum. With dropout, the exponentials that are kept go to `left`,
 * which may be the same place. */
INLINE float exponentials_of(const Problem *p, float *line, float *left, size seen, float peak, uint64_t hash,
                             size column, int dropping) {
    vec total = {0};
    for (size i = 0; i < seen; i += W) {
        vec e = exponential(*(loose *)(line + i) - peak);
        *(loose *)(line + i) = e;
        if (dropping) *(loose *)(left + i) = masked(e, kept_from(p, hash, column + i));
        total += e;
    }
    return sum_of(total);
}

/* Computes the exponentials of a block relative to the peaks of its rows so far, and rescales earlier results. */
static void soften(const Problem *p, const Work *w, const Block *at, float *peaks, float *totals) {
    for (size r = 0; r < at->rows; r++) {
        float *line = w->logits + r * STRIDE, *left = w->block + r * STRIDE;
        size seen = seen_by(p, at, r);
        float peak = seen > 0 ? highest_of(line, seen, peaks[r]) : peaks[r];
        /* The bias has forbidden all keys so far, unless a logit is NaN, which makes the result NaN. */
        if (peak == -INFINITY && !has_nan(line, seen)) seen = 0;
        if (seen > 0) {
            float total = drops(p) ? exponentials_of(p, line, left, seen, peak, w->hashes[r], at->key, 1)
                                   : exponentials_of(p, line, left, seen, peak, 0, 0, 0);
            if (peak != peaks[r] && totals[r] != 0) { /* This is so for NaN, too. */
                float factor = expf(peaks[r] - peak);
                totals[r] *= factor;
                for (size i = 0; i < w->d_pad; i++) w->above[r * w->d_pad + i] *= factor;
            }
            totals[r] += total;
            peaks[r] = peak;
        }
        clear_beyond(line, seen, at->keys);
        if (drops(p)) clear_beyond(left, seen, at->keys);
    }
}

static void forward_rows(const Problem *p, const Forward *f, Work *w, size b, size h, size from, size to) {
    size first = first_key(p, b), last = p->causal ? least(last_key(p, b), to) : last_key(p, b);
    size number = most(0, last - first);
    pack_keys(p, w, b, h, first, number);
    pack_rows(w->values, number, 0, row_of(&p->value, b, h, first), p->value.row, number, p->value.width, 1.0f);

    for (size row = from; row < to; row += ROWS) {
        float peaks[ROWS], totals[ROWS];
        size rows = least(ROWS, to - row), end = p->causal ? least(last, row + rows) : last;
        for (size r = 0; r < rows; r++) peaks[r] = -INFINITY, totals[r] = 0, w->hashes[r] = row_hash(p, b, h, row + r);
        memset(w->above, 0, (size_t)(ROWS * w->d_pad) * sizeof(float));
        for (size key = first; key < end; key += KEYS) {
            Block at = {b, h, row, rows, key, least(KEYS, end - key)};
            if (key == first) pack_queries(p, w, &at);
            if (f->kept) w->logits = f->kept + place_of(p, &at) * STRIDE;
            logits_of(p, w, &at, w->keys + (key - first) * w->features, NULL);
            soften(p, w, &at, peaks, totals);
            if (f->kept) memcpy(f->kept_peaks + place_of(p, &at), peaks, (size_t)rows * sizeof(float));
            times(w->above, w->d_pad, rows, p->value.width, drops(p) ? w->block : w->logits, STRIDE,
                  w->values + (key - first) * NR, number, at.keys);
        }
        for (size r = 0; r < rows; r++) {
            float *target = row_of(&f->result, b, h, row + r), *line = w->above + r * w->d_pad;
            float inverse = totals[r] == 0 ? 0 : (float)p->factor / totals[r]; /* A row without keys gives zeros. */
            for (size i = 0; i < p->value.width; i++) target[i] = inverse * line[i];
            /* Relative to infinity, all exponentials of a row without keys are zero. */
            if (f->peaks)
                f->peaks[(b * p->heads + h) * p->q + row + r] = totals[r] == 0 ? INFINITY : peaks[r] + logf(totals[r]);
        }
    }
}

typedef struct {
    const Problem *problem;
    const Forward *forward;
    size parts, height; /* The rows have so many parts of this height. */
} ForwardJob;

static void run_forward(const void *data, size task, size end, size thread) {
    const ForwardJob *job = data;
    const Problem *p = job->problem;
    Work work;
    size each = divide(p, p->workspace, 0, &work);
    divide(p, p->workspace + each * thread, 0, &work);
    for (; task < end; task++) {
        size pair = task / job->parts, from = task % job->parts * job->height, to = least(p->q, from + job->height);
        if (from < to) forward_rows(p, job->forward, &work, pair % p->batch, pair / p->batch, from, to);
    }
}

void synthattn_forward(const Problem *p, const Forward *f) {
    size pairs = p->batch * p->heads;
    /* Rows are divided, too, where there are few examples and heads for many threads. */
    size parts = pairs % p->threads == 0 ? 1 : least((p->q + ROWS - 1) / ROWS, (4 * p->threads + pairs - 1) / pairs);
    ForwardJob job = {p, f, parts, round_up((p->q + parts - 1) / parts, ROWS)};
    run_one_by_one(run_forward, &job, pairs * parts, p->threads);
}

/* Backward ------------------------------------------------------------------------------------------------------- */

/* Computes dP = dY V^T, the slopes dS = P * (dP - sum_j P_j dP_j) and the gradient of the bias. Returns the gradient of
 * its weight. With dropout, dropped weights get no part of dP, and the block is left with the weights that are kept. */
INLINE double slopes(const Problem *p, const Backward *g, const Work *w, const Block *at, size split, int dropping) {
    float weight = p->weight ? p->weight[at->h] : 1.0f;
    size width = p->value.width;
    double to_weight = 0;
    for (size column = 0; column < at->keys; column += NR) {
        vec part = {0};
        for (size r = 0; r < at->rows; r += MR) {
            vec acc[MR][NV] = {0};
            Patch to_bias = patch_of(&g->to_bias, at, r, split * g->to_bias.split + column);
            if (g->to_bias.data) expect(&to_bias);
            multiply(acc, NV, w->above + r * width, width, 1, w->values + column * width, width);
            float *tile = w->slopes + r * STRIDE + column, *weights = w->logits + r * STRIDE + column;
            float *left = w->block + r * STRIDE + column;
            FOR_EACH(m, MR)
            FOR_EACH(v, NV) {
                size place = m * STRIDE + v * W;
                vec weights_here = *(loose *)(weights + place);
                if (dropping) {
                    bits kept = kept_from(p, w->hashes[r + m], at->key + column + v * W);
                    *(loose *)(left + place) = masked(weights_here, kept);
                    acc[m][v] = masked(acc[m][v], kept);
                }
                *(loose *)(tile + place) = (acc[m][v] - w->sums[r + m]) * weights_here;
            }
            for (size m = 0; m < least(MR, at->rows - r); m++)
                FOR_EACH(v, NV) {
                    size left = at->keys - column - v * W;
                    vec slope = *(loose *)(tile + m * STRIDE + v * W);
                    if (g->to_bias.data) {
                        float *target = to_bias.line[m] + v * W;
                        store(target, load(target, left) + weight * slope, left);
                    }
                    if (g->to_weight)
                        part += slope * load(row_of(&p->bias, at->b, at->h, at->row + r + m) + at->key + column + v * W, left);
                }
        }
        to_weight += sum_of(part);
    }
    return to_weight;
}

APART double slopes_of(const Problem *p, const Backward *g, const Work *w, const Block *at, size split) {
    return drops(p) ? slopes(p, g, w, at, split, 1) : slopes(p, g, w, at, split, 0);
}

/* Adds some rows of slopes to their diagonals, row m from `to - m` on. */
INLINE void add_diagonals(float *to, const float *slopes, size rows, size keys) {
    size column = 0;
    for (size m = 1; m < rows; m++)
        for (size key = 0; key < least(m, keys); key++) to[key - m] += slopes[m * STRIDE + key];
    for (; column + W + rows - 1 <= keys; column += W) {
        vec total = *(loose *)(to + column);
        for (size m = 0; m < rows; m++) total += *(const loose *)(slopes + m * STRIDE + m + column);
        *(loose *)(to + column) = total;
    }
    for (size m = 0; m < rows; m++)
        for (size key = column + m; key < keys; key++) to[key - m] += slopes[m * STRIDE + key];
}

APART void add_diagonals_of(const Backward *g, const Work *w, const Block *at, size split) {
    size r = 0, offset = split * g->to_diagonals.split + at->key;
    for (; r + MR <= at->rows; r += MR)
        add_diagonals(row_of(&g->to_diagonals, 0, at->h, at->row + r) + offset, w->slopes + r * STRIDE, MR, at->keys);
    for (; r < at->rows; r++)
        add_diagonals(row_of(&g->to_diagonals, 0, at->h, at->row + r) + offset, w->slopes + r * STRIDE, 1, at->keys);
}

/* Packs the gradient of the result as the left side of one product and the right side of another. It contains the
 * factors of the weights, so that the weights stay as they are. */
static void pack_above(const Problem *p, const Backward *g, Work *w, const Block *at) {
    size width = p->value.width;
    for (size r = 0; r < at->rows; r++) {
        const float *from = row_of(&g->above, at->b, at->h, at->row + r);
        float factor = w->factors[r] * (float)p->factor;
        for (size i = 0; i < width; i++) w->above[r * width + i] = factor * from[i];
        w->sums[r] = w->factors[r] * w->all_sums[at->row + r];
        w->hashes[r] = row_hash(p, at->b, at->h, at->row + r);
    }
    if (width == NR) /* It is a panel as it is. */
        w->above_panels = w->above;
    else
        pack_rows(w->above_panels, at->rows, 0, w->above, width, at->rows, width, 1.0f);
}

/* Computes the weights of a block, except for a factor for each row. */
static void weights_of(const Problem *p, const Backward *g, Work *w, const Block *at) {
    const float *peaks = g->peaks + (at->b * p->heads + at->h) * p->q + at->row;
    if (g->kept) {
        size place = place_of(p, at);
        w->logits = g->kept + place * STRIDE;
        for (size r = 0; r < at->rows; r++) w->factors[r] = expf(g->kept_peaks[place + r] - peaks[r]);
    } else {
        pack_queries(p, w, at);
        logits_of(p, w, at, w->keys, peaks);
        for (size r = 0; r < at->rows; r++) {
            clear_beyond(w->logits + r * STRIDE, seen_by(p, at, r), at->keys);
            w->factors[r] = 1;
        }
    }
}

/* Computes sum_j P_j dP_j, which is the product of the result with its gradient. */
static void sum_rows(const Problem *p, const Backward *g, const Work *w, size b, size h, size from, size to) {
    size width = p->value.width;
    for (size row = from; row < to; row++) {
        const float *above = row_of(&g->above, b, h, row), *result = row_of(&g->result, b, h, row);
        vec total = {0};
        for (size i = 0; i < width; i += W) total += load(above + i, width - i) * load(result + i, width - i);
        w->all_sums[row] = sum_of(total);
    }
}

/* Packs the features of all products side by side, as the right side of a product. */
static void pack_features(const Problem *p, const Rows *some, float *to, size b, size h, size row, size rows) {
    size column = 0;
    for (size i = 0; i < p->products; i++) {
        pack_rows(to, rows, column, row_of(&some[i], b, h, row), some[i].row, rows, some[i].width, p->scale[i]);
        column += some[i].width;
    }
}

/* Copies some rows of a gradient to their places. Rows that all examples share are added up. */
static void put(const Rows *to, size split, size b, size h, size row, size rows, const float *from, size stride) {
    for (size r = 0; r < rows && to->data; r++) {
        float *target = row_of(to, b, h, row + r) + split * to->split;
        const float *line = from + r * stride;
        if (b > 0 && to->batch == 0)
            for (size c = 0; c < to->width; c++) target[c] += line[c];
        else
            memcpy(target, line, (size_t)to->width * sizeof(float));
    }
}

/* Sets the gradient of keys to zero that no query sees. */
static void put_zeros(const Rows *to, size split, size b, size h, size row, size end) {
    for (; row < end && to->data && (b == 0 || to->batch != 0); row++)
        memset(row_of(to, b, h, row) + split * to->split, 0, (size_t)to->width * sizeof(float));
}

static double backward_example(const Problem *p, const Backward *g, Work *w, size b, size h, size split,
                               size from, size to) {
    int query_wanted = 0, key_wanted = 0;
    for (size i = 0; i < p->products; i++) {
        query_wanted |= g->to_query[i].data != NULL;
        key_wanted |= g->to_key[i].data != NULL;
    }
    /* With dropout, computing the slopes also finds the weights that are kept. */
    int slope_wanted = query_wanted || key_wanted || g->to_bias.data || g->to_diagonals.data || g->to_weight || drops(p);
    size first = first_key(p, b), last = p->causal ? least(last_key(p, b), to) : last_key(p, b);
    double to_weight = 0;
    sum_rows(p, g, w, b, h, from, to);
    memset(w->to_queries, 0, (size_t)((to - from) * w->f_pad) * sizeof(float));

    for (size key = first; key < last; key += KEYS) {
        size keys = least(KEYS, last - key);
        if (!g->kept) pack_keys(p, w, b, h, key, keys);
        pack_columns(w->values, p->value.width, 0, row_of(&p->value, b, h, key), p->value.row, keys, p->value.width);
        if (query_wanted) pack_features(p, p->key, w->key_panels, b, h, key, keys);
        memset(w->to_keys, 0, (size_t)(KEYS * w->f_pad) * sizeof(float));
        memset(w->to_values, 0, (size_t)(KEYS * w->d_pad) * sizeof(float));

        for (size row = from; row < to; row += ROWS) {
            size rows = least(ROWS, to - row), end = p->causal ? least(keys, row + rows - key) : keys;
            if (end <= 0) continue;
            Block at = {b, h, row, rows, key, end};
            weights_of(p, g, w, &at);
            pack_above(p, g, w, &at);
            if (slope_wanted) to_weight += slopes_of(p, g, w, &at, split);
            if (g->to_diagonals.data) add_diagonals_of(g, w, &at, split);
            if (g->to_value.data)
                transposed_times(w->to_values, w->d_pad, end, p->value.width, drops(p) ? w->block : w->logits, STRIDE,
                                 w->above_panels, rows);
            if (key_wanted) {
                pack_features(p, p->query, w->query_panels, b, h, row, rows);
                transposed_times(w->to_keys, w->f_pad, end, w->features, w->slopes, STRIDE, w->query_panels, rows);
            }
            if (query_wanted)
                times(w->to_queries + (row - from) * w->f_pad, w->f_pad, rows, w->features, w->slopes, STRIDE,
                      w->key_panels, keys, end);
        }
        for (size i = 0, column = 0; i < p->products; column += p->key[i++].width)
            put(&g->to_key[i], split, b, h, key, keys, w->to_keys + column, w->f_pad);
        put(&g->to_value, split, b, h, key, keys, w->to_values, w->d_pad);
    }
    for (size i = 0, column = 0; i < p->products; column += p->query[i++].width) {
        put(&g->to_query[i], 0, b, h, from, to - from, w->to_queries + column, w->f_pad);
        put_zeros(&g->to_key[i], split, b, h, 0, least(first, p->k));
        put_zeros(&g->to_key[i], split, b, h, most(first, last), p->k);
    }
    put_zeros(&g->to_value, split, b, h, 0, least(first, p->k));
    put_zeros(&g->to_value, split, b, h, most(first, last), p->k);
    return to_weight;
}

typedef struct {
    const Problem *problem;
    const Backward *backward;
} BackwardJob;

/* One thread does a head, or a part of its rows, so that no two threads add to the same sums. */
static void run_backward(const void *data, size task, size end, size thread) {
    const BackwardJob *job = data;
    const Problem *p = job->problem;
    const Backward *g = job->backward;
    size height = round_up((p->q + g->splits - 1) / g->splits, ROWS);
    Work work;
    size each = divide(p, p->workspace, 1, &work);
    divide(p, p->workspace + each * thread, 1, &work);
    for (; task < end; task++) {
        size h = task / g->splits, split = task % g->splits;
        size from = least(p->q, split * height), to = least(p->q, from + height);
        double to_weight = 0;
        for (size b = 0; b < p->batch; b++) to_weight += backward_example(p, g, &work, b, h, split, from, to);
        if (g->to_weight) g->to_weight[split * p->heads + h] = (float)to_weight;
    }
}

void synthattn_backward(const Problem *p, const Backward *g) {
    BackwardJob job = {p, g};
    run_one_by_one(run_backward, &job, p->heads * g->splits, p->threads);
}

/* Digests -------------------------------------------------------------------------------------------------------- */

enum { PIECES = 128, LINES = 4 };

typedef struct {
    const uint32_t *table;
    size number;
    uint32_t *sums;
} DigestJob;

static void run_digest(const void *data, size piece, size end, size thread) {
    (void)thread;
    const DigestJob *job = data;
    size height = round_up((job->number + PIECES - 1) / PIECES, LINES * W);
    for (; piece < end; piece++) {
        bits total[LINES] = {0};
        size from = least(job->number, piece * height), to = least(job->number, from + height);
        for (; from < to; from += LINES * W) {
            FOR_EACH(v, LINES) {
                float line[W] = {0};
                size left = to - from - v * W;
                bits x;
                if (left >= W) {
                    memcpy(&x, job->table + from + v * W, sizeof x);
                } else {
                    if (left > 0) memcpy(line, job->table + from + v * W, (size_t)left * sizeof(float));
                    memcpy(&x, line, sizeof x);
                }
                total[v] = ((total[v] << 5) | (total[v] >> 27)) + x;
            }
        }
        memcpy(job->sums + piece * LINES * W, total, sizeof total);
    }
}

/* Sums the bits of a table, rotated at every step, for each column of vectors in each of PIECES pieces. It always sees
 * a change of one entry, and others unless two changes in a column happen to cancel in 32 bits. */
void synthattn_digest(const uint32_t *table, size number, size threads, uint32_t *sums) {
    DigestJob job = {table, number, sums};
    run_equal_shares(run_digest, &job, PIECES, threads);
}

size synthattn_digest_size(void) { return PIECES * LINES * W; }
