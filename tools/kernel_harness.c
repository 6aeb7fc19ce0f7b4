/* Compares the compiled kernels with plain equations in double precision, without Python and torch.
 *
 * tools/check_portability.py compiles this with the sources of the kernels for one compiler and one kind of processor,
 * and runs it. It prints the largest error of every case, and returns 1 if one is above its bound.
 */

#include "attention.c" /* for its structures */
#include "gemm.h"

#include <stdio.h>
#include <stdlib.h>

void synthattn_use_openmp(void *parallel, void *num_threads, void *thread_num);
void synthattn_thin(float *y, const float *x, const float *w, const float *bias, size rows, size columns, size depth,
                    size threads);
void synthattn_rms_norm(float *y, const float *x, const float *weight, float eps, size rows, size width, size threads);

void GOMP_parallel(void (*run)(void *), void *data, unsigned threads, unsigned flags);
int omp_get_num_threads(void);
int omp_get_thread_num(void);

/* Relative to the largest number of a tensor, or to 1. Float32 has 6e-8, and long sums lose two digits. */
static const double BOUND = 1e-5;
static int failures = 0;

static void report(const char *what, double error) {
    int fails = !(error <= BOUND); /* NaN fails */
    failures += fails;
    printf(" %s %.1e%s", what, error, fails ? " WRONG" : "");
}

/* The larger of two errors; NaN is larger than any number. */
static double worse(double a, double b) { return a != a || a >= b ? a : b; }

/* Uniform numbers between -1 and 1, the same on every machine. */
static float random_number(void) {
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(int32_t)(state & 0xffffff00u) / 2147483648.0f;
}

static void *memory(size bytes) {
    void *result = aligned_alloc(64, (size_t)round_up(bytes + 1, 64));
    if (!result) exit(2);
    return result;
}

/* Tensors --------------------------------------------------------------------------------------------------------- */

/* Rows with a gap after each of them, which is NaN: a kernel that reads it gives NaN, one that writes it is found. */
enum { GAP = 3 };

typedef struct {
    Rows rows;        /* rows.split is the number of floats of one split */
    double *expected; /* one split */
    size splits;
} Tensor;

/* A tensor without values; numbers that a kernel does not write stay NaN. Axes of size 1 are shared. */
static Tensor empty(size splits, size batch, size heads, size rows, size width) {
    size row = width + GAP, head = rows * row, example = heads * head, split = batch * example;
    Tensor result = {{memory(splits * split * 4), batch > 1 ? example : 0, heads > 1 ? head : 0, rows > 1 ? row : 0,
                      width, split}, memory(split * 8), splits};
    for (size i = 0; i < splits * split; i++) result.rows.data[i] = NAN;
    for (size i = 0; i < split; i++) result.expected[i] = 0;
    return result;
}

static Tensor filled(size splits, size batch, size heads, size rows, size width, float scale) {
    Tensor result = empty(splits, batch, heads, rows, width);
    for (size i = 0; i < splits * result.rows.split; i++)
        if (i % (width + GAP) < width) result.rows.data[i] = scale * random_number();
    return result;
}

static double *expected_row(const Tensor *tensor, size b, size h, size r) {
    return tensor->expected + (row_of(&tensor->rows, b, h, r) - tensor->rows.data);
}

/* The largest difference from what is expected, with splits added up; NaN where a number is NaN or a gap is not. */
static double error_of(const Tensor *tensor) {
    double worst = 0, largest = 1;
    for (size i = 0; i < tensor->rows.split; i++) {
        double found = 0;
        for (size s = 0; s < tensor->splits; s++) found += tensor->rows.data[s * tensor->rows.split + i];
        int is_gap = i % (tensor->rows.width + GAP) >= tensor->rows.width;
        if (is_gap != (found != found)) return NAN;
        if (is_gap) continue;
        worst = fmax(worst, fabs(found - tensor->expected[i]));
        largest = fmax(largest, fabs(tensor->expected[i]));
    }
    return worst / largest;
}

static void release(Tensor *tensor) {
    free(tensor->rows.data);
    free(tensor->expected);
    *tensor = (Tensor){0};
}

/* Attention -------------------------------------------------------------------------------------------------------- */

