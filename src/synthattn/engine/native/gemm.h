/* The arguments of matrix products C = A B + bias. */

#pragma once

#include "vectors.h"

/* Matrices of equal strides, in floats. One of `row` and `column` is 1. */
typedef struct {
    float *data;
    size batch, row, column;
} Matrix;

/* The axes of a product, in the order in which `lesser` and `greater` count them. */
enum { ROW, COLUMN, INNER, ALL = -1 };

/* library.py reads both structures from this file. */
typedef struct {
    Matrix a, b, c;    /* The column of c is 1. */
    const float *bias; /* It has a number for each row or column; it may be NULL. */
    float *workspace;
    size bias_row, bias_column; /* The strides of the bias are 1 and 0, or 0 and 1. */
    size batch, rows, columns, depth, threads;
    /* Only places count whose index along the axis `lesser` is at most that along the axis `greater`. Zeros outside may
     * be multiplied, and results outside may be computed or zero. With ALL, every place counts. */
    size lesser, greater;
} Gemm;

/* Returns the floats of workspace for each thread. */
size synthattn_gemm_workspace(void);

/* Computes C = A B + bias. It writes every number of C. */
void synthattn_gemm(const Gemm *g);