enum { MOST = 3 };
enum { NO_BIAS, PER_HEAD, PER_EXAMPLE, PER_KEY };

typedef struct {
    size batch, heads, q, k, width, features[MOST]; /* a product for each width of features that is not 0 */
    int causal, padded, bias, weighted, by_distance, shared_keys, kept;
    size splits, threads;
} Case;

typedef struct {
    size products;
    float scale[MOST], *weight;
    size *first, *last;
    Tensor query[MOST], key[MOST], value, bias, result, above;
    Tensor to_query[MOST], to_key[MOST], to_value, to_bias, to_weight, diagonals, to_diagonals;
} Attention;

static Attention attention_of(const Case *c) {
    Attention a = {0};
    size splits = c->splits;
    for (; a.products < MOST && c->features[a.products]; a.products++) {
        size i = a.products, width = c->features[i], batch = c->shared_keys ? 1 : c->batch;
        a.scale[i] = 2.0f / sqrtf((float)width) / (float)(i + 1);
        a.query[i] = filled(1, c->batch, c->heads, c->q, width, 2);
        a.key[i] = filled(1, batch, c->heads, c->k, width, 2);
        a.to_query[i] = empty(1, c->batch, c->heads, c->q, width);
        a.to_key[i] = empty(splits, batch, c->heads, c->k, width);
    }
    a.value = filled(1, c->batch, c->heads, c->k, c->width, 1);
    a.above = filled(1, c->batch, c->heads, c->q, c->width, 1);
    a.result = empty(1, c->batch, c->heads, c->q, c->width);
    a.to_value = empty(splits, c->batch, c->heads, c->k, c->width);
    if (c->bias) {
        size batch = c->bias == PER_EXAMPLE ? c->batch : 1, rows = c->bias == PER_KEY ? 1 : c->q;
        a.bias = filled(1, batch, c->heads, rows, c->k, 2);
        a.to_bias = filled(rows == 1 ? splits : 1, batch, c->heads, rows, c->k, 0); /* zeros: it is added to */
        if (rows > 1) a.to_bias.rows.split = 0;
    }
    if (c->by_distance) {
        a.diagonals = filled(1, 1, c->heads, 1, c->q + c->k - 1, 2);
        a.to_diagonals = filled(splits, 1, c->heads, 1, c->q + c->k - 1, 0); /* zeros: it is added to */
    }
    if (c->weighted) {
        a.weight = memory(c->heads * 4);
        for (size h = 0; h < c->heads; h++) a.weight[h] = 1.5f * random_number();
        a.to_weight = empty(splits, 1, 1, 1, c->heads);
    }
    if (c->padded) {
        a.first = memory(c->batch * 8);
        a.last = memory(c->batch * 8);
        /* The first example has some padding on either side, the last one has no keys. */
        for (size b = 0; b < c->batch; b++) {
            a.first[b] = c->k * b / (4 * c->batch);
            a.last[b] = b > 0 && b == c->batch - 1 ? a.first[b] : c->k - c->k * (c->batch - b) / (5 * c->batch);
        }
    }
    return a;
}

/* The attention of one row and its gradients, in double precision. */
static void expect_row(const Case *c, const Attention *a, size b, size h, size r, double *p, double *to_p) {
    size first = a->first ? a->first[b] : 0, last = a->last ? a->last[b] : c->k;
    if (c->causal) last = least(last, r + 1);
    double peak = -INFINITY, total = 0, inner = 0, weight = a->weight ? a->weight[h] : 1;
    const float *bias = c->bias ? row_of(&a->bias.rows, b, h, r) : NULL, *above = row_of(&a->above.rows, b, h, r);
    for (size k = first; k < last; k++) {
        p[k] = bias ? weight * bias[k] : 0;
        if (c->by_distance) p[k] += row_of(&a->diagonals.rows, 0, h, 0)[c->q - 1 - r + k];
        for (size i = 0; i < a->products; i++) {
            const float *query = row_of(&a->query[i].rows, b, h, r), *key = row_of(&a->key[i].rows, b, h, k);
            for (size f = 0; f < c->features[i]; f++) p[k] += (double)a->scale[i] * query[f] * key[f];
        }
        peak = fmax(peak, p[k]);
    }
    for (size k = first; k < last; k++) total += p[k] = exp(p[k] - peak);
    for (size k = first; k < last; k++) {
        const float *value = row_of(&a->value.rows, b, h, k);
        double *result = expected_row(&a->result, b, h, r), *to_value = expected_row(&a->to_value, b, h, k);
        p[k] /= total;
        to_p[k] = 0;
        for (size d = 0; d < c->width; d++) {
            result[d] += p[k] * value[d];
            to_value[d] += p[k] * above[d];
            to_p[k] += (double)above[d] * value[d];
        }
        inner += p[k] * to_p[k];
    }
    for (size k = first; k < last; k++) {
        double slope = p[k] * (to_p[k] - inner);
        if (bias) expected_row(&a->to_bias, b, h, r)[k] += weight * slope;
        if (a->weight) a->to_weight.expected[h] += slope * bias[k];
        if (c->by_distance) expected_row(&a->to_diagonals, 0, h, 0)[c->q - 1 - r + k] += slope;
        for (size i = 0; i < a->products; i++) {
            const float *query = row_of(&a->query[i].rows, b, h, r), *key = row_of(&a->key[i].rows, b, h, k);
            double *to_query = expected_row(&a->to_query[i], b, h, r), *to_key = expected_row(&a->to_key[i], b, h, k);
            for (size f = 0; f < c->features[i]; f++) {
                to_query[f] += slope * a->scale[i] * key[f];
                to_key[f] += slope * a->scale[i] * query[f];
            }
        }
    }
}

static float *workspace_of(const Problem *p, size backward) {
    size number = synthattn_workspace(p, backward);
    float *result = memory(number * 4);
    for (size i = 0; i < number; i++) result[i] = NAN; /* nothing may be expected of fresh memory */
    return result;
}

/* Rows that each start one place before the last: the first is the end of the tensor's. */
static Rows overlapping(const Tensor *tensor, size q) {
    Rows rows = tensor->rows;
    if (rows.data) rows.data += q - 1;
    rows.row = -1;
    return rows;
}

static void run_kernels(const Case *c, Attention *a) {
    Rows query[MOST], key[MOST], to_query[MOST], to_key[MOST];
    for (size i = 0; i < a->products; i++) {
        query[i] = a->query[i].rows, key[i] = a->key[i].rows;
        to_query[i] = a->to_query[i].rows, to_key[i] = a->to_key[i].rows;
    }
    size pairs = c->batch * c->heads, blocks = ((c->q + ROWS - 1) / ROWS) * ((c->k + KEYS - 1) / KEYS);
    float *peaks = memory(pairs * c->q * 4), *weights = memory(c->splits * c->heads * 4);
    float *kept = c->kept ? memory(pairs * blocks * ROWS * STRIDE * 4) : NULL;
    float *kept_peaks = c->kept ? memory(pairs * blocks * ROWS * 4) : NULL;
    Problem p = {.batch = c->batch, .heads = c->heads, .q = c->q, .k = c->k, .products = a->products,
                 .causal = c->causal, .threads = c->threads, .factor = 1, .query = query, .key = key, .scale = a->scale,
                 .value = a->value.rows, .bias = a->bias.rows, .weight = a->weight, .first = a->first,
                 .last = a->last, .diagonals = overlapping(&a->diagonals, c->q)};
    p.workspace = workspace_of(&p, 0);
    Forward f = {.result = a->result.rows, .peaks = peaks, .kept = kept, .kept_peaks = kept_peaks};
    synthattn_forward(&p, &f);
    free(p.workspace);

    p.workspace = workspace_of(&p, 1);
    Backward g = {.above = a->above.rows, .result = a->result.rows, .peaks = peaks, .kept = kept,
                  .kept_peaks = kept_peaks, .splits = c->splits, .to_query = to_query, .to_key = to_key,
                  .to_value = a->to_value.rows, .to_bias = a->to_bias.rows, .to_weight = a->weight ? weights : NULL,
                  .to_diagonals = overlapping(&a->to_diagonals, c->q)};
    synthattn_backward(&p, &g);
    for (size s = 0; s < c->splits && a->weight; s++)
        memcpy(a->to_weight.rows.data + s * a->to_weight.rows.split, weights + s * c->heads, (size_t)c->heads * 4);
    free(p.workspace);
    free(peaks), free(weights), free(kept), free(kept_peaks);
}

static void check_attention(const Case *c) {
    Attention a = attention_of(c);
    run_kernels(c, &a);
    double *p = memory(c->k * 8), *to_p = memory(c->k * 8);
    for (size b = 0; b < c->batch; b++)
        for (size h = 0; h < c->heads; h++)
            for (size r = 0; r < c->q; r++) expect_row(c, &a, b, h, r, p, to_p);
    free(p), free(to_p);
    printf("attention B%d H%d Q%d K%d D%d F", (int)c->batch, (int)c->heads, (int)c->q, (int)c->k, (int)c->width);
    for (size i = 0; i < a.products; i++) printf("%s%d", i ? "+" : "", (int)c->features[i]);
    static const char *const biases[] = {"", " bias", " bias per example", " bias per key"};
    printf("%s%s%s%s%s%s%s:", c->causal ? " causal" : "", c->padded ? " padded" : "", biases[c->bias],
           c->weighted ? " weighted" : "", c->by_distance ? " by distance" : "",
           c->shared_keys ? " shared keys" : "", c->kept ? " kept" : "");
    report("result", error_of(&a.result));
    report("values", error_of(&a.to_value));
    double queries = 0, keys = 0;
    for (size i = 0; i < a.products; i++) {
        queries = worse(queries, error_of(&a.to_query[i]));
        keys = worse(keys, error_of(&a.to_key[i]));
        release(&a.query[i]), release(&a.key[i]), release(&a.to_query[i]), release(&a.to_key[i]);
    }
    report("queries", queries);
    report("keys", keys);
    if (c->bias) {
        a.to_bias.rows.split = a.bias.rows.split;
        report("bias", error_of(&a.to_bias));
    }
    if (c->by_distance) report("diagonals", error_of(&a.to_diagonals));
    if (c->weighted) report("weight", error_of(&a.to_weight));
    printf("\n");
    release(&a.value), release(&a.bias), release(&a.result), release(&a.above), release(&a.to_value);
    release(&a.to_bias), release(&a.to_weight), release(&a.diagonals), release(&a.to_diagonals);
    free(a.weight), free(a.first), free(a.last);
}

/* Products, norms, digests ---------------------------------------------------------------------------------------- */

static float *numbers(size count) {
    float *result = memory(count * 4);
    for (size i = 0; i < count; i++) result[i] = random_number();
    return result;
}

static double difference(double found, double expected) { return fabs(found - expected) / fmax(1, fabs(expected)); }

static void check_thin(size rows, size columns, size depth, int with_bias, size threads) {
    float *x = numbers(rows * depth), *w = numbers(columns * depth), *bias = with_bias ? numbers(columns) : NULL;
    float *y = numbers(rows * columns + 1), end = y[rows * columns];
    double worst = 0;
    synthattn_thin(y, x, w, bias, rows, columns, depth, threads);
    for (size i = 0; i < rows; i++)
        for (size j = 0; j < columns; j++) {
            double expected = bias ? bias[j] : 0;
            for (size d = 0; d < depth; d++) expected += (double)x[i * depth + d] * w[j * depth + d];
            worst = worse(worst, difference(y[i * columns + j], expected));
        }
    printf("thin %d x %d x %d%s:", (int)rows, (int)columns, (int)depth, bias ? " bias" : "");
    report("product", y[rows * columns] == end ? worst : NAN);
    printf("\n");
    free(x), free(w), free(bias), free(y);
}

/* A matrix of rows or of columns with a gap after each of them, which is NaN; and its numbers, row by row. */
static Matrix matrix_of(size batch, size rows, size columns, int by_columns, float *numbers_of) {
    size lines = by_columns ? columns : rows, line = (by_columns ? rows : columns) + GAP;
    Matrix result = {memory(batch * lines * line * 4), lines * line, by_columns ? 1 : line, by_columns ? line : 1};
    for (size i = 0; i < batch * lines * line; i++) result.data[i] = NAN;
    for (size n = 0; n < batch; n++)
        for (size i = 0; i < rows * columns && numbers_of; i++)
            result.data[n * result.batch + i / columns * result.row + i % columns * result.column] =
                numbers_of[n * rows * columns + i];
    return result;
}

static double *exact_product(const float *a, const float *b, size batch, size rows, size columns, size depth) {
    double *result = memory(batch * rows * columns * 8);
    for (size n = 0; n < batch; n++, a += rows * depth, b += depth * columns)
        for (size i = 0; i < rows; i++)
            for (size j = 0; j < columns; j++) {
                double *sum = result + (n * rows + i) * columns + j;
                *sum = 0;
                for (size d = 0; d < depth; d++) *sum += (double)a[i * depth + d] * b[d * columns + j];
            }
    return result;
}

/* `kind` chooses the order of A and B in memory, and whether the bias is one for each row. */
static void check_gemm(size batch, size rows, size columns, size depth, int kind, size lesser, size greater,
                       size threads) {
    float *a = numbers(batch * rows * depth), *b = numbers(batch * depth * columns);
    float *bias = numbers(most(rows, columns));
    for (size i = 0; i < batch * rows * depth; i++) {
        size index[] = {[ROW] = i / depth % rows, [COLUMN] = 0, [INNER] = i % depth};
        if (lesser != ALL && lesser != COLUMN && greater != COLUMN && index[lesser] > index[greater]) a[i] = 0;
    }
    for (size i = 0; i < batch * depth * columns; i++) {
        size index[] = {[ROW] = 0, [COLUMN] = i % columns, [INNER] = i / columns % depth};
        if (lesser != ALL && lesser != ROW && greater != ROW && index[lesser] > index[greater]) b[i] = 0;
    }
    double *expected = exact_product(a, b, batch, rows, columns, depth), worst = 0, largest = 1;
    Gemm g = {.a = matrix_of(batch, rows, depth, kind & 1, a), .b = matrix_of(batch, depth, columns, kind & 2, b),
              .c = matrix_of(batch, rows, columns, 0, NULL), .bias = bias, .bias_row = kind >> 2 & 1,
              .bias_column = !(kind >> 2 & 1), .batch = batch, .rows = rows, .columns = columns, .depth = depth,
              .threads = threads, .lesser = lesser, .greater = greater};
    size space = threads * synthattn_gemm_workspace();
    g.workspace = memory(space * 4);
    for (size i = 0; i < space; i++) g.workspace[i] = NAN;
    synthattn_gemm(&g);
    for (size i = 0; i < batch * rows * g.c.row; i++) {
        size row = i / g.c.row % rows, column = i % g.c.row, index[] = {[ROW] = row, [COLUMN] = column};
        if (column >= columns) {
            if (g.c.data[i] == g.c.data[i]) worst = NAN; /* a gap was written */
        } else if (lesser == ALL || lesser == INNER || greater == INNER || index[lesser] <= index[greater]) {
            double sum = expected[i / g.c.row * columns + column] + bias[kind >> 2 & 1 ? row : column];
            worst = worse(worst, fabs(g.c.data[i] - sum));
            largest = fmax(largest, fabs(sum));
        }
    }
    printf("gemm %d x %d x %d x %d kind %d triangle %d %d:", (int)batch, (int)rows, (int)columns, (int)depth, kind,
           (int)lesser, (int)greater);
    report("product", worst / largest);
    printf("\n");
    free(a), free(b), free(bias), free(expected), free(g.a.data), free(g.b.data), free(g.c.data), free(g.workspace);
}

static void check_norm(size rows, size width, int weighted, size threads) {
    float *x = numbers(rows * width), *weight = weighted ? numbers(width) : NULL, eps = 1e-6f;
    float *y = numbers(rows * width + 1), end = y[rows * width];
    double worst = 0;
    synthattn_rms_norm(y, x, weight, eps, rows, width, threads);
    for (size row = 0; row < rows; row++) {
        double total = 0;
        for (size i = 0; i < width; i++) total += (double)x[row * width + i] * x[row * width + i];
        for (size i = 0; i < width; i++) {
            double expected = x[row * width + i] / sqrt(total / (double)width + eps) * (weight ? weight[i] : 1);
            worst = worse(worst, difference(y[row * width + i], expected));
        }
    }
    printf("rms_norm %d x %d%s:", (int)rows, (int)width, weight ? " weighted" : "");
    report("norm", y[rows * width] == end ? worst : NAN);
    printf("\n");
    free(x), free(weight), free(y);
}

/* Column by column, one number after the other; digests must be equal. */
static void check_digest(size number, size threads) {
    size count = synthattn_digest_size(), columns = count / PIECES;
    size height = round_up((number + PIECES - 1) / PIECES, columns);
    uint32_t *table = memory(number * 4), *sums = memory(count * 4);
    double worst = 0;
    for (size i = 0; i < number; i++) table[i] = (uint32_t)(random_number() * 2147483648.0f);
    synthattn_digest(table, number, threads, sums);
    for (size piece = 0; piece < PIECES; piece++)
        for (size column = 0; column < columns; column++) {
            uint32_t total = 0;
            size end = least(number, (piece + 1) * height);
            for (size from = piece * height; from < end; from += columns)
                total = (total << 5 | total >> 27) + (from + column < end ? table[from + column] : 0);
            if (sums[piece * columns + column] != total) worst = INFINITY;
        }
    printf("digest %d:", (int)number);
    report("sums", worst);
    printf("\n");
    free(table), free(sums);
}

int main(void) {
    static const Case cases[] = {
        {1, 1, 1, 1, 1, {1}, .splits = 1, .threads = 1},
        {2, 3, 7, 11, 5, {13, 2}, .by_distance = 1, .bias = PER_HEAD, .weighted = 1, .splits = 1, .threads = 3},
        {3, 2, 13, 17, 19, {23}, .by_distance = 1, .padded = 1, .bias = PER_EXAMPLE, .splits = 1, .threads = 2},
        {2, 2, 293, 307, 37, {41, 3, 5}, .by_distance = 1, .causal = 1, .bias = PER_HEAD, .weighted = 1, .splits = 1,
         .threads = 3},
        {2, 3, 149, 601, 67, {64}, .by_distance = 1, .causal = 1, .padded = 1, .bias = PER_KEY, .splits = 2,
         .threads = 3},
        {3, 1, 271, 521, 32, {16, 17}, .padded = 1, .shared_keys = 1, .kept = 1, .splits = 3, .threads = 2},
        {1, 2, 139, 1301, 64, {64, 65}, .kept = 1, .bias = PER_HEAD, .weighted = 1, .splits = 1, .threads = 3},
        {2, 2, 263, 263, 128, {128}, .by_distance = 1, .causal = 1, .kept = 1, .splits = 2, .threads = 3},
        {1, 1, 5, 71, 97, {1, 79}, .padded = 1, .bias = PER_KEY, .weighted = 1, .splits = 1, .threads = 1},
    };
    for (int parallel = 0; parallel < 2; parallel++) {
        if (parallel) synthattn_use_openmp(GOMP_parallel, omp_get_num_threads, omp_get_thread_num);
        printf("%s\n", parallel ? "with OpenMP" : "without OpenMP");
        for (size i = 0; i < (size)(sizeof cases / sizeof *cases); i++) check_attention(&cases[i]);
        for (size rows = 1; rows < 10; rows += 2) check_thin(rows, 31 * rows, 37 * rows, rows % 4 == 1, rows);
        check_thin(8, 257, 512, 1, 3);
        check_thin(2, 3, 5, 0, 4);
        for (int kind = 0; kind < 8; kind++) {
            check_gemm(1, 1, 1, 1, kind, ALL, ALL, 1);
            check_gemm(3, 13, 29, 37, kind, ALL, ALL, 2);
            check_gemm(2, 131, 77, 521, kind, ALL, ALL, 3);
            for (size lesser = ROW; lesser <= INNER; lesser++)
                for (size greater = ROW; greater <= INNER; greater++)
                    if (lesser != greater) check_gemm(2, 161, 203, 307, kind, lesser, greater, 3);
        }
        for (size width = 1; width < 600; width = 3 * width + 2) check_norm(width % 7 + 1, width, width % 3 != 2, 2);
        check_norm(5, 512, 1, 2);
        for (size number = 1; number < 300000; number = 17 * number + 5) check_digest(number, 3);
    }
    printf("largest error allowed %.0e: %d above it\n", BOUND, failures);
    return failures > 0;
}
